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

from collections.abc import Callable, Sequence

from tokenyard.core.columns import IntArray, counting, frozen, same, shifted
from tokenyard.core.kv.coordinator import PerStepBlocks
from tokenyard.core.request import Request
from tokenyard.core.sched.context import SchedulerContext
from tokenyard.core.sched.features.feature_set import Features
from tokenyard.core.sched.observer import RepeatedSteps
from tokenyard.core.sched.outcomes import OutcomeKind, Reason, StepOutcomes
from tokenyard.core.sched.policy import FCFS, Policy, Priority
from tokenyard.core.sched.scheduler_output import SchedulerOutput, StepInFlight
from tokenyard.core.table_rows import gather, least_difference

_MOST = 256
"""Steps in one stroke."""
_FOR_GOOD = {Reason.QUEUES_EMPTY, Reason.MAX_NUM_SEQS, Reason.TOKEN_BUDGET}
"""Ends of an admission pass that have nothing to do with memory."""
_LACKS_MEMORY = {Reason.KV_FULL_SEQUENCE, Reason.KV_BLOCKS, Reason.KV_WATERMARK}


class FastForward:
    """Knows for how many further steps a scheduler would decide what it has just decided, and has them happen."""

    def __init__(self, context: SchedulerContext, stamp_first_tokens: Callable[[float], None]) -> None:
        """``stamp_first_tokens`` notes the moment, in seconds, of those who have got their first token."""
        self._context = context
        self._kv, self._table, self._running = context.kv, context.table, context.running
        self._stamp_first_tokens = stamp_first_tokens
        policy = context.policy.policy
        self._is_possible = (
            context.kv.grows_in_steps and _has_plain_steps(context) and _stands_by(policy, "step_begins")
        )
        asked = ("next_queue", "skips", "free_for_waiting", "admits")
        stands = all(_stands_by(policy, name) for name in asked)
        self._leaves_head = stands and not policy.reorders and not context.plugin_limits
        self._counts_lookups = not context.config.profile.lookups_count_at_admission
        self._ahead = int(context.features.placeholders is not None)
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
        if not self._all_decode(step) or outcomes.not_scheduled or outcomes.skipped or outcomes.preemptions:
            return 0
        slots = step.plan.slots
        table = self._table
        most = least_difference(table.stop_at, table.num_tokens, slots) - 1 - self._ahead
        if most <= 0 or not self._none_is_admitted(outcomes, step.requests):
            return 0
        head = self._head_of(outcomes)
        if head is not None and tells and not self._stays_short(outcomes):
            return 0
        reach = gather(table.num_computed, slots)
        most = self._kv.steps_that_fit(slots, reach, min(most, _MOST))
        if most > 0 and head is not None and tells:
            hits = set(self._kv.get_computed_blocks(head).blocks[0])
            most = self._kv.steps_before_evicting(hits, slots, reach, most)
        return max(most, 0)

    def _stays_short(self, outcomes: StepOutcomes) -> bool:
        """Whether the check of memory that refused the head is the first one made, so that it goes on refusing it."""
        reserves = self._context.config.scheduler_reserve_full_isl
        first = Reason.KV_FULL_SEQUENCE if reserves else Reason.KV_BLOCKS
        return outcomes.admission is not None and outcomes.admission.reason is first

    def _all_decode(self, newest: StepInFlight) -> bool:
        """Whether all who run, and they alone, decode in the newest step, and get a token of every step in flight."""
        table, plan = self._table, newest.plan
        num = len(plan.req_ids)
        if not num or not num == plan.total_num_scheduled_tokens == plan.num_running == len(self._running.requests):
            return False
        if plan.preempted_req_ids or plan.not_scheduled_before:
            return False
        if table.num_with_eos or table.num_with_stop_ids or table.num_any_may_stop or table.num_with_grammar:
            return False
        if newest.table_version != table.version:
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
        return not self._kv.enable_caching or not _shares_last_block(head, running)

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
        kv, table, in_flight, steps = self._kv, self._table, self._context.in_flight, len(moments)
        newest, outcomes = self._last[0].plan, self._last[1]
        slots, free = newest.slots, kv.num_free_blocks
        reach = gather(table.num_computed, slots)
        grown = kv.grow_steps(slots, reach, steps, table.append_steps(slots, tokens))
        table.advance(slots, reach + steps)
        self._stamp_first_tokens(moments[0])
        in_flight.replace([_repeated(newest, grown, number) for number in range(steps - len(in_flight) + 1, steps + 1)])
        if not tells:
            return None
        taken = grown.at.searchsorted(counting(steps), side="right")
        return RepeatedSteps(step, moments, (free - taken).tolist(), kv.num_free_blocks, newest, outcomes)


def _brings_token_each(step: StepInFlight, newest: StepInFlight) -> bool:
    """Whether a step in flight brings a token for each request of the newest one, and none of them has been reset.

    It may have admitted some of them, or skipped others that have ended since.
    """
    if step is newest:
        return step.discarded is None
    if step.plan.is_prefill_chunk is not None or step.discarded is not None:
        return False
    return step.requests == newest.requests and same(step.plan.slots, newest.plan.slots)


def _repeated(plan: SchedulerOutput, grown: PerStepBlocks, number: int) -> SchedulerOutput:
    """The plan of the step so many after that of ``plan``."""
    if not number:
        return plan
    return plan.replace(
        step=plan.step + number,
        num_computed=frozen(shifted(plan.num_computed, number)),
        num_known=frozen(shifted(plan.num_known, number)),
        new_blocks=grown.of(number),
        finished_req_ids=frozenset(),
        preempted_req_ids=(),
    )


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
