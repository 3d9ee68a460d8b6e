"""The running pass: how many tokens each running request gets, and who loses memory when there is too little."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from tokenyard.core.columns import all_ones, difference, parted
from tokenyard.core.kv.allocation import KVShortage
from tokenyard.core.request import Request
from tokenyard.core.sched.candidate import ScheduledRows, StepBounds, StepBudget
from tokenyard.core.sched.context import SchedulerContext
from tokenyard.core.sched.deadlocks import AdmissionDeadlock, EncoderDeadlock
from tokenyard.core.sched.features.encoder import EncoderInputs
from tokenyard.core.sched.outcomes import Preemption, Reason, StepOutcomes
from tokenyard.core.table_rows import capped_sum, gather

# ---------------------------------------------------------------------------------------------------------------------
# The pass works on *runs*: the longest stretch of requests, in order, that fits the token budget and the memory is
# granted in one stroke. Where memory ends it preempts one victim and looks for the next run; the rules are the same for
# a run of a thousand requests and for a run of one.
#
#     rows    [ 0 ...... done ) [ done ............ n )
#               granted           to be looked at


class RunningPass:
    """Grants tokens to running requests, in running order."""

    def __init__(
        self,
        context: SchedulerContext,
        preempt: Callable[[Request], None],
        deadlock: AdmissionDeadlock,
        encoder_deadlock: EncoderDeadlock | None,
    ) -> None:
        config = context.config
        self._table = context.table
        self._kv = context.kv
        self._running = context.running
        self._policy = context.policy
        self._preempt = preempt
        self._deadlock = deadlock
        self._encoder_deadlock = encoder_deadlock
        features = context.features
        self._placeholders = features.placeholders
        self._decode_round = features.decode_round
        self._speculates = features.speculation is not None
        self._encoder = features.encoder
        self._last_position = config.max_model_len - 1
        """A position beyond it is never computed: nothing could be sampled after it."""
        self._alignment = features.alignment
        self._planned: dict[str, tuple[int, ...]] = {}
        """Encoder items of the request whose turn it is: planned once, however many victims it takes."""
        self._planned_with = 0
        """Encoder budget left when they were planned."""
        self._num_lookahead_tokens = features.num_lookahead_tokens
        self._drifts = config.profile.running_index_drifts
        self._forgets = not config.rolled_back_work_stays_cached
        self._ends_with_itself = config.profile.self_preemption_ends_pass
        self._made_room_for: Request | None = None
        """Asks again after a preemption, for what it has asked for."""
        cuts = ((self._encoder, self._up_to_encoder_input), (self._alignment, self._aligned))
        ordered = reversed(cuts) if config.profile.states_cut_before_images else cuts
        self._cuts = [cut for feature, cut in ordered if feature is not None]
        """What ends a run of rows early, in order."""
        self._drift = 0
        """Running requests to leave out behind the one whose turn it is."""

    def run(self, budget: StepBudget, outcomes: StepOutcomes) -> ScheduledRows:
        """Spend ``budget`` on the running requests; returns the granted rows."""
        rows = self._wanting(outcomes, budget.longest_prefill)
        if budget.bounds is not None:
            rows = self._bounded(rows, budget.bounds, outcomes)
        done = self._grant(rows, budget, outcomes)
        self._planned.clear()
        if done < len(rows.requests):
            self._note_left_out(rows, done, budget, outcomes)
            rows.cut(done)
        if budget.bounds is not None:
            budget.decode_tokens = int(rows.granted[~self._in_prompt(rows)].sum())
        return rows

    def _in_prompt(self, rows: ScheduledRows) -> npt.NDArray[np.bool_]:
        """Rows with more than one known token to compute."""
        return rows.known - rows.computed > 1

    def _bounded(self, rows: ScheduledRows, bounds: StepBounds, outcomes: StepOutcomes) -> ScheduledRows:
        """The rows that the policy lets run, with the tokens of prompts that it lets them have."""
        want = rows.want.copy()
        if bounds.holds:
            want[[request.request_id in bounds.holds for request in rows.requests]] = 0
        if bounds.prefill_tokens is not None:
            prompt = self._in_prompt(rows)
            asked = np.where(prompt, want, 0)
            left = bounds.prefill_tokens - (asked.cumsum() - asked)
            want = np.where(prompt, np.minimum(want, np.maximum(left, 0)), want)
        for row in (want == 0).nonzero()[0].tolist():
            outcomes.left_out(Reason.POLICY_REFUSED, rows.requests[row].request_id, detail=bounds.detail)
        keep = want > 0
        requests = tuple([rows.requests[i] for i in keep.nonzero()[0].tolist()])
        return ScheduledRows(requests, rows.slots[keep], rows.computed[keep], rows.known[keep], want[keep])

    def _grant(self, rows: ScheduledRows, budget: StepBudget, outcomes: StepOutcomes) -> int:
        """Grant leading rows their tokens; returns how many."""
        done = self._drift = 0
        self._made_room_for = None
        while done < len(rows.requests) and budget.tokens > 0:
            end, asked = rows.fit(done, budget.tokens, budget.slots_per_request)
            for cut in self._cuts if end > done else ():
                end, asked = cut(rows, done, end, asked, budget, outcomes)
                if end == done:
                    break
            if self._drift and end > done:
                end, asked = done + 1, int(rows.granted[done])
            slots, ends, ask = rows.run(done, end)
            served = self._kv.grow_run(slots, ends, self._num_lookahead_tokens)
            done += served
            if done == end:
                budget.spend(asked, served)
                if self._planned and self._encoder is not None:
                    self._commit_encoder_input(self._encoder, rows.requests[done - 1], budget)
                if self._drift:
                    self._drift_past(rows, done, outcomes)
                continue
            budget.spend(int(ask[:served].sum()), served)
            # Whatever the victims give back, this request asks for no more than it has asked for.
            rows.want[done] = ask[served]
            done, itself = self._make_room(rows, done, budget, outcomes)
            if itself and self._ends_with_itself:
                break
        return done

    def _wanting(self, outcomes: StepOutcomes, limit: int) -> ScheduledRows:
        """Rows of all running requests whose computed tokens lag behind, with ``limit`` tokens at most (0: any)."""
        table = self._table
        requests, slots = self._running.rows()
        computed, known = gather(table.num_computed, slots), gather(table.num_tokens, slots)
        # Whose known tokens reach max_model_len has stopped; drafts and what is in flight can reach beyond it.
        ends = known
        if self._speculates:
            ends = capped_sum(ends, table.num_drafts, slots, self._last_position)
        if self._placeholders is not None:
            ends = capped_sum(ends, table.placeholders, slots, self._last_position)
        want = difference(ends, computed)
        if limit:
            np.minimum(want, limit, out=want)
            ends = computed + want
        covered: Sequence[int] = ()
        if self._placeholders is not None:
            covered = self._placeholders.cover_limit(slots, computed).tolist()
            for row in covered:
                want[row] = 0
        if self._decode_round is not None and len(requests):
            want[self._decode_round.holds(requests)] = 0
        if all_ones(want):
            return ScheduledRows(requests, slots, computed, known, want, ends)
        keep, idle = parted(want)
        if len(idle):
            # Below zero: the drafts of a step in flight, of which it is not known yet how many are right.
            for row in idle.tolist():
                reason = Reason.PLACEHOLDERS_COVER_LIMIT if row in covered else Reason.NO_NEW_TOKENS
                outcomes.left_out(reason, requests[row].request_id)
            requests = tuple([requests[i] for i in keep.tolist()])
            slots, computed, known = gather(slots, keep), gather(computed, keep), gather(known, keep)
            want, ends = gather(want, keep), gather(ends, keep)
        return ScheduledRows(requests, slots, computed, known, want, ends)

    def _up_to_encoder_input(
        self, rows: ScheduledRows, done: int, end: int, asked: int, budget: StepBudget, outcomes: StepOutcomes
    ) -> tuple[int, int]:
        """Cut the run ``done..end-1`` before the first request that reaches an encoder input, or plan that one alone.

        Returns the new end and tokens; ``(done, 0)`` if the request at ``done`` can have none and was dropped.
        """
        encoder = self._encoder
        assert encoder is not None
        stops = (rows.ends[done:end] > self._table.encoder_at[rows.slots[done:end]]).nonzero()[0]
        if not stops.size:
            return end, asked
        if stops[0] > 0:
            end = done + int(stops[0])
            return end, int(rows.granted[done:end].sum())
        request, computed = rows.requests[done], int(rows.computed[done])
        wanted = int(rows.granted[done])
        if request.request_id not in self._planned:
            self._planned_with = budget.encoder
            wanted, self._planned[request.request_id] = encoder.plan(request, computed, wanted, budget.encoder)
            encoder.note_position(request, computed)
        if wanted == 0:
            del self._planned[request.request_id]
            rows.drop(done)
            if self._encoder_deadlock is not None:
                self._encoder_deadlock.refused(request, budget)
            outcomes.left_out(Reason.ENCODER_BUDGET, request.request_id, budget_left=budget.encoder)
            return done, 0
        rows.ask_only(done, wanted)
        return done + 1, wanted

    def _commit_encoder_input(self, encoder: EncoderInputs, request: Request, budget: StepBudget) -> None:
        items = self._planned.pop(request.request_id, ())
        if items:
            # As in vLLM, which computes the rest when it plans: what victims gave back meanwhile is lost.
            budget.encoder = self._planned_with
        encoder.commit(request, items, budget)

    def _aligned(
        self, rows: ScheduledRows, done: int, end: int, asked: int, budget: StepBudget, outcomes: StepOutcomes
    ) -> tuple[int, int]:
        """Cut the run so that prefill ends where blocks do; ``(done, 0)`` if the row at ``done`` was dropped for it."""
        assert self._alignment is not None
        if rows.requests[done] is self._made_room_for:
            return done + 1, int(rows.granted[done])
        request_id, wanted = rows.requests[done].request_id, int(rows.granted[done])
        end, asked = self._alignment.cut(rows, done, end, asked, self._table.num_tokens)
        if end == done:
            self._planned.pop(request_id, None)
            rows.drop(done)
            outcomes.left_out(Reason.MAMBA_ALIGNMENT, request_id, wanted_tokens=wanted, budget_left=budget.tokens)
        return end, asked

    def _make_room(self, rows: ScheduledRows, row: int, budget: StepBudget, outcomes: StepOutcomes) -> tuple[int, bool]:
        """Drop a pin, or preempt one victim, for the request at ``row``.

        Returns its row now and whether it was itself the victim.
        """
        request = self._made_room_for = rows.requests[row]
        reach = int(rows.computed[row] + rows.want[row])
        shortage = self._kv.shortage_of(int(rows.slots[row]), reach, self._num_lookahead_tokens)
        if self._policy.free_for_running(shortage, len(self._running)) or self._kv.free_kept(request):
            return row, False
        position = self._policy.victim(self._running.requests)
        stands_before = position < self._running.requests.index(request)
        victim = self._running.pop(position)
        at = rows.requests.index(victim) if victim in rows.requests else -1
        # It was granted tokens earlier in this very step, it is the request itself, or its turn has not come.
        was_served, is_itself = 0 <= at < row, at == row
        rolled_back = self._take_back(rows, at, budget) if was_served else 0
        if stands_before and not was_served and self._drifts:
            self._drift += 1
        if self._encoder is not None and (was_served or (is_itself and self._forgets)):
            self._encoder.roll_back(victim, budget, rows.requests[: row + 1] if self._forgets else None)
        self._record_victim(victim, request, rolled_back, shortage, outcomes)
        self._preempt(victim)
        if not len(self._running):
            self._deadlock.preempted_itself(request, reach + self._num_lookahead_tokens)
        if at >= 0:
            rows.drop(at)
        return row - was_served, is_itself

    def _take_back(self, rows: ScheduledRows, at: int, budget: StepBudget) -> int:
        """The tokens that the row at ``at`` was granted in this step go back to the budget; returns them."""
        tokens = int(rows.granted[at])
        budget.refund(tokens)
        if self._forgets:
            self._kv.forget_content_beyond(rows.requests[at], int(rows.computed[at]))
        return tokens

    def _drift_past(self, rows: ScheduledRows, done: int, outcomes: StepOutcomes) -> None:
        """The index slipped while the request before ``done`` was served: those right behind it lose their turn."""
        requests = self._running.requests
        behind = requests.index(rows.requests[done - 1]) + 1
        for request in requests[behind : behind + self._drift]:
            if request in rows.requests:
                rows.drop(rows.requests.index(request))
                reason = Reason.RUNNING_INDEX_DRIFT
                outcomes.left_out(reason, request.request_id)
        self._drift = 0

    @staticmethod
    def _record_victim(
        victim: Request, request: Request, rolled_back: int, shortage: KVShortage, outcomes: StepOutcomes
    ) -> None:
        outcomes.preemptions.append(
            Preemption(victim.request_id, request.request_id, victim.num_computed_tokens, rolled_back, shortage)
        )
        if victim is request:
            outcomes.left_out(Reason.SELF_PREEMPTED, request.request_id, kv=shortage)

    def _note_left_out(self, rows: ScheduledRows, done: int, budget: StepBudget, outcomes: StepOutcomes) -> None:
        """Say why rows were not reached."""
        reason = Reason.PREEMPTED_THIS_STEP if budget.tokens else Reason.TOKEN_BUDGET
        if budget.max_tokens == 0:
            reason = Reason.PAUSED
        for request, wanted in zip(rows.requests[done:], rows.want[done:].tolist(), strict=True):
            outcomes.left_out(reason, request.request_id, wanted_tokens=wanted, budget_left=budget.tokens)
