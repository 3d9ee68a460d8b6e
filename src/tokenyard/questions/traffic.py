"""What arrives: settings of every question that reads a workload, and the workload they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal

import numpy as np

from tokenyard.deploy.settings import Help, Settings, Switch
from tokenyard.deploy.spec import seconds_of
from tokenyard.errors import ConfigError
from tokenyard.questions.recorded.answer import recorded_ways
from tokenyard.workload import Workload, load_workload
from tokenyard.workload.generators import RandomOptions
from tokenyard.workload.load import LoadShape
from tokenyard.workload.logs.logged import LogOptions, Stamp, TimeUnit, columns_from
from tokenyard.workload.record import Clients

__all__ = ["TrafficSettings", "applied", "workload_from"]


# ---------------------------------------------------------------------------------------------------------------------
# What arrives: flags of every command that reads a workload.


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficSettings(Settings):
    """The workload."""

    format: Annotated[str | None, Help(metavar="NAME", otherwise="told by its fields")] = None
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
    front_end_delay: Annotated[str | None, Help(metavar="TIME|TRACE", otherwise="none")] = None
    """Time from sending to the scheduler (network, tokenisation): 20ms, or a server's trace to draw it from."""
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
    """Columns or keys of a log: arrival_time, prompt_len, max_tokens, cached_tokens, duration, request_id, group,
    lora_name, session, user, priority, model."""
    model_name: Annotated[str | None, Help(metavar="NAME", otherwise="the log has one model")] = None
    """Only requests of a log that asked for this model; * and ? stand for any text and any letter."""
    time_unit: Annotated[
        Literal["d", "s", "ms", "us", "ns"] | None, Help(metavar="{d,s,ms,us,ns}", otherwise="told by name or size")
    ] = None
    """Unit of a log's times that are numbers (d: days, as spreadsheets count), and of a file in the format plain."""
    stamped: Literal["arrival", "completion"] = "arrival"
    """Which moment a log's times are; the arrival is the completion less the duration."""
    max_bad_lines: int = 100
    """Number of unreadable lines of a log that are accepted; with more, reading stops."""


# ---------------------------------------------------------------------------------------------------------------------
# From flags to the workload that a command replays, with what lies around the engine: clients, and the way to it.

_OF_RANDOM: Mapping[str, str] = MappingProxyType(
    {
        "num_prompts": "num_prompts",
        "input_len": "input_len",
        "output_len": "output_len",
        "random_prefix_len": "prefix_len",
        "random_range_ratio": "range_ratio",
    }
)
"""Flag -> option of the workload ``random``."""


def workload_from(workload: str, flags: TrafficSettings, more: Sequence[str] = ()) -> Workload:
    """The workload, ``more`` being further logs; ConfigError or WorkloadError if a flag or a file cannot be used."""
    spec = (workload, *more) if more else workload
    given = {option: value for flag, option in _OF_RANDOM.items() if (value := getattr(flags, flag)) is not None}
    if given and spec != "random":
        flag = next(flag for flag, option in _OF_RANDOM.items() if option in given)
        raise ConfigError(flag, getattr(flags, flag), "it needs the workload `random`: give that, or leave this out")
    if flags.burstiness != 1 and flags.request_rate is None:
        raise ConfigError("burstiness", flags.burstiness, "needs request_rate: give that as well, or leave this out")
    _clients_of(flags)  # a mistake is said before a file is read
    read = load_workload(
        spec,
        format=flags.format,
        limit=flags.limit,
        rate_scale=flags.rate_scale,
        seed=flags.seed,
        session_rate=flags.session_rate,
        random_options=RandomOptions(**given) if given else None,
        log=LogOptions(
            columns=columns_from(flags.columns or ""),
            time_unit=TimeUnit(flags.time_unit) if flags.time_unit else None,
            stamped=Stamp(flags.stamped),
            max_bad_lines=flags.max_bad_lines,
            model_name=flags.model_name,
        ),
        load=LoadShape(
            request_rate=flags.request_rate, burstiness=flags.burstiness, max_concurrency=flags.max_concurrency
        ),
    )
    return _in_service(read, flags)


_OF_ANY = ("seed", "rate_scale", "max_concurrency", "skip_refused", "client_timeout", "retries", "retry_wait")
"""Settings that mean something for a workload that is there; the others say how one is read."""


def applied(workload: Workload, flags: TrafficSettings) -> Workload:
    """A workload that was made, as the settings have it. Raises ConfigError for one that says how files are read."""
    usual = TrafficSettings()
    for each in fields(flags):
        value = getattr(flags, each.name)
        if value != getattr(usual, each.name) and each.name not in (*_OF_ANY, "front_end_delay"):
            raise ConfigError(each.name, value, "says how a workload is read, and this one is there: leave it out")
    if flags.rate_scale != 1:
        workload = workload.with_rate(flags.rate_scale)
    if flags.max_concurrency is not None:
        workload = workload.with_max_concurrency(flags.max_concurrency)
    return _in_service(workload, flags)


def _clients_of(flags: TrafficSettings) -> Clients | None:
    """Clients as the flags say; None if they wait. Raises ConfigError."""
    if flags.client_timeout is None:
        if flags.retries:
            raise ConfigError("retries", flags.retries, "retries happen after a timeout: give client_timeout as well")
        return None
    return Clients(
        timeout=seconds_of("client_timeout", flags.client_timeout),
        retries=flags.retries,
        wait=seconds_of("retry_wait", flags.retry_wait),
    )


def _in_service(workload: Workload, flags: TrafficSettings) -> Workload:
    """The workload with its clients, and the time that its requests are on their way. Raises TokenyardError."""
    clients = _clients_of(flags)
    if flags.front_end_delay is not None:
        workload = _delayed(workload, flags.front_end_delay, flags.seed)
    return workload if clients is None else workload.with_clients(clients)


def _delayed(workload: Workload, given: str, seed: int) -> Workload:
    """A constant, or draws from what a trace recorded."""
    if not Path(given).exists():
        return workload.with_delays([seconds_of("front_end_delay", given)] * len(workload))
    ways = _ways_in(given)
    drawn = np.random.default_rng(seed).choice(np.array(ways), len(workload)).tolist()
    half, most = np.percentile(ways, (50, 90)).tolist()
    said = (
        f"half the requests are {half * 1e3:.3g} ms or less on their way to the scheduler, nine of ten {most * 1e3:.3g}"
    )
    return workload.with_delays(drawn).with_notes([f"{said}: drawn from {len(ways):,} in {given}"])


def _ways_in(trace: str) -> Sequence[float]:
    ways = recorded_ways(trace)
    if not ways:
        fix = "says nothing of the way to the scheduler: give the trace of a server, not of a replay, or a time (20ms)"
        raise ConfigError("front_end_delay", trace, fix)
    return ways
