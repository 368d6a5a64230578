# ./dev bench [NAME [ARGUMENTS]]. Sourced. A benchmark is a program declared with offcut_benchmark
# in bench/, or a script.

bench() {
  local chosen=() name
  if (($# == 0)); then
    echo "Name one of these, or a part of a name; what follows are arguments of the benchmark:"
    bench_names | sed 's/^/  /'
    return
  fi
  mapfile -t chosen < <(bench_names | grep -F -- "$1" || true)
  ((${#chosen[@]} > 0)) || die "no benchmark is called '$1'; ./dev bench lists them"
  shift
  build_package
  for name in "${chosen[@]}"; do
    say "== $name"
    if [[ "$name" == *.py ]]; then
      PYTHONPATH="$BUILD/package" OFFCUT_TEST_BUILD_DIR="$BUILD" "$PYTHON" "$ROOT/bench/$name" "$@"
    else
      build "$name"
      "$BUILD/bench/$name" "$@"
    fi
  done
}

# Programs by name, scripts by their path in bench/.
bench_names() {
  cd "$ROOT/bench" 2>/dev/null || return 0
  find . -name CMakeLists.txt -exec sed -n 's/.*offcut_benchmark(NAME \([a-z_0-9]*\).*/\1/p' {} + | sort
  find . -name '*.py' -not -name '_*' | sed 's|^\./||' | sort
}
