"""The seam between the scheduler and everything that watches it.

The trace recorder, the statistics and the metrics exporter are observers. A scheduler without one pays a branch per
step. An observer cannot harm the scheduler: what it is shown is read-only, and one that raises is reported once and
not notified any more.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import msgspec

from tokenyard.core.basics import check_hook_names
from tokenyard.core.config import PauseState
from tokenyard.core.kv.events import KVEventBatch
from tokenyard.core.request import Request
from tokenyard.core.sched.outcomes import EndedPin, StepOutcomes
from tokenyard.core.sched.outputs import ConnectorOutput, EngineOutputs
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.errors import ConfigError, text_of


class Counts(NamedTuple):
    """What statistics take of every step."""

    num_free_blocks: int
    num_running: int
    num_waiting: int
    cpu_blocks: tuple[int, int] | None
    """Free and total blocks of a connector's tier in CPU memory; None without one."""


class Gauges(NamedTuple):
    """What may change with every step."""

    running_version: int
    num_free_blocks: int
    num_cached_blocks: int
    num_waiting: int
    num_skipped: int
    """How many of the waiting requests are in the skipped queue."""
    num_pinned: int
    cpu_blocks: tuple[int, int] | None


class QueueView(Protocol):
    """A waiting queue, to be looked at."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Request]:
        """In queue order."""


class SchedulerState(Protocol):
    """What an observer may read while it is called; it keeps nothing of it, and changes no request."""

    @property
    def running(self) -> Sequence[Request]:
        """In running order."""

    @property
    def waiting(self) -> QueueView:
        """In queue order."""

    @property
    def skipped_waiting(self) -> QueueView:
        """In queue order."""

    def counts(self) -> Counts:
        """What statistics take of every step, in one call."""

    def gauges(self) -> Gauges:
        """What may change with every step, in one call: an observer that asks one by one pays twice as much."""

    @property
    def num_free_blocks(self) -> int:
        """Blocks in the free queue, cached evictable ones included."""

    @property
    def num_total_blocks(self) -> int:
        """Blocks in the pool, the null block included."""

    @property
    def num_cached_blocks(self) -> int:
        """Distinct hashes in the prefix index."""

    @property
    def cpu_blocks(self) -> tuple[int, int] | None:
        """Free and total blocks of a connector's tier in CPU memory; None without one."""

    @property
    def max_num_scheduled_tokens(self) -> int:
        """Token budget of a step."""

    @property
    def max_num_running_reqs(self) -> int:
        """``max_num_seqs``."""

    @property
    def block_size(self) -> int:
        """Tokens per block."""

    @property
    def pinned(self) -> Sequence[Request]:
        """Finished turns whose blocks a policy keeps, the one pinned first in front."""

    @property
    def running_version(self) -> int:
        """Changes whenever the running list's members or order change (a cache key for encoders)."""

    @property
    def waiting_reorders(self) -> bool:
        """The order of the waiting queues may change although no request came, went or was skipped."""

    def num_blocks_of(self, request: Request) -> int:
        """Blocks the request holds."""


class RepeatedSteps(msgspec.Struct, frozen=True):
    """Steps that were decided like the one before them: a token for each of the same requests, and none came or went.

    The ``i``-th was decided, and the oldest output in flight taken in before it, at ``moments[i]``.
    """

    first: int
    """Number of the first of them."""
    moments: Sequence[float]
    """Seconds."""
    free_blocks: Sequence[int]
    """Before each of them."""
    free_in_the_end: int
    """Free blocks after the last of them."""
    like: SchedulerOutput
    """The step that they repeat."""
    outcomes: StepOutcomes
    """What that step refused, and they did: of the numbers only free blocks differ."""


class StepObserver:
    """Called synchronously by the scheduler: override what you want to know.

    ``ts`` is the scheduler's clock in seconds. A class with a method that is called almost as one of these is refused
    when it is made (ConfigError).
    """

    reads_tokens: bool = True
    """It looks at token ids or block hashes of requests: else a replay need not make them."""

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        check_hook_names(cls, "observer")

    @property
    def sees_repeats(self) -> bool:
        """Whether it need not be notified of every step apart: ``steps_repeated`` tells it enough of steps alike."""
        return _wants(self, "steps_repeated") or not any(_wants(self, event) for event in _STEP_EVENTS)

    def request_arrived(self, ts: float, request: Request) -> None:
        """``add_request`` accepted it."""

    def step_started(self, ts: float, step: int, state: SchedulerState) -> None:
        """Top of ``schedule()``, before any decision."""

    def prefix_looked_up(self, ts: float, step: int, request: Request, local: int, external: int) -> None:
        """A request is admitted for the first time, with its hits in tokens."""

    def step_decided(self, ts: float, output: SchedulerOutput, outcomes: StepOutcomes, state: SchedulerState) -> None:
        """End of ``schedule()``; counters are advanced."""

    def step_completed(self, ts: float, output: SchedulerOutput, outputs: EngineOutputs) -> None:
        """End of ``update_from_output()``."""

    def steps_repeated(self, steps: RepeatedSteps) -> None:
        """Several steps alike were taken in one stroke: this call stands for all three methods before, of each of them.

        Only where every observer that overrides one of the three methods before also overrides this one.
        """

    def request_finished(self, ts: float, request: Request) -> None:
        """It reached a finished status; ``request.times`` is complete and its blocks are freed."""

    def request_refused(self, ts: float, request: Request) -> None:
        """A host goes on without a request that cannot be served: it was in no queue."""

    def pin_ended(self, ts: float, pin: EndedPin) -> None:
        """Blocks of a finished turn that the policy kept are free, for whatever reason ``pin.why`` says."""

    def cache_reset(self, ts: float, cache: str, *, done: bool) -> None:
        """``prefix``, ``connector`` or ``encoder`` cache was to be forgotten, and was if ``done``."""

    def pause_changed(self, ts: float, state: PauseState) -> None:
        """The scheduler was paused or goes on."""

    def kv_transferred(self, ts: float, step: int, report: ConnectorOutput) -> None:
        """The workers' half of a KV connector reported what it has loaded, stored or lost."""

    def kv_events_taken(self, ts: float, batch: KVEventBatch) -> None:
        """What entered and left the prefix cache was handed out."""


