# ./dev setup: everything that a build needs, installed once per version into the cache. Sourced.
#
# Each part has a folder whose name holds a key of what determines its contents, so a change of
# version or recipe makes a new folder, and an unchanged one is found again by every checkout. A
# part that is in place costs milliseconds, therefore every verb sets up what it needs first.

# Sets the folders of the parts. Once the packages are in place: a key holds the versions of what
# the part is made with.
name_parts() {
  local scripts="$ROOT/scripts" compiler python
  # The distribution's Python is the one that its python3-venv belongs to.
  BASE_PYTHON=/usr/bin/python3
  [[ -x "$BASE_PYTHON" ]] || BASE_PYTHON="$(command -v python3)" || die "there is no python3 here"
  compiler="$(g++ -dumpfullversion)"
  python="$("$BASE_PYTHON" -V)"
  ABSEIL="$CACHE/abseil-20220623-$(key_of - "$scripts"/{build_abseil,source_package}.sh <<<"$compiler")"
  # The thread sanitizer must see how absl::Mutex orders threads.
  ABSEIL_TSAN="$ABSEIL-tsan"
  ZSTD="$CACHE/zstd-1.5-$(key_of - "$scripts"/{build_zstd,source_package}.sh <<<"$compiler")"
  TOOLS="$CACHE/tools-$(key_of - "$scripts"/{build_tools.sh,requirements_tools.txt} <<<"$python")"
  OUR_PYTHON="$CACHE/python-$(key_of - "$scripts/requirements_python.txt" <<<"$python")"
  CUDA_INCLUDE="$TOOLS/cuda_include"
  PATH="$TOOLS/programs:$PATH"
  export CCACHE_DIR="${CCACHE_DIR:-$CACHE/ccache}" CCACHE_BASEDIR="$ROOT" CCACHE_NOHASHDIR=1
  export npm_config_cache="$CACHE/npm"
}

setup_cxx() {
  setup_packages
  setup_part zstd "$ZSTD" "$ROOT/scripts/build_zstd.sh" "$ZSTD"
  setup_part abseil "$ABSEIL" "$ROOT/scripts/build_abseil.sh" "$ABSEIL"
  if [[ "$PRESET" == tsan ]]; then
    setup_part "abseil for the thread sanitizer" "$ABSEIL_TSAN" \
      env CXXFLAGS=-fsanitize=thread "$ROOT/scripts/build_abseil.sh" "$ABSEIL_TSAN"
  fi
  setup_part "tools (linters, Node.js, CUDA headers)" "$TOOLS" "$ROOT/scripts/build_tools.sh" "$TOOLS" "$BASE_PYTHON"
}

setup_all() {
  setup_packages
  # The download of PyTorch and the compilation of abseil keep different parts of the machine busy.
  setup_python &
  local python_pid=$!
  setup_cxx
  wait "$python_pid" || die "the Python with PyTorch could not be set up"
  setup_python
  setup_web
}

# setup_part WHAT FOLDER COMMAND...: runs COMMAND, which fills FOLDER, unless an earlier run has
# completed it.
setup_part() {
  local what="$1" folder="$2"
  shift 2
  [[ -e "$folder/.complete" ]] || with_lock "$(basename "$folder")" setup_part_locked "$what" "$folder" "$@"
}

setup_part_locked() {
  local what="$1" folder="$2"
  shift 2
  [[ -e "$folder/.complete" ]] && return
  run_logged "setting up $what" "$CACHE/logs/$(basename "$folder").log" "$@"
  touch "$folder/.complete"
}

# The packages of the distribution.
setup_packages() {
  local missing=()
  if command -v dpkg-query >/dev/null; then
    mapfile -t missing < <(comm -23 <(grep -v '^#' "$ROOT/scripts/debian_packages.txt" | sort) \
      <(dpkg-query -W -f='${db:Status-Status} ${Package}\n' | sed -n 's/^installed //p' | sort -u))
  fi
  if ((${#missing[@]} > 0)); then
    say "Debian packages that are missing: ${missing[*]}"
    with_lock apt install_packages "${missing[@]}"
  fi
  name_parts
}

install_packages() {
  local sudo=()
  if (($(id -u) != 0)); then
    command -v sudo >/dev/null || die "please run, as root: apt-get install $*"
    sudo=(sudo)
  fi
  run_logged "apt-get update" "$CACHE/logs/apt.log" "${sudo[@]}" apt-get -q update
  run_logged "apt-get install" "$CACHE/logs/apt.log" \
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends "$@"
}

# Sets PYTHON, an interpreter with PyTorch and pytest. A PyTorch that the person has already is used
# where it fits: it is most of what there is to download.
setup_python() {
  local own folder
  if own="$(find_own_torch)"; then
    folder="$OUR_PYTHON-over-$(key_of - <<<"$own")"
    setup_part "Python over the PyTorch of $own" "$folder" make_python_over "$folder" "$own"
  else
    folder="$OUR_PYTHON"
    setup_part "Python with PyTorch (4.7 GB)" "$folder" make_python "$folder"
  fi
  PYTHON="$folder/bin/python"
}

# Prints the person's own interpreter if it has a PyTorch that the plugin is written for.
find_own_torch() {
  local python
  for python in "${OFFCUT_PYTHON:-}" "$(command -v python3 || true)"; do
    if [[ -n "$python" ]] && "$python" "$ROOT/scripts/has_torch.py" 2>/dev/null; then
      "$python" -c 'import sys; print(sys.executable)'
      return
    fi
  done
  [[ -z "${OFFCUT_PYTHON:-}" ]] || say "OFFCUT_PYTHON ($OFFCUT_PYTHON) has no PyTorch 2.11 with CUDA: not used"
  return 1
}

make_python() {
  local folder="$1"
  rm -rf "$folder"
  "$BASE_PYTHON" -m venv "$folder"
  # No cache of pip's own: the folder is the cache, and PyTorch would be on the disk twice.
  "$folder/bin/pip" install --no-cache-dir --progress-bar off -r "$ROOT/scripts/requirements_python.txt"
}

# A virtual environment that sees the packages of another interpreter behind its own, so that we can
# add pytest without writing into what is not ours. (--system-site-packages does not see through a
# virtual environment.)
make_python_over() {
  local folder="$1" python="$2"
  rm -rf "$folder"
  "$python" -m venv "$folder"
  "$python" -c 'import sys; print(*(p for p in sys.path if p.endswith("-packages")), sep="\n")' \
    >"$(echo "$folder"/lib/python3*/site-packages)/borrowed.pth"
  grep -E '^(pytest|execnet)' "$ROOT/scripts/requirements_python.txt" |
    "$folder/bin/pip" install --no-cache-dir --progress-bar off -r /dev/stdin
}

# The viewer's packages. npm writes into the checkout; the stamp says for which lock file it has
# done so.
setup_web() {
  local web="$ROOT/visualizer/web" key
  [[ -e "$web/package-lock.json" ]] || return 0
  key="$(key_of "$web/package-lock.json" "$ROOT/scripts/requirements_tools.txt")"
  [[ "$(cat "$web/node_modules/.offcut_key" 2>/dev/null)" == "$key" ]] && return
  run_logged "packages of the viewer" "$CACHE/logs/npm.log" npm --prefix "$web" ci --no-audit --no-fund
  echo "$key" >"$web/node_modules/.offcut_key"
}
