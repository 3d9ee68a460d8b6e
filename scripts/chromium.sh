#!/usr/bin/env bash
# Chromium for the browser tests, where it is missing and apt can install it. Without it those tests are skipped and say so.
set -uo pipefail

command -v chromium >/dev/null && exit 0
[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || exit 0
echo "Installing chromium ..."
{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium; } \
  >/dev/null 2>&1 || echo "chromium cannot be installed here: browser tests will be skipped" >&2
exit 0
