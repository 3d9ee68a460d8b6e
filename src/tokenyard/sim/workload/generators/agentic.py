"""Multi-turn coding agents: one shared system prompt, growing contexts, log-normal tool times between turns."""

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

__all__ = ["AgenticOptions", "agentic"]

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
