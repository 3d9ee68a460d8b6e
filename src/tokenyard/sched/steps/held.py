"""What a call had decided when it raised, because a hook did: handed out by the next call."""

from __future__ import annotations

from collections.abc import Callable

from tokenyard.failures import Failures
from tokenyard.sched.steps.engine_outputs import EngineOutputs
from tokenyard.sched.steps.in_flight import StepInFlight
from tokenyard.sched.steps.scheduler_output import SchedulerOutput

__all__ = ["Held"]


class Held:
    """Nothing, nearly always."""

    __slots__ = ("_hooks", "failures", "outputs", "step")

    def __init__(self, failures: Failures) -> None:
        self.failures = failures
        self.step: StepInFlight | None = None
        """A step that nobody has been given."""
        self.outputs: EngineOutputs | None = None
        """Those of the step that was taken in last, if nobody has been given them."""
        self._hooks: list[Callable[[StepInFlight], None]] = []
        """What has still to be added to ``step``."""

    def missing(self, hook: Callable[[StepInFlight], None], error: Exception) -> None:
        """What adds to the plan that is being made has raised; it is asked again before the plan is handed out."""
        self.failures.note(error, "what is added to a plan (KVConnector.build_connector_meta)")
        self._hooks.append(hook)

    def hold_step(self, step: StepInFlight) -> None:
        """Raise what was noted while ``step`` was decided."""
        self.step = step
        self.failures.raise_first("the step is decided all the same, and the next schedule() hands it out")

    def take_plan(self, step: StepInFlight) -> SchedulerOutput:
        """The plan of the step that is held; raises again where what has to be added to it does."""
        while self._hooks:
            self._hooks[0](step)
            del self._hooks[0]
        self.step = None
        return step.plan

    def hold_outputs(self, outputs: EngineOutputs) -> None:
        """Raise what was noted while ``outputs`` were made."""
        self.outputs = outputs
        self.failures.raise_first(
            "the output is taken in all the same: make the same call once more to get the outputs"
        )

    def take_outputs(self, outputs: EngineOutputs) -> EngineOutputs:
        """The outputs that are held are given out."""
        self.outputs = None
        return outputs

    def forget_aborted(self) -> None:
        """Outputs that are held name nobody who was ended from outside meanwhile."""
        if self.outputs is not None:
            self.outputs = self.outputs.without_aborted()
