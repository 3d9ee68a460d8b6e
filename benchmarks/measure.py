"""How it is timed: one procedure for both sides, on top of the few calls in which they differ (:class:`Engine`).

What is timed is the scheduler's CPU time: that of the thread that steps it, and with it that of a thread it may have of
its own, which writes a trace. Making the model's answer is left out, and so is whatever else the machine does.
"""

from __future__ import annotations

import gc
import statistics
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from time import clock_gettime, process_time, pthread_getcpuclockid, thread_time
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from workload import EngineShape, LongPrompt, PrefillMix, RequestSpec, Scenario, SteadyDecode

if TYPE_CHECKING:
    from tokenyard.record.writer import TraceWriter

__all__ = ["Build", "Engine", "Measured", "Steps", "measure", "reach_steady_decode", "writer_seconds"]


def writer_seconds(writer: TraceWriter) -> float:
    """CPU time so far of the thread that writes a trace, once it has written what waits."""
    writer.flush()
    thread = writer.thread
    if thread is None or thread.ident is None:
        return 0.0
    return clock_gettime(pthread_getcpuclockid(thread.ident))


class Engine(Protocol):
    """A scheduler under test; requests and outputs are its own objects."""

    def make(self, spec: RequestSpec) -> Any:
        """A request."""

    def add(self, request: Any) -> None:
        """Queue it."""

    def schedule(self) -> Any:
        """Decide a step."""

    def answer(self, output: Any) -> Any:
        """What the model returns for it."""

    def update(self, output: Any, answer: Any) -> None:
        """Take the answer in."""

    def hash(self, request: Any) -> None:
        """Forget its block hashes, if any, and hash its whole prompt."""

    def look_up(self, request: Any) -> int:
        """Cached tokens of its prompt."""

    def scheduled_tokens(self, output: Any) -> int:
        """Tokens of the step, over all requests."""

    def background_seconds(self) -> float:
        """CPU time so far of threads of its own, which have nothing left to do when this returns."""

    @property
    def num_running(self) -> int:
        """Requests in the running list."""

    @property
    def num_waiting(self) -> int:
        """Requests in the waiting queue."""

    @property
    def all_decode(self) -> bool:
        """Everything that runs is past its prompt."""

    def close(self) -> None:
        """Let go of files and the like."""


Build: TypeAlias = Callable[[EngineShape], Engine]


class Measured(NamedTuple):
    """One run of one scenario."""

    seconds: dict[str, float]
    facts: dict[str, int]
    """What was done; both sides must have done the same."""


def measure(scenario: Scenario, builds: Mapping[str, Build]) -> dict[str, Measured]:
    """Run ``scenario`` on a fresh engine of each kind.

    Decoding engines take turns, a few steps each, so that a machine that changes its speed treats them alike; the other
    scenarios run one engine after the other.
    """
    if isinstance(scenario, SteadyDecode):
        return _steady_decode(scenario, builds)
    measured = {}
    for name, build in builds.items():
        with closing(build(scenario.engine)) as engine:
            if isinstance(scenario, PrefillMix):
                measured[name] = _prefill_mix(scenario, engine)
            else:
                measured[name] = _long_prompt(scenario, engine)
    return measured


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what already exists out of the garbage collector's way; it still runs for what is new."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.collect()


