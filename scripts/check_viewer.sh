#!/usr/bin/env bash
# The viewer's checks, part of `make test`: lint, types, unit tests, and that the committed page is what the sources build.
#
# Needs Node.js 18 or newer with npm. Where they are missing they are installed with apt if that can be done; if not, this
# says why nothing was checked, and lets the other checks go on. With --install it only gets the tools.
set -euo pipefail
cd "$(dirname "$0")/.."

page=src/tokenyard/web/static/viewer.html
limit=184000  # bytes, gzipped

. scripts/not_checked.sh

skip() {
  not_checked "the viewer's own checks" "$1"
  exit 0
}

node_is_new_enough() { node -e 'process.exit(Number(process.versions.node.split(".")[0]) >= 18 ? 0 : 1)' 2>/dev/null; }

apt_install() {
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
  echo "Installing $* ..."
  local log
  log=$(mktemp)
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@"; } \
    >"$log" 2>&1 || { tail -n 3 "$log" >&2; rm -f "$log"; return 1; }
  rm -f "$log"
}

command -v node >/dev/null || apt_install nodejs npm || skip "node is missing: install Node.js 18 or newer, and npm"
node_is_new_enough || skip "node $(node --version) is too old: 18 or newer is needed"
command -v npm >/dev/null || apt_install npm || skip "npm is missing: install it beside node"

cd viewer
if ! cmp -s package-lock.json node_modules/.tokenyard-installed; then
  echo "Installing the viewer's tools into viewer/node_modules ..."
  npm ci --loglevel=error >/dev/null || skip "npm could not install its tools"
  cp package-lock.json node_modules/.tokenyard-installed
fi
[ "${1:-}" != --install ] || exit 0
npm run --silent lint
npm run --silent types
npm run --silent test -- --reporter=dot

built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
TOKENYARD_VIEWER_OUT="$built" npm run --silent build >/dev/null
cd ..
cmp -s "$built/viewer.html" "$page" || {
  echo "viewer: $page is not what viewer/ builds: run \`make viewer\` and commit it" >&2
  exit 1
}
size=$(gzip -9 --no-name --stdout "$page" | wc -c)
if [ "$size" -gt "$limit" ]; then
  echo "viewer: $size bytes gzipped, more than the $limit it may have" >&2
  exit 1
fi
echo "viewer: the committed page is what the sources build, $size bytes gzipped"
