"""The menu; commands about workloads and models, and those that compare what we say with what was measured."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path
from typing import Annotated

from tokenyard.cli.support.flag_table import Arg, Command, Positional, optional
from tokenyard.deploy.settings import Switch
from tokenyard.deploy.vllm_serve.defaults import MEASURED_VERSION
from tokenyard.questions.settings import TrafficSettings
from tokenyard.quick_dataclass import dataclass

# ---------------------------------------------------------------------------------------------------------------------
# The menu; commands about workloads: what a log becomes, and what is known by name.


@dataclass(frozen=True, slots=True, kw_only=True)
class AskCommand(Command):
    """List ten questions that people come with, and the command that answers each."""

    question: Annotated[Positional[str | None], optional("[QUESTION]", "all ten")] = None
    """One of them: its number, or words of it."""
    json: Switch = False
    """Print questions and commands as JSON and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportCommand(Command):
    """Convert a service's log, or vLLM's metrics, into a workload file: usage, vLLM's log, CSV, benchmarks, spans."""

    log: Annotated[Positional[tuple[str, ...]], Arg(metavar="LOG ...", otherwise="--prometheus")] = ()
    """The log, or several, which are merged by time; - is standard input. Whatever `run` takes can be converted."""
    output: Annotated[Path | None, optional("FILE", "only say what is in it")] = None
    """Workload file to write, in Tokenyard's format, for `run`, `compare` and `split` (*.jsonl, *.jsonl.gz)."""
    overwrite: Switch = False
    """Replace the file if it exists."""
    prometheus: Annotated[str | None, optional("URL|FILE", "a log is read")] = None
    """Instead of a log: the address of a Prometheus, or of a server's /metrics, which is then scraped; or a file of
    scrapes or of Prometheus' answers. Says what that time was short of."""
    last: Annotated[str | None, optional("TIME", "60min; 1min of /metrics")] = None
    """How much of it is requested."""
    step: Annotated[str | None, optional("TIME", "15s; 1s of /metrics")] = None
    """Time between two points."""
    arrivals: TrafficSettings = field(default_factory=TrafficSettings)
    json: Switch = False
    """Print what was read as one JSON object and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeCommand(Command):
    """Describe a model by the classes of an installed vLLM, for --model: models that the table does not have."""

    model: Annotated[Positional[str], Arg(metavar="MODEL")]
    """A config.json, the folder that holds it, or a name in the cache of the Hugging Face hub."""
    output: Annotated[Path, Arg(metavar="FILE")] = Path("model.json")
    """Description to write."""
    overwrite: Switch = False
    """Replace the file if it exists."""
    gpu: Annotated[str, Arg(metavar="NAME")] = "h100"
    """GPU that vLLM is made to believe in; no GPU is needed."""
    dtype: str = "auto"
    """Type of weights and activations, as vLLM's --dtype."""
    json: Switch = False
    """Print the description as one JSON object and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadsCommand(Command):
    """List the known workloads, formats, policies, GPUs and models."""

    json: Switch = False
    """Print one JSON object and nothing else."""


# ---------------------------------------------------------------------------------------------------------------------
# Commands that compare what we say with what was recorded or measured.


@dataclass(frozen=True, slots=True, kw_only=True)
class ParityCommand(Command):
    """Replay decisions recorded from real vLLM and compare every one of them."""

    files: Annotated[Positional[tuple[Path, ...]], Arg(metavar="FILE ...", otherwise="none: name one at least")] = ()
    """Golden vectors (*.jsonl or *.jsonl.gz), or directories with such files."""
    json: Switch = False
    """Print one JSON object and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyCommand(Command):
    """Compare the default step times with measured points and runs: errors by model, GPU, dtype and load."""

    files: Annotated[
        Positional[tuple[Path, ...]],
        Arg(metavar="FILE ...", otherwise="the public points, where they are installed"),
    ] = ()
    """Tables of measured points (*.csv, *.csv.gz), folders of measured runs, results of `vllm bench serve` (*.json)."""
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
    vllm_version: Annotated[str, Arg(metavar="VERSION")] = MEASURED_VERSION
    """Version of vLLM whose decisions are replayed; 0.22 is the nearest to the measured servers."""
    json: Switch = False
    """Print one JSON object and nothing else: `tpot` and `ttft` with median, p90, p99, n and covered, and `rows`."""
