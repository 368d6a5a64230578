# ./dev test [--quick] [FILTER]. Sourced.
#
# Every step leaves its results in a folder of its own, and scripts/count_tests.py adds them up at
# the end. The slow steps are not run again while their inputs are those with which they last
# passed; their results are counted again. --again runs them all the same.
#
# The steps run as conditions, where bash ignores `set -e`: each is one command at heart, or says
# `|| return`.

RESULTS="$BUILD/results"
ASAN_BUILD="$ROOT/build/asan"
[[ -z "${OFFCUT_BUILD_DIR:-}" ]] || ASAN_BUILD="$OFFCUT_BUILD_DIR-asan"

test_all() {
  local quick="" filter="" argument
  again=""
  [[ "$PRESET" != asan ]] || quick=1 # an unsanitized Python cannot load what was sanitized
  for argument in "$@"; do
    case "$argument" in
      --quick) quick=1 ;;
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
      cached_step sanitized "C++ tests, sanitized" "allocator visualizer/cli tests :!tests/python :!tests/structure :!tests/web" run_sanitized
      cached_step python "Python tests" "allocator pytorch_plugin visualizer tests/python tests/golden" \
        run_pytest python --durations 5 tests/python
    fi
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
  local build="$1" filter="$2"
  # No tests is no failure: a filter may name Python tests only.
  ctest --test-dir "$build" --parallel "$JOBS" --output-on-failure --no-tests=ignore \
    --label-exclude '^gpu$' ${filter:+--tests-regex "$filter"} --output-junit "$build/results/cxx/ctest.xml"
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

run_sanitized() {
  local status=0
  rm -rf "$ASAN_BUILD/results"
  OFFCUT_PRESET=asan OFFCUT_BUILD_DIR="$ASAN_BUILD" "$ROOT/dev" build offcut_tests || return
  UBSAN_OPTIONS=print_stacktrace=1 run_ctest "$ASAN_BUILD" "" || status=$?
  cp "$ASAN_BUILD"/results/cxx/* "$RESULTS/sanitized/"
  return "$status"
}
