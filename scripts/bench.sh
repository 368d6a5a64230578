# ./dev bench [--no-build] [NAME [ARGUMENTS]]. Sourced. A benchmark is a program declared with
# offcut_benchmark in bench/, or a script.
#
# With --no-build it takes the build folder as it stands, and asks for nothing but a Python with
# PyTorch: see gpu_test.sh.

bench() {
  local chosen=() name build=1 python
  if [[ "${1:-}" == --no-build ]]; then
    build=""
    shift
  fi
  if (($# == 0)); then
    echo "Name one of these, or a part of a name; what follows are arguments of the benchmark:"
    bench_names | sed 's/^/  /'
    return
  fi
  mapfile -t chosen < <(bench_names | grep -F -- "$1" || true)
  ((${#chosen[@]} > 0)) || die "no benchmark is called '$1'; ./dev bench lists them"
  shift
  [[ -z "$build" ]] || build_package
  for name in "${chosen[@]}"; do
    [[ -z "$build" ]] || build_benchmark "$name"
    say "== $name"
    if [[ "$name" == *.py ]]; then
      python="${PYTHON:-${OFFCUT_PYTHON:-python3}}"
      PYTHONPATH="$BUILD/package" OFFCUT_TEST_BUILD_DIR="$BUILD" "$python" "$ROOT/bench/$name" "$@"
    else
      "$BUILD/bench/$name" "$@"
    fi
  done
}

# A program; of a script, what its folder builds.
build_benchmark() {
  local folder="bench/${1%/*}"
  if [[ "$1" != *.py ]]; then
    build "$1"
  elif [[ -e "$ROOT/$folder/CMakeLists.txt" ]]; then
    build "$folder/all"
  fi
}

# Programs by name, scripts by their path in bench/.
bench_names() {
  cd "$ROOT/bench" 2>/dev/null || return 0
  find . -name CMakeLists.txt -exec sed -n 's/.*offcut_benchmark(NAME \([a-z_0-9]*\).*/\1/p' {} + | sort
  find . -name '*.py' -not -name '_*' | sed 's|^\./||' | sort
}
