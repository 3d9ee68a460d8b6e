"""How far ``tokenyard whatif`` repeats replays of its own, from their traces alone.

``python benchmarks/whatif_self.py [MODEL ...]``: the same conversations on each deployment, recorded and asked about.
The step times of such a trace have no noise, so whatever the check is off by is the fit's own doing.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

__all__ = ["main"]

DEPLOYMENTS: dict[str, tuple[str, ...]] = {
    "llama-3.1-8b": (),
    "qwen3-32b": ("--tensor-parallel-size", "2"),
    "qwen3-30b-a3b": (),
    "gpt-oss-120b": ("--tensor-parallel-size", "2"),
    "deepseek-r1": ("--gpu", "h200", "--tensor-parallel-size", "8", "--enable-expert-parallel"),
    "deepseek-v2-lite": (),
    "gemma-3-27b": (),
    "jamba-1.5-mini": ("--tensor-parallel-size", "4"),
    "granite-4.0-h-tiny": (),
    "llama-4-scout": ("--gpu", "h200", "--tensor-parallel-size", "8"),
    "qwen3-next-80b-a3b-fp8": ("--tensor-parallel-size", "2"),
}
"""Model -> flags of its deployment: dense, mixture of experts, latent attention, windows, states."""
_TRAFFIC = ("chat", "--limit", "40", "--rate-scale", "20", "--max-model-len", "16384", "--advice", "none")
_SHOWN = ("ttft_ms.mean", "ttft_ms.p90", "tpot_ms.mean", "e2e_ms.mean", "queue_ms.mean")


def main() -> int:
    """Print the errors of the check, per deployment."""
    chosen = sys.argv[1:] or list(DEPLOYMENTS)
    print(f"{'model':18}{'steps':>8}{'alike':>8}" + "".join(f"{name:>15}" for name in _SHOWN))
    with TemporaryDirectory() as folder:
        for model in chosen:
            print(_line(model, Path(folder) / model), flush=True)
    return 0


def _line(model: str, trace: Path) -> str:
    _tokenyard("run", *_TRAFFIC, "--model", model, *DEPLOYMENTS.get(model, ()), "--trace", str(trace), "--json")
    check = _tokenyard("whatif", str(trace), "--json")["self_check"]
    errors = {each["name"]: each["error"] for each in check["checks"]}
    shown = ("-" if errors.get(name) is None else f"{100 * errors[name]:+.2f} %" for name in _SHOWN)
    return f"{model:18}{check['recorded_steps']:8}{check['equal_steps']:8}" + "".join(f"{each:>15}" for each in shown)


def _tokenyard(*words: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tokenyard.cli.main", *words]
    told: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return told


if __name__ == "__main__":
    sys.exit(main())
