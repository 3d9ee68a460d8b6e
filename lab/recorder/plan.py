"""What a scenario consists of: the engine's configuration, the requests that arrive and the events that strike."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Engine", "Event", "Group", "Image", "Plan", "Planned", "Scenario"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """A KV-cache group: layers that share a block table."""

    kind: Literal["full", "swa", "chunked", "mamba", "cross", "ring"] = "full"
    window: int | None = None
    """Tokens of a sliding window ("swa") or of a chunk ("chunked")."""
    block_size: int | None = None
    """None: the engine's."""
    eagle: bool | None = None
    """Holds the layers of an EAGLE head."""


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
    async_scheduling: bool | None = None
    num_speculative_tokens: int | None = None
    spec_method: Literal["ngram", "ngram_gpu", "eagle", "draft_model"] | None = None
    groups: tuple[Group, ...] | None = None
    """None: one group of full attention."""
    max_num_encoder_input_tokens: int | None = None
    """Embeddings that a step may compute; None: a model without encoder."""
    encoder_cache_size: int | None = None
    """Embeddings kept."""
    disable_chunked_mm_input: bool | None = None
    record_events: bool | None = None
    """The vector says which events (queued, scheduled, preempted) clients are told."""
    drafts_in_output: bool | None = None
    """With async scheduling: drafts are made known to the scheduler before their step runs."""
    mamba_cache_mode: Literal["none", "all", "align"] | None = None
    encoder_decoder: bool | None = None
    """The items of a request are read by cross attention."""
    decode_context_parallel_size: int | None = None
    prefill_context_parallel_size: int | None = None
    pipeline_parallel_size: int | None = None

    def depth(self, *, one_ahead: bool) -> int:
        """Steps in flight; ``one_ahead``: with async scheduling a pipeline has one more than it has stages (0.23)."""
        stages = self.pipeline_parallel_size or 1
        return stages + bool(self.async_scheduling and (stages == 1 or one_ahead))

    @property
    def longest_sequence(self) -> int:
        """Most tokens, prompt and output, that a request may have and still finish when it is alone.

        The last token's KV is never computed, so a sequence may have one token more than the pool has room for. Drafts
        may need places beyond it.
        """
        drafts = self.num_speculative_tokens or 0
        ranks = (self.decode_context_parallel_size or 1) * (self.prefill_context_parallel_size or 1)
        groups = self.groups or (Group(),)
        rings = sum(group.kind == "ring" for group in groups)
        sizes = [group.block_size or self.block_size for group in groups if group.kind != "ring"]
        states = drafts * sum(group.kind == "mamba" for group in groups)
        room = (self.num_blocks - 1 - states - rings) // len(sizes) * min(sizes) * ranks - drafts
        return min(self.max_model_len, room + 1)


class Image(NamedTuple):
    """A multi-modal item whose placeholders stand in the prompt; as in the vector file."""

    mm_hash: str
    offset: int
    length: int
    is_embed: tuple[bool, ...] | None = None
    """Which placeholders stand for an embedding; None: all."""

    def moved(self, tokens: int) -> Image:
        """The same, ``tokens`` later in the prompt."""
        return self._replace(offset=self.offset + tokens)


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
    mm: tuple[Image, ...] = ()
    repetition: tuple[int, int, int] | None = None
    """Longest and shortest pattern, and how often it stands in a row, that ends the request."""
    pooling: bool = False
    """It ends with its prompt and samples nothing."""
    resumable: bool = False
    """A streaming-input session: "feed" events bring its further input."""
    forbids: tuple[int, ...] | None = None
    """It has a grammar, which allows every token but these; it is compiled when a "grammar" event says so."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """Something from outside, before ``schedule()`` ("pre") or between it and ``update_from_output()`` ("mid")."""

    step: int
    op: Literal["abort", "reset", "pause", "grammar", "reset_encoder", "feed"]
    when: Literal["pre", "mid"] = "pre"
    id: str = ""
    """abort: whom; grammar: whose; feed: which session."""
    status: str = "FINISHED_ABORTED"
    """abort: the status it ends with."""
    prompt: tuple[int, ...] = ()
    """feed: further input."""
    last: bool = False
    """feed: the session ends with this."""
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
    acceptance: int = 60
    """Per cent of the drafts that are right."""
    shows: tuple[str, ...] = ()
    """Statistics that must not be zero, else the scenario does not exercise what it was made for."""

    def plan(self) -> Plan:
        """Build it; equal seeds give equal plans."""
        return self.build(Random(self.seed), self.engine)
