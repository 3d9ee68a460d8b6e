#!/usr/bin/env bash
# Makes targets one after the other beside a command that runs meanwhile: at_once.sh TARGET ... -- COMMAND ...
#
# What a target says is printed once the command has ended, or at once if the target fails; the last line names what failed.
set -uo pipefail
cd "$(dirname "$0")/.."

targets=()
while [ "$1" != -- ]; do
  targets+=("$1")
  shift
done
shift

said=$(mktemp -d)
beside() {
  for target in "${targets[@]}"; do
    if make --no-print-directory "$target" >"$said/$target" 2>&1; then
      cat "$said/$target" >> "$said/all"
    else
      printf '\n%s failed:\n' "$target" >&2
      cat "$said/$target" >&2
      echo "$target" >> "$said/failed"
    fi
  done
}
beside &
lane=$!
trap 'kill "$lane" 2>/dev/null; rm -rf "$said"' EXIT

"$@"
status=$?
wait "$lane"
[ ! -e "$said/all" ] || cat "$said/all"
if [ -e "$said/failed" ]; then
  echo "failed, see above: $(tr '\n' ' ' < "$said/failed")" >&2
  [ "$status" -ne 0 ] || status=1
fi
exit "$status"
