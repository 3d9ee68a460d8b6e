#!/usr/bin/env bash
# Runs the tests inside real vLLM: test_vllm.sh [--smoke] VERSION... [-- ARGUMENTS OF PYTEST]
#
# All versions are run, whatever happens in one, and the last lines say what came of each. Without --smoke missing
# environments are built first; with it only those that exist are used, for a few minutes, and the others are reported as
# not checked. SECONDS_EACH bounds a version; one that is ended by it takes its servers along.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/not_checked.sh
unset PYTHONDONTWRITEBYTECODE # vLLM compiled anew at every start of a server: half a minute each time

smoke=
[ "${1:-}" = --smoke ] && smoke=1 && shift
versions=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    versions+=("$1")
    shift
done
[ $# -eq 0 ] || shift
limit=${SECONDS_EACH:-$([ -n "$smoke" ] && echo 600 || echo 3600)}

# Whether pytest can be run in the environment $1, as it is.
complete() { [ -x "$1" ] && "$1" -c 'import pytest, vllm, xxhash' >/dev/null 2>&1; }

results=()
failed=0
for version in "${versions[@]}"; do
    env=.venv-vllm-$version
    [ "$version" = 0.22 ] && env=.venv-vllm
    chosen=("$@")
    if [ -n "$smoke" ]; then
        if ! complete "$env/bin/python"; then
            not_checked "the classes inside vLLM $version" "no environment $env: scripts/vllm_env.sh $version builds it"
            continue
        fi
        chosen+=(-m smoke)
    elif ! scripts/vllm_env.sh "$version"; then
        results+=("vLLM $version: no environment")
        failed=1
        continue
    fi
    echo "vLLM $version:"
    log=$(mktemp)
    began=$SECONDS
    PYTHONPATH=src timeout --kill-after=30 "$limit" "$env/bin/python" -m pytest -q -c tests/vllm/pytest.ini --rootdir=. \
        tests/vllm "${chosen[@]}" 2>&1 | tee "$log"
    status=${PIPESTATUS[0]}
    said=$(grep -E '(passed|failed|skipped|error|no tests ran).* in [0-9.]+s' "$log" | tail -n 1)
    [ "$status" -eq 124 ] && said="ended after $limit s; ${said:-nothing passed until then}"
    [ "$status" -eq 0 ] || failed=1
    results+=("vLLM $version, $((SECONDS - began)) s: ${said:-pytest did not run}")
    rm -f "$log"
done
[ ${#results[@]} -eq 0 ] || printf '%s\n' "" "Inside vLLM:" "${results[@]}"
exit "$failed"
