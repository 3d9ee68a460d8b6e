"""Turns of one session: every prompt is the previous prompt, the answer to it, and something new.

All of a session's tokens behind the shared system prompt are one stream by absolute position, which the simulated
model continues when it answers. So the next prompt holds exactly what was generated, and its prefix is in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from tokenyard.sim.workload.generators.distributions import poisson_arrivals
from tokenyard.sim.workload.record import WorkloadRequest
from tokenyard.sim.workload.tokens import Segment, StreamTokens, seed_of

__all__ = ["SessionOptions", "SessionTurn", "requests_of_session", "session_requests", "within_context"]


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
    """The turns that fit ``max_context`` tokens, the first of them cut down to what does."""
    kept: list[SessionTurn] = []
    length = system_tokens
    for turn in turns:
        fitting = turn if kept else _cut(turn, max_context - system_tokens)
        length += fitting.new_tokens + fitting.output_tokens
        if length > max_context:
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
