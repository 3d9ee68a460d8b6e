#!/usr/bin/env bash
# Chromium for the browser tests, where apt can install it: as root. Without one those tests are skipped.
#
# The one without windows is asked for, once a clone: in it the tests take less than half the processor time. Where it is
# not to be had, another that is there is taken.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/not_checked.sh
asked=.venv/.asked-for-headless-shell

apt_install() {
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
  echo "Installing $1 ..."
  local get=(apt-get -qq -o Acquire::Retries=0 -o Acquire::http::Timeout=15)
  { "${get[@]}" update && DEBIAN_FRONTEND=noninteractive "${get[@]}" install -y --no-install-recommends "$1"; } >/dev/null 2>&1
}

command -v chromium-headless-shell >/dev/null && exit 0
if [ ! -e "$asked" ]; then
  apt_install chromium-headless-shell && exit 0
  [ ! -d .venv ] || touch "$asked"
fi
for name in chromium chromium-browser google-chrome; do
  command -v "$name" >/dev/null && exit 0
done
apt_install chromium || not_checked "browser tests" "no Chromium: install it, or run once as root where apt-get is"
exit 0
