# ./dev bench [NAME [ARGUMENTS]]. Sourced. A benchmark is a program in build/<preset>/bench/ or a script in bench/.

bench() {
  build
  local programs scripts chosen=() one
  programs="$(find "$BUILD/bench" -maxdepth 1 -type f -perm -u+x 2>/dev/null | sort)"
  scripts="$(find "$ROOT/bench" -name '*.py' -not -name '_*' 2>/dev/null | sort)"
  if (($# == 0)); then
    echo "Name one of these, or a part of a name:"
    for one in $programs $scripts; do echo "  $(bench_name "$one")"; done
    return
  fi
  for one in $programs $scripts; do
    [[ "$(bench_name "$one")" != *"$1"* ]] || chosen+=("$one")
  done
  ((${#chosen[@]} > 0)) || die "no benchmark is called '$1'; ./dev bench lists them"
  shift
  for one in "${chosen[@]}"; do
    say "== $(bench_name "$one")"
    case "$one" in
      *.py) PYTHONPATH="$BUILD/package" OFFCUT_TEST_BUILD_DIR="$BUILD" "$PYTHON" "$one" "$@" ;;
      *) "$one" "$@" ;;
    esac
  done
}

# bench/replay/peaks.py is `replay/peaks`, and the program allocate_bench `allocate_bench`.
bench_name() {
  local name="${1#"$ROOT/bench/"}"
  name="${name#"$BUILD/bench/"}"
  echo "${name%.py}"
}
