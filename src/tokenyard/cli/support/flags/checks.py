"""Commands that compare what we say with what was recorded or measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro.conf

from tokenyard.cli.support.flags.hints import Switch, optional
from tokenyard.launch.defaults import MEASURED_VERSION

__all__ = ["Accuracy", "Parity"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    """Replay decisions recorded from real vLLM and compare every one of them."""

    files: Annotated[
        tyro.conf.Positional[tuple[Path, ...]],
        tyro.conf.arg(metavar="FILE ...", help_behavior_hint="(default: the public points, where they are installed)"),
    ] = ()
    """Golden vectors (*.jsonl or *.jsonl.gz), or directories with such files."""
    json: Switch = False
    """Print one JSON object and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Compare the default step times with measured points and runs: errors by model, GPU, dtype and load."""

    files: Annotated[
        tyro.conf.Positional[tuple[Path, ...]],
        tyro.conf.arg(metavar="FILE ...", help_behavior_hint="(default: the public points, where they are installed)"),
    ] = ()
    """Tables of measured points (*.csv, *.csv.gz), folders of measured runs, results of `vllm bench serve` (*.json)."""
    replay: Switch = False
    """Replay every step by itself instead of runs of equal steps at once: the same result, but slower."""
    model: Annotated[str | None, optional("NAME|FILE", "what the file says")] = None
    """Model of a run or a result: a name, or the config.json of a Hugging Face checkpoint."""
    gpu: Annotated[str | None, optional("NAME", "what the file says")] = None
    """GPU of a run or a result; a result of `vllm bench serve` does not record it."""
    tensor_parallel_size: int = 1
    """Tensor-parallel size of a result."""
    data_parallel_size: int = 1
    """Data-parallel size of a result."""
    enable_expert_parallel: Switch = False
    """The result was measured with expert parallelism."""
    max_num_batched_tokens: int = 8192
    """Token budget per step of a result (max_num_batched_tokens)."""
    kv_cache_dtype: str = "auto"
    """KV-cache dtype of a result."""
    vllm_version: Annotated[str, tyro.conf.arg(metavar="VERSION")] = MEASURED_VERSION
    """Version of vLLM whose decisions are replayed: 0.22, nearest to the measured servers, or 0.33."""
    json: Switch = False
    """Print one JSON object and nothing else: `tpot` and `ttft` with median, p90, p99, n and covered, and `rows`."""
