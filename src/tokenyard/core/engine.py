"""The engine core: the step loop over a scheduler and an executor, for every host but vLLM."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import starmap
from queue import SimpleQueue
from typing import Any, NamedTuple, Protocol, runtime_checkable

import msgspec

from tokenyard.core.arrays import IntArray
from tokenyard.core.config import PauseState
from tokenyard.core.params import has_member
from tokenyard.core.request import Request, RequestStatus
from tokenyard.core.sched.calls import CallState, checked_call, closing_call
from tokenyard.core.sched.features.grammars import GrammarOutput
from tokenyard.core.sched.outputs import DraftTokens, EngineOutputs, ModelOutput
from tokenyard.core.sched.request_checks import request_ids_of
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.errors import ConfigError, EngineDeadError, RejectedError, RequestError

# ---------------------------------------------------------------------------------------------------------------------
# The executor: whatever runs the model for an engine core.
#
#     execute_model(plan)            begin the step
#     sample_tokens(plan, grammar)   its tokens, as a future: sampling may have to wait for the grammars' bitmask
#     take_draft_token_ids()         its drafts for the requests of the step that was begun last, in that step's order
#
# A replay's executor answers from a latency model, a PyTorch engine's from its model; both are called as vLLM calls
# its workers.


class StepFuture(Protocol):
    """The output of a step that may still run; ``concurrent.futures.Future[ModelOutput]`` is one."""

    def done(self) -> bool:
        """Whether ``result`` returns at once."""

    def result(self) -> ModelOutput:
        """Sampled tokens, aligned with the step's requests; waits for them. Raises what the model raised."""


class Executor(Protocol):
    """Runs the model. Steps are begun, and sampled from, in the order in which they were scheduled."""

    def execute_model(self, plan: SchedulerOutput) -> None:
        """Begin a step. It may be empty: it then only reports finished requests, or moves KV."""

    def sample_tokens(self, plan: SchedulerOutput, grammar: GrammarOutput | None) -> StepFuture:
        """The output of a step that was begun; ``grammar`` has the bitmask of those that sample by one.

        ``plan`` may know drafts that it did not know when the step was begun.
        """

    def take_draft_token_ids(self) -> DraftTokens | None:
        """Drafts for the requests of the step that was begun last, aligned with them; None if none are made.

        Without async scheduling it is asked when that step's output has been taken in: they are what it proposes next.
        With async scheduling, only where grammars need it, it is asked before that step is sampled from: they are the
        drafts that the step itself verifies, its -1, which were made after the step before. Rows of requests that had
        no part in the step before have none. After an answer that does not belong to the step it is asked again.
        """

    def shutdown(self) -> None:
        """Let go of all resources; nothing is called afterwards."""


class Repeated(msgspec.Struct, frozen=True):
    """Steps that an executor has run ahead, all like the newest in flight."""

    tokens: IntArray
    """What their outputs bring, a token per request, shape ``[n, steps]``."""
    moments: Sequence[float]
    """Seconds at which their outputs came, on the scheduler's clock."""
    futures: Sequence[StepFuture]
    """Futures of the steps that are in flight then, the oldest first."""


@runtime_checkable
class RunsAhead(Protocol):
    """An executor that knows what comes: it can run several steps alike in one stroke."""

    def run_ahead(self, futures: Sequence[StepFuture], newest: SchedulerOutput, most: int) -> Repeated | None:
        """Let the oldest of ``futures`` come and begin a step like ``newest``, up to ``most`` times; None: not once."""


class DoneStep:
    """A future whose result is there."""

    def __init__(self, output: ModelOutput) -> None:
        self._output = output

    def done(self) -> bool:
        """Always."""
        return True

    def result(self) -> ModelOutput:
        """The output."""
        return self._output


