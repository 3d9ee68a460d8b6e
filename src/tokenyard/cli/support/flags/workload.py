"""What arrives: flags of every command that reads a workload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import tyro.conf

from tokenyard.cli.support.flags.hints import optional
from tokenyard.cli.support.settings import Switch

__all__ = ["WorkloadFlags"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadFlags:
    """What arrives."""

    format: Annotated[str | None, optional("NAME", "seen from the first line")] = None
    """Format of a workload file: azure, lmcache, mooncake, plain, servegen or weka; or kind of a service's log:
    burstgpt, csv, guidellm, jsonl, openai, otel, sharegpt, vllm-bench or vllm-log."""
    limit: Annotated[int | None, optional("N", "all")] = None
    """Only the first N sessions of a workload that has sessions, else the first N requests."""
    seed: int = 0
    """Seed of what the workload does not record: token ids, arrivals of sessions, generators."""
    rate_scale: float = 1.0
    """Let requests and sessions arrive so many times as fast; gaps between an agent's turns stay."""
    session_rate: Annotated[float | None, optional("FLOAT", "0.05; agentic 0.5, chat 4")] = None
    """Sessions per second where sessions start at random: agentic, chat, and files in format lmcache or weka."""
    skip_refused: Switch = False
    """Go on without the requests that the engine refuses (too long for the model or the pool)."""
    request_rate: Annotated[float | None, optional("FLOAT", "as recorded")] = None
    """Send requests at random, so many a second on average, whatever was recorded; inf sends all at once."""
    burstiness: float = 1.0
    """Of --request-rate: 1 is a Poisson process, less is burstier, more is more regular."""
    max_concurrency: Annotated[int | None, optional("N", "no limit")] = None
    """Never have more than N requests under way: the next is sent when one ends (a closed loop)."""
    client_timeout: Annotated[str | None, optional("TIME", "clients wait")] = None
    """Clients hang up when a whole answer takes longer than this from its sending, for example 30s: it is aborted."""
    retries: int = 0
    """Times that a client which hung up sends its request again."""
    retry_wait: Annotated[str, tyro.conf.arg(metavar="TIME")] = "1s"
    """From hanging up to sending again."""
    front_end_delay: Annotated[str | None, optional("TIME|TRACE", "none")] = None
    """From sending until the scheduler has a request (network, tokenisation): 20ms, or as a server's trace has it."""
    num_prompts: Annotated[int | None, optional("N", "1000")] = None
    """Requests of the workload `random`."""
    input_len: Annotated[int | None, optional("TOKENS", "1024")] = None
    """Prompt tokens of the workload `random`, its prefix not counted."""
    output_len: Annotated[int | None, optional("TOKENS", "128")] = None
    """Output tokens of the workload `random`."""
    random_prefix_len: Annotated[int | None, optional("TOKENS", "0")] = None
    """Tokens that all prompts of the workload `random` begin with."""
    random_range_ratio: Annotated[float | None, optional("FLOAT", "0")] = None
    """Lengths of the workload `random` vary by so much up and down."""
    columns: Annotated[str | None, optional("FIELD=NAME,...", "known names")] = None
    """Columns or keys of a log: arrival_time, prompt_len, max_tokens, cached_tokens, duration, request_id, group,
    lora_name."""
    time_unit: Annotated[Literal["s", "ms", "us", "ns"] | None, optional("{s,ms,us,ns}", "told by name or size")] = None
    """Unit of a log's times that are numbers, and of those of a file in the format plain."""
    stamped: Literal["arrival", "completion"] = "arrival"
    """Which moment of a request a log's times are; arrivals are completions less durations."""
    max_bad_lines: int = 100
    """Lines of a log that may be unreadable before reading stops."""
