# Shared by every part of ./dev: where things live, and how progress is told. Sourced, never run.

set -euo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
CACHE="${OFFCUT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/offcut}"
PRESET="${OFFCUT_PRESET:-release}"
BUILD="${OFFCUT_BUILD_DIR:-$ROOT/build/$PRESET}"
JOBS="$(nproc)"

# Progress goes to standard error, so that standard output stays the answer of a verb (`./dev offcut
# --json ...`).
say() { printf '[%4ds] %s\n' "$SECONDS" "$*" >&2; }
die() {
  printf 'dev: %s\n' "$*" >&2
  exit 1
}

# run_logged WHAT LOG COMMAND...: runs COMMAND with its output in LOG. Says when it starts, that it
# is still alive every 20 seconds, and how long it took; when it fails, shows the end of LOG.
run_logged() {
  local what="$1" log="$2" start=$SECONDS pid waited status=0
  shift 2
  mkdir -p "$(dirname "$log")"
  say "$what ..."
  "$@" >"$log" 2>&1 &
  pid=$!
  for ((waited = 1; ; waited++)); do
    sleep 0.25
    kill -0 "$pid" 2>/dev/null || break
    if ((waited % 80 == 0)); then
      say "$what: still at it, $((SECONDS - start))s. $(tail -n 1 "$log" | tr -d '\r' | cut -c1-80)"
    fi
  done
  wait "$pid" || status=$?
  if ((status != 0)); then
    tail -n 40 "$log" >&2
    say "$what: FAILED after $((SECONDS - start))s, the whole log is $log"
    return "$status"
  fi
  say "$what: done in $((SECONDS - start))s"
}

# key_of FILE...: a short name for the contents of some files, for folders that must be made anew
# when those change. Reads extra material from standard input when called as `key_of - FILE...`.
key_of() { cat "$@" | sha256sum | cut -c1-12; }

# with_lock NAME COMMAND...: one at a time, over all checkouts that share the cache.
with_lock() {
  local name="$1"
  shift
  mkdir -p "$CACHE/locks"
  (
    flock -n 9 || {
      say "waiting for another ./dev that is busy with $name"
      flock 9
    }
    "$@"
  ) 9>"$CACHE/locks/$name"
}