# ---------------------------------------------------------------------------------------------------------------------
# The engine core: the step loop over a scheduler and an executor, for every host but vLLM.
#
#     depth 1    schedule -> execute -> sample -> take in
#     depth n    schedule ahead: n steps in flight, the oldest is taken in while the others run (async scheduling)
#
# A host calls :meth:`EngineCore.step` until :attr:`EngineCore.has_work` is false. A host with a clock of its own,
# where waiting for the model must not block, calls the two halves of a step itself: :meth:`EngineCore.fill` until it
# says that a step is due, then :meth:`EngineCore.take_in` when that step's future is done.


class Filling(StrEnum):
    """When a core with several steps in flight stops scheduling ahead and takes in the oldest output."""

    RETURN_EARLY = "return_early"
    """As soon as that output is there, even if fewer steps than ``depth`` are in flight (vLLM 0.22)."""
    FILL_FIRST = "fill_first"
    """Only when ``depth`` steps are in flight, or no request is left to schedule (vLLM since 0.23)."""


class PauseMode(StrEnum):
    """What :meth:`EngineCore.pause` does to requests that have not ended (vLLM's names).

    Requests can be added in every mode; they wait until the engine resumes. ``docs/features.md`` has an example.
    """

    ABORT = "abort"
    """All of them are aborted, running and waiting ones; ``pause`` returns them."""
    WAIT = "wait"
    """Running ones are served to their end; none is admitted, preempted ones included."""
    KEEP = "keep"
    """All of them stay as they are: nothing is scheduled, blocks are kept, and they go on when the engine resumes."""


class _Submitted(msgspec.Struct, frozen=True):
    """What another thread asks for: a request to add, or ids to abort."""

    request: Request | None
    abort_ids: tuple[str, ...] = ()


class _InFlight(NamedTuple):
    """A step whose output is expected."""

    plan: SchedulerOutput
    future: StepFuture


