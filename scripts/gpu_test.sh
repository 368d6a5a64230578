# ./dev gpu-test [--no-build] [PYTEST ARGUMENTS]. Sourced.
#
# With --no-build it takes the build folder as it stands and asks for nothing but a Python with
# PyTorch and pytest: the machine with the GPU may have no network, no CMake and no abseil.

gpu_test() {
  local results="$BUILD/results_gpu" program python status=0 build=1
  if [[ "${1:-}" == --no-build ]]; then
    build=""
    shift
  fi
  if ! compgen -G '/dev/nvidia[0-9]*' >/dev/null && ! nvidia-smi -L >/dev/null 2>&1; then
    say "no NVIDIA GPU here (no /dev/nvidia0, no nvidia-smi): the tests on hardware are skipped"
    echo "0 passed, 0 failed, $(count_gpu_tests) skipped"
    return
  fi
  if [[ -n "$build" && ! -d "$BUILD/tests" ]]; then
    "$ROOT/dev" build
  fi
  if [[ -n "$build" ]]; then
    setup_packages
    setup_python
    python="$PYTHON"
  else
    python="${OFFCUT_PYTHON:-python3}"
    [[ -d "$BUILD/package" ]] || die "there is no build in $BUILD; leave out --no-build, or bring one"
  fi
  "$python" -c 'import pytest, torch' || die "$python has no PyTorch or no pytest; name another with OFFCUT_PYTHON"

  # CUDA's run-time compiler, which the C++ tests compile their kernels with: PyTorch brings one.
  local libraries
  libraries="$("$python" - <<'END'
import glob, nvidia, os
found = [path for folder in nvidia.__path__ for path in glob.glob(folder + "/*/lib/libnvrtc.so.*")]
print(os.path.dirname(found[0]) if found else "")
END
  )" || libraries=""
  libraries="${libraries:+$libraries${LD_LIBRARY_PATH:+:}}${LD_LIBRARY_PATH:-}"

  rm -rf "$results"
  mkdir -p "$results"
  for program in "$BUILD"/tests/gpu/*; do
    [[ -f "$program" && -x "$program" ]] || continue
    say "== $(basename "$program")"
    if ! (cd "$ROOT" && LD_LIBRARY_PATH="$libraries" GTEST_OUTPUT="json:$results/$(basename "$program").json" "$program") >&2; then
      basename "$program" >"$results/failed"
      status=1
    fi
  done
  say "== Python tests on the GPU"
  cd "$ROOT" || return
  PYTHONPATH="$BUILD/package${PYTHONPATH:+:$PYTHONPATH}" OFFCUT_TEST_BUILD_DIR="$BUILD" "$python" -m pytest \
    --junit-xml "$results/pytest.xml" tests/gpu "$@" >&2 || status=$?
  "$python" "$ROOT/scripts/count_tests.py" "$results" || status=1
  return "$status"
}

count_gpu_tests() {
  { grep -rhE '^ *(def test_|TEST(_F|_P)?\()' "$ROOT/tests/gpu" 2>/dev/null || true; } | wc -l
}
