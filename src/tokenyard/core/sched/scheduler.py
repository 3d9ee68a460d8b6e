"""The scheduler: a conductor. It owns the requests and has each step planned, handed out and taken in; what is decided,
is decided in the rooms that it calls.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from tokenyard.core.arrays import IntArray
from tokenyard.core.config import CacheConfig, PauseState, SchedulerConfig, SpeculativeConfig
from tokenyard.core.kv.encoder_cache import EncoderCache
from tokenyard.core.kv.events import KVEventBatch
from tokenyard.core.kv.hashing import RequestHasher
from tokenyard.core.kv.manager import KVCacheManager
from tokenyard.core.request import Request, RequestStatus
from tokenyard.core.sched.answer_checks import AnswerChecks, checked_drafts, checked_repeats
from tokenyard.core.sched.calls import CallState, checked_call, closing_call, one_call
from tokenyard.core.sched.candidate import AdmissionLimit, FeatureHook, StepBounds, StepHooks
from tokenyard.core.sched.connector import KVConnector
from tokenyard.core.sched.context import bind_parts, check_queues, make_context
from tokenyard.core.sched.deadlocks import STUCK_AFTER, Standstill
from tokenyard.core.sched.eviction import EvictionOrder
from tokenyard.core.sched.fast_forward import FastForward
from tokenyard.core.sched.features.ahead import Speculation
from tokenyard.core.sched.features.encoder_checks import check_encodable
from tokenyard.core.sched.features.feature_set import Features
from tokenyard.core.sched.features.grammars import GrammarGate, GrammarOutput
from tokenyard.core.sched.features.sessions import PinBoard, SessionInput
from tokenyard.core.sched.in_flight import StepsInFlight
from tokenyard.core.sched.lifecycle import NOTHING_VOID, Lifecycle, Recovery, void_requests
from tokenyard.core.sched.observer import ObserverGate, QueueView, StepObserver
from tokenyard.core.sched.outcomes import EndedPin, SchedulerStats, StepOutcomes
from tokenyard.core.sched.outputs import DraftTokens, EngineOutputs, ModelOutput, with_events
from tokenyard.core.sched.policy import Policy, PolicyGate, make_policy
from tokenyard.core.sched.policy_context import PolicyContext
from tokenyard.core.sched.queues import RunningList, WaitingQueues
from tokenyard.core.sched.request_checks import check_is_request, check_padded, check_servable, request_ids_of
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.core.sched.step import StepPlanner
from tokenyard.core.sched.update import OutputUpdate
from tokenyard.core.sched.views import ObserverView
from tokenyard.errors import ConfigError, GrammarError, RequestError, StuckError


class Scheduler:
    """Decides, step by step, which requests run and how many tokens each computes.

        output = scheduler.schedule()
        result = scheduler.update_from_output(output, model(output))

    ``clock`` gives seconds: it stamps requests and observations, and policies with rules in seconds decide by it. The
    default stands still, so such a policy needs another (``time.monotonic``). ``policy`` overrides the one named in
    ``config``. ``block_hasher`` hashes blocks in place of our own, for a host that hashes anyway. ``limits`` are asked
    of every request that would be admitted, and ``hooks`` notified of requests and steps, beside those of the policy.
    ``eviction`` chooses which cached block is given up, in the place of the policy's own.
    ``log_stats`` has outputs carry their requests' events (queued, scheduled, preempted).

    A hook must not call back: what changes the scheduler raises NestedCallError within another such call. A hook that
    raises, ``KeyboardInterrupt`` and ``SystemExit`` end the call in its middle and close the scheduler: from then on
    such calls raise EngineDeadError (docs/hooks.md).

    Not thread-safe: all calls belong to one thread, and :class:`~tokenyard.core.engine.EngineCore` takes requests and
    aborts from others. With ``debug`` (None: in Python's development mode, ``-X dev``) a call in a second thread is a
    RuntimeError.
    """

    config: SchedulerConfig
    cache_config: CacheConfig
    clock: Callable[[], float]
    policy: Policy
    observer: ObserverGate | None
    """Tells the observer, and survives it."""
    state: ObserverView
    """What observers are shown."""
    kv: KVCacheManager
    requests: Mapping[str, Request]
    """Every unfinished request, by id."""
    pause_state: PauseState
    step: int
    """Number of the next step."""

    def __init__(
        self,
        config: SchedulerConfig,
        cache_config: CacheConfig,
        *,
        speculative_config: SpeculativeConfig | None = None,
        clock: Callable[[], float] = lambda: 0.0,
        observer: StepObserver | None = None,
        policy: Policy | None = None,
        kv_connector: KVConnector | None = None,
        prefill_seconds: Callable[[int], float] | None = None,
        load_seconds: Callable[[int], float] | None = None,
        block_hasher: RequestHasher | None = None,
        limits: Sequence[AdmissionLimit] = (),
        hooks: Sequence[FeatureHook] = (),
        eviction: EvictionOrder | type[EvictionOrder] | None = None,
        log_stats: bool = False,
        debug: bool | None = None,
    ) -> None:
        _check_kinds(config, cache_config, speculative_config, clock)
        self.observer = _gate(observer)
        self.policy = make_policy(config.policy) if policy is None else policy
        self._policy_gate: PolicyGate = PolicyGate(self.policy)
        context = make_context(
            config,
            cache_config,
            speculative_config,
            clock,
            self._policy_gate,
            connector=kv_connector,
            hasher=block_hasher,
            limits=(*self.policy.limits, *limits),
            hooks=(*self.policy.hooks, *hooks),
            eviction=self.policy.eviction if eviction is None else eviction,
            log_stats=log_stats,
        )
        self.config = config
        self.cache_config = context.cache_config
        self.clock = clock
        self.pause_state = PauseState.UNPAUSED
        self.step = 0
        self._rejected: list[tuple[Request, str]] = []
        self._calls: CallState = CallState(watches_thread=sys.flags.dev_mode if debug is None else debug)
        self.kv = context.kv
        self._in_flight: StepsInFlight = context.in_flight
        self._grammars: GrammarGate = context.grammars
        self._features: Features = context.features
        self._hooks: StepHooks = context.hooks
        self._waiting_queues: WaitingQueues = context.waiting_queues
        self._running: RunningList = context.running
        # What decides, each over the parts that all share; the policy sees what observers are shown.
        lifecycle = Lifecycle(context, self._queued, self._tell_finished)
        self._lifecycle: Lifecycle = lifecycle
        lifecycle.pins.tells_end = self._tell_pin_ended
        self.state = ObserverView(context, lifecycle.pins)
        kv_tokens = self.kv.num_usable_blocks * context.cache_config.tokens_per_block
        bind_parts(context, PolicyContext(lifecycle.pins, kv_tokens, self.state, prefill_seconds, load_seconds))
        self.requests = MappingProxyType(lifecycle.requests)
        transfers = context.features.transfers
        self._recovery: Recovery | None = None if transfers is None else Recovery(context, lifecycle, transfers)
        self._answers: AnswerChecks = AnswerChecks(context, self.requests)
        self._update: OutputUpdate = OutputUpdate(context, lifecycle.stop)
        self._planner: StepPlanner = StepPlanner(context, lifecycle, self._update.expect_first_token)
        self._fast_forward: FastForward = FastForward(context, self._update, self._planner)
        self._standstill: Standstill = Standstill(context, lifecycle, context.clock)

    @checked_call
    def attach_observer(self, observer: StepObserver | None) -> None:
        """Notify ``observer`` from now on, in place of the one before; ConfigError if it is none."""
        self.observer = _gate(observer)
        self._fast_forward.forget()

    def __repr__(self) -> str:
        running, waiting = self.get_request_counts()
        free, total = self.num_free_blocks, self.num_total_blocks
        return (
            f"<Scheduler: {type(self.policy).__name__}, step {self.step}, {running:,} running, {waiting:,} waiting, "
            f"{free:,} of {total:,} blocks free>"
        )

    # ---- arrivals

    @checked_call
    def add_request(self, request: Request) -> None:
        """Queue a request; RequestError, and nothing changes, if it can never be served.

        A request with the id of a streaming-input session continues it, or ends it if it is not resumable.
        """
        check_is_request(request)
        if request.arrives_when_added:
            request.arrival_time = self.clock()
        if request.request_id in self._lifecycle.sessions:
            self._feed(self.requests[request.request_id], request)
            return
        features = self._features
        check_servable(request, self.requests, self.config, self.kv, features.num_lookahead_tokens)
        check_padded(request, features.padded_admission, self.config, self.kv, features.num_lookahead_tokens)
        check_encodable(request, features.encoder)
        self._lifecycle.sessions.check_request(request)
        for check in self._hooks.check_request:
            check(request)
        self._begins()
        now = self.clock()
        self._waiting_queues.add(request)
        self._policy_gate.request_arrived(now, request)
        self._lifecycle.requests[request.request_id] = request
        self._note_items(request)
        if request.resumable:
            self._lifecycle.sessions.open(request)
        self._queued(request)
        if self.observer is not None:
            self.observer.request_arrived(now, request)

    def _feed(self, session: Request, request: Request) -> None:
        """``request`` continues or ends a session."""
        check_encodable(request, self._features.encoder)
        update = SessionInput.of(request)
        self._lifecycle.sessions.check_input(session, update)
        self._begins()
        goes_on = self._lifecycle.sessions.feed(session, update)
        self._note_items(request)
        if not goes_on:
            self._lifecycle.finish([(session, RequestStatus.FINISHED_ABORTED)], self.clock())

    def _note_items(self, request: Request) -> None:
        if self._features.encoder is not None:
            self._features.encoder.items_added(request)

    def _queued(self, request: Request) -> None:
        """A request was added, or a session has got its next input."""
        for added in self._hooks.request_added:
            added(self.clock(), request)

    # ---- the step

    @one_call
    def schedule(self) -> SchedulerOutput:
        """Decide one step."""
        observer = self.observer
        now = self.clock()
        bounds = None
        if self._policy_gate.acts_each_step:
            bounds = self._policy_gate.step_begins(now, self._waiting_queues)
        if observer is not None:
            observer.step_started(now, self.step, self.state)
        self.kv.new_step_starts()
        if bounds is not None and (bounds.preempts or bounds.rejects):
            self._act_on(bounds, now)
        outcomes = StepOutcomes()
        step = self._planner.plan(self.step, now, outcomes, self.pause_state, observer, bounds)
        for planned in self._hooks.step_planned:
            planned(step)
        if self._policy_gate.rejected:
            self._reject(now)
        self._in_flight.add(step)
        self._fast_forward.note(step, outcomes)
        if step.plan.total_num_scheduled_tokens:
            self._standstill.num_steps = 0
        else:
            self._standstill.step_was_empty(now, outcomes)
        self.step += 1
        if observer is not None:
            observer.step_decided(now, step.plan, outcomes, self.state)
        return step.plan

    def _act_on(self, bounds: StepBounds, now: float) -> None:
        """What a policy wants to happen before a step is decided."""
        if bounds.preempts:
            self._lifecycle.preempt_by_policy(bounds.preempts, now)
        named = [self.requests[each] for each in bounds.rejects if each in self.requests]
        self._policy_gate.rejected += [(request, bounds.detail) for request in named]
        self._reject(now)

    def _reject(self, now: float) -> None:
        """End requests that the policy rejects."""
        rejected, self._policy_gate.rejected = self._policy_gate.rejected, []
        self._rejected += self._lifecycle.reject(rejected, now)

    @property
    def has_rejected(self) -> bool:
        """Whether :meth:`take_rejected` has something to return."""
        return bool(self._rejected)

    @closing_call
    def take_rejected(self) -> list[tuple[Request, str]]:
        """Return requests that the policy rejected since the last call, each with its word: their host tells clients.

        Nothing else does: no output of a step names them.
        """
        rejected, self._rejected = self._rejected, []
        return rejected

    def standstill(self, after: int = STUCK_AFTER) -> StuckError | None:
        """What a host has to raise once ``after`` steps in a row have not moved anything and no further one will.

        None also while a request waits for an event: a load, a grammar, input, the end of a pause, a policy's clock.
        """
        if self._standstill.num_steps < after or self.pause_state is PauseState.PAUSED_ALL:
            return None
        return self._standstill.error()

    def _begins(self) -> None:
        """A call begins to work: what the last step decided says nothing of the next one."""
        self._calls.is_half_done = True
        self._fast_forward.forget()
        self._standstill.num_steps = 0

    @one_call
    def num_repeats(self) -> int:
        """How many further steps would decide what the last one did: a token for each of the same requests.

        0 also while an observer wants to see every step.
        """
        return self._count_repeats()

    def _count_repeats(self) -> int:
        observer = self.observer
        if self.pause_state is not PauseState.UNPAUSED or (observer is not None and not observer.sees_repeats):
            return 0
        return self._fast_forward.count(tells=observer is not None)

    @checked_call
    def repeat(self, tokens: IntArray, moments: Sequence[float]) -> list[SchedulerOutput]:
        """Take in the oldest output and decide a step like the last one, several times, in one stroke.

        ``tokens`` has shape ``[n, steps]``: a token per request for each of the outputs, which come at ``moments``
        (seconds). Returns the plans in flight then, the oldest first. They and all else are what as many calls of
        :meth:`update_from_output` and :meth:`schedule` would give. ValueError, and nothing changes, for more steps than
        :meth:`num_repeats` or none, and for what are no tokens of theirs.
        """
        tokens = checked_repeats(self._in_flight, tokens, moments, self._count_repeats())
        self._calls.is_half_done = True
        repeated = self._fast_forward.repeat(self.step, tokens, moments, tells=self.observer is not None)
        self.step += len(moments)
        if self.observer is not None and repeated is not None:
            self.observer.steps_repeated(repeated)
        return [step.plan for step in self._in_flight]

    # ---- after the model

    @checked_call
    def update_from_output(self, output: SchedulerOutput, model_output: ModelOutput) -> EngineOutputs:
        """Take in the sampled tokens of a step: append, stop, finish, free.

        Requests that finished or were aborted since the step was made are ignored. A step's output is taken in
        once, and after those of earlier steps; ValueError, and nothing changes, for any other, and for an answer that
        does not belong to the step.
        """
        step = self._in_flight.oldest(output)
        output = step.plan
        self._answers.check(step, model_output)
        self._calls.is_half_done = True
        now, events, transfers = self.clock(), self._features.events, self._features.transfers
        errors = self._grammars.take_failed()
        usual = not errors and model_output.extras is None and self._recovery is None
        void = NOTHING_VOID if usual else void_requests(step, model_output, errors, self._recovery, now)
        # From here the step is no longer in flight: a session that goes on below must discard only those after it.
        self._in_flight.remove(step)
        outputs = self._update.run(step, model_output, now, () if usual else (*void.failed, *void.rewound))
        if ended := self._grammars.take_failed():
            errors = {**errors, **ended}
        if void.failed:
            self._begins()
            self._lifecycle.finish([(request, RequestStatus.FINISHED_ERROR) for request in void.failed], now)
            outputs.add_failed(void.failed)
        if transfers is not None:
            outputs.kv_transfer_params = transfers.take_params()
            if model_output.connector is not None:
                over = transfers.report(model_output.connector, self.requests)
                self._lifecycle.transfers_are_over(over, model_output.connector.finished_receiving)
                if self.observer is not None:
                    self.observer.kv_transferred(now, output.step, model_output.connector)
        if events is not None:
            outputs.extras = with_events(outputs.requests, outputs.extras, events)
        if errors:
            outputs.errors = _of_ended(errors)
        outputs.scheduler_stats = self._stats()
        if self.observer is not None:
            self.observer.step_completed(now, output, outputs.apart())
        return outputs

    @checked_call
    def update_draft_token_ids(self, output: SchedulerOutput, drafts: DraftTokens) -> None:
        """Drafts proposed after a step, to be verified in the next one (speculative decoding without async).

        ValueError unless ``output`` is the step whose output was taken in last.
        """
        speculation = self._speculation()
        step = self._in_flight.last_taken(output)
        drafts = checked_drafts(step, drafts, self.num_speculative_tokens)
        self._calls.is_half_done = True
        speculation.update(step, drafts)

    @checked_call
    def update_draft_token_ids_in_output(self, output: SchedulerOutput, drafts: DraftTokens) -> SchedulerOutput:
        """The step with the drafts that stand behind its -1, before it is executed (async scheduling with grammars).

        Workers need them to know which tokens their grammars allow. Drafts that a grammar forbids are replaced by -1.
        ``output`` itself stays as it is; ValueError if it is not in flight.
        """
        speculation = self._speculation()
        step = self._in_flight.of(output)
        drafts = checked_drafts(step, drafts, self.num_speculative_tokens)
        self._calls.is_half_done = True
        step.plan = speculation.drafts_known(step, drafts)
        return step.plan

    def _speculation(self) -> Speculation:
        if self._features.speculation is None:
            raise ValueError("drafts were given to a scheduler without a SpeculativeConfig")
        return self._features.speculation

    def get_grammar_bitmask(self, output: SchedulerOutput) -> GrammarOutput | None:
        """Tokens that grammars allow in a step; None if no request samples by one.

        Ask while the step is in flight (else ValueError), when no earlier one is whose tokens advance its grammars.
        """
        return self._grammars.bitmask(self._in_flight.of(output)) if output.has_structured_output_requests else None

    @one_call
    def make_stats(self) -> SchedulerStats:
        """Gauges now, and prefix-cache statistics since the last call."""
        return self._stats()

    def _stats(self) -> SchedulerStats:
        transfers = self._features.transfers
        waiting, skipped = self._waiting_queues.counts
        return SchedulerStats(
            len(self._running.requests),
            waiting,
            skipped,
            self.kv.usage,
            self.kv.take_stats(),
            self._features.speculation.take_stats() if self._features.speculation is not None else None,
            transfers.take_stats() if transfers is not None else None,
            transfers.ask("take_stats", transfers.connector.take_stats) if transfers is not None else None,
        )

    # ---- the end of requests

    @checked_call
    def finish_requests(
        self,
        request_ids: str | Iterable[str] | None,
        status: RequestStatus = RequestStatus.FINISHED_ABORTED,
        *,
        missing_ok: bool = False,
    ) -> list[Request]:
        """End requests from outside, at any moment and in any state; None means all.

        Returns those that were ended; no output names them. An id without an unfinished request raises RequestError
        before anything changes, unless ``missing_ok`` (a host whose aborts race with finishes).
        """
        if not isinstance(status, RequestStatus) or not status.is_finished:
            raise ConfigError("status", status, "give one of RequestStatus.FINISHED_*")
        ids = list(self.requests if request_ids is None else dict.fromkeys(request_ids_of(request_ids)))
        unknown = [rid for rid in ids if rid not in self.requests]
        if unknown and not missing_ok:
            fix = "no unfinished request has this id: leave it out, or say missing_ok=True"
            raise RequestError(unknown[0], "request_id", unknown[0], fix)
        ended = [self.requests[rid] for rid in ids if rid in self.requests]
        self._begins()
        self._lifecycle.finish([(request, status) for request in ended], self.clock())
        for aborted in self._hooks.request_aborted:
            for request in ended:
                aborted(request)
        return ended

    def _tell_pin_ended(self, pin: EndedPin) -> None:
        if self.observer is not None:
            self.observer.pin_ended(self.clock(), pin)

    def _tell_finished(self, now: float, request: Request) -> None:
        if self.observer is not None:
            self.observer.request_finished(now, request)

    @one_call
    def take_kv_events(self) -> KVEventBatch | None:
        """What entered and left the prefix cache since the last call; None if nothing did (or it is not recorded)."""
        transfers = self._features.transfers
        theirs = () if transfers is None else transfers.ask("take_events", transfers.connector.take_events)
        events = [*self.kv.take_events(), *theirs]
        if not events:
            return None
        batch = KVEventBatch(self.clock(), events)
        if self.observer is not None:
            self.observer.kv_events_taken(self.clock(), batch)
        return batch

    # ---- pauses and resets

    @checked_call
    def set_pause_state(self, state: PauseState) -> None:
        """Pause or resume; takes effect with the next step. Raises ConfigError for what is no ``PauseState``."""
        if state not in tuple(PauseState):
            raise ConfigError("pause_state", state, f"give one of: {', '.join(each.name for each in PauseState)}")
        self.pause_state = PauseState(state)
        if self.observer is not None:
            self.observer.pause_changed(self.clock(), self.pause_state)

    @one_call
    def reset_prefix_cache(self, *, reset_running_requests: bool = False, reset_connector: bool = False) -> bool:
        """Forget all cached content; with ``reset_connector`` what the connector keeps as well.

        Refused (False) while blocks are in use, unless ``reset_running_requests``: then every running request is
        preempted first and starts again.
        """
        self._begins()
        if reset_running_requests:
            self._lifecycle.start_over(list(reversed(self.running)), self.clock())
            self.pins.clear()
            self.kv.free_all_kept()
        done = self._told("prefix", done=self.kv.reset_prefix_cache())
        return (self._reset_connector_cache() and done) if reset_connector else done

    def _told(self, cache: str, *, done: bool) -> bool:
        """``done``, which the observer has been told."""
        if self.observer is not None:
            self.observer.cache_reset(self.clock(), cache, done=done)
        return done

    @one_call
    def reset_connector_cache(self) -> bool:
        """Forget what the connector keeps; False without one, or if it cannot now."""
        return self._reset_connector_cache()

    def _reset_connector_cache(self) -> bool:
        transfers = self._features.transfers
        done = transfers is not None and transfers.ask("reset_cache", transfers.connector.reset_cache)
        if done and transfers is not None:
            transfers.stats.reset = True
        return self._told("connector", done=done)

    @one_call
    def reset_encoder_cache(self) -> None:
        """Forget all encoder outputs (the encoder's weights have changed)."""
        if self._features.encoder is not None:
            self._features.encoder.cache.reset()
        self._told("encoder", done=self._features.encoder is not None)

    @closing_call
    def shutdown(self) -> None:
        """Let go of what the connector holds; the scheduler is not used afterwards."""
        if self._features.transfers is not None:
            self._features.transfers.ask("shutdown", self._features.transfers.connector.shutdown)

    # ---- what hosts may read

    @property
    def calls(self) -> CallState:
        """The call that is under way, and what has closed the scheduler."""
        return self._calls

    @property
    def running(self) -> Sequence[Request]:
        """Requests in the running list, in running order."""
        return self._running.members()

    @property
    def waiting(self) -> QueueView:
        """Requests that wait for their turn, in queue order."""
        return self.state.waiting

    @property
    def skipped_waiting(self) -> QueueView:
        """Requests that were skipped or wait for something else, in queue order."""
        return self.state.skipped_waiting

    @property
    def pins(self) -> PinBoard:
        """Finished turns whose blocks the policy keeps."""
        return self._lifecycle.pins

    @property
    def num_free_blocks(self) -> int:
        """Blocks in the free queue, cached evictable ones included."""
        return self.kv.num_free_blocks

    @property
    def num_total_blocks(self) -> int:
        """Blocks in the pool, the null block included."""
        return self.kv.num_total_blocks

    @property
    def num_cached_blocks(self) -> int:
        """Distinct hashes in the prefix index."""
        return self.kv.num_cached_blocks

    @property
    def encoder_cache(self) -> EncoderCache | None:
        """Outputs of multi-modal encoders; None for a text model."""
        return self._features.encoder.cache if self._features.encoder is not None else None

    @property
    def num_speculative_tokens(self) -> int:
        """Most draft tokens per request and step; 0 without speculative decoding."""
        return self._features.speculation.max_drafts if self._features.speculation is not None else 0

    def num_blocks_of(self, request: Request) -> int:
        """Blocks the request holds."""
        return self.kv.num_blocks_of(request)

    def next_moment(self, now: float) -> float | None:
        """When, after ``now``, the policy changes something by itself, in seconds; None: nothing does."""
        return self._policy_gate.next_moment(now)

    def get_request_counts(self) -> tuple[int, int]:
        """(running, waiting)."""
        return len(self._running), len(self._waiting_queues)

    def get_num_unfinished_requests(self) -> int:
        """Requests that the next steps may serve: a pause leaves some or all of them out."""
        if self.pause_state is PauseState.PAUSED_ALL:
            return 0
        if self.pause_state is PauseState.PAUSED_NEW:
            return len(self._running) + self._waiting_queues.num_going_on
        return len(self._running) + len(self._waiting_queues) - self._lifecycle.sessions.num_waiting

    def has_unfinished_requests(self) -> bool:
        """Whether the next steps may serve a request."""
        if self._running.requests and self.pause_state is not PauseState.PAUSED_ALL:
            return True  # they are part of every other sum
        return self.get_num_unfinished_requests() > 0

    def has_finished_requests(self) -> bool:
        """Finished ids have not been reported to the workers, or a connector still reads a finished one's blocks."""
        transfers = self._features.transfers
        return bool(self._lifecycle.finished_req_ids) or (transfers is not None and bool(transfers.delayed))

    def has_requests(self) -> bool:
        """Whether another step has anything to do or to report."""
        return self.has_unfinished_requests() or self.has_finished_requests()

    def get_kv_connector(self) -> KVConnector | None:
        """The scheduler's half of the KV connector."""
        return self._features.transfers.connector if self._features.transfers is not None else None

    def check_invariants(self) -> None:
        """Raise AssertionError if queues, table and blocks disagree (tests call it after every step)."""
        self.kv.check_invariants()
        if self._features.encoder is not None:
            self._features.encoder.cache.check_invariants()
        self._lifecycle.sessions.check_invariants(self.requests.values())
        check_queues(self.requests, self._running, self._waiting_queues, self.pins, self.config.max_num_seqs)


def _gate(observer: StepObserver | None) -> ObserverGate | None:
    return None if observer is None else ObserverGate([observer])


def _of_ended(errors: Mapping[Request, GrammarError]) -> dict[str, GrammarError]:
    """What the grammars of requests that ended as errors have done, by request id."""
    return {each.request_id: error for each, error in errors.items() if each.status is RequestStatus.FINISHED_ERROR}


def _check_kinds(config: object, cache_config: object, speculative_config: object, clock: object) -> None:
    """Raise ConfigError for arguments that are something else, or in another order."""
    for field, value, kind in (
        ("config", config, SchedulerConfig),
        ("cache_config", cache_config, CacheConfig),
        ("speculative_config", speculative_config, SpeculativeConfig),
    ):
        if not isinstance(value, kind) and not (value is None and field == "speculative_config"):
            raise ConfigError(field, value, f"give a {kind.__name__}")
    if not callable(clock):
        raise ConfigError("clock", clock, "give a function without arguments that returns seconds")
