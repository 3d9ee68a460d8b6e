"""Built-in workloads: seeded, with the traits that matter to a scheduler."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tokenyard.arguments import is_number
from tokenyard.core.config import require_counts, require_int
from tokenyard.errors import ConfigError
from tokenyard.quick_dataclass import dataclass
from tokenyard.workload.record import Workload, WorkloadRequest
from tokenyard.workload.tokens import Segment, StreamTokens, seed_of

# ---------------------------------------------------------------------------------------------------------------------
# Random numbers that all generators use, and the checks of their options.

Lognormal = tuple[float, float]
"""(median, sigma of the logarithm)."""


def draw(rng: np.random.Generator, shape: Lognormal) -> float:
    """One value."""
    median, sigma = shape
    return float(median * math.exp(sigma * rng.standard_normal()))


def draw_count(rng: np.random.Generator, shape: Lognormal, low: int, high: int) -> int:
    """One whole number within ``low..high``."""
    return int(min(max(round(draw(rng, shape)), low), high))


def poisson_arrivals(rng: np.random.Generator, count: int, rate: float) -> npt.NDArray[np.float64]:
    """``count`` arrival times in seconds at ``rate`` per second; the first is 0."""
    gaps = rng.exponential(1.0 / rate, count)
    gaps[0] = 0.0
    return np.cumsum(gaps)


def require_positive(options: object, *fields: str) -> None:
    """Raise ConfigError unless each named option is a finite number above 0."""
    for field in fields:
        value = getattr(options, field)
        if not is_number(value, above=True):
            raise ConfigError(field, value, "give a number above 0")


def require_shapes(options: object, *fields: str) -> None:
    """Raise ConfigError unless each named option is (median > 0, sigma >= 0)."""
    for field in fields:
        value = getattr(options, field)
        numbers = isinstance(value, tuple) and all(isinstance(x, int | float) for x in value)
        if not numbers or len(value) != 2 or not 0 < value[0] < math.inf or not 0 <= value[1] < 10:
            raise ConfigError(field, value, "give (median above 0, sigma of the logarithm from 0)")


# ---------------------------------------------------------------------------------------------------------------------
# Turns of one session: every prompt is the previous prompt, the answer to it, and something new.
#
# All of a session's tokens behind the shared system prompt are one stream by absolute position, which the simulated
# model continues when it answers. So the next prompt holds exactly what was generated, and its prefix is in the
# cache.


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTurn:
    """One turn of a session."""

    new_tokens: int
    """Tokens of the user or tool since the previous answer."""
    output_tokens: int
    gap: float
    """Seconds since the previous turn ended."""
    func_call: str | None = None
    """Tool that this turn calls."""


def within_context(turns: Iterable[SessionTurn], *, system_tokens: int, max_context: int) -> list[SessionTurn]:
    """The turns that fit ``max_context`` tokens, the first of them cut down to what does; the last calls no tool."""
    kept: list[SessionTurn] = []
    length = system_tokens
    for turn in turns:
        fitting = turn if kept else _cut(turn, max_context - system_tokens)
        length += fitting.new_tokens + fitting.output_tokens
        if length > max_context:
            kept[-1] = replace(kept[-1], func_call=None)
            break
        kept.append(fitting)
    return kept


def _cut(turn: SessionTurn, room: int) -> SessionTurn:
    """The turn within ``room`` tokens, at most half of them output."""
    output = min(turn.output_tokens, room // 2)
    return replace(turn, output_tokens=output, new_tokens=min(turn.new_tokens, room - output))


def requests_of_session(
    job_id: str, turns: Sequence[SessionTurn], *, start: float, seed: int, system_seed: int, system_tokens: int
) -> Iterator[WorkloadRequest]:
    """The turns of one session as chained requests; the first arrives at ``start``."""
    length = system_tokens
    previous: str | None = None
    for index, turn in enumerate(turns):
        length += turn.new_tokens
        request_id = f"{job_id}_t{index}"
        yield WorkloadRequest(
            request_id=request_id,
            prompt=StreamTokens(Segment(system_seed, 0, system_tokens), Segment(seed, system_tokens, length)),
            max_tokens=turn.output_tokens,
            arrival_time=start if previous is None else 0.0,
            after=() if previous is None else (previous,),
            gap=0.0 if previous is None else turn.gap,
            job_id=job_id,
            is_last_step=index == len(turns) - 1,
            this_func_call=turn.func_call,
            output_seed=seed,
        )
        length += turn.output_tokens
        previous = request_id


class SessionOptions(Protocol):
    """Options that every workload of sessions has."""

    @property
    def num_sessions(self) -> int: ...
    @property
    def rate(self) -> float: ...
    @property
    def seed(self) -> int: ...
    @property
    def system_tokens(self) -> int: ...
    @property
    def max_context(self) -> int: ...


def session_requests(
    kind: str, prefix: str, options: SessionOptions, turns: Callable[[np.random.Generator], Iterable[SessionTurn]]
) -> Iterator[WorkloadRequest]:
    """Conversations that begin by a Poisson process and share a system prompt, as jobs ``prefix_0000`` and so on.

    ``turns`` draws those of one session; ``kind`` keeps its token ids apart from those of other workloads.
    """
    rng = np.random.default_rng(options.seed)
    system_seed = seed_of(f"{kind} system", options.seed)
    for i, start in enumerate(poisson_arrivals(rng, options.num_sessions, options.rate).tolist()):
        yield from requests_of_session(
            f"{prefix}_{i:04d}",
            within_context(turns(rng), system_tokens=options.system_tokens, max_context=options.max_context),
            start=start,
            seed=seed_of(kind, options.seed, i),
            system_seed=system_seed,
            system_tokens=options.system_tokens,
        )


# ---------------------------------------------------------------------------------------------------------------------
# Multi-turn coding agents: one shared system prompt, growing contexts, log-normal tool times between turns.

_TOOLS = ("read_file", "search", "run_tests", "edit", "shell")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgenticOptions:
    """Agents that work through a task turn by turn. Lengths in tokens, times in seconds."""

    num_sessions: int = 100
    rate: float = 0.5
    """Sessions per second (a Poisson process)."""
    seed: int = 0
    system_tokens: int = 3000
    """Tools and instructions that all sessions share."""
    task: Lognormal = (900.0, 0.7)
    """First message."""
    tool_result: Lognormal = (600.0, 1.0)
    output: Lognormal = (130.0, 0.8)
    tool_time: Lognormal = (2.0, 1.2)
    turns: Lognormal = (9.0, 0.5)
    max_context: int = 32_000
    """A session ends before a turn that would exceed it."""

    def __post_init__(self) -> None:
        require_counts(self, num_sessions=1, seed=0, system_tokens=1, max_context=self.system_tokens + 2)
        require_positive(self, "rate")
        require_shapes(self, "task", "tool_result", "output", "tool_time", "turns")


def agentic(options: AgenticOptions | None = None) -> Workload:
    """A workload of chained turns, one job per session."""
    options = options or AgenticOptions()
    return Workload("agentic", session_requests("agentic", "agent", options, lambda rng: _turns(rng, options)))


def _turns(rng: np.random.Generator, options: AgenticOptions) -> list[SessionTurn]:
    count = draw_count(rng, options.turns, 1, 1000)
    return [
        SessionTurn(
            new_tokens=draw_count(rng, options.tool_result if index else options.task, 1, options.max_context),
            output_tokens=draw_count(rng, options.output, 1, options.max_context),
            gap=draw(rng, options.tool_time),
            func_call=str(rng.choice(_TOOLS)) if index < count - 1 else None,
        )
        for index in range(count)
    ]


# ---------------------------------------------------------------------------------------------------------------------
# Chats: a short shared system prompt, a few turns, a person who reads and types between them.


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions:
    """People who chat. Lengths in tokens, times in seconds."""

    num_sessions: int = 400
    rate: float = 4.0
    """Sessions per second (a Poisson process)."""
    seed: int = 0
    system_tokens: int = 180
    """Instructions that all sessions share."""
    message: Lognormal = (70.0, 1.1)
    output: Lognormal = (210.0, 0.9)
    pause: Lognormal = (15.0, 0.9)
    mean_turns: float = 3.0
    """Turns of a session are geometric."""
    max_context: int = 8000
    """A session ends before a turn that would exceed it."""

    def __post_init__(self) -> None:
        require_counts(self, num_sessions=1, seed=0, system_tokens=1, max_context=self.system_tokens + 2)
        require_positive(self, "rate", "mean_turns")
        require_shapes(self, "message", "output", "pause")


def chat(options: ChatOptions | None = None) -> Workload:
    """A workload of chained turns, one job per session."""
    options = options or ChatOptions()
    return Workload("chat", session_requests("chat", "chat", options, lambda rng: _chat_turns(rng, options)))


def _chat_turns(rng: np.random.Generator, options: ChatOptions) -> list[SessionTurn]:
    return [
        SessionTurn(
            new_tokens=draw_count(rng, options.message, 1, options.max_context),
            output_tokens=draw_count(rng, options.output, 1, options.max_context),
            gap=draw(rng, options.pause),
        )
        for _ in range(int(rng.geometric(1.0 / max(1.0, options.mean_turns))))
    ]


# ---------------------------------------------------------------------------------------------------------------------
# Code completion: editors that ask at every pause while their user types. Short answers, bursts, one file per burst.
#
# Within a burst the prompts are the same file up to a cursor that moves on, so each shares all but its end with the
# one before. Requests do not wait for each other.


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionOptions:
    """Editors. Lengths in tokens, times in seconds."""

    num_requests: int = 3000
    rate: float = 10.0
    """Requests per second, on average."""
    seed: int = 0
    mean_burst: float = 12.0
    """Requests of a burst are geometric."""
    spacing: float = 0.12
    """Mean time between the requests of a burst."""
    file: Lognormal = (1400.0, 1.0)
    """Tokens before the cursor when a burst begins."""
    typed: Lognormal = (6.0, 0.8)
    """Tokens that the cursor moves on between requests."""
    output: Lognormal = (16.0, 0.8)
    max_context: int = 8000

    def __post_init__(self) -> None:
        require_counts(self, num_requests=1, seed=0, max_context=2)
        require_positive(self, "rate", "mean_burst", "spacing")
        require_shapes(self, "file", "typed", "output")


def completion(options: CompletionOptions | None = None) -> Workload:
    """A workload of independent requests, one job per burst, in order of arrival."""
    options = options or CompletionOptions()
    requests = sorted(_requests(options), key=lambda request: request.arrival_time)
    return Workload("completion", requests)


def _requests(options: CompletionOptions) -> Iterator[WorkloadRequest]:
    rng = np.random.default_rng(options.seed)
    mean_burst = max(1.0, options.mean_burst)
    starts = poisson_arrivals(rng, options.num_requests, options.rate / mean_burst).tolist()
    left = options.num_requests
    for i, start in enumerate(starts):
        size = min(left, int(rng.geometric(1.0 / mean_burst)))
        yield from _burst(rng, options, f"edit_{i:04d}", start, size)
        left -= size
        if not left:
            return


def _burst(
    rng: np.random.Generator, options: CompletionOptions, job: str, start: float, size: int
) -> Iterator[WorkloadRequest]:
    file_seed = seed_of("completion", options.seed, job)
    cursor = draw_count(rng, options.file, 16, options.max_context // 2)
    now = start
    for turn in range(size):
        output = draw_count(rng, options.output, 1, options.max_context // 4)
        cursor = min(cursor, options.max_context - output)
        yield WorkloadRequest(
            request_id=f"{job}_t{turn}",
            prompt=StreamTokens.unique(file_seed, max(1, cursor)),
            max_tokens=output,
            arrival_time=now,
            job_id=job,
            is_last_step=turn == size - 1,
            output_seed=seed_of(file_seed, turn),
        )
        now += float(rng.exponential(options.spacing))
        cursor += draw_count(rng, options.typed, 1, 100)


# ---------------------------------------------------------------------------------------------------------------------
# Retrieval-augmented questions: a shared instruction, a few retrieved documents, a question; long prompts.
#
# Documents are drawn from a corpus by a Zipf law and stand in order of popularity, so that popular ones share
# prefixes.


@dataclass(frozen=True, slots=True, kw_only=True)
class RagOptions:
    """Questions over a corpus. Lengths in tokens."""

    num_requests: int = 500
    rate: float = 1.0
    """Requests per second (a Poisson process)."""
    seed: int = 0
    system_tokens: int = 300
    corpus: int = 400
    """Documents."""
    documents: int = 4
    """Documents per question, at most (drawn with repetition, kept once)."""
    zipf: float = 1.1
    """Exponent of the documents' popularity."""
    document: Lognormal = (2400.0, 0.5)
    question: Lognormal = (60.0, 0.7)
    output: Lognormal = (160.0, 0.7)
    max_document: int = 8000

    def __post_init__(self) -> None:
        require_counts(self, num_requests=1, seed=0, system_tokens=1, corpus=1, max_document=1)
        require_int("documents", self.documents, 1, 1000)
        require_positive(self, "rate", "zipf")
        require_shapes(self, "document", "question", "output")


