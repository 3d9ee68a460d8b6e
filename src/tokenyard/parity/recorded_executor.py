"""The executor of a parity replay: the model's part comes out of the record."""

from __future__ import annotations

from collections.abc import Mapping

from tokenyard.sched.features.grammars import GrammarOutput
from tokenyard.sched.steps.aux_output import ModelAuxOutput
from tokenyard.sched.steps.model_output import DraftTokens, ModelOutput
from tokenyard.sched.steps.scheduler_output import SchedulerOutput

__all__ = ["RecordedExecutor"]


class _RecordedStep:
    """A step whose output is known when its record is read; it is never done before somebody waits for it."""

    def __init__(self, executor: RecordedExecutor, plan: SchedulerOutput) -> None:
        self._executor = executor
        self._plan = plan

    def done(self) -> bool:
        return False

    def result(self) -> ModelOutput:
        return self._executor.answer(self._plan)


class RecordedExecutor:
    """Answers steps with what :meth:`record` was given last."""

    def __init__(self) -> None:
        self.plan: SchedulerOutput | None = None
        """The step that was begun last."""
        self._sampled: Mapping[str, list[int]] = {}
        self._pooled: frozenset[str] = frozenset()
        self._drafts: Mapping[str, list[int]] | None = None
        self._answered: SchedulerOutput | None = None

    def record(
        self,
        sampled: Mapping[str, list[int]],
        pooled: frozenset[str] = frozenset(),
        drafts: Mapping[str, list[int]] | None = None,
    ) -> None:
        """What the model returned for the step that is taken in next, by request id, and drafted after it."""
        self._sampled, self._pooled, self._drafts = sampled, pooled, drafts

    def execute_model(self, plan: SchedulerOutput) -> None:
        """Nothing runs."""
        self.plan = plan

    def sample_tokens(self, plan: SchedulerOutput, grammar: GrammarOutput | None) -> _RecordedStep:
        """The step, to be answered by its record."""
        return _RecordedStep(self, plan)

    def answer(self, plan: SchedulerOutput) -> ModelOutput:
        """The recorded output of ``plan``."""
        self._answered = plan
        tokens = [self._sampled.get(request_id, []) for request_id in plan.req_ids]
        pooler = [request_id if request_id in self._pooled else None for request_id in plan.req_ids]
        extras = ModelAuxOutput(pooler_output=pooler) if self._pooled else None
        return ModelOutput.from_lists(tokens, extras=extras)

    def take_draft_token_ids(self) -> DraftTokens | None:
        """The recorded drafts after the step that was answered last; None where none are recorded."""
        drafts, plan = self._drafts, self._answered
        if drafts is None or plan is None:
            return None
        return DraftTokens.from_lists([drafts.get(request_id, []) for request_id in plan.req_ids])

    def shutdown(self) -> None:
        """Nothing is held."""
