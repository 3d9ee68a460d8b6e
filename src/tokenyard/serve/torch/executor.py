"""One thread that runs a step after the other, and refuses what it cannot run."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from tokenyard.connectors.tier_worker import BlockMemory
from tokenyard.connectors.tiers import ConnectorWorker, TransferPlan
from tokenyard.core.engine import EngineCore, StepFuture
from tokenyard.core.kv.manager import KVCacheManager
from tokenyard.core.request import Request
from tokenyard.core.sched.features.grammars import GrammarOutput
from tokenyard.core.sched.outputs import DraftTokens, ModelOutput
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.errors import RequestError
from tokenyard.serve.torch.attention import HeldBlocks
from tokenyard.serve.torch.checkpoint import LoadedModel, require_torch
from tokenyard.serve.torch.runner import ModelRunner

# ---------------------------------------------------------------------------------------------------------------------
# The executor: one thread that runs a step after the other, while the scheduler's thread goes on.
#
#     scheduler's thread   execute_model(n+1): copy what the step needs of the request table
#     worker's thread      forward n | sample n -> future | forward n+1 ...
#
# The block tables are columns of the scheduler's request table, and are read there: a step's rows are copied when it
# begins, since the next step may change them. Everything else comes with the plan. An executor in another process
# would keep tables of its own from ``plan.new_blocks``; this one is on the same machine, and keeps no second book.

T = TypeVar("T")


class TorchExecutor:
    """Runs ``runner`` for the scheduler whose blocks are those of ``kv``."""

    def __init__(
        self,
        model: LoadedModel,
        runner: ModelRunner,
        kv: KVCacheManager,
        memory: BlockMemory,
        *,
        drafts: bool = False,
        connector: ConnectorWorker | None = None,
    ) -> None:
        self.model = model
        """What was loaded."""
        self.memory = memory
        """The KV cache's blocks."""
        self.runner, self._kv = runner, kv
        self._drafts, self._connector = drafts, connector
        self.thread = ThreadPoolExecutor(1, "model")
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
        """A copy of the block tables of the step's rows."""
        requests = [] if plan.rows is None else plan.rows.requests
        held = [self._kv.get_block_ids(request) for request in requests]
        capacity = np.array([self._kv.capacity(request) for request in requests], np.int64)
        tables = []
        for group in range(self._kv.num_groups):
            blocks = [each[group] for each in held]
            table = np.zeros((len(blocks), max(map(len, blocks), default=0)), np.int32)
            for row, ids in enumerate(blocks):
                table[row, : len(ids)] = ids
            tables.append(table)
        return HeldBlocks(tables, capacity)

    def _begin(self, plan: SchedulerOutput, held: HeldBlocks) -> None:
        transfers = _transfers(plan)
        if self._connector is not None:
            self._connector.before_step(transfers)
        self.runner.forward(plan, held)
        if self._connector is not None:
            self._connector.after_step(transfers)

    def sample_tokens(self, plan: SchedulerOutput, grammar: GrammarOutput | None) -> StepFuture:
        """The tokens of the step that was begun last. Its future raises what the forward pass raised, if it did."""
        forward = self._forward
        assert forward is not None, "sampled from before it was begun"
        return self._run(lambda: self._sample(plan, grammar, forward))

    def _sample(self, plan: SchedulerOutput, grammar: GrammarOutput | None, forward: Future[None]) -> ModelOutput:
        forward.result()
        output = self.runner.sample(plan, grammar)
        if self._connector is not None:
            output.connector = self._connector.report()
        return output

    def take_draft_token_ids(self) -> DraftTokens | None:
        """Drafts for the requests of the step that was begun last; waits for the worker's thread."""
        plan = self._newest
        if plan is None or not self._drafts:
            return None
        return self._run(lambda: self.runner.drafts(plan)).result()

    def _run(self, work: Callable[[], T]) -> Future[T]:
        torch = require_torch()

        def without_gradients() -> T:
            with torch.inference_mode():
                return work()

        return self.thread.submit(without_gradients)

    def shutdown(self) -> None:
        """Wait for the step that runs, forget those that wait."""
        self.thread.shutdown(wait=True, cancel_futures=True)
        if self._connector is not None:
            self._connector.shutdown()


def _transfers(plan: SchedulerOutput) -> TransferPlan | None:
    transfers = plan.kv_connector_metadata
    assert transfers is None or isinstance(transfers, TransferPlan), "the metadata of another connector"
    return transfers


# ---------------------------------------------------------------------------------------------------------------------
# What the engine cannot run is refused when it is added, and names what to leave out.

_UNSUPPORTED = {
    "mm_features": "the engine runs text models: leave them out",
    "prompt_embeds": "the engine takes token ids alone: leave them out",
    "resumable": "the engine has no sessions: leave it out",
}


class TorchEngineCore(EngineCore):
    """An engine core whose executor is a :class:`TorchExecutor`."""

    executor: TorchExecutor

    def _check_request(self, request: Request) -> None:
        """Raise RequestError for what the engine cannot do."""
        for field, fix in _UNSUPPORTED.items():
            value = getattr(request, field)
            if value is not None and value is not False and not (isinstance(value, tuple) and not value):
                raise RequestError(request.request_id, field, value, fix)
        adapters = self.executor.model.adapters
        if request.lora_name is not None and request.lora_name not in adapters:
            known = ", ".join(adapters) or "none"
            fix = f"the engine's adapters are: {known}; name one, or leave it out"
            raise RequestError(request.request_id, "lora_name", request.lora_name, fix)
        vocabulary = self.executor.model.vocab_size
        largest = int(request.token_slice(0, request.num_prompt_tokens).max())
        if largest >= vocabulary:
            fix = f"the model knows token ids from 0 to {vocabulary - 1}"
            raise RequestError(request.request_id, "prompt_token_ids", largest, fix)
        super()._check_request(request)
