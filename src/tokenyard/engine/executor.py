"""The executor: whatever runs the model for an engine core.

    execute_model(plan)            begin the step
    sample_tokens(plan, grammar)   its tokens, as a future: sampling may have to wait for the grammars' bitmask
    take_draft_token_ids()         its drafts for the requests of the step that was begun last, in that step's order

A replay's executor answers from a latency model, a PyTorch engine's from its model; both are called as vLLM calls its
workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from tokenyard.columns import IntArray
from tokenyard.sched.features.grammars import GrammarOutput
from tokenyard.sched.steps.model_output import DraftTokens, ModelOutput
from tokenyard.sched.steps.scheduler_output import SchedulerOutput

__all__ = ["DoneStep", "Executor", "Repeated", "RunsAhead", "StepFuture"]


class StepFuture(Protocol):
    """The output of a step that may still run; ``concurrent.futures.Future[ModelOutput]`` is one."""

    def done(self) -> bool:
        """Whether ``result`` returns at once."""

    def result(self) -> ModelOutput:
        """Sampled tokens, aligned with the step's requests; waits for them. Raises what the model raised."""


class Executor(Protocol):
    """Runs the model. Steps are begun, and sampled from, in the order in which they were scheduled."""

    def execute_model(self, plan: SchedulerOutput) -> None:
        """Begin a step. It may be empty: it then only reports finished requests, or moves KV."""

    def sample_tokens(self, plan: SchedulerOutput, grammar: GrammarOutput | None) -> StepFuture:
        """The output of a step that was begun; ``grammar`` has the bitmask of those that sample by one.

        ``plan`` may know drafts that it did not know when the step was begun.
        """

    def take_draft_token_ids(self) -> DraftTokens | None:
        """Drafts for the requests of the step that was begun last, aligned with them; None if none are made.

        Without async scheduling it is asked when that step's output has been taken in: they are what it proposes next.
        With async scheduling, only where grammars need it, it is asked before that step is sampled from: they are the
        drafts that the step itself verifies, its -1, which were made after the step before. Rows of requests that had
        no part in the step before have none. After an answer that does not belong to the step it is asked again.
        """

    def shutdown(self) -> None:
        """Let go of all resources; nothing is called afterwards."""


class Repeated(NamedTuple):
    """Steps that an executor has run ahead, all like the newest in flight."""

    tokens: IntArray
    """What their outputs bring, a token per request, shape ``[n, steps]``."""
    moments: Sequence[float]
    """Seconds at which their outputs came, on the scheduler's clock."""
    futures: Sequence[StepFuture]
    """Of the steps that are in flight then, the oldest first."""


@runtime_checkable
class RunsAhead(Protocol):
    """An executor that knows what comes: it can run several steps alike in one stroke."""

    def run_ahead(self, futures: Sequence[StepFuture], newest: SchedulerOutput, most: int) -> Repeated | None:
        """Let the oldest of ``futures`` come and begin a step like ``newest``, up to ``most`` times; None: not once."""


class DoneStep:
    """A future whose result is there."""

    __slots__ = ("_output",)

    def __init__(self, output: ModelOutput) -> None:
        self._output = output

    def done(self) -> bool:
        """Always."""
        return True

    def result(self) -> ModelOutput:
        """The output."""
        return self._output
