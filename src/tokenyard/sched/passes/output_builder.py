"""The end of a step: granted rows and admitted requests become a ``SchedulerOutput``, and the counters advance.

Counters advance before the model has run, so that the next step can be decided while it does; what the model rejects is
taken back when its output arrives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenyard.columns import IntArray, anywhere, same
from tokenyard.config import SchedulerConfig
from tokenyard.kv.manager import KVCacheManager
from tokenyard.params import TokenIds
from tokenyard.request import Request, RequestStatus
from tokenyard.sched.features.features import Features
from tokenyard.sched.features.grammars import grammar_rows
from tokenyard.sched.limits.candidate import Candidate
from tokenyard.sched.passes.budget import StepBudget
from tokenyard.sched.passes.rows import Rows
from tokenyard.sched.queues.running import RunningList
from tokenyard.sched.steps.in_flight import StepInFlight
from tokenyard.sched.steps.outcomes import StepOutcomes
from tokenyard.sched.steps.scheduler_output import NewRequest, SchedulerOutput
from tokenyard.table import RequestTable

__all__ = ["OutputBuilder"]


class OutputBuilder:
    """Puts the two passes together."""

    def __init__(
        self,
        config: SchedulerConfig,
        kv: KVCacheManager,
        table: RequestTable,
        running: RunningList,
        features: Features,
    ) -> None:
        self._kv = kv
        self._table = table
        self._running = running
        self._speculation = features.speculation
        self._encoder = features.encoder
        self._zeroes_blocks = kv.zeroes_blocks
        self._counts_common_prefix = config.count_common_prefix_blocks
        self._says_more = features.encoder is not None or self._zeroes_blocks
        self._is_async = features.placeholders is not None
        self._last_was_complete = True
        """The last step scheduled every running request: nobody was passed over."""
        self._marked_chunks = False
        """Some tenant may be marked as being in the middle of its prompt."""
        self._named: tuple[Request, ...] = ()
        """The running rows of the last step; as long as they are the same object, so is what follows."""
        self._req_ids: tuple[str, ...] = ()
        self._num_prompt: IntArray = np.zeros(0, np.int64)

    def build(
        self,
        step: int,
        rows: Rows,
        admitted: Sequence[Candidate],
        budget: StepBudget,
        outcomes: StepOutcomes,
        finished: frozenset[str],
        preempted_before: tuple[str, ...] = (),
    ) -> StepInFlight:
        """The decision of step number ``step``; the columns of its requests are brought up to date.

        ``preempted_before`` lost their blocks since the last step and are named together with this one's victims.
        """
        table, num_running = self._table, len(rows.requests)
        requests, slots, granted, computed = rows.requests, rows.slots, rows.granted, rows.computed
        if requests is not self._named:
            self._named = requests
            self._req_ids, self._num_prompt = tuple([r.request_id for r in requests]), _frozen(table.num_prompt[slots])
        req_ids, num_prompt = self._req_ids, self._num_prompt
        passed_over: Sequence[int] = ()
        resumed: Sequence[int] = ()
        if not self._last_was_complete:
            passed_over = (table.last_step[slots] != step - 1).nonzero()[0].tolist()
        if admitted:
            requests += tuple([c.request for c in admitted])
            req_ids += tuple([c.request.request_id for c in admitted])
            resumed = [i for i, c in enumerate(admitted, num_running) if c.request.status is RequestStatus.PREEMPTED]
            slots, granted, computed = _joined(rows, admitted)
            num_prompt = _frozen(table.num_prompt[slots])
        ends = computed + granted if admitted else rows.ends
        num_known = table.num_tokens[slots]
        num_placeholders = _frozen(table.placeholders[slots]) if self._is_async else None
        drafts = self._speculation.schedule(slots, ends) if self._speculation is not None else None
        coming = num_known if num_placeholders is None else num_known + num_placeholders
        # In nearly every step everybody reaches the end, which bytes tell at a fifth of the cost.
        chunk = None if same(ends, coming) else ends < coming
        has_chunks = chunk is not None and anywhere(chunk)
        marks = False if chunk is None else chunk
        table.advance(slots, ends, marks if has_chunks or self._marked_chunks or admitted else None)
        self._last_was_complete = len(requests) == len(self._running.requests)
        # Whom a step passes over keeps its mark.
        self._marked_chunks = has_chunks or (self._marked_chunks and not self._last_was_complete)
        if not self._last_was_complete:
            table.mark_scheduled(slots, step)
        for column in (granted, computed, num_known):
            column.setflags(False)  # type: ignore[call-arg]  # "write", whose name would double the cost
        plan = SchedulerOutput(
            step=step,
            req_ids=req_ids,
            slots=slots,
            num_new_tokens=granted,
            num_computed=computed,
            num_known=num_known,
            num_prompt=num_prompt,
            num_placeholders=num_placeholders,
            drafts=drafts,
            num_running=num_running,
            total_num_scheduled_tokens=budget.tokens_used,
            new_blocks=self._kv.block_deltas(slots),
            finished_req_ids=finished,
            is_prefill_chunk=chunk if has_chunks else None,
            num_common_prefix_blocks=self._num_common_prefix_blocks() if self._counts_common_prefix else (),
        )
        # Most steps have nothing more to say, and to make a plan costs by the field.
        if admitted or passed_over or outcomes.preemptions:
            plan = plan.replace(**_changes(requests, num_running, passed_over, resumed, outcomes))
        if preempted_before:
            plan = plan.replace(preempted_req_ids=preempted_before + plan.preempted_req_ids)
        if self._says_more or table.num_with_grammar:
            plan = plan.replace(**self._features_of(requests, chunk, num_placeholders, budget))
        return StepInFlight(plan, requests, table.version)

    def _features_of(
        self,
        requests: Sequence[Request],
        chunk: npt.NDArray[np.bool_] | None,
        num_placeholders: IntArray | None,
        budget: StepBudget,
    ) -> dict[str, Any]:
        """What features that are switched on say in every step."""
        more: dict[str, Any] = {}
        if self._encoder is not None:
            more["scheduled_encoder_inputs"] = budget.encoder_items
            more["free_encoder_mm_hashes"] = self._encoder.cache.take_evicted()
        if self._zeroes_blocks:
            more["new_block_ids_to_zero"] = self._kv.take_new_block_ids()
        if self._table.num_with_grammar:
            rows = [row for row, _ in grammar_rows(requests, chunk)]
            more["has_structured_output_requests"] = bool(rows)
            waits = num_placeholders is not None and bool((num_placeholders[rows] > 0).any())
            more["pending_structured_output_tokens"] = waits
        return more

    def _num_common_prefix_blocks(self) -> tuple[int, ...]:
        running = self._running.requests
        return tuple(self._kv.num_common_prefix_blocks(running[0])) if running else (0,) * self._kv.num_groups


def _frozen(column: IntArray) -> IntArray:
    """A step is a value: nobody writes into its columns."""
    column.setflags(False)  # type: ignore[call-arg]  # as above
    return column


def _joined(rows: Rows, admitted: Sequence[Candidate]) -> tuple[IntArray, IntArray, IntArray]:
    """Slots, granted and computed tokens of the running rows, then of the admitted ones."""
    return (
        _frozen(np.concatenate((rows.slots, [c.request.slot for c in admitted]))),
        np.concatenate((rows.granted, [c.num_new_tokens for c in admitted])),
        np.concatenate((rows.computed, [c.num_computed_tokens for c in admitted])),
    )


def _changes(
    requests: Sequence[Request],
    num_running: int,
    passed_over: Sequence[int],
    resumed: Sequence[int],
    outcomes: StepOutcomes,
) -> dict[str, Any]:
    """Who came, came back, was left out before or lost its blocks."""
    return {
        "new_requests": _new_requests(requests, num_running, resumed),
        "admitted_resumed": tuple(resumed),
        "not_scheduled_before": tuple(passed_over),
        "known_tokens": _known_tokens(requests, (*passed_over, *resumed)),
        "preempted_req_ids": tuple([each.request_id for each in outcomes.preemptions]),
    }


def _new_requests(requests: Sequence[Request], first: int, resumed: Sequence[int]) -> dict[int, NewRequest]:
    """The admitted requests, from row ``first`` on, that are not resumed."""
    return {row: _new_request(requests[row]) for row in range(first, len(requests)) if row not in resumed}


def _new_request(request: Request) -> NewRequest:
    return NewRequest(
        request.token_slice(0, request.num_prompt_tokens),
        request.sampling_params,
        request.pooling_params,
        request.lora_name,
        request.cache_salt,
        request.mm_features,
        request.prompt_embeds,
        request.output_seed,
    )


def _known_tokens(requests: Sequence[Request], rows: Sequence[int]) -> dict[int, TokenIds]:
    return {row: requests[row].token_slice(0, requests[row].num_tokens) for row in rows}
