"""Settings of an emulation beside its deployment: the flags of `tokenyard emulate`.

The help of the command line is made of them: nothing heavy is imported here.
"""

from __future__ import annotations

from typing import Annotated, Literal

from tokenyard.deploy.settings import NO_SETTING, Help, Settings
from tokenyard.errors import ConfigError
from tokenyard.quick_dataclass import dataclass

_MOST_SERVERS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulateSettings(Settings):
    """The emulated servers."""

    speed: float = 1.0
    """Emulated seconds in a second: 10 runs ten times as fast."""
    answers: Literal["words", "echo"] = "words"
    """What answers hold: words, or what the client said last."""
    lengths: Annotated[str | None, Help(metavar="WORKLOAD", otherwise="a spread around 180 tokens")] = None
    """Workload, by name or file, whose answers' lengths are drawn from; max_tokens and min_tokens hold in any case."""
    servers: int = 1
    """Servers of this kind, at ports that count up."""
    split: Annotated[str | None, Help(metavar="P+D", otherwise="not apart")] = None
    """Prefill and decode apart: a server of P engines that prefill, and at the next port one of D that decode."""
    kv_link_gb_per_s: float = 50.0
    """Speed of the network between them in GB/s, of one GPU."""
    surface: Annotated[str | None, Help(metavar="VERSION", otherwise="that of the decisions")] = None
    """Version of vLLM whose metrics and fields of answers apply, where it is another."""
    holds: Annotated[float | None, Help(metavar="TOKENS_PER_S", otherwise="measured at the start")] = None
    """Tokens a second that this machine can stream; the start log says how many streams that is."""
    front_end_delay: Annotated[str | None, Help(metavar="TIME", otherwise="as fitted")] = None
    """Time from a request's arrival to the scheduler, at least; fitted with calibrated step times, else none."""
    seed: int = 0
    """Seed of answers and faults."""
    max_late_s: Annotated[float, NO_SETTING] = 0.0
    """Seconds of the wall by which steps may be late before new requests are refused (503); 0: none ever is."""

    def __post_init__(self) -> None:
        if not 0.001 <= self.speed <= 10_000:
            raise ConfigError("speed", self.speed, "give a number from 0.001 to 10000")
        if self.answers not in ("words", "echo"):
            raise ConfigError("answers", self.answers, "give words or echo")
        if not 1 <= self.servers <= _MOST_SERVERS:
            raise ConfigError("servers", self.servers, f"give a number from 1 to {_MOST_SERVERS}")
        if not 0 < self.kv_link_gb_per_s < float("inf"):
            raise ConfigError("kv_link_gb_per_s", self.kv_link_gb_per_s, "give a number above 0")
        if not 0 <= self.max_late_s < float("inf"):
            raise ConfigError("max_late_s", self.max_late_s, "give seconds, or 0 to refuse no request")
        if self.holds is not None and not 0 < self.holds < float("inf"):
            raise ConfigError("holds", self.holds, "give tokens a second, above 0")
