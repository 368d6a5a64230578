# ./dev build [TARGET...]: configures and builds $OFFCUT_PRESET (release, debug, asan or tsan). Sourced.

build() {
  setup_cxx
  local abseil="$ABSEIL"
  [[ "$PRESET" != tsan ]] || abseil="$ABSEIL_TSAN"
  local options=(
    "-DOFFCUT_DEPS_DIR=$abseil;$ZSTD"
    "-DOFFCUT_CUDA_INCLUDE_DIRS=$CUDA_INCLUDE"
  )
  if [[ "$PRESET" != ?san ]]; then
    setup_python
    setup_web
    options+=("-DOFFCUT_PYTHON=$PYTHON")
  fi
  mkdir -p "$BUILD"
  # Two ninjas in one folder would spoil it.
  (
    flock -n 9 || {
      say "waiting for another ./dev build in $BUILD"
      flock 9
    }
    build_locked "$@"
  ) 9>"$BUILD/.lock"
}

# What the package in the build tree consists of: all but tests and benchmarks. `FOLDER/all` is
# Ninja's name for the targets of a folder.
build_package() {
  local folder targets=()
  for folder in allocator allocator/sim/cuda_abi visualizer/cli visualizer/web pytorch_plugin; do
    [[ ! -e "$ROOT/$folder/CMakeLists.txt" ]] || targets+=("$folder/all")
  done
  build "${targets[@]}"
}

build_locked() {
  local log="$BUILD/configure.log"
  # Always configured: it takes a second, and a folder that is new in the tree is then found.
  (cd "$ROOT" && cmake --preset "$PRESET" -B "$BUILD" "${options[@]}") >"$log" 2>&1 || {
    cat "$log" >&2
    die "CMake could not configure $BUILD"
  }
  say "building $PRESET in ${BUILD#"$ROOT"/}, $JOBS jobs: ${*:-everything}"
  local target=()
  (($# == 0)) || target=(--target "$@")
  cmake --build "$BUILD" --parallel "$JOBS" "${target[@]}" >&2 || die "the build failed"
  say "built"
}
