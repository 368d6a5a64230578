# ./dev test [--quick | --full] [--again] [FILTER]. Sourced.
#
# Every step leaves its results in a folder of its own, and scripts/count_tests.py adds them up at
# the end. The slow steps are not run again while their inputs are those with which they last
# passed; their results are counted again. --again runs them all the same.
#
# The steps run as conditions, where bash ignores `set -e`: each is one command at heart, or says
# `|| return`.

RESULTS="$BUILD/results"
# Of each of the two tests of random programs, with --full.
FULL_FUZZ_OPERATIONS=10000000

test_all() {
  local quick="" full="" filter="" argument
  again=""
  [[ "$PRESET" != ?san ]] || quick=1 # an unsanitized Python cannot load what was sanitized
  for argument in "$@"; do
    case "$argument" in
      --quick) quick=1 ;;
      --full) full=1 ;;
      --again) again=1 ;;
      -*) die "unknown option $argument; ./dev help" ;;
      *) filter="$argument" ;;
    esac
  done

  setup_all
  rm -rf "$RESULTS"
  if step build "build" "$ROOT/dev" build; then
    step cxx "C++ tests" run_ctest "$BUILD" "$filter"
    if [[ -n "$filter" && -z "$quick" ]]; then
      step python "Python tests" run_pytest python -k "$filter"
    elif [[ -z "$quick" ]]; then
      step structure "structure" run_pytest structure tests/structure tests/scripts
      step lint "lint" "$ROOT/dev" lint
      cached_step viewer "viewer tests" "allocator visualizer tests/web tests/browser tests/golden" run_viewer_tests
      cached_step sanitized "C++ tests, sanitized" "allocator visualizer/cli tests :!tests/python :!tests/structure :!tests/web" \
        run_sanitized sanitized asan offcut_tests ""
      cached_step threads "C++ tests, thread sanitizer" "allocator tests :!tests/python :!tests/structure :!tests/web" \
        run_sanitized threads tsan offcut_threads_tests '^threads$'
      cached_step python "Python tests" "allocator pytorch_plugin visualizer tests/python tests/golden" \
        run_pytest python --durations 5 tests/python
    fi
    [[ -z "$full" ]] || step fuzz "random programs, $FULL_FUZZ_OPERATIONS operations" run_fuzz
  fi
  "$PYTHON" "$ROOT/scripts/count_tests.py" "$RESULTS"/*
}

# step FOLDER NAME COMMAND...: tells of it. Always succeeds, but for the build: the steps after it
# run all the same.
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

# cached_step FOLDER NAME INPUTS COMMAND...: a step that is left out if it has passed with these
# contents of INPUTS, which are paths with blanks between them.
cached_step() {
  local folder="$1" name="$2" inputs key passed="$BUILD/passed/$1"
  read -ra inputs <<<"$3"
  shift 3
  key="$(cd "$ROOT" && listed "${inputs[@]}" cmake 'CMake*' 'scripts/requirements_*' | xargs sha256sum |
    key_of - "$ROOT/scripts/test.sh" <(echo "$ABSEIL $ZSTD $TOOLS $PYTHON"))"
  if [[ -z "$again" && "$(cat "$passed/key" 2>/dev/null)" == "$key" ]]; then
    say "== $name: unchanged since they passed"
    cp -r "$passed" "$RESULTS/$folder"
    return
  fi
  rm -rf "$passed"
  step "$folder" "$name" "$@"
  if [[ ! -e "$RESULTS/$folder/failed" ]]; then
    mkdir -p "$BUILD/passed"
    cp -r "$RESULTS/$folder" "$passed"
    echo "$key" >"$passed/key"
  fi
}

# Each program writes its counts to results/cxx, too (cmake/offcut.cmake).
run_ctest() {
  local build="$1" filter="$2" labels="${3:-}"
  # No tests is no failure: a filter may name Python tests only.
  ctest --test-dir "$build" --parallel "$JOBS" --output-on-failure --no-tests=ignore \
    --label-exclude '^gpu$' ${labels:+--label-regex "$labels"} ${filter:+--tests-regex "$filter"} \
    --output-junit "$build/results/cxx/ctest.xml"
}

# run_pytest FOLDER ARGUMENTS...: FOLDER is that of the results.
run_pytest() (
  local folder="$1" status=0
  shift
  cd "$ROOT" || return
  PYTHONPATH="$BUILD/package" OFFCUT_TEST_BUILD_DIR="$BUILD" "$PYTHON" -m pytest \
    --timeout 300 --numprocesses "$JOBS" --dist worksteal --junit-xml "$RESULTS/$folder/pytest.xml" "$@" || status=$?
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

# run_sanitized FOLDER PRESET TARGET LABELS: builds TARGET and runs the tests whose labels match.
# FOLDER is that of the results.
run_sanitized() {
  local folder="$1" preset="$2" target="$3" labels="$4" status=0 build="$ROOT/build/$2"
  [[ -z "${OFFCUT_BUILD_DIR:-}" ]] || build="$OFFCUT_BUILD_DIR-$preset"
  rm -rf "$build/results"
  OFFCUT_PRESET="$preset" OFFCUT_BUILD_DIR="$build" "$ROOT/dev" build "$target" || return
  UBSAN_OPTIONS=print_stacktrace=1 TSAN_OPTIONS="suppressions=$ROOT/scripts/tsan_suppressions.txt" \
    run_ctest "$build" "" "$labels" || status=$?
  cp "$build"/results/cxx/* "$RESULTS/$folder/"
  return "$status"
}

run_fuzz() {
  OFFCUT_FUZZ_OPERATIONS="$FULL_FUZZ_OPERATIONS" OFFCUT_FUZZ_JOBS="$JOBS" \
    GTEST_OUTPUT="json:$RESULTS/fuzz/fuzz_test.json" "$BUILD/tests/fuzz_test"
}
