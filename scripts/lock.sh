#!/usr/bin/env bash
# Resolves pyproject.toml again and writes both lock files (`make lock`).
#
#   requirements.lock      what `pip install tokenyard[server]` needs (`make demo` ends at the viewer), and what builds it
#   requirements-dev.lock  the same versions, with the tools of `make test` and `make bench`
#
# The locks name versions only, no index: they install from whichever one pip is set up to use. They are resolved with
# the oldest Python we support; every package in them has to have wheels for the newer ones too.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=.venv/lock
[ -x "$venv/bin/pip-compile" ] || {
    "${PYTHON:-python3}" -m venv "$venv"
    "$venv/bin/pip" install --quiet pip-tools
}

compile() {
    CUSTOM_COMPILE_COMMAND="make lock" "$venv/bin/pip-compile" --quiet --upgrade --strip-extras \
        --allow-unsafe --no-emit-index-url --no-emit-find-links --no-emit-trusted-host "$@" pyproject.toml
}

compile --extra server --build-deps-for editable --output-file requirements.lock
compile --extra dev --extra bench --extra server --extra zmq --extra storage --extra analysis --extra perfetto --extra otel \
    --constraint requirements.lock --output-file requirements-dev.lock
