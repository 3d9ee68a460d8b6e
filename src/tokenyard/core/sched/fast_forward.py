"""Steps that repeat the last one: every running request decodes a token, none comes, ends or lacks memory.

    ordinary      schedule . update . schedule . update . schedule . update
    repeated      schedule . [ update . schedule . update . schedule ] . update
                               one stroke, k times: tokens, blocks and hashes of k steps

Each waiting one is refused in each of them as in the last one, because what could change that does not happen: no block
is freed, no limit moves, and no block that fills holds what the head of the queue is looking for.

The contract of such a leap, which three have a part in. The scheduler says for how many further steps its last decision
stands if nothing happens but these steps (``num_repeats``, here). The executor lets outputs come and begins steps, so
many at most, and none once something else may happen (``RunsAhead.run_ahead``): its driver, the loop of a
replay, sets that moment. The engine core has the scheduler take both in, between a step that was decided in
full and the output that is due (``EngineCore.run_ahead``). All is then as if the steps had been taken one by one: plans
in flight, tokens, blocks, hashes, LRU order, moments, and what observers know (``steps_repeated``).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np

from tokenyard.core.arrays import IntArray
from tokenyard.core.kv.manager import KVCacheManager
from tokenyard.core.request import Request
from tokenyard.core.rows import NO_TOKEN, Int64s
from tokenyard.core.sched.context import SchedulerContext
from tokenyard.core.sched.features.feature_set import Features
from tokenyard.core.sched.in_flight import StepInFlight
from tokenyard.core.sched.observer import RepeatedSteps
from tokenyard.core.sched.outcomes import OutcomeKind, Reason, StepOutcomes
from tokenyard.core.sched.policy import FCFS, Policy, Priority
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.core.sched.step import OutputBuilder, StepPlanner
from tokenyard.core.sched.step_rows import Rows
from tokenyard.core.sched.update import OutputUpdate

_MOST = 256
"""Steps in one stroke."""
_FOR_GOOD = {Reason.QUEUES_EMPTY, Reason.MAX_NUM_SEQS, Reason.TOKEN_BUDGET}
"""Ends of an admission pass that have nothing to do with memory."""
_LACKS_MEMORY = {Reason.KV_FULL_SEQUENCE, Reason.KV_BLOCKS, Reason.KV_WATERMARK}


class FastForward:
    """Knows for how many further steps a scheduler would decide what it has just decided, and has them happen."""

    kv: KVCacheManager
    update: OutputUpdate
    builder: OutputBuilder
    is_async: bool
    max_model_len: int

    def __init__(self, context: SchedulerContext, update: OutputUpdate, planner: StepPlanner) -> None:
        self._context: SchedulerContext = context
        self.kv = context.kv
        self.update = update
        self.builder = planner.builder
        policy = context.policy.policy
        self._is_possible: bool = (
            context.kv.grows_in_steps and _has_plain_steps(context) and _stands_by(policy, "step_begins")
        )
        asked = ("next_queue", "skips", "free_for_waiting", "admits")
        stands = all(_stands_by(policy, name) for name in asked)
        self._leaves_head: bool = stands and not policy.reorders and not context.plugin_limits
        self._counts_lookups: bool = not context.config.profile.lookups_count_at_admission
        self.is_async = context.features.placeholders is not None
        self.max_model_len = context.config.max_model_len
        self._ahead: int = int(self.is_async)
        """Steps that a request is in flight in while another is decided."""
        self._last: tuple[StepInFlight, StepOutcomes] | None = None
        self._counted: int | None = None
        """What :meth:`count` has found since the last step; it holds while as many steps are in flight."""

    def note(self, step: StepInFlight, outcomes: StepOutcomes) -> None:
        """The newest step, and what it refused."""
        self._last = (step, outcomes)
        self._counted = None

    def forget(self) -> None:
        """Something has changed since."""
        self._last = None

    def count(self, *, tells: bool) -> int:
        """How many further steps would decide what the last one did.

        ``tells``: an observer is notified why the queue's head is refused, so that the reason has to stay the same, and
        no block may go that the head could use.
        """
        if self._last is None or not self._is_possible or len(self._context.in_flight) != 1 + self._ahead:
            return 0
        if self._counted is None:
            self._counted = self._count(*self._last, tells=tells)
        return self._counted

    def _count(self, step: StepInFlight, outcomes: StepOutcomes, *, tells: bool) -> int:
        if outcomes.not_scheduled or outcomes.skipped or outcomes.preemptions or not self._all_decode(step):
            return 0
        most = self.steps_to_the_first_end(step.requests)
        if most <= 0 or not self._none_is_admitted(outcomes, step.requests):
            return 0
        head = self._head_of(outcomes)
        if head is not None and tells and not self._stays_short(outcomes):
            return 0
        taken = self.blocks_taken(step.requests, min(most, _MOST))
        free = self.kv.num_free_blocks
        most = next((i for i, count in enumerate(taken) if count > free), len(taken))
        if most > 0 and head is not None and tells:
            hits = set(self.kv.get_computed_blocks(head).blocks[0])
            order = self.kv.pool.first_free(taken[most - 1]) if hits else []
            first_hit = next((i for i, block in enumerate(order) if block in hits), len(order))
            most = next((i for i, count in enumerate(taken[:most]) if count > first_hit), most)
        return max(most, 0)

    def steps_to_the_first_end(self, requests: list[Request]) -> int:
        """Return for how many further steps no request can end; 0 also where a token could end one, or a grammar."""
        most = _MOST
        for i in range(len(requests)):
            request: Request = requests[i]
            if request.eos != NO_TOKEN or request.looks_closer or request.structured_output is not None:
                return 0
            last = min(request.stop_at, self.max_model_len)
            most = min(most, last - request.num_tokens - 1 - self._ahead)
        return most

    def blocks_taken(self, requests: list[Request], most: int) -> list[int]:
        """Return how many blocks the first 1, 2, ... ``most`` further steps take together."""
        size = self.kv.block_size
        first = array("q", bytes(8 * (size + most + 2)))  # requests by the step in which they need a block first
        for i in range(len(requests)):
            request: Request = requests[i]
            room = request.blocks.size * size - request.num_computed_tokens
            if room < most:
                first[room + 1] += 1
        taken = []
        count = 0
        for step in range(1, most + 1):
            if step > size:
                first[step] += first[step - size]
            count += first[step]
            taken.append(count)
        return taken

    def _stays_short(self, outcomes: StepOutcomes) -> bool:
        """Whether the check of memory that refused the head is the first one made, so that it goes on refusing it."""
        reserves = self._context.config.scheduler_reserve_full_isl
        first = Reason.KV_FULL_SEQUENCE if reserves else Reason.KV_BLOCKS
        return outcomes.admission is not None and outcomes.admission.reason is first

    def _all_decode(self, newest: StepInFlight) -> bool:
        """Whether all who run, and they alone, decode in the newest step, and get a token of every step in flight."""
        plan, num = newest.plan, len(newest.requests)
        if not num or not num == plan.total_num_scheduled_tokens == plan.num_running:
            return False
        if plan.preempted_req_ids or plan.not_scheduled_before or newest.requests != self._context.running.requests:
            return False
        return all(_brings_token_each(step, newest) for step in self._context.in_flight)

    def _none_is_admitted(self, outcomes: StepOutcomes, running: Sequence[Request]) -> bool:
        """Whether the admission pass would end as it did in every further step."""
        ended = outcomes.admission
        if ended is None or ended.kind is OutcomeKind.NOT_ENTERED:
            return False
        if ended.reason in _FOR_GOOD:
            return True
        if ended.reason not in _LACKS_MEMORY or not self._leaves_head or self._counts_lookups:
            return False
        head = self._head_of(outcomes)
        if head is None or head.slot >= 0:
            return False
        return not self.kv.enable_caching or not _shares_last_block(head, running)

    def _head_of(self, outcomes: StepOutcomes) -> Request | None:
        """The request that memory refused."""
        ended = outcomes.admission
        if ended is None or ended.kv is None or ended.request_id is None:
            return None
        return self._context.waiting_queues.get(ended.request_id)

    def repeat(self, step: int, tokens: IntArray, moments: Sequence[float], *, tells: bool) -> RepeatedSteps | None:
        """Take the oldest output in and decide a step alike, several times: ``tokens[:, i]`` are those of the i-th.

        ``step`` is the number of the first that is decided, at ``moments[0]``. Returns what an observer is notified of
        them; None unless it ``tells`` one.
        """
        assert self._last is not None
        self._counted = None
        in_flight, count = self._context.in_flight, len(moments)
        newest, outcomes = self._last
        by_step = array("q", np.ascontiguousarray(tokens.T, np.int64).tobytes())
        free, steps = [], []
        for i in range(count):
            self.take_in(newest.requests, by_step, i * len(newest.requests))
            if not i:
                self.update.stamp_first_tokens(moments[0])
            free.append(self.kv.num_free_blocks)
            self.kv.new_step_starts()
            stays = i >= count - len(in_flight)
            self.decide(newest.requests, step + i, stays)
            if stays:
                steps.append(self._again(newest, step + i))
            if self.is_async:
                self.expect(newest.requests)
        in_flight.replace([*in_flight, *steps][-len(in_flight) :])
        self._last = [*in_flight][-1], outcomes
        if not tells:
            return None
        return RepeatedSteps(step, moments, free, self.kv.num_free_blocks, newest.plan, outcomes)

    def take_in(self, requests: list[Request], tokens: Int64s, at: int) -> None:
        """Append a token to each, none of which ends it."""
        for i in range(len(requests)):
            request: Request = requests[i]
            self.update.append(request, tokens[at + i])
            self.update.settle(request, 1, 1)

    def decide(self, requests: list[Request], step: int, stays: bool) -> None:
        """Grant each a token, for which there is memory; of a step that ``stays`` in flight the plan is made then."""
        for i in range(len(requests)):
            request: Request = requests[i]
            request.first_new_block = request.blocks.size
            request.num_scheduled = 1
            self.kv.grow(request, request.num_computed_tokens + 1, 0)
            if not stays:
                request.num_computed_tokens += 1
                request.last_step = step

    def _again(self, newest: StepInFlight, step: int) -> StepInFlight:
        """Return a step like ``newest`` that stays in flight; its tokens count as computed then."""
        rows = Rows(newest.requests, newest.columns.names)
        plan = SchedulerOutput(step, rows, self.is_async)
        plan.total_num_scheduled_tokens = rows.size
        self.builder.last_step = step - 1
        self.builder.fill(step, rows, 0, plan)
        return StepInFlight(plan, rows)

    def expect(self, requests: list[Request]) -> None:
        """A step will bring a token of each."""
        for i in range(len(requests)):
            request: Request = requests[i]
            request.num_output_placeholders += 1


def _brings_token_each(step: StepInFlight, newest: StepInFlight) -> bool:
    """Whether a step in flight brings a token for each request of the newest one, and none of them has been reset.

    It may have admitted some of them, or skipped others that have ended since.
    """
    if step is newest:
        return step.discarded is None
    if step.plan.is_prefill_chunk is not None or step.discarded is not None:
        return False
    return step.requests == newest.requests


def _has_plain_steps(context: SchedulerContext) -> bool:
    """Whether no feature looks into steps or changes what a decode is."""
    config = context.config
    if len(context.hooks.step_planned) > len(context.features.hooks_with(()).step_planned):
        return False  # one of a plug-in wants to see every step
    return not config.count_common_prefix_blocks and context.features == Features(
        placeholders=context.features.placeholders,
        late_outputs=context.features.late_outputs,
        reset_outputs=context.features.reset_outputs,
    )


def _stands_by(policy: Policy, method: str) -> bool:
    """Whether the policy does in this what those of vLLM do."""
    vllms = (getattr(each, method) for each in (Policy, FCFS, Priority))
    return getattr(getattr(policy, method), "__func__", None) in vllms


def _shares_last_block(head: Request, running: Sequence[Request]) -> bool:
    """Whether a running request could fill a block next that ``head`` looks for: all before it are the same then."""
    known = head.block_hashes
    num_known = len(known)
    for request in running:
        hashes = request.block_hashes
        filled = len(hashes)
        if not filled or (filled <= num_known and known[filled - 1] == hashes[-1]):
            return True
    return False
