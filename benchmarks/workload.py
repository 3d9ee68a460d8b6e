"""What is timed: the same scenarios for vLLM's scheduler and for ours. Plain Python, for both environments."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "SCENARIOS",
    "EngineShape",
    "LongPrompt",
    "PrefillMix",
    "RequestSpec",
    "Scenario",
    "SteadyDecode",
    "num_right",
]

BLOCK = 16
VOCAB = 32_000


class EngineShape(NamedTuple):
    """Configuration of a scheduler: first come first served, prefix caching (sha256) on, statistics off."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    num_blocks: int
    block_size: int = BLOCK
    num_speculative_tokens: int | None = None
    spec_method: str | None = None
    async_scheduling: bool | None = None

    @property
    def depth(self) -> int:
        """Steps in flight."""
        return 2 if self.async_scheduling else 1


class RequestSpec(NamedTuple):
    """A request to make; it only ends by its length."""

    id: str
    prompt: list[int]
    max_tokens: int
    arrival_time: float


@dataclass(frozen=True, slots=True)
class SteadyDecode:
    """``running`` requests, all past their prompts, none of which ends: what most steps of a busy engine are.

    A step is ``schedule()`` and ``update_from_output()``. ``steps`` is a multiple of the block
    size, so every request takes and seals equally many blocks on the way.
    """

    name: str
    running: int
    prompt_tokens: int = 256
    warm_up: int = 2 * BLOCK
    steps: int = 10 * BLOCK
    turn: int = BLOCK
    """Steps before another engine's turn, where several are timed."""
    drafts: int = 0
    """Drafts per request and step; of a request's drafts 0, 1, 2 ... are right in turn."""
    is_async: bool = False
    """Steps are decided before the output of the one before is there."""

    @property
    def engine(self) -> EngineShape:
        """Room for everything, so that no request is preempted."""
        budget = 8192
        arriving = self.running * self.prompt_tokens // (budget - self.running) + 2
        steps = arriving + self.warm_up + self.steps
        longest = self.prompt_tokens + (1 + self.drafts) * (steps + 1)
        shape = EngineShape(self.running, budget, budget, self.running * (longest // BLOCK + 1) + 1)
        if self.drafts:
            method = "ngram_gpu" if self.is_async else "ngram"
            shape = shape._replace(num_speculative_tokens=self.drafts, spec_method=method)
        return shape._replace(async_scheduling=True) if self.is_async else shape

    def requests(self) -> Iterator[RequestSpec]:
        """All of them, with prompts that share nothing."""
        room = self.engine.max_model_len - self.prompt_tokens - self.drafts
        for i in range(self.running):
            prompt = [(i * 7919 + j * 31) % VOCAB for j in range(self.prompt_tokens)]
            yield RequestSpec(f"request-{i}", prompt, room, float(i))


@dataclass(frozen=True, slots=True)
class PrefillMix:
    """Long prompts and short answers: 128 seats, budget 8192, half of the prompts under one system prompt.

    The waiting queue is kept at 16 until all requests have come.
    """

    name: str
    count: int = 400
    system_tokens: int = 1024
    own_tokens: tuple[int, int] = (500, 4000)
    output_tokens: tuple[int, int] = (4, 16)
    queued: int = 16

    @property
    def engine(self) -> EngineShape:
        """Room for 128 of the longest."""
        return EngineShape(128, 8192, 8192, 128 * 330)

    def requests(self) -> Iterator[RequestSpec]:
        """All of them, in order of arrival."""
        rng = Random(20_251)
        system = [rng.randrange(VOCAB) for _ in range(self.system_tokens)]
        for i in range(self.count):
            own = [rng.randrange(VOCAB) for _ in range(rng.randint(*self.own_tokens))]
            prompt = system + own if i % 2 else own
            yield RequestSpec(f"request-{i}", prompt, rng.randint(*self.output_tokens), float(i))


@dataclass(frozen=True, slots=True)
class LongPrompt:
    """One prompt of 32k tokens, again and again: hashing it, looking all of it up, admitting it."""

    name: str
    tokens: int = 32_768
    hashings: int = 9
    lookups: int = 51
    admissions: int = 9

    @property
    def engine(self) -> EngineShape:
        """One prefill step is enough."""
        return EngineShape(4, 40_000, 40_000, 3 * self.tokens // BLOCK)

    @property
    def blocks(self) -> int:
        """Full blocks of the prompt."""
        return self.tokens // BLOCK

    def request(self, number: int) -> RequestSpec:
        """The same prompt under another id; one answer token."""
        prompt = [(j * 7919) % VOCAB for j in range(self.tokens)]
        return RequestSpec(f"request-{number}", prompt, 1, 0.0)


def num_right(step: int, row: int, offered: int) -> int:
    """How many of a request's drafts the model accepts in a step."""
    return (step + row) % (offered + 1)


Scenario: TypeAlias = SteadyDecode | PrefillMix | LongPrompt

SCENARIOS: tuple[Scenario, ...] = (
    SteadyDecode("decode_32", 32),
    SteadyDecode("decode_256", 256),
    SteadyDecode("decode_1024", 1024),
    SteadyDecode("drafts_256", 256, drafts=3),
    SteadyDecode("async_drafts_256", 256, drafts=3, is_async=True),
    PrefillMix("prefill_mix"),
    LongPrompt("prompt_32k"),
)
