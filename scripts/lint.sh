# ./dev lint and ./dev format. Sourced.
#
# A linter that was happy with some contents is not asked about the same contents again: build/lint/
# keeps, for each, the key of what it last accepted.

lint() {
  setup_cxx
  setup_web
  local failed=()
  lint_one clang-format lint_cxx .clang-format cxx_files
  lint_one ruff lint_ruff pyproject.toml python_files
  lint_one mypy lint_mypy pyproject.toml python_files
  lint_one shellcheck lint_shell .shellcheckrc shell_files
  if [[ -e "$ROOT/visualizer/web/tsconfig.json" ]]; then
    lint_one tsc lint_web visualizer/web/package-lock.json web_files
  fi
  ((${#failed[@]} == 0)) || die "lint: ${failed[*]} complained (./dev format repairs what a program can)"
}

# lint_one NAME FUNCTION CONFIGURATION LIST: FUNCTION judges the files that LIST lists, unless it
# has accepted these very contents.
lint_one() {
  local name="$1" function="$2" configuration="$3" list="$4" key stamp="$ROOT/build/lint/$1"
  key="$(cd "$ROOT" && { echo "$TOOLS" && "$list" && "$list" | xargs --no-run-if-empty cat; } |
    key_of - scripts/lint.sh "$configuration")"
  if [[ "$(cat "$stamp" 2>/dev/null)" == "$key" ]]; then
    say "lint: $name: unchanged"
    return
  fi
  # A subshell of its own, not `if (...)`, in which bash would ignore the failures of all commands
  # but the last.
  local status=0
  set +e
  (
    set -e
    cd "$ROOT"
    "$function"
  ) >&2
  status=$?
  set -e
  if ((status == 0)); then
    say "lint: $name: fine"
    mkdir -p "$ROOT/build/lint"
    echo "$key" >"$stamp"
  else
    failed+=("$name")
  fi
}

# The files of the working tree that match, tracked or new, relative to the root. Their names hold
# no spaces.
listed() {
  (cd "$ROOT" && git ls-files --cached --others --exclude-standard -- "$@" | while read -r file; do
    [[ ! -f "$file" ]] || echo "$file"
  done | sort -u)
}
cxx_files() { listed '*.h' '*.cc' '*.cu'; }
python_files() { listed '*.py' '*.pyi'; }
shell_files() { listed dev .ci/run '*.sh'; }
web_files() { listed visualizer/web; }

# Says which files, not every place in them: nobody repairs those by hand.
lint_cxx() {
  local unformatted
  unformatted="$(cxx_files | xargs --no-run-if-empty clang-format --dry-run 2>&1 |
    sed -n 's/^\([^ :]*\):.*Wclang-format-violations.*/  \1/p' | sort -u)"
  [[ -z "$unformatted" ]] || printf 'not formatted:\n%s\n' "$unformatted"
  [[ -z "$unformatted" ]]
}

lint_ruff() {
  ruff check --quiet .
  ruff format --check --quiet .
}

lint_mypy() {
  local folder
  # One run each: programs of the same name in two folders are not one module.
  for folder in pytorch_plugin/python scripts; do
    [[ -z "$(listed "$folder/*.py")" ]] || listed "$folder/*.py" "$folder/*.pyi" | xargs mypy --no-error-summary
  done
}

lint_shell() { shell_files | xargs --no-run-if-empty shellcheck; }

lint_web() { (cd visualizer/web && npx --no-install tsc --noEmit); }

# format [FILE...]: those files, or all.
format() {
  local files=("$@")
  setup_cxx
  ((${#files[@]} > 0)) || {
    cd "$ROOT"
    mapfile -t files < <(cxx_files && python_files)
  }
  printf '%s\n' "${files[@]}" | { grep -E '\.(h|cc|cu)$' || true; } | xargs --no-run-if-empty clang-format -i
  printf '%s\n' "${files[@]}" | { grep -E '\.pyi?$' || true; } | xargs --no-run-if-empty ruff check --quiet --fix-only
  printf '%s\n' "${files[@]}" | { grep -E '\.pyi?$' || true; } | xargs --no-run-if-empty ruff format --quiet
  say "formatted"
}
