# For sourcing: what a check left out, collected in the file that TOKENYARD_NOT_CHECKED names. `make test` prints it.

# not_checked WHAT WHY: says so at once, and again at the end.
not_checked() {
  echo "not checked: $1 ($2)" >&2
  [ -z "${TOKENYARD_NOT_CHECKED:-}" ] || echo "$1 ($2)" >> "$TOKENYARD_NOT_CHECKED"
}
