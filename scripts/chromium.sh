#!/usr/bin/env bash
# Chromium for the browser tests, where it is missing and apt can install it: as root. Without it those tests are skipped.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/not_checked.sh

for name in chromium chromium-browser google-chrome; do
  command -v "$name" >/dev/null && exit 0
done
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  not_checked "browser tests" "no Chromium: install it, or run once as root where apt-get is"
  exit 0
fi
echo "Installing chromium ..."
{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium; } \
  >/dev/null 2>&1 || not_checked "browser tests" "no Chromium: apt-get could not install it"
exit 0