def rag(options: RagOptions | None = None) -> Workload:
    """A workload of independent requests."""
    options = options or RagOptions()
    return Workload("rag", _rag_requests(options))


def _rag_requests(options: RagOptions) -> Iterator[WorkloadRequest]:
    rng = np.random.default_rng(options.seed)
    system = Segment(seed_of("rag system", options.seed), 0, options.system_tokens)
    longest = options.max_document
    corpus = [
        Segment(seed_of("rag document", options.seed, i), 0, draw_count(rng, options.document, 16, longest))
        for i in range(options.corpus)
    ]
    weights = np.arange(1, options.corpus + 1, dtype=np.float64) ** -options.zipf
    chosen = rng.choice(options.corpus, (options.num_requests, options.documents), p=weights / weights.sum())
    for i, start in enumerate(poisson_arrivals(rng, options.num_requests, options.rate).tolist()):
        own = seed_of("rag", options.seed, i)
        question = Segment(own, 0, draw_count(rng, options.question, 1, 4000))
        documents = [corpus[each] for each in sorted(set(chosen[i].tolist()))]
        yield WorkloadRequest(
            request_id=f"rag_{i:05d}",
            prompt=StreamTokens(system, *documents, question),
            max_tokens=draw_count(rng, options.output, 1, 4000),
            arrival_time=start,
            output_seed=seed_of(own, "answer"),
        )


