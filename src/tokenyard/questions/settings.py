"""What arrives: settings of every question that reads a workload.

The help of the command line is made of them: nothing heavy is imported here.
"""

from __future__ import annotations

from typing import Annotated, Literal

from tokenyard.deploy.settings import Help, Settings, Switch
from tokenyard.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficSettings(Settings):
    """The workload."""

    format: Annotated[str | None, Help(metavar="NAME", otherwise="recognised by its fields")] = None
    """Format of a workload file: azure, lmcache, mooncake, plain, servegen or weka; or kind of a service's log:
    burstgpt, csv, envoy, guidellm, jaeger, jsonl, langfuse, litellm, ollama, openai, otel, sglang, sharegpt,
    vllm-bench or vllm-log."""
    limit: Annotated[int | None, Help(metavar="N", otherwise="all")] = None
    """Only the first N sessions of a workload that has sessions, else the first N requests."""
    seed: int = 0
    """Seed of what the workload does not record: token ids, arrivals of sessions, generators."""
    rate_scale: float = 1.0
    """Factor by which the arrival rate is multiplied; the pauses between an agent's turns stay."""
    session_rate: Annotated[float | None, Help(metavar="FLOAT", otherwise="0.05; agentic 0.5, chat 4")] = None
    """Sessions per second, where sessions start at random: agentic, chat, and files in format lmcache or weka."""
    skip_refused: Switch = False
    """Continue without requests that the engine refuses (too long for the model or the KV cache)."""
    request_rate: Annotated[float | None, Help(metavar="FLOAT", otherwise="as recorded")] = None
    """Send requests at random times at this mean rate per second, ignoring recorded times; inf sends all at once."""
    burstiness: float = 1.0
    """Burstiness of --request-rate: 1 is a Poisson process, less is burstier, more is more regular."""
    max_concurrency: Annotated[int | None, Help(metavar="N", otherwise="no limit")] = None
    """Largest number of requests in flight: the next is sent when one ends (a closed loop)."""
    client_timeout: Annotated[str | None, Help(metavar="TIME", otherwise="clients wait")] = None
    """Time after which a client without its whole answer disconnects, for example 30s; its request is aborted."""
    retries: int = 0
    """Number of times that a client sends its request again after disconnecting."""
    retry_wait: Annotated[str, Help(metavar="TIME")] = "1s"
    """Time from disconnecting to sending again."""
    front_end_delay: Annotated[str | None, Help(metavar="TIME|TRACE", otherwise="as fitted")] = None
    """Time from sending to the scheduler (network, tokenisation): 20ms, or a server's trace to draw it from. One was
    fitted with calibrated step times; others have none."""
    num_prompts: Annotated[int | None, Help(metavar="N", otherwise="1000")] = None
    """Number of requests of the workload `random`."""
    input_len: Annotated[int | None, Help(metavar="TOKENS", otherwise="1024")] = None
    """Prompt tokens of the workload `random`, its prefix not counted."""
    output_len: Annotated[int | None, Help(metavar="TOKENS", otherwise="128")] = None
    """Output tokens of the workload `random`."""
    random_prefix_len: Annotated[int | None, Help(metavar="TOKENS", otherwise="0")] = None
    """Shared prefix of all prompts of the workload `random`, in tokens."""
    random_range_ratio: Annotated[float | None, Help(metavar="FLOAT", otherwise="0")] = None
    """Fraction by which lengths of the workload `random` vary up and down."""
    columns: Annotated[str | None, Help(metavar="FIELD=NAME,...", otherwise="known names")] = None
    """Columns or keys of a log: arrival_time, prompt_len, max_tokens, cached_tokens, duration, ttft, request_id, group,
    lora_name, session, user, priority, tier, model, tool."""
    model_name: Annotated[str | None, Help(metavar="NAME", otherwise="the log has one model")] = None
    """Only requests of a log that asked for this model; * and ? stand for any text and any letter."""
    time_unit: Annotated[
        Literal["d", "h", "min", "s", "ms", "us", "ns"] | None,
        Help(metavar="{d,h,min,s,ms,us,ns}", otherwise="recognised by name or size"),
    ] = None
    """Unit of a log's times that are numbers (d: days, as spreadsheets count), and of a file in the format plain."""
    stamped: Literal["arrival", "completion"] = "arrival"
    """Which moment a log's times are; the arrival is the completion less the duration."""
    prefixes: Literal["sessions", "recorded"] = "sessions"
    """Which prompts of a log begin alike: as it counts hits and, if it counts none, turns of a session that grow; or
    only as it counts hits."""
    turns_follow: Switch = False
    """Turns of a log's sessions that go on others arrive as long after the answer before as they did, however long that
    takes here; else when they did."""
    max_bad_lines: int = 100
    """Number of unreadable lines of a log that are accepted; with more, reading stops."""
