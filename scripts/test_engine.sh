#!/usr/bin/env bash
# Runs the tests of the engine that runs models: test_engine.sh [--smoke | --install] [ARGUMENTS OF PYTEST]
#
# Without --smoke the environment .venv-engine is made first, if it is missing: torch, transformers and what our tests need,
# about 1.7 GB where pip finds a build of torch for CPUs (PIP_EXTRA_INDEX_URL may name one) and more elsewhere. With it only
# an environment that exists is used, for a minute, and a missing one is reported as not checked. --install only makes it.
# With RAY=1 it also gets Ray Serve, another 360 MB, for the tests of several replicas; they are skipped without.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/not_checked.sh
env=.venv-engine
torch=${TORCH:-torch==2.13.0}
transformers=${TRANSFORMERS:-transformers==5.23.0}

chosen=()
if [ "${1:-}" = --smoke ]; then
    shift
    if ! "$env/bin/python" -c 'import pytest, torch, transformers' >/dev/null 2>&1; then
        not_checked "the engine that runs models" "no environment $env: make test-engine builds it"
        exit 0
    fi
    chosen=(-m smoke)
elif [ ! -e "$env/.installed" ] || [ requirements-dev.lock -nt "$env/.installed" ]; then
    echo "Installing $torch and $transformers into $env" >&2
    [ -x "$env/bin/python" ] || "${PYTHON:-python3}" -m venv "$env"
    "$env/bin/python" -m pip --disable-pip-version-check --no-input install -q -r requirements-dev.lock
    "$env/bin/python" -m pip --disable-pip-version-check --no-input install -q "$torch" "$transformers" safetensors llguidance
    touch "$env/.installed"
fi
if [ -n "${RAY:-}" ] && ! "$env/bin/python" -c 'import ray.serve' >/dev/null 2>&1; then
    echo "Installing Ray Serve into $env" >&2
    "$env/bin/python" -m pip --disable-pip-version-check --no-input install -q "ray[serve]==2.60.0"
fi
[ "${1:-}" != --install ] || exit 0
PYTHONPATH=src OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} "$env/bin/python" -m pytest -q -p no:cacheprovider tests/engine \
    "${chosen[@]}" "$@"
