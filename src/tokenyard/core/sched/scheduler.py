"""The scheduler: a conductor. It owns the requests and has each step planned, handed out and taken in; what is decided,
is decided in the rooms that it calls.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from tokenyard.core.basics import IntArray
from tokenyard.core.config import CacheConfig, PauseState, SchedulerConfig, SpeculativeConfig
from tokenyard.core.kv.events import KVEventBatch
from tokenyard.core.kv.hashing import RequestHasher
from tokenyard.core.request import Request, RequestStatus
from tokenyard.core.sched.answer_checks import AnswerChecks, checked_drafts
from tokenyard.core.sched.calls import CallState, OneThread, closing_call, one_call
from tokenyard.core.sched.connector import KVConnector
from tokenyard.core.sched.context import Parts, check_queues, make_kv_manager
from tokenyard.core.sched.deadlocks import STUCK_AFTER, Standstill
from tokenyard.core.sched.fast_forward import Repeats
from tokenyard.core.sched.features.feature_set import Features
from tokenyard.core.sched.features.grammars import GrammarGate
from tokenyard.core.sched.lifecycle import Lifecycle, Recovery, failed_requests
from tokenyard.core.sched.observer import ObserverGate, StepObserver
from tokenyard.core.sched.outcomes import SchedulerStats, StepOutcomes
from tokenyard.core.sched.outputs import DraftTokens, EngineOutputs, Held, ModelOutput, with_events
from tokenyard.core.sched.policy import Policy, PolicyContext, PolicyGate, make_policy
from tokenyard.core.sched.queues import HoldersFirstQueues, RunningList, WaitingQueues
from tokenyard.core.sched.request_checks import (
    check_encodable,
    check_is_request,
    check_padded,
    check_servable,
    request_ids_of,
)
from tokenyard.core.sched.scheduler_output import SchedulerOutput, StepsInFlight
from tokenyard.core.sched.step import StepPlanner
from tokenyard.core.sched.update import Acceptance, OutputUpdate
from tokenyard.core.sched.views import SchedulerView, StateView
from tokenyard.errors import ConfigError, RequestError, StuckError

__all__ = ["Scheduler"]

_CHANGING = (
    *("add_request", "finish_requests", "schedule", "update_from_output", "update_draft_token_ids"),
    *("update_draft_token_ids_in_output", "set_pause_state", "reset_prefix_cache", "reset_connector_cache"),
    *("reset_encoder_cache", "take_kv_events", "make_stats", "attach_observer", "num_repeats", "repeat"),
)
"""Calls that belong to one thread."""


class Scheduler(SchedulerView):
    """Decides, step by step, which requests run and how many tokens each computes.

        output = scheduler.schedule()
        result = scheduler.update_from_output(output, model(output))

    ``clock`` gives seconds: it stamps requests and observations, and policies with rules in seconds decide by it. The
    default stands still, so such a policy needs another (``time.monotonic``). ``policy`` overrides the one named in
    ``config``. ``block_hasher`` hashes blocks in place of our own, for a host that hashes anyway. ``log_stats`` has
    outputs carry their requests' events (queued, scheduled, preempted).

    A hook must not call back: what changes the scheduler raises NestedCallError within another such call, and
    EngineDeadError after one that ``KeyboardInterrupt`` or ``SystemExit`` has left in its middle (docs/hooks.md).

    Not thread-safe: all calls belong to one thread, and :class:`~tokenyard.core.engine.EngineCore` takes requests and
    aborts from others. With ``debug`` (None: in Python's development mode, ``-X dev``) a call in a second thread is a
    RuntimeError.
    """

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
        block_hasher: RequestHasher | None = None,
        log_stats: bool = False,
        debug: bool | None = None,
    ) -> None:
        _check_kinds(config, cache_config, speculative_config, clock)
        profile = config.profile
        if not profile.prefill_ranks_spread_kv:
            cache_config = replace(cache_config, prefill_context_parallel_size=1)
        self.config = config
        self.cache_config = cache_config
        self.clock = clock
        self.observer: ObserverGate | None = None
        """Tells the observer, and survives it."""
        self._observe(observer)
        self.policy = make_policy(config.policy) if policy is None else policy
        self._policy_gate = gate = PolicyGate(self.policy)
        self.pause_state = PauseState.UNPAUSED
        self.step = 0
        """Number of the next step."""
        self._in_flight = StepsInFlight()
        self.kv = kv = make_kv_manager(
            config,
            cache_config,
            speculative_config,
            self._in_flight,
            has_connector=kv_connector is not None,
            hasher=block_hasher,
        )
        table = kv.table
        self._grammars = grammars = GrammarGate(kv.failures)
        self._features = features = Features.of(
            config, speculative_config, kv, table, kv_connector, self._in_flight, grammars, log_stats=log_stats
        )
        self._hooks = features.hooks
        self._held = Held(kv.failures)
        tokens_per_block = cache_config.tokens_per_block
        make_queues = HoldersFirstQueues if profile.requests_with_blocks_first else WaitingQueues
        self._waiting_queues = room = make_queues(gate.new_queue, tokens_per_block, kv.failures)
        self._running = running = RunningList(config.max_num_seqs)
        parts = Parts(
            config, cache_config, kv, table, gate, running, room, features, self._hooks, self._in_flight, grammars
        )
        self._lifecycle = lifecycle = Lifecycle(parts, self._queued, self._tell_finished)
        self._sessions = lifecycle.sessions
        gate.bind(PolicyContext(lifecycle.pins, kv.num_usable_blocks * tokens_per_block, prefill_seconds))
        acceptance = Acceptance(table, config.max_model_len, kv.on_seal, profile)
        self._recovery = Recovery.of(config, kv, running, room, lifecycle, features)
        self._answers = AnswerChecks(
            features.transfers,
            lifecycle.requests,
            cache_config.num_gpu_blocks,
            verifies_drafts=features.speculation is not None,
        )
        self._update = OutputUpdate(kv, table, acceptance, features, lifecycle.stop, grammars, profile)
        self._planner = StepPlanner(parts, gate, lifecycle, self._update.expect_first_token)
        self._repeats = Repeats(parts, self.policy, self._update.stamp_first_tokens)
        self._standstill = Standstill(parts, lifecycle, clock)
        self.state = StateView(parts, lifecycle.pins)
        """What observers are shown."""
        self._watch_calls(debug=sys.flags.dev_mode if debug is None else debug)

    def _watch_calls(self, *, debug: bool) -> None:
        """From now on one call at a time; with ``debug`` have each that changes anything check its thread."""
        self._calls = CallState()
        watch = OneThread()
        for name in _CHANGING if debug else ():
            setattr(self, name, watch.guard(getattr(self, name)))

    def attach_observer(self, observer: StepObserver | None) -> None:
        """Have ``observer``, in place of the one before, told what happens from now on; ConfigError if it is none."""
        self._observe(observer)
        self._repeats.forget()

    def _observe(self, observer: StepObserver | None) -> None:
        self.observer = None if observer is None else ObserverGate([observer])

    def __repr__(self) -> str:
        running, waiting = self.get_request_counts()
        name = type(self.policy).__name__
        free, total = self.num_free_blocks, self.num_total_blocks
        return (
            f"<Scheduler: {name}, step {self.step}, {running:,} running, {waiting:,} waiting, "
            f"{free:,} of {total:,} blocks free>"
        )

    # ---- arrivals

    @one_call
    def add_request(self, request: Request) -> None:
        """Queue a request; RequestError, and nothing changes, if it can never be served.

        A request with the id of a streaming-input session continues it, or ends it if it is not resumable.
        """
        check_is_request(request)
        self._something_changed()
        if request.arrives_when_added:
            request.arrival_time = self.clock()
        if request.request_id in self._sessions:
            session = self.requests[request.request_id]
            check_encodable(request, self._features.encoder)
            goes_on = self._sessions.feed(session, request)
            self._note_items(request)
            if not goes_on:
                self._lifecycle.finish([(session, RequestStatus.FINISHED_ABORTED)], self.clock())
            self.kv.failures.raise_first(f"the session has {'got its input' if goes_on else 'ended'} all the same")
            return
        check_servable(request, self.requests, self.config, self.kv, self._features.num_lookahead_tokens)
        features = self._features
        check_padded(request, features.padded_admission, self.config, self.kv, features.num_lookahead_tokens)
        check_encodable(request, features.encoder)
        self._sessions.check_request(request)
        for check in self._hooks.check_request:
            check(request)
        now = self.clock()
        self._waiting_queues.add(request)
        try:
            self._policy_gate.request_arrived(now, request)
        except Exception:
            self._waiting_queues.discard(request)
            raise
        self.requests[request.request_id] = request
        self._note_items(request)
        if request.resumable:
            self._sessions.open(request)
        self._queued(request)
        if self.observer is not None:
            self.observer.request_arrived(now, request)

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
        """Decide one step.

        If a policy, a connector or a grammar raises, the step is decided without its answer, and the error leaves this
        call; the next call hands the step out. Nobody is lost (docs/hooks.md).
        """
        if self._held.step is not None:
            return self._held.take_plan(self._held.step)
        observer = self.observer
        now = self.clock()
        if observer is not None:
            observer.step_started(now, self.step, self.state)
        self.kv.new_step_starts()
        self._waiting_queues.step_begins()
        try:
            self._policy_gate.step_begins(now, self._waiting_queues)
        except Exception as error:  # noqa: BLE001 - the step is decided without
            self.kv.failures.note(error, "Policy.step_begins")
        outcomes = StepOutcomes()
        step = self._planner.plan(self.step, now, outcomes, self.pause_state, observer)
        for planned in self._hooks.step_planned:
            try:
                planned(step)
            except Exception as error:  # noqa: BLE001 - it is asked again when the step is handed out
                self._held.missing(planned, error)
        self._in_flight.add(step)
        self._repeats.note(step, outcomes)
        if step.plan.total_num_scheduled_tokens:
            self._standstill.num_steps = 0
        else:
            self._standstill.step_was_empty(now, outcomes)
        self.step += 1
        if observer is not None:
            observer.step_decided(now, step.plan, outcomes, self.state)
        if self.kv.failures.first is not None:
            self._held.hold_step(step)
        return step.plan

    def standstill(self, after: int = STUCK_AFTER) -> StuckError | None:
        """What a host has to raise once ``after`` steps in a row have not moved anything and no further one will.

        None also while somebody waits for an event: a load, a grammar, input, the end of a pause, a policy's clock.
        """
        if self._standstill.num_steps < after or self.pause_state is PauseState.PAUSED_ALL:
            return None
        return self._standstill.error()

    def _something_changed(self) -> None:
        """What the last step decided says nothing of the next one."""
        self._repeats.forget()
        self._standstill.num_steps = 0

    def num_repeats(self) -> int:
        """How many further steps would decide what the last one did: a token for each of the same requests.

        0 also while somebody watches who wants to see every step.
        """
        observer = self.observer
        if self.pause_state is not PauseState.UNPAUSED or (observer is not None and not observer.sees_repeats):
            return 0
        return self._repeats.count(tells=observer is not None)

    @one_call
    def repeat(self, tokens: IntArray, moments: Sequence[float]) -> list[SchedulerOutput]:
        """Take in the oldest output and decide a step like the last one, several times, in one stroke.

        ``tokens`` has shape ``[n, steps]``: a token per request for each of the outputs, which come at ``moments``
        (seconds). At most :meth:`num_repeats` steps. Returns the plans in flight then, the oldest first. They and all
        else are what as many calls of :meth:`update_from_output` and :meth:`schedule` would give.
        """
        repeated = self._repeats.repeat(self.step, tokens, moments, tells=self.observer is not None)
        self.step += len(moments)
        if self.observer is not None and repeated is not None:
            self.observer.steps_repeated(repeated)
        return [step.plan for step in self._in_flight]

    # ---- after the model

    @one_call
    def update_from_output(self, output: SchedulerOutput, model_output: ModelOutput) -> EngineOutputs:
        """Take in the sampled tokens of a step: append, stop, finish, free.

        Requests that finished or were aborted since the step was made are passed over. A step's output is taken in
        once, and after those of earlier steps; ValueError, and nothing changes, for any other, and for an answer that
        does not belong to the step.

        If a policy, a connector or a grammar raises, the output is taken in without its answer, and the error leaves
        this call; the same call once more, before the next step is taken in, returns the outputs (docs/hooks.md).
        """
        if self._held.outputs is not None and self._in_flight.is_last_taken(output):
            return self._held.take_outputs(self._held.outputs)
        step = self._in_flight.oldest(output)
        output = step.plan
        self._answers.check(step, model_output)
        now, events = self.clock(), self._features.events
        transfers, extras = self._features.transfers, model_output.extras
        lost = self._recovery.lost(step, model_output.connector, now) if self._recovery is not None else []
        failed = failed_requests(step, extras) if extras is not None else []
        failed += [request for request in self._grammars.take_condemned() if request not in failed]
        # From here the step is no longer in flight: a session that goes on below must discard only those after it.
        self._in_flight.remove(step)
        accepted = self._update.run(step, model_output, now, lost + failed)
        if lost and self.config.kv_load_failure_policy == "fail":
            failed += [request for request in lost if request not in failed]
        if failed:
            self._something_changed()
            self._lifecycle.finish([(request, RequestStatus.FINISHED_ERROR) for request in failed], now)
            accepted = accepted.with_failed(failed)
        params: Mapping[str, Mapping[str, object]] = {}
        if transfers is not None:
            params = transfers.take_params()
            if model_output.connector is not None:
                for request in transfers.report(model_output.connector, self.requests):
                    self._lifecycle.release(request)
                if self.observer is not None:
                    self.observer.kv_transferred(now, output.step, model_output.connector)
        outputs = EngineOutputs(
            step=output.step,
            requests=accepted.requests,
            req_ids=accepted.req_ids,
            tokens=accepted.tokens,
            num_tokens=accepted.num_tokens,
            finish_reasons=accepted.finish_reasons,
            stop_reasons=accepted.stop_reasons,
            extras=accepted.extras if events is None else with_events(accepted.requests, accepted.extras, events),
            scheduler_stats=self.make_stats(),
            kv_transfer_params=params,
        )
        if self.observer is not None:
            self.observer.step_completed(now, output, outputs.apart())
        self._held.outputs = None
        if self.kv.failures.first is not None:
            self._held.hold_outputs(outputs)
        return outputs

    @one_call
    def update_draft_token_ids(self, output: SchedulerOutput, drafts: DraftTokens) -> None:
        """Drafts proposed after a step, to be verified in the next one (speculative decoding without async).

        ValueError unless ``output`` is the step whose output was taken in last. GrammarError for a grammar that fails:
        the drafts of others are taken over, and its request will end as an error.
        """
        if self._features.speculation is None:
            raise ValueError("drafts were given to a scheduler without a SpeculativeConfig")
        step = self._in_flight.last_taken(output)
        drafts = checked_drafts(step, drafts, self.num_speculative_tokens)
        self._features.speculation.update(step, drafts)
        self.kv.failures.raise_first("the drafts of others are taken over all the same")

    @one_call
    def update_draft_token_ids_in_output(self, output: SchedulerOutput, drafts: DraftTokens) -> SchedulerOutput:
        """The step with the drafts that stand behind its -1, before it is executed (async scheduling with grammars).

        Workers need them to know which tokens their grammars allow. Drafts that a grammar forbids are replaced by -1.
        ``output`` itself stays as it is; ValueError if it is not in flight. GrammarError for a grammar that fails: its
        request will end as an error, and the same call once more returns the step.
        """
        if self._features.speculation is None:
            raise ValueError("drafts were given to a scheduler without a SpeculativeConfig")
        step = self._in_flight.of(output)
        drafts = checked_drafts(step, drafts, self.num_speculative_tokens)
        step.plan = self._features.speculation.drafts_known(step, drafts)
        self.kv.failures.raise_first("the same call once more returns the step")
        return step.plan

    def make_stats(self) -> SchedulerStats:
        """Gauges now, and prefix-cache statistics since the last call."""
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
            transfers.connector_stats() if transfers is not None else None,
        )

    # ---- the end of requests

    @one_call
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
            raise RequestError(
                unknown[0],
                "request_id",
                unknown[0],
                "no unfinished request has this id: leave it out, or say missing_ok=True",
            )
        ended = [self.requests[rid] for rid in ids if rid in self.requests]
        self._something_changed()
        now = self.clock()
        self._lifecycle.finish([(request, status) for request in ended], now)
        self._held.forget_aborted()
        for aborted in self._hooks.request_aborted:
            for request in ended:
                aborted(request)
        self.kv.failures.raise_first("the requests have ended all the same")
        return ended

    def _tell_finished(self, now: float, request: Request) -> None:
        if self.observer is not None:
            self.observer.request_finished(now, request)

    def take_kv_events(self) -> KVEventBatch | None:
        """What entered and left the prefix cache since the last call; None if nothing did (or it is not recorded)."""
        # The connector first: if it raises, nothing is lost.
        theirs = self._features.transfers.connector.take_events() if self._features.transfers is not None else ()
        events = [*self.kv.take_events(), *theirs]
        if not events:
            return None
        batch = KVEventBatch(self.clock(), events)
        if self.observer is not None:
            self.observer.kv_events_taken(self.clock(), batch)
        return batch

    # ---- resets

    @one_call
    def reset_prefix_cache(self, *, reset_running_requests: bool = False, reset_connector: bool = False) -> bool:
        """Forget all cached content; with ``reset_connector`` what the connector keeps as well.

        Refused (False) while blocks are in use, unless ``reset_running_requests``: then every running request is
        preempted first and starts again.
        """
        self._something_changed()
        if reset_running_requests:
            self._lifecycle.start_over(list(reversed(self.running)), self.clock())
            self.pins.clear()
        done = self._told("prefix", done=self.kv.reset_prefix_cache())
        self.kv.failures.raise_first(f"the prefix cache was {'' if done else 'not '}reset all the same")
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
        done = transfers is not None and transfers.connector.reset_cache()
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
            self._features.transfers.connector.shutdown()

    def check_invariants(self) -> None:
        """Raise AssertionError if queues, table and blocks disagree (tests call it after every step)."""
        self.kv.check_invariants()
        if self._features.encoder is not None:
            self._features.encoder.cache.check_invariants()
        check_queues(self.requests, self._running, self._waiting_queues, self.pins, self.config.max_num_seqs)


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
