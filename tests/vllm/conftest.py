"""Tests inside real vLLM: `make test-vllm` runs them in vLLM's environments; elsewhere they are skipped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

signal.signal(signal.SIGTERM, signal.default_int_handler)  # the servers end with the tests
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where tiny models are made; TINY_MODELS names a folder that keeps them."""
    kept = os.environ.get("TINY_MODELS")
    return Path(kept) if kept else tmp_path_factory.mktemp("models")


def runs_models() -> bool:
    """Whether this vLLM can compute: some environments hold its Python only."""
    if find_spec("vllm") is None:
        return False
    kernels = find_spec("vllm._C_AVX2")
    if kernels is not None:  # the CPU package: kernels for several processors, all made with one torch
        asked = (sys.executable, "-c", "import sys, torch; torch.ops.load_library(sys.argv[1])", str(kernels.origin))
        return subprocess.run(asked, capture_output=True, check=False).returncode == 0
    try:
        import vllm._C  # noqa: F401
    except ImportError:
        return False
    return True


needs_engine = pytest.mark.skipif(not runs_models(), reason="the scheduler alone: its compiled kernels do not load")
