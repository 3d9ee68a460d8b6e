"""Turns what happens to a vLLM scheduler into the events of our recorder.

Nothing that goes wrong here reaches vLLM's loop: the first error is logged, and from then on nothing is traced.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from tokenyard.core.config import PauseState
from tokenyard.record.recorder import TraceRecorder
from tokenyard.record.writer import TraceWriter
from tokenyard.trace.config import TraceConfig
from tokenyard.vllm.tracing.header import describe_engine
from tokenyard.vllm.tracing.lost_time import LostTime
from tokenyard.vllm.tracing.reasons import Reasons, Watch
from tokenyard.vllm.tracing.views import Demand, TakenIn, TracedOutput, TracedRequest, TracedState
from tokenyard.vocabulary import Reason

_STEPS_IN_FLIGHT = 64
_log = logging.getLogger("tokenyard.vllm")

_Given = ParamSpec("_Given")


def _harmless(
    method: Callable[Concatenate[Tracer, _Given], None],
) -> Callable[Concatenate[Tracer, _Given], None]:
    """Whatever the method raises is the tracer's own affair."""

    @wraps(method)
    def guarded(self: Tracer, /, *args: _Given.args, **options: _Given.kwargs) -> None:
        if self.is_open:
            try:
                method(self, *args, **options)
            except Exception as error:  # noqa: BLE001 - vLLM goes on
                self.detach(error)

    return guarded


