"""What a scenario consists of: the engine's configuration, the requests that arrive and the events that strike."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Engine", "Event", "Plan", "Planned", "Scenario"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Engine:
    """The configuration of vLLM's scheduler; the names are vLLM's, ``num_blocks`` counts the null block."""

    max_num_seqs: int = 8
    max_num_batched_tokens: int = 128
    max_model_len: int = 256
    num_blocks: int = 300
    block_size: int = 16
    policy: Literal["fcfs", "priority"] = "fcfs"
    enable_chunked_prefill: bool = True
    enable_prefix_caching: bool = True
    long_prefill_token_threshold: int = 0
    scheduler_reserve_full_isl: bool = True
    max_loras: int | None = None

    @property
    def longest_sequence(self) -> int:
        """Most tokens, prompt and output, that a request may have and still finish when it is alone.

        The last token's KV is never computed, so a sequence may have one token more than the pool has room for.
        """
        return min(self.max_model_len, (self.num_blocks - 1) * self.block_size + 1)


@dataclass(kw_only=True, slots=True)
class Planned:
    """A request to come: at tick ``arrival_step``, or ``after`` = (id, ticks) another one has finished.

    The prompt of such a follow-up is the whole earlier conversation and then its own ``prompt``.
    """

    id: str
    prompt: list[int]
    max_tokens: int
    arrival_step: int = -1
    after: tuple[str, int] | None = None
    arrival_time: float | None = None
    """What the PRIORITY policy compares; None: the tick at which it arrives."""
    min_tokens: int = 0
    eos: int | None = None
    stop_token_ids: tuple[int, ...] = ()
    priority: int = 0
    cache_salt: str | None = None
    lora: int = 0
    """Number of its adapter; 0 is none."""
    skip_reading_prefix_cache: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """Something from outside, before ``schedule()`` ("pre") or between it and ``update_from_output()`` ("mid")."""

    step: int
    op: Literal["abort", "reset", "pause"]
    when: Literal["pre", "mid"] = "pre"
    id: str = ""
    """abort: whom."""
    running: bool = False
    """reset: preempt what runs, so that it cannot be refused."""
    state: int = 0
    """pause: 0 goes on, 1 admits nothing, 2 schedules nothing."""


@dataclass(kw_only=True, slots=True)
class Plan:
    """Everything that will happen to one scheduler."""

    requests: list[Planned]
    events: list[Event]


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """One vector file."""

    name: str
    seed: int
    engine: Engine
    build: Callable[[Random, Engine], Plan]
    vocab: int = 400
    """The fake model's tokens are 0..vocab-1."""
    shows: tuple[str, ...] = ()
    """Statistics that must not be zero, else the scenario does not exercise what it was made for."""

    def plan(self) -> Plan:
        """Build it; equal seeds give equal plans."""
        return self.build(Random(self.seed), self.engine)