class Steps:
    """Steps one engine and adds up what the steps cost."""

    def __init__(self, engine: Engine, depth: int = 1) -> None:
        self._engine = engine
        self._depth = depth
        self._in_flight: deque[tuple[Any, Any]] = deque()
        self._aside = 0.0
        """Seconds spent on what is not the scheduler's."""
        self._background = engine.background_seconds()
        self.count = 0
        self.seconds = 0.0
        """CPU time of the thread that steps."""
        self.tokens = 0

    def run(self, count: int = 1) -> None:
        """``count`` steps."""
        start, aside = thread_time(), self._aside
        for _ in range(count):
            self._step()
        self.seconds += thread_time() - start - (self._aside - aside)
        self.count += count

    def _step(self) -> None:
        output = self._engine.schedule()
        start = thread_time()
        answer = self._engine.answer(output)
        self.tokens += self._engine.scheduled_tokens(output)
        self._aside += thread_time() - start
        self._in_flight.append((output, answer))
        if len(self._in_flight) >= self._depth:
            self._engine.update(*self._in_flight.popleft())

    def land(self) -> None:
        """Take in what is in flight."""
        while self._in_flight:
            self._engine.update(*self._in_flight.popleft())

    def per_step(self) -> dict[str, float]:
        """Seconds per step, of all threads and of the one that steps."""
        background = self._engine.background_seconds() - self._background
        return {"step": (self.seconds + background) / self.count, "step_thread": self.seconds / self.count}


def reach_steady_decode(scenario: SteadyDecode, engine: Engine) -> None:
    """Add all requests and step until each has been decoding for a while."""
    for spec in scenario.requests():
        engine.add(engine.make(spec))
    steps = Steps(engine, scenario.engine.depth)
    while engine.num_running < scenario.running or not engine.all_decode:
        steps.run()
    steps.run(scenario.warm_up)
    steps.land()


def _steady_decode(scenario: SteadyDecode, builds: Mapping[str, Build]) -> dict[str, Measured]:
    with ExitStack() as engines:
        turns = {}
        for name, build in builds.items():
            engine = engines.enter_context(closing(build(scenario.engine)))
            reach_steady_decode(scenario, engine)
            turns[name] = Steps(engine, scenario.engine.depth)
        with _quiet():
            for _ in range(scenario.steps // scenario.turn):
                for steps in turns.values():
                    steps.run(scenario.turn)
        return {
            name: Measured(steps.per_step(), {"steps": steps.count, "tokens": steps.tokens})
            for name, steps in turns.items()
        }


def _prefill_mix(scenario: PrefillMix, engine: Engine) -> Measured:
    coming = iter(list(scenario.requests()))
    steps = Steps(engine)
    making = 0.0
    with _quiet():
        exhausted = False
        while not exhausted or engine.num_running or engine.num_waiting:
            while not exhausted and engine.num_waiting < scenario.queued:
                spec = next(coming, None)
                if spec is None:
                    exhausted = True
                    break
                start = process_time()
                engine.add(engine.make(spec))
                making += process_time() - start
            steps.run()
    seconds = steps.per_step()
    seconds["request"] = making / scenario.count + seconds["step"] * steps.count / scenario.count
    return Measured(seconds, {"steps": steps.count, "tokens": steps.tokens})


def _long_prompt(scenario: LongPrompt, engine: Engine) -> Measured:
    engine.add(engine.make(scenario.request(0)))
    steps = Steps(engine)
    while engine.num_running or engine.num_waiting:
        steps.run()
    request = engine.make(scenario.request(1))
    with _quiet():
        hashing = [_timed(lambda: engine.hash(request)) for _ in range(scenario.hashings)]
        hits = engine.look_up(request)
        lookup = [_timed(lambda: engine.look_up(request)) for _ in range(scenario.lookups)]
        admitting = [_admission(scenario.request(2 + i), engine) for i in range(scenario.admissions)]
    return Measured(
        {
            "hash_block": statistics.median(hashing) / scenario.blocks,
            "lookup_block": statistics.median(lookup) / (hits // scenario.engine.block_size),
            "admit": statistics.median(admitting),
        },
        {"hit_tokens": hits, "blocks": scenario.blocks},
    )


def _admission(spec: RequestSpec, engine: Engine) -> float:
    """From the token ids to the step that admits them, all but one cached; then the request ends."""
    start = process_time()
    engine.add(engine.make(spec))
    output = engine.schedule()
    seconds = process_time() - start
    engine.update(output, engine.answer(output))
    return seconds


def _timed(call: Callable[[], object]) -> float:
    start = process_time()
    call()
    return process_time() - start
