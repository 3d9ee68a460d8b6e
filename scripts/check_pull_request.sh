#!/usr/bin/env bash
# What action.yml runs: checks the files that a pull request changes, and comments. Its settings are variables.
set -euo pipefail

comment="${RUNNER_TEMP:-/tmp}/tokenyard.md"
# shellcheck disable=SC2206 # several files, and several bounds, stand in one variable
words=($FILES --against "$AGAINST" --markdown "$comment" ${SLO:+--slo $SLO} ${GPU:+--gpu "$GPU"} ${PRICE:+--price "$PRICE"})
code=0
"${TOKENYARD:-tokenyard}" check "${words[@]}" ${BASE:+--since "$BASE"} || code=$?
if [ -s "$comment" ]; then
    if [ -n "${GITHUB_STEP_SUMMARY:-}" ]; then cat "$comment" >> "$GITHUB_STEP_SUMMARY"; fi
    if [ "${COMMENT:-true}" = true ] && [ -n "${NUMBER:-}" ]; then
        gh pr comment "$NUMBER" --edit-last --create-if-none --body-file "$comment" ||
            echo "::warning::the comment could not be written: give the job the permission pull-requests: write"
    fi
fi
exit "$code"