class EngineCore:
    """Steps ``scheduler`` and ``executor`` with at most ``depth`` steps in flight.

    All methods but :meth:`submit` and :meth:`submit_abort` belong to one thread. A future that raises, an answer that
    does not belong to its step and a ``check_request`` hook that raises leave all in place: the next :meth:`step` goes
    on, and asks the same future again. A grammar that raises costs its own request alone, which ends as an error.

    Whatever else raises closes the core: the executor, when a step is begun or sampled from, a policy, a connector, any
    other hook, and drafts that do not belong to their step. The error leaves :meth:`step`, and the steps in flight are
    lost; every further step is an EngineDeadError, and the core is only good for :meth:`shutdown` (docs/hooks.md).

    ``KeyboardInterrupt`` and ``SystemExit`` leave all in place while :meth:`step` waits for a future; elsewhere they
    break a call off in its middle, and every further one is an EngineDeadError. What a hook or the executor calls back
    is a NestedCallError and does nothing: :meth:`submit` and :meth:`submit_abort` are for them as well.

    An engine that does not move any more says so: :meth:`step` raises a StuckError when ``STUCK_AFTER`` steps in a row
    have brought nothing and nothing is on its way that could change that. Nothing has changed then; a host can
    abort the request that it names and go on.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        executor: Executor,
        *,
        depth: int | None = None,
        filling: Filling | str | None = None,
    ) -> None:
        """``depth`` is what the scheduler's configuration says, unless given: 2 with ``async_scheduling``, 1 without,
        more with stages of a pipeline. Without async scheduling a request is in one step at a time, so that several
        steps in flight share the running ones out. ``filling`` is what
        the scheduler's profile says, unless given, and may be its value.

        Raises ConfigError.
        """
        if not isinstance(scheduler, Scheduler):
            raise ConfigError("scheduler", scheduler, "give a Scheduler, and the executor after it")
        if depth is not None and (isinstance(depth, bool) or not isinstance(depth, int) or depth < 1):
            raise ConfigError("depth", depth, "give a whole number from 1 on")
        is_async = scheduler.config.async_scheduling
        self._calls = CallState(scheduler.calls)
        self.scheduler = scheduler
        """The scheduler that it drives."""
        self.executor = executor
        """What runs the model."""
        self.depth: int = scheduler.config.max_steps_in_flight if depth is None else depth
        """Most steps in flight."""
        if self.depth > 1 and not is_async and scheduler.num_speculative_tokens:
            fix = "give 1, or turn §async_scheduling on: only then are steps decided before drafts are known"
            raise ConfigError("depth", depth, fix)
        if filling is None:
            fills_first = scheduler.config.profile.fills_queue_first
            filling = Filling.FILL_FIRST if fills_first else Filling.RETURN_EARLY
        if filling not in tuple(Filling):
            raise ConfigError("filling", filling, f"use one of: {', '.join(Filling)}")
        self._fills_first: bool = Filling(filling) is Filling.FILL_FIRST
        self._asks_for_drafts: bool = scheduler.num_speculative_tokens > 0 and not is_async
        """Without async scheduling the drafts of a step are handed to the scheduler after it."""
        self._in_flight: deque[_InFlight] = deque()
        """Oldest first."""
        self._begun: SchedulerOutput | None = None
        """A step that was begun and not sampled from: its bitmask needs the tokens of the step before."""
        self._drained: list[EngineOutputs] = []
        """Outputs of a :meth:`drain` that has not come to its end."""
        self._ahead = executor if isinstance(executor, RunsAhead) else None
        """The executor, if it can run several steps in one stroke."""
        self._inbox: SimpleQueue[_Submitted] = SimpleQueue()
        self._refused: list[RequestError] = []

    # ---- requests

    @checked_call
    def add_request(self, request: Request) -> None:
        """Queue a request. Raises RequestError if it can never be served.

        Its outputs come with the steps that bring it tokens, the last with its ``finish_reason``; if it is aborted,
        none comes any more.
        """
        self._add(request)

    def _add(self, request: Request) -> None:
        self._check_request(request)
        self.scheduler.add_request(request)

    def _check_request(self, request: Request) -> None:
        """Raise RequestError for what this engine cannot serve, whatever its scheduler can."""
        grammar = getattr(request, "structured_output", None)
        if grammar is not None and not has_member(grammar, "bitmask"):
            fix = "has no bitmask, by which workers sample: give an object as MaskedOutput describes it"
            raise RequestError(request.request_id, "structured_output", grammar, fix)

    @checked_call
    def abort_requests(self, request_ids: str | Iterable[str]) -> list[Request]:
        """End requests at their clients' wish; returns those that were ended.

        No output names them, neither this step's nor a later one's: its host tells the client. Workers learn of
        it in the next step's ``finished_req_ids``, observers by ``request_finished``. Ids without an unfinished
        request are ignored.
        """
        return self._abort(request_ids_of(request_ids))

    def _abort(self, ids: Sequence[str] | None) -> list[Request]:
        """End those of ``ids`` that are there, or all."""
        return self.scheduler.finish_requests(ids, RequestStatus.FINISHED_ABORTED, missing_ok=True)

    def submit(self, request: Request, /) -> None:
        """:meth:`add_request` from any thread: it is added before the next step is scheduled or taken in."""
        if not isinstance(request, Request):
            raise ConfigError("request", request, "submit a Request")
        self._inbox.put(_Submitted(request))

    def submit_abort(self, request_ids: str | Iterable[str]) -> None:
        """:meth:`abort_requests` from any thread: done before the next step is scheduled or taken in."""
        self._inbox.put(_Submitted(None, request_ids_of(request_ids)))

    def take_refused(self) -> list[RequestError]:
        """Why requests were refused or rejected since the last call: submitted ones, and those a policy has ended."""
        refused, self._refused = self._refused, []
        if self.scheduler.has_rejected:
            refused += [RejectedError(each.request_id, word) for each, word in self.scheduler.take_rejected()]
        return refused

    def _do_submitted(self) -> None:
        """Do what other threads have asked for, in the order in which they did."""
        while not self._inbox.empty():
            asked = self._inbox.get()
            if asked.request is None:
                self._abort(asked.abort_ids)
                continue
            try:
                self._add(asked.request)
            except RequestError as error:
                self._refused.append(error)
            except Exception as error:
                # A hook has raised: who submitted it has to know as well.
                next_thing = "submit it again" if self.death is None else "the engine has ended, make another"
                request_id, fix = asked.request.request_id, f"a hook raised when it was added: {next_thing}"
                self._refused.append(RequestError(request_id, "request", error, fix))
                raise

    # ---- steps

    @property
    def death(self) -> EngineDeadError | None:
        """Why nothing can be called any more but ``shutdown``; None: it is well.

        Its executor, its policy, its connector or another hook has raised, or a call was broken off.
        """
        return self._calls.death

    @property
    def num_in_flight(self) -> int:
        """Steps that were begun and not taken in."""
        return len(self._in_flight) + (self._begun is not None)

    @property
    def has_work(self) -> bool:
        """Whether :meth:`step` has anything to do or to wait for."""
        waits = self._begun is not None or not self._inbox.empty()
        return bool(self._in_flight) or self.scheduler.has_requests() or waits

    @property
    def oldest(self) -> StepFuture | None:
        """The future of the step that is taken in next; None if none is in flight."""
        return self._in_flight[0].future if self._in_flight else None

    @checked_call
    def step(self) -> EngineOutputs | None:
        """Schedule a step if there is a request to schedule, then take in the oldest output if it is due.

        None: nothing was taken in, because there is nothing to do or because a further step is to be scheduled first.
        """
        if not self._fill():
            return None
        self._run_ahead()
        return self._take_in()

    @checked_call
    def run_ahead(self) -> None:
        """Take in outputs and decide steps alike in one stroke, as long as nothing else can happen.

        Between :meth:`fill` and :meth:`take_in`; nothing with an executor that cannot (``Executor`` alone).
        """
        self._run_ahead()

    def _run_ahead(self) -> None:
        executor = self._ahead
        if executor is None:
            return
        most = self.scheduler.num_repeats()
        if not most or self._begun is not None:
            return
        self._calls.is_half_done = True
        futures = [each.future for each in self._in_flight]
        repeated = executor.run_ahead(futures, self._in_flight[-1].plan, most)
        if repeated is not None:
            plans = self.scheduler.repeat(repeated.tokens, repeated.moments)
            self._in_flight = deque(starmap(_InFlight, zip(plans, repeated.futures, strict=True)))
        self._calls.is_half_done = False

    @checked_call
    def fill(self) -> bool:
        """Schedule and begin a step if there is a request to schedule. True: the oldest output is due, take it in.

        With ``depth`` steps in flight nothing is scheduled.
        """
        return self._fill()

    def _fill(self) -> bool:
        scheduler = self.scheduler
        self._do_submitted()
        if self._begun is not None or len(self._in_flight) >= self.depth:
            return True
        if not scheduler.has_requests():
            return bool(self._in_flight)
        stuck = scheduler.standstill()
        if stuck is not None:
            raise stuck
        self._calls.is_half_done = True
        plan = scheduler.schedule()
        self.executor.execute_model(plan)
        self._begun = plan
        if not self._waits_for_tokens(plan):
            self._sample(plan)
        self._calls.is_half_done = False
        if self._begun is not None or self.depth == 1:
            return True
        return self._is_due(plan.total_num_scheduled_tokens > 0)

    def _waits_for_tokens(self, plan: SchedulerOutput) -> bool:
        """Whether grammars have to advance before it is known what the step may sample."""
        if not plan.pending_structured_output_tokens:
            return False
        return bool([each for each in self._in_flight if each.plan.has_structured_output_requests])

    def _is_due(self, executed: bool) -> bool:
        """Whether the oldest output has to be taken in before a further step is scheduled."""
        if len(self._in_flight) >= self.depth:
            return True
        if self._fills_first:
            return not (executed or self.scheduler.has_requests())
        return not executed or self._in_flight[0].future.done()

    def _sample(self, plan: SchedulerOutput) -> None:
        """Sample from the step that was begun."""
        if plan.pending_structured_output_tokens and self.scheduler.num_speculative_tokens:
            # Only the workers knew its drafts when it was begun.
            drafts = self.executor.take_draft_token_ids()
            if drafts is not None:
                plan = self.scheduler.update_draft_token_ids_in_output(plan, drafts)
        grammar = self.scheduler.get_grammar_bitmask(plan) if plan.has_structured_output_requests else None
        self._in_flight.append(_InFlight(plan, self.executor.sample_tokens(plan, grammar)))
        self._begun = None

    @checked_call
    def take_in(self) -> EngineOutputs:
        """Wait for the oldest output in flight and take it in. ValueError if no step is in flight."""
        return self._take_in()

    def _take_in(self) -> EngineOutputs:
        if not self._in_flight:
            raise ValueError("no step is in flight: call fill() first, or step()")
        plan, future = self._in_flight[0]
        model_output = future.result()
        self._do_submitted()
        outputs = self._update(plan, model_output)
        if self._asks_for_drafts and plan.total_num_scheduled_tokens:
            drafts = self.executor.take_draft_token_ids()
            if drafts is not None:
                self.scheduler.update_draft_token_ids(plan, drafts)
        if self._begun is not None and not self._waits_for_tokens(self._begun):
            self._sample(self._begun)
        self._calls.is_half_done = False
        return outputs

    def _update(self, plan: SchedulerOutput, model_output: Any) -> EngineOutputs:
        """The outputs of the oldest step; ValueError, and it can be asked for its answer again, if this is none."""
        self._calls.is_half_done = True
        try:
            outputs = self.scheduler.update_from_output(plan, model_output)
        except ValueError:
            self._calls.is_half_done = False
            raise
        self._in_flight.popleft()
        return outputs

    @checked_call
    def drain(self) -> list[EngineOutputs]:
        """Take in every output in flight, and schedule nothing.

        After a wrong answer, or an interrupt while it waits, the same call once more also returns what this one has
        taken in.
        """
        while self._in_flight:
            self._drained.append(self._take_in())
        drained, self._drained = self._drained, []
        return drained

    # ---- control

    @checked_call
    def pause(self, mode: PauseMode | str = PauseMode.ABORT) -> list[Request]:
        """Stop admitting requests; returns those that were aborted (no output names them).

        ``mode`` says what happens to requests that have not ended, by member or value; else ConfigError. Outputs of
        steps in flight are still taken in. A second call may change the mode.
        """
        if mode not in tuple(PauseMode):
            raise ConfigError("mode", mode, f"use one of: {', '.join(PauseMode)}")
        mode = PauseMode(mode)
        aborted = self._abort(None) if mode is PauseMode.ABORT else []
        self.scheduler.set_pause_state(PauseState.PAUSED_ALL if mode is PauseMode.KEEP else PauseState.PAUSED_NEW)
        return aborted

    @checked_call
    def resume(self) -> None:
        """Go on after a pause."""
        self.scheduler.set_pause_state(PauseState.UNPAUSED)

    @checked_call
    def reset_prefix_cache(self, *, reset_running_requests: bool = False, reset_connector: bool = False) -> bool:
        """Forget all cached content; see :meth:`Scheduler.reset_prefix_cache`."""
        return self.scheduler.reset_prefix_cache(
            reset_running_requests=reset_running_requests, reset_connector=reset_connector
        )

    @closing_call
    def shutdown(self) -> None:
        """Let go of executor and connector; steps in flight are forgotten."""
        self._in_flight.clear()
        self._begun = None
        self.executor.shutdown()
        self.scheduler.shutdown()
