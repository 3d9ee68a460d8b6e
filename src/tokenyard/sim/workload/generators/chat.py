"""Chats: a short shared system prompt, a few turns, a person who reads and types between them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokenyard.sim.workload.generators.conversation import SessionTurn, session_requests
from tokenyard.sim.workload.generators.distributions import (
    Lognormal,
    draw,
    draw_count,
    require_counts,
    require_positive,
    require_shapes,
)
from tokenyard.sim.workload.record import Workload

__all__ = ["ChatOptions", "chat"]


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
    return Workload("chat", session_requests("chat", "chat", options, lambda rng: _turns(rng, options)))


def _turns(rng: np.random.Generator, options: ChatOptions) -> list[SessionTurn]:
    return [
        SessionTurn(
            new_tokens=draw_count(rng, options.message, 1, options.max_context),
            output_tokens=draw_count(rng, options.output, 1, options.max_context),
            gap=draw(rng, options.pause),
        )
        for _ in range(int(rng.geometric(1.0 / max(1.0, options.mean_turns))))
    ]
