"""How requests leave, preempted, stopped or finished; and how they recover from KV that failed to load."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from tokenyard.core.kv.manager import KVCacheManager
from tokenyard.core.request import Request, RequestStatus
from tokenyard.core.sched.candidate import StepHooks
from tokenyard.core.sched.context import SchedulerContext
from tokenyard.core.sched.features.ahead import discard_in_flight
from tokenyard.core.sched.features.feature_set import Features
from tokenyard.core.sched.features.sessions import PinBoard, Sessions
from tokenyard.core.sched.features.transfers import Transfers
from tokenyard.core.sched.in_flight import StepInFlight, StepsInFlight
from tokenyard.core.sched.outputs import ConnectorOutput, ModelOutput
from tokenyard.core.sched.policy import PolicyGate
from tokenyard.core.sched.queues import RunningList, WaitingQueues

# ---------------------------------------------------------------------------------------------------------------------
# How requests leave: preempted, stopped, finished; and what happens to the blocks they held.
#
#     preempted   blocks freed, back to the front of the queue
#     stopped     a session may go on; the others are finished
#     finished    blocks freed, pinned by the policy, or kept until a connector has read them

Ended = list[tuple[Request, RequestStatus]]
_NO_IDS: frozenset[str] = frozenset()
_NOT_BY_THEMSELVES = (
    RequestStatus.FINISHED_ABORTED,
    RequestStatus.FINISHED_ERROR,
    RequestStatus.FINISHED_REJECTED,
    RequestStatus.FINISHED_MOVED,
)


class Lifecycle:
    """Takes requests out of the queues."""

    def __init__(
        self,
        context: SchedulerContext,
        on_continued: Callable[[Request], None],
        on_finished: Callable[[float, Request], None],
    ) -> None:
        """``on_continued`` is called for a session that has got its next input, ``on_finished`` at every end."""
        kv = context.kv
        self._kv: KVCacheManager = kv
        self._running: RunningList = context.running
        self._waiting_queues: WaitingQueues = context.waiting_queues
        self._policy: PolicyGate = context.policy
        self._features: Features = context.features
        self._hooks: StepHooks = context.hooks
        self._in_flight: StepsInFlight = context.in_flight
        self._on_finished: Callable[[float, Request], None] = on_finished
        self.requests: dict[str, Request] = {}
        """Every unfinished request."""
        ahead = context.features.num_lookahead_tokens
        self.sessions: Sessions = Sessions(context.config, kv, context.waiting_queues, ahead, on_continued)
        self.pins: PinBoard = PinBoard(self.release, kv.num_blocks_of, context.clock)
        self.finished_req_ids: set[str] = set()
        """Finished since the last step."""
        self._names_resets: bool = context.config.profile.resets_count_as_preemptions
        self._started_over: list[str] = []
        """Preempted outside of a step since the last one, where steps name them."""

    def take_finished(self) -> frozenset[str]:
        """Ids finished since the last call."""
        if not self.finished_req_ids:
            return _NO_IDS
        finished, self.finished_req_ids = frozenset(self.finished_req_ids), set()
        return finished

    def take_preempted(self) -> tuple[str, ...]:
        """Ids preempted outside of a step since the last call."""
        if not self._started_over:
            return ()
        preempted, self._started_over = tuple(self._started_over), []
        return preempted

    def preempt(self, request: Request) -> None:
        """Take everything from a request that has just left the running list; it will be computed again."""
        if self._features.transfers is not None:
            self._features.transfers.preempted(request)
        if self._policy.keeps_some and self._kv.can_keep:
            self._kv.free_tail(request, self._policy.keeps_tokens(request))
        else:
            self._kv.free(request)
        self._free_encoder_outputs(request)
        request.status = RequestStatus.PREEMPTED
        request.num_computed_tokens = 0
        request.num_preemptions += 1
        self._waiting_queues.put_back(request)

    def start_over(self, requests: Iterable[Request], now: float, *, named: bool = False) -> None:
        """Preempt running requests outside of a step; outputs of their steps in flight will be dropped.

        ``named``: the next step names them, also where resets are not named.
        """
        for request in requests:
            self._running.remove_all([request])
            self.preempt(request)
            if named or self._names_resets:
                self._started_over.append(request.request_id)
            for preempted in self._hooks.request_preempted:
                preempted(now, request)
            self._reset(request)

    def _reset(self, request: Request) -> None:
        for reset in self._hooks.request_reset:
            reset(request, self._in_flight)

    def stop(self, stopped: Ended, now: float) -> None:
        """Requests have sampled their last token; those that are sessions may go on."""
        waiting_again: dict[Request, bool] = {}
        preempted = [request for request, _ in stopped if request.status is not RequestStatus.RUNNING]
        if preempted:
            self._waiting_queues.discard_stopped(preempted)
        for request, status in stopped:
            if request.request_id in self.sessions and status is not RequestStatus.FINISHED_ERROR:
                ran = request.status is RequestStatus.RUNNING
                if self.sessions.goes_on(request, is_loading=self._is_loading(request)):
                    waiting_again[request] = ran
                    self._reset(request)
                    self._drop_in_flight(request)
        self._running.remove_all([session for session, ran in waiting_again.items() if ran])
        self.finish([(request, status) for request, status in stopped if request not in waiting_again], now)

    def _drop_in_flight(self, session: Request) -> None:
        """Tokens of its steps in flight belong to an answer that is complete, whichever version decides."""
        if self._in_flight.tokens_of(session):
            discard_in_flight(session, self._in_flight)

    def _is_loading(self, request: Request) -> bool:
        """Whether a load still writes into its blocks; of one that is complete it is told."""
        if request.status is not RequestStatus.WAITING_FOR_REMOTE_KVS:
            return False
        return self._features.transfers is not None and not self._features.transfers.promote(request)

    def transfers_are_over(self, ended: Iterable[Request], loaded: Iterable[str]) -> None:
        """Blocks of ended requests are not read any more, and loads are complete: sessions that had nothing else to
        wait for take their next input, or wait for it.
        """
        for request in ended:
            self.release(request)
        for request_id in self.sessions.take_loaded(loaded):
            session = self.requests[request_id]
            self._waiting_queues.discard_stopped([session])
            self.sessions.goes_on(session, is_loading=self._is_loading(session))

    def finish(self, ended: Ended, now: float) -> None:
        """End requests in whatever state they are."""
        self._running.remove_all([request for request, _ in ended if request.status is RequestStatus.RUNNING])
        waited = [request for request, _ in ended if self._waiting_queues.get(request.request_id) is request]
        if waited:
            self._waiting_queues.discard_all(waited)
        for request, status in ended:
            self.sessions.close(request)
            self._give_back(request, status, now)
            del self.requests[request.request_id]
            self.finished_req_ids.add(request.request_id)
            if self._policy.hears_ends:
                self._policy.request_finished(now, request)
            self._on_finished(now, request)

    def preempt_by_policy(self, request_ids: Collection[str], now: float) -> None:
        """Preempt those of the named that run, the last in the running list first, so that they wait in their order."""
        named = [each for each in self._running.requests if each.request_id in request_ids]
        self.start_over(named[::-1], now, named=True)

    def reject(self, rejected: Sequence[tuple[Request, str]], now: float) -> list[tuple[Request, str]]:
        """End waiting requests unserved; returns those that did wait."""
        ended = [each for each in rejected if self._waiting_queues.get(each[0].request_id) is each[0]]
        self.finish([(request, RequestStatus.FINISHED_REJECTED) for request, _ in ended], now)
        return ended

    def _give_back(self, request: Request, status: RequestStatus, now: float) -> None:
        """Its blocks are freed, unless a transfer still wants them."""
        loading = request.status is RequestStatus.WAITING_FOR_REMOTE_KVS
        wanted = self._features.transfers is not None and self._features.transfers.keeps_blocks(request, status)
        request.status = status
        request.times.finished = now
        if self._features.encoder is not None:
            self._features.encoder.request_ended(request)
        ended_by_itself = not loading and status not in _NOT_BY_THEMSELVES
        if ended_by_itself and request.slot >= 0 and request.job_id and self._policy.keeps_blocks(now, request):
            self.pins.pin(request)
        elif not wanted:
            self._kv.free(request)

    def release(self, request: Request) -> None:
        """Free the blocks of an ended request, unless a pin or a connector still holds them."""
        transfers = self._features.transfers
        read = transfers is not None and request.request_id in transfers.delayed
        if not read and self.pins.get(request.job_id) is not request:
            self._kv.free(request)

    def _free_encoder_outputs(self, request: Request) -> None:
        if self._features.encoder is not None:
            self._features.encoder.releases.free(request)


# ---------------------------------------------------------------------------------------------------------------------
# What goes wrong at the workers: external KV that failed to load, and requests that were lost.


class Void(NamedTuple):
    """Requests for which nothing is taken in of what a step has sampled."""

    failed: Sequence[Request] = ()
    """They end as errors."""
    rewound: Sequence[Request] = ()
    """They compute again what was lost."""


NOTHING_VOID = Void()


class Recovery:
    """Rewinds requests whose external KV failed to load."""

    def __init__(self, context: SchedulerContext, lifecycle: Lifecycle, transfers: Transfers) -> None:
        self._fails: bool = context.config.kv_load_failure_policy == "fail"
        self._kv: KVCacheManager = context.kv
        self._running: RunningList = context.running
        self._waiting_queues: WaitingQueues = context.waiting_queues
        self._lifecycle: Lifecycle = lifecycle
        self._transfers: Transfers = transfers
        self._is_async: bool = context.features.placeholders is not None

    def lost(self, step: StepInFlight, report: ConnectorOutput | None, now: float) -> Void:
        """Requests whose KV was not there."""
        transfers = self._transfers
        transfers.forget_doubtful(step, report)
        if report is None or not report.invalid_block_ids:
            return NOTHING_VOID
        running = self._running.requests
        loading = [each for each in self._waiting_queues.skipped if each.status is RequestStatus.WAITING_FOR_REMOTE_KVS]
        lost = transfers.invalidate(report.invalid_block_ids, loading, running, step.plan.num_scheduled_tokens)
        self._kv.evict_blocks(lost.blocks)
        if self._fails:
            return Void(sorted({*lost.loading, *lost.rewound, *lost.sharing}, key=lambda request: request.request_id))
        if not self._is_async:
            for request in lost.rewound:
                self._kv.rewind_published(request)
            self._lifecycle.start_over(lost.sharing, now)
            return Void(rewound=[*lost.rewound, *lost.sharing])
        self._lifecycle.start_over([*lost.rewound, *lost.sharing], now)  # their steps in flight build on what was lost
        return NOTHING_VOID


def void_requests(
    step: StepInFlight, model: ModelOutput, broken: Collection[Request], recovery: Recovery | None, now: float
) -> Void:
    """Requests that the workers have lost, whose grammars are ``broken``, or whose KV was not there."""
    void = NOTHING_VOID if recovery is None else recovery.lost(step, model.connector, now)
    lost = model.extras.failed if model.extras is not None else _NO_IDS
    if not (lost or broken or void.failed):
        return void
    named = [each for each in step.requests if each.request_id in lost]
    failed = dict.fromkeys(each for each in (*named, *broken, *void.failed) if not each.status.is_finished)
    return void._replace(failed=list(failed))