class Tracer:
    """Watches one scheduler. ``clock`` gives Unix seconds, as the arrival times of vLLM's requests do."""

    def __init__(self, scheduler: Any, settings: TraceConfig, clock: Callable[[], float] = time.time) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._known: dict[str, TracedRequest] = {}
        """Request id -> request, of all that have not finished."""
        self._state = TracedState(scheduler, self._known)
        self.watch = Watch(scheduler, self._state.queues, self.detach, self._encoder_output_missing)
        self.reasons = Reasons(scheduler, self._state.queues, self.watch)
        start = describe_engine(scheduler, settings.policy, clock())
        self.writer = TraceWriter(settings)
        self._recorder = TraceRecorder(self.writer, start=start)
        engine = str((start.config or {}).get("data_parallel_rank", 0))
        names = scheduler.vllm_config.model_config.served_model_name
        self._lost = LostTime(str(names), engine)
        self._step = -1
        self._began = 0.0
        self._in_flight: deque[TracedOutput] = deque(maxlen=_STEPS_IN_FLIGHT)
        """Steps whose outputs have not come, oldest first."""
        self._without_token: set[str] = set()
        """Requests that have been scheduled and have no token yet."""
        self._num_finished = 0
        """Number of vLLM's finished ids since the last step that are recorded."""
        self._demand = Demand(scheduler)
        self.is_open = True

    def claim(self) -> None:
        """Make the file; OSError if it cannot be written or another process writes it."""
        self.writer.claim()

    def detach(self, error: Exception) -> None:
        """Say what went wrong, once, and trace nothing more; what is recorded so far is written."""
        if not self.is_open:
            return
        self.is_open = False
        _log.warning("tracing ends here, vLLM goes on: %s: %s", type(error).__name__, error, exc_info=error)
        try:
            self.watch.end()
            self.writer.close()
        except Exception:  # noqa: BLE001 - as above
            _log.warning("the trace could not be closed", exc_info=True)

    @_harmless
    def flush(self) -> None:
        """The engine may not live much longer: write what waits."""
        self.writer.flush()

    @_harmless
    def close(self) -> None:
        """The engine ends: write what waits."""
        self._take_finished(self._clock())
        self.is_open = False
        self.writer.close()

    # ---- requests

    @_harmless
    def request_added(self, request: Any) -> None:
        """vLLM has accepted a request, or the next input of one that it knows."""
        if request.request_id in self._known or request.request_id not in self._scheduler.requests:
            return
        traced = self._known[request.request_id] = TracedRequest(request)
        self._recorder.request_arrived(self._clock(), traced)

    @_harmless
    def requests_ended(self) -> None:
        """Requests may have been aborted."""
        self._take_finished(self._clock())

    def _take_finished(self, ts: float) -> None:
        """Record who has finished; vLLM collects their ids until the next step."""
        finished = self._scheduler.finished_req_ids
        if len(finished) == self._num_finished:
            return
        self._num_finished = len(finished)
        self._state.running_version += 1
        for request_id in sorted(finished):
            traced = self._known.pop(request_id, None)
            if traced is not None:
                self._without_token.discard(request_id)
                traced.times.finished = ts
                self._recorder.request_finished(ts, traced)

    # ---- steps

    @_harmless
    def step_begins(self, *, throttled: bool) -> None:
        """``schedule()`` is called; ``throttled``: to decode, as far as it can (``--prefill-schedule-interval``)."""
        ts = self._began = self._clock()
        self._take_finished(ts)
        self._step += 1
        state = self._state
        self._recorder.step_started(ts, self._step, state)
        self.reasons.begin(throttled=throttled)
        short = self._demand.exceeds(state.num_free_blocks)
        self.watch.begin(waiting=state.num_waiting > 0, short_of_memory=short)

    @_harmless
    def preempting(self, victim: Any) -> None:
        """A running request is about to lose its blocks."""
        self.reasons.note_preemption(victim)

    @_harmless
    def clipped(self, request: Any, reason: Reason) -> None:
        """Something has left a request no tokens in the step that is being decided."""
        self.reasons.clipped[request.request_id] = reason

    def _encoder_output_missing(self, request: Any) -> None:
        self.reasons.clipped[request.request_id] = Reason.WAITING_ENCODER_CACHE

    @_harmless
    def step_failed(self) -> None:
        """``schedule()`` raised: the engine ends, and may be killed before it calls ``shutdown()``."""
        self.watch.end()
        self.writer.flush()

    @_harmless
    def step_decided(self, output: Any) -> None:
        """``schedule()`` has returned ``output``."""
        self.watch.end()
        self._num_finished = 0  # vLLM has handed their ids to the workers
        outcomes = self.reasons.of(output)
        decided = self._decided(output, [each.request_id for each in outcomes.preemptions])
        if decided.admitted_new or decided.admitted_resumed or outcomes.preemptions:
            self._state.running_version += 1
        self._in_flight.append(decided)
        self._demand.step_decided(output)
        ts = self._began
        self._recorder.step_decided(ts, decided, outcomes, self._state)
        self._lost.step_decided(ts, self._recorder.refusals(ts, decided, outcomes))

    def _decided(self, output: Any, preempted: list[str]) -> TracedOutput:
        new, cached = output.scheduled_new_reqs, output.scheduled_cached_reqs
        # The second model runner, the default since 0.29, gets resumed requests among the new ones.
        admitted = {each.req_id: each.num_computed_tokens for each in new}
        for request_id in cached.resumed_req_ids:
            admitted[request_id] = cached.num_computed_tokens[cached.req_ids.index(request_id)]
        decided = TracedOutput(self._step, output, len(admitted), preempted)
        if not admitted:
            return decided
        looked_up = {seen.request.request_id: seen.looked_up for seen in self.watch.sightings}
        for row, request_id in enumerate(decided.req_ids[decided.num_running :], decided.num_running):
            traced = self._known[request_id]
            if looked_up.get(request_id) is not None:
                traced.local_hit_tokens = looked_up[request_id]
            is_new = traced.times.first_scheduled is None
            decided.admit(row, admitted[request_id], is_new=is_new)
            if is_new:
                self._without_token.add(request_id)
                local, external = traced.first_scheduled(self._began, admitted[request_id])
                self._recorder.prefix_looked_up(self._began, self._step, traced, local, external)
        return decided

    @_harmless
    def output_taken(self, scheduler_output: Any, outputs: Any) -> None:
        """``update_from_output()`` has returned ``outputs`` for the step of ``scheduler_output``."""
        ts = self._clock()
        decided = self._oldest(scheduler_output)
        if self._without_token:
            self._note_first_tokens(ts, outputs)
        self._take_finished(ts)
        if decided is None:
            return
        stats = next((each.scheduler_stats for each in outputs.values() if each.scheduler_stats is not None), None)
        drafts = None if stats is None else stats.spec_decoding_stats
        running, waiting = len(self._scheduler.running), self._state.num_waiting
        taken = TakenIn(outputs, running, waiting, drafts)
        self._recorder.step_completed(ts, decided, taken)

    def _oldest(self, scheduler_output: Any) -> TracedOutput | None:
        """The step of this output: the first in, unless the host has dropped some."""
        in_flight = self._in_flight
        if in_flight and in_flight[0].theirs is scheduler_output:
            return in_flight.popleft()
        if not any(each.theirs is scheduler_output for each in in_flight):
            return None
        while (decided := in_flight.popleft()).theirs is not scheduler_output:
            pass
        return decided

    def _note_first_tokens(self, ts: float, outputs: Any) -> None:
        for client in outputs.values():
            for each in client.outputs:
                if each.request_id in self._without_token and each.new_token_ids:
                    self._without_token.discard(each.request_id)
                    self._known[each.request_id].times.first_token = ts

    # ---- what the host does

    @_harmless
    def cache_reset(self, cache: str, *, done: bool) -> None:
        """A cache was to be forgotten; running requests may have been preempted for it."""
        self._state.running_version += 1
        self._recorder.cache_reset(self._clock(), cache, done=done)

    @_harmless
    def paused(self, state: Any) -> None:
        """The scheduler was paused, or goes on."""
        self._recorder.pause_changed(self._clock(), PauseState[state.name])
