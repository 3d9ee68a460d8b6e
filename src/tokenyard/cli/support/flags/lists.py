"""Commands about workloads: what a log becomes, and what is known by name."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro.conf

from tokenyard.cli.support.flags.hints import Switch, optional
from tokenyard.questions.settings import TrafficSettings

__all__ = ["Import", "Workloads"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """Convert a service's log into a workload file: OpenAI usage, vLLM's log, CSV, ShareGPT, benchmarks, spans."""

    log: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="LOG ...")]
    """The log, or several, which are merged by time; - is standard input. Whatever `run` takes can be converted."""
    output: Annotated[Path | None, optional("FILE", "only say what is in it")] = None
    """Workload file to write, in Tokenyard's format, for `run`, `compare` and `split` (*.jsonl, *.jsonl.gz)."""
    overwrite: Switch = False
    """Replace the file if it exists."""
    arrivals: tyro.conf.OmitArgPrefixes[TrafficSettings] = field(default_factory=TrafficSettings)
    json: Switch = False
    """Print what was read as one JSON object and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workloads:
    """List the known workloads, formats, policies, GPUs and models."""

    json: Switch = False
    """Print one JSON object and nothing else."""
