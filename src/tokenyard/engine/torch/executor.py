"""The executor: one thread that runs a step after the other, while the scheduler's thread goes on.

    scheduler's thread   execute_model(n+1): copy what the step needs of the request table
    worker's thread      forward n | sample n -> future | forward n+1 ...

The block tables are columns of the scheduler's request table, and are read there: a step's rows are copied when it
begins, since the next step may change them. Everything else comes with the plan. An executor in another process would
keep tables of its own from ``plan.new_blocks``; this one is on the same machine, and keeps no second book.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from tokenyard.connectors.memory import BlockMemory
from tokenyard.connectors.plan import ConnectorWorker, TransferPlan
from tokenyard.engine.executor import StepFuture
from tokenyard.engine.torch.attention.block_batch import HeldBlocks
from tokenyard.engine.torch.checkpoint import LoadedModel, require_torch
from tokenyard.engine.torch.runner import ModelRunner
from tokenyard.sched.features.grammars import GrammarOutput
from tokenyard.sched.steps.model_output import DraftTokens, ModelOutput
from tokenyard.sched.steps.scheduler_output import SchedulerOutput
from tokenyard.table import RequestTable

__all__ = ["TorchExecutor"]

T = TypeVar("T")


class TorchExecutor:
    """Runs ``runner`` for the scheduler whose request table is ``table``."""

    def __init__(
        self,
        model: LoadedModel,
        runner: ModelRunner,
        table: RequestTable,
        memory: BlockMemory,
        *,
        drafts: bool = False,
        connector: ConnectorWorker | None = None,
    ) -> None:
        self.model = model
        """What was loaded."""
        self.memory = memory
        """The KV cache's blocks."""
        self._runner, self._table = runner, table
        self._drafts, self._connector = drafts, connector
        self._thread = ThreadPoolExecutor(1, "model")
        self._newest: SchedulerOutput | None = None
        """The step that was begun last."""
        self._forward: Future[None] | None = None
        """Its forward pass."""

    def execute_model(self, plan: SchedulerOutput) -> None:
        """Begin a step."""
        held = self._held_blocks(plan)
        self._newest = plan
        self._forward = self._run(lambda: self._begin(plan, held))

    def _held_blocks(self, plan: SchedulerOutput) -> HeldBlocks:
        """A copy of what the request table says of the step's rows."""
        table = self._table
        return HeldBlocks([each[plan.slots] for each in table.block_tables], table.capacity[plan.slots])

    def _begin(self, plan: SchedulerOutput, held: HeldBlocks) -> None:
        transfers = _transfers(plan)
        if self._connector is not None:
            self._connector.before_step(transfers)
        self._runner.forward(plan, held)
        if self._connector is not None:
            self._connector.after_step(transfers)

    def sample_tokens(self, plan: SchedulerOutput, grammar: GrammarOutput | None) -> StepFuture:
        """The tokens of the step that was begun last. Its future raises what the forward pass raised, if it did."""
        forward = self._forward
        assert forward is not None, "sampled from before it was begun"
        return self._run(lambda: self._sample(plan, grammar, forward))

    def _sample(self, plan: SchedulerOutput, grammar: GrammarOutput | None, forward: Future[None]) -> ModelOutput:
        forward.result()
        output = self._runner.sample(plan, grammar)
        if self._connector is not None:
            output.connector = self._connector.report()
        return output

    def take_draft_token_ids(self) -> DraftTokens | None:
        """Drafts for the requests of the step that was begun last; waits for the worker's thread."""
        plan = self._newest
        if plan is None or not self._drafts:
            return None
        return self._run(lambda: self._runner.drafts(plan)).result()

    def _run(self, work: Callable[[], T]) -> Future[T]:
        torch = require_torch()

        def without_gradients() -> T:
            with torch.inference_mode():
                return work()

        return self._thread.submit(without_gradients)

    def shutdown(self) -> None:
        """Wait for the step that runs, forget those that wait."""
        self._thread.shutdown(wait=True, cancel_futures=True)
        if self._connector is not None:
            self._connector.shutdown()


def _transfers(plan: SchedulerOutput) -> TransferPlan | None:
    transfers = plan.kv_connector_metadata
    assert transfers is None or isinstance(transfers, TransferPlan), "the metadata of another connector"
    return transfers