_log = logging.getLogger("tokenyard")


class ObserverWarning(RuntimeWarning):
    """An observer raised, and is not notified any more. Where warnings are errors it is logged instead."""


class ObserverGate(StepObserver):
    """Between the scheduler and its observers: one that raises is reported once and left out from then on.

    ConfigError for what is no observer. An event that is not observed costs a call that does nothing.
    """

    def __init__(self, observers: Sequence[StepObserver]) -> None:
        self._observers: list[StepObserver] = []
        self.reads_tokens = any(each.reads_tokens for each in observers if isinstance(each, StepObserver))
        for each in observers:
            if not isinstance(each, StepObserver):
                raise ConfigError("observer", each, "give an object of a class derived from tokenyard.StepObserver")
            # The observers of another gate are watched here, so that one of them that raises leaves it alone.
            self._observers += each.observers if isinstance(each, ObserverGate) else [each]
        self._look_up()

    @property
    def observers(self) -> Sequence[StepObserver]:
        """The observers that are notified, in order."""
        return tuple(self._observers)

    @property
    def sees_repeats(self) -> bool:
        """Whether no observer has to be notified of every step apart."""
        return self._sees_repeats

    def _look_up(self) -> None:
        self._told = {
            event: [(each, getattr(each, event)) for each in self._observers if _wants(each, event)]
            for event in _EVENTS
        }
        """The observers of an event, and what tells them."""
        self._sees_repeats = all(each.sees_repeats for each in self._observers)

    def request_arrived(self, ts: float, request: Request) -> None:
        self._tell("request_arrived", ts, request)

    def step_started(self, ts: float, step: int, state: SchedulerState) -> None:
        self._tell("step_started", ts, step, state)

    def prefix_looked_up(self, ts: float, step: int, request: Request, local: int, external: int) -> None:
        self._tell("prefix_looked_up", ts, step, request, local, external)

    def step_decided(self, ts: float, output: SchedulerOutput, outcomes: StepOutcomes, state: SchedulerState) -> None:
        self._tell("step_decided", ts, output, outcomes, state)

    def step_completed(self, ts: float, output: SchedulerOutput, outputs: EngineOutputs) -> None:
        self._tell("step_completed", ts, output, outputs)

    def steps_repeated(self, steps: RepeatedSteps) -> None:
        self._tell("steps_repeated", steps)

    def request_finished(self, ts: float, request: Request) -> None:
        self._tell("request_finished", ts, request)

    def request_refused(self, ts: float, request: Request) -> None:
        self._tell("request_refused", ts, request)

    def pin_ended(self, ts: float, pin: EndedPin) -> None:
        self._tell("pin_ended", ts, pin)

    def cache_reset(self, ts: float, cache: str, *, done: bool) -> None:
        self._tell("cache_reset", ts, cache, done=done)

    def pause_changed(self, ts: float, state: PauseState) -> None:
        self._tell("pause_changed", ts, state)

    def kv_transferred(self, ts: float, step: int, report: ConnectorOutput) -> None:
        self._tell("kv_transferred", ts, step, report)

    def kv_events_taken(self, ts: float, batch: KVEventBatch) -> None:
        self._tell("kv_events_taken", ts, batch)

    def _tell(self, event: str, *args: object, **options: object) -> None:
        """The observers that override it, one after the other."""
        for observer, tell in self._told[event]:
            try:
                tell(*args, **options)
            except Exception as error:  # noqa: BLE001 - whatever it is, the step goes on
                self._detach(observer, event, error)

    def _detach(self, observer: StepObserver, event: str, error: Exception) -> None:
        # By identity: observers may be equal.
        self._observers = [each for each in self._observers if each is not observer]
        self._look_up()
        name, kind = type(observer).__name__, type(error).__name__
        text = f"observer {name} raised {kind} in {event}: {text_of(error)}; it is detached, the scheduler goes on"
        try:
            warnings.warn(text, ObserverWarning, stacklevel=5)
        except Exception:  # noqa: BLE001 - where warnings are errors: the scheduler is in the middle of a call
            _log.warning("%s", text)


_EVENTS = tuple(name for name, each in vars(StepObserver).items() if callable(each) and not name.startswith("_"))
_STEP_EVENTS = ("step_started", "step_decided", "step_completed")


def _wants(observer: StepObserver, event: str) -> bool:
    """Whether the observer does anything at ``event``: in its class, or set on the object."""
    own = getattr(observer, "__dict__", {})
    return event in own or getattr(type(observer), event, None) not in (None, getattr(StepObserver, event))


class Observers(ObserverGate):
    """Several observers as one, called in the given order; one that raises leaves the others."""

    def __init__(self, *observers: StepObserver) -> None:
        super().__init__(observers)