# ---------------------------------------------------------------------------------------------------------------------
# Random lengths, as ``vllm bench serve --dataset-name random`` sends them: no prompt like another but for a prefix.
#
# Lengths are uniform within ``len * (1 - range_ratio) .. len * (1 + range_ratio)``.


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomOptions:
    """Names and defaults are those of ``vllm bench serve``; lengths in tokens."""

    num_prompts: int = 1000
    input_len: int = 1024
    """Tokens of a prompt that are not shared."""
    output_len: int = 128
    prefix_len: int = 0
    """Tokens in front of every prompt, the same for all."""
    range_ratio: float = 0.0
    """Lengths vary by so much up and down; 0 to below 1."""
    seed: int = 0

    def __post_init__(self) -> None:
        require_counts(self, num_prompts=1, input_len=1, output_len=1, prefix_len=0, seed=0)
        ratio = self.range_ratio
        if not is_number(ratio, below=1.0):
            raise ConfigError("random_range_ratio", ratio, "give a number from 0 to below 1")


def random(options: RandomOptions | None = None) -> Workload:
    """All requests at once, at 0: a rate or a concurrency says when they are sent."""
    return Workload("random", _random_requests(options or RandomOptions()))


def _random_requests(options: RandomOptions) -> Iterator[WorkloadRequest]:
    rng = np.random.default_rng(options.seed)
    inputs, outputs = (_lengths(rng, mean, options) for mean in (options.input_len, options.output_len))
    prefix = seed_of("random", options.seed, "prefix")
    for i, (num_input, num_output) in enumerate(zip(inputs, outputs, strict=True)):
        own = seed_of("random", options.seed, i)
        shared = [Segment(prefix, 0, options.prefix_len)] if options.prefix_len else []
        yield WorkloadRequest(
            request_id=f"random_{i:06d}",
            prompt=StreamTokens(*shared, Segment(own, 0, num_input)),
            max_tokens=num_output,
            output_seed=own,
        )


def _lengths(rng: np.random.Generator, mean: int, options: RandomOptions) -> list[int]:
    low, high = math.floor(mean * (1 - options.range_ratio)), math.ceil(mean * (1 + options.range_ratio))
    return [int(value) for value in rng.integers(max(1, low), high, options.num_prompts, endpoint=True)]
