"""The end of a step: granted rows and admitted requests become a ``SchedulerOutput``, and the counters advance.

Counters advance before the model has run, so that the next step can be decided while it does; what the model rejects is
taken back when its output arrives.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tokenyard.columns import anywhere
from tokenyard.kv.manager import KVCacheManager
from tokenyard.request import RequestStatus
from tokenyard.sched.features.features import Features
from tokenyard.sched.limits.limits import Candidate
from tokenyard.sched.passes.budget import StepBudget
from tokenyard.sched.passes.rows import Rows
from tokenyard.sched.queues.running import RunningList
from tokenyard.sched.steps.outcomes import StepOutcomes
from tokenyard.sched.steps.scheduler_output import SchedulerOutput

__all__ = ["OutputBuilder"]


class OutputBuilder:
    """Puts the two passes together."""

    def __init__(self, kv: KVCacheManager, running: RunningList, features: Features) -> None:
        self._kv = kv
        self._table = kv.table
        self._running = running
        self._speculation = features.speculation
        self._zeroes_blocks = kv.zeroes_blocks
        self._is_async = features.placeholders is not None
        self._last_was_complete = True
        """The last step scheduled every running request: nobody was passed over."""
        self._marked_chunks = False
        """Some tenant may be marked as being in the middle of its prompt."""

    def build(
        self,
        step: int,
        rows: Rows,
        admitted: Sequence[Candidate],
        budget: StepBudget,
        outcomes: StepOutcomes,
        finished: frozenset[str],
    ) -> SchedulerOutput:
        """The decision of step number ``step``; the columns of its requests are brought up to date."""
        table, num_running = self._table, len(rows.requests)
        requests, slots, granted, computed = rows.requests, rows.slots, rows.granted, rows.computed
        passed_over: list[int] = []
        resumed: list[int] = []
        if not self._last_was_complete:
            passed_over = (table.last_step[slots] != step - 1).nonzero()[0].tolist()
        if admitted:
            requests = requests + [c.request for c in admitted]
            resumed = [i for i, c in enumerate(admitted, num_running) if c.request.status is RequestStatus.PREEMPTED]
            slots = np.concatenate((slots, [c.request.slot for c in admitted]))
            granted = np.concatenate((granted, [c.num_new_tokens for c in admitted]))
            computed = np.concatenate((computed, [c.num_computed_tokens for c in admitted]))
        ends = computed + granted
        num_known = table.num_tokens[slots]
        num_placeholders = table.placeholders[slots] if self._is_async else None
        drafts = self._speculation.schedule(slots, ends) if self._speculation is not None else None
        chunk = ends < (num_known if num_placeholders is None else num_known + num_placeholders)
        has_chunks = anywhere(chunk)
        table.num_computed[slots] = ends
        if has_chunks or self._marked_chunks or admitted:
            table.prefilling[slots] = chunk
        self._last_was_complete = len(requests) == len(self._running.requests)
        # Whom a step passes over keeps its mark.
        self._marked_chunks = has_chunks or (self._marked_chunks and not self._last_was_complete)
        if not self._last_was_complete:
            table.last_step[slots] = step
        output = SchedulerOutput(
            step=step,
            requests=requests,
            slots=slots,
            num_new_tokens=granted,
            num_computed=computed,
            num_known=num_known,
            num_placeholders=num_placeholders,
            drafts=drafts,
            num_running=num_running,
            total_num_scheduled_tokens=budget.tokens_used,
            new_blocks=self._kv.new_blocks,
            admitted_resumed=resumed,
            not_scheduled_before=passed_over,
            preempted_req_ids=[each.request_id for each in outcomes.preemptions] if outcomes.preemptions else [],
            finished_req_ids=finished,
            is_prefill_chunk=chunk if has_chunks else None,
            table_version=table.version,
            common_prefix=self._num_common_prefix_blocks,
        )
        if self._zeroes_blocks:
            output.new_block_ids_to_zero = self._kv.take_new_block_ids()
        return output

    def _num_common_prefix_blocks(self) -> list[int]:
        if not len(self._running):
            return [0] * self._kv.coordinator.num_groups
        return self._kv.num_common_prefix_blocks(self._running.requests[0])
