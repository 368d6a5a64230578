# ./dev test [--quick] [FILTER]. Sourced.
#
# Every step leaves its results in a folder of its own, and scripts/count_tests.py adds them up at the end. The steps run
# as conditions, where bash ignores `set -e`: each is one command at heart, or says `|| return`.

RESULTS="$BUILD/results"
ASAN_BUILD="$ROOT/build/asan"
[[ -z "${OFFCUT_BUILD_DIR:-}" ]] || ASAN_BUILD="$OFFCUT_BUILD_DIR-asan"

test_all() {
  local quick="" filter="" argument
  [[ "$PRESET" != asan ]] || quick=1 # an unsanitized Python cannot load what was sanitized
  for argument in "$@"; do
    case "$argument" in
      --quick) quick=1 ;;
      -*) die "unknown option $argument; ./dev help" ;;
      *) filter="$argument" ;;
    esac
  done

  setup_all
  rm -rf "$RESULTS"
  if step build "build" "$ROOT/dev" build; then
    step cxx "C++ tests" run_ctest "$BUILD" "$filter"
    if [[ -z "$quick" ]]; then
      step python "Python tests" run_pytest "$filter"
    fi
    if [[ -z "$quick" && -z "$filter" ]]; then
      step viewer "viewer tests" run_viewer_tests
      step lint "lint" "$ROOT/dev" lint
      step sanitized "C++ tests, sanitized" run_sanitized
    fi
  fi
  "$PYTHON" "$ROOT/scripts/count_tests.py" "$RESULTS"/*
}

# step FOLDER NAME COMMAND...: tells of it. Always succeeds, but for the build: the steps after it run all the same.
step() {
  local folder="$RESULTS/$1" name="$2" start=$SECONDS
  shift 2
  mkdir -p "$folder"
  say "== $name"
  if "$@" >&2; then
    say "== $name: done in $((SECONDS - start))s"
  else
    say "== $name: FAILED after $((SECONDS - start))s"
    echo "$name" >"$folder/failed"
    [[ "$name" != build ]]
  fi
}

# Each program writes its counts to results/cxx, too (cmake/offcut.cmake).
run_ctest() {
  local build="$1" filter="$2"
  # No tests is no failure: a filter may name Python tests only.
  ctest --test-dir "$build" --parallel "$JOBS" --output-on-failure --no-tests=ignore \
    --label-exclude '^gpu$' ${filter:+--tests-regex "$filter"} --output-junit "$build/results/cxx/ctest.xml"
}

run_pytest() (
  local filter="$1" status=0
  cd "$ROOT" || return
  PYTHONPATH="$BUILD/package" OFFCUT_TEST_BUILD_DIR="$BUILD" "$PYTHON" -m pytest \
    --numprocesses "$JOBS" --dist worksteal --durations 5 ${filter:+-k "$filter"} \
    --junit-xml "$RESULTS/python/pytest.xml" || status=$?
  ((status == 5)) && status=0 # 5: nothing to run
  return "$status"
)

run_viewer_tests() (
  local script status=0
  [[ -e "$ROOT/visualizer/web/package.json" ]] || return 0
  cd "$ROOT/visualizer/web" || return
  for script in test test:browser; do
    [[ "$(npm pkg get "scripts.$script")" != "{}" ]] || continue
    OFFCUT_TEST_BUILD_DIR="$BUILD" npm run "$script" 2>&1 | tee "$RESULTS/viewer/npm_${script/:/_}.log" || status=1
  done
  return "$status"
)

# The slowest step by far, and it judges C++ alone: contents that it has passed are not run again, but counted again.
run_sanitized() {
  local key passed="$ASAN_BUILD/passed" status=0
  key="$(sanitized_key)"
  if [[ "$(cat "$passed/key" 2>/dev/null)" != "$key" ]]; then
    rm -rf "$passed" "$ASAN_BUILD/results"
    OFFCUT_PRESET=asan OFFCUT_BUILD_DIR="$ASAN_BUILD" "$ROOT/dev" build offcut_tests || return
    UBSAN_OPTIONS=print_stacktrace=1 run_ctest "$ASAN_BUILD" "" || status=$?
    cp "$ASAN_BUILD"/results/cxx/* "$RESULTS/sanitized/"
    ((status == 0)) || return "$status"
    mkdir -p "$passed"
    cp "$ASAN_BUILD"/results/cxx/* "$passed/"
    echo "$key" >"$passed/key"
  else
    say "unchanged since they passed"
    cp "$passed"/* "$RESULTS/sanitized/"
  fi
}

sanitized_key() {
  cd "$ROOT" || return
  listed allocator cmake visualizer/cli tests 'CMake*' | grep -v -E '^tests/(python|browser|structure)/' |
    xargs sha256sum | key_of - <(echo "$ABSEIL $ZSTD $CUDA_INCLUDE")
}
