"""How it is timed: one procedure for both sides, on top of the few calls in which they differ (:class:`Engine`).

Only calls of the scheduler are inside the timed stretches; making the model's answer is not.
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from time import perf_counter
from typing import Any, NamedTuple, Protocol, TypeAlias

from workload import EngineShape, LongPrompt, PrefillMix, RequestSpec, Scenario, SteadyDecode

__all__ = ["Build", "Engine", "Measured", "measure", "reach_steady_decode"]


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


class _Steps:
    """Steps one engine and keeps the seconds of each step."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.seconds: list[float] = []
        self.tokens = 0

    def run(self, count: int) -> None:
        for _ in range(count):
            self.step()

    def step(self) -> None:
        engine = self._engine
        start = perf_counter()
        output = engine.schedule()
        decided = perf_counter()
        answer = engine.answer(output)
        answered = perf_counter()
        engine.update(output, answer)
        end = perf_counter()
        self.seconds.append((decided - start) + (end - answered))
        self.tokens += engine.scheduled_tokens(output)


def reach_steady_decode(scenario: SteadyDecode, engine: Engine) -> None:
    """Add all requests and step until each has been decoding for a while."""
    for spec in scenario.requests():
        engine.add(engine.make(spec))
    steps = _Steps(engine)
    while engine.num_running < scenario.running or not engine.all_decode:
        steps.step()
    steps.run(scenario.warm_up)


def _steady_decode(scenario: SteadyDecode, builds: Mapping[str, Build]) -> dict[str, Measured]:
    with ExitStack() as engines:
        turns = {}
        for name, build in builds.items():
            engine = engines.enter_context(closing(build(scenario.engine)))
            reach_steady_decode(scenario, engine)
            turns[name] = _Steps(engine)
        with _quiet():
            for _ in range(scenario.steps // scenario.turn):
                for steps in turns.values():
                    steps.run(scenario.turn)
    return {
        name: Measured({"step": statistics.fmean(steps.seconds)}, {"steps": scenario.steps, "tokens": steps.tokens})
        for name, steps in turns.items()
    }


def _prefill_mix(scenario: PrefillMix, engine: Engine) -> Measured:
    coming = iter(list(scenario.requests()))
    steps = _Steps(engine)
    making = 0.0
    with _quiet():
        exhausted = False
        while not exhausted or engine.num_running or engine.num_waiting:
            while not exhausted and engine.num_waiting < scenario.queued:
                spec = next(coming, None)
                if spec is None:
                    exhausted = True
                    break
                start = perf_counter()
                engine.add(engine.make(spec))
                making += perf_counter() - start
            steps.step()
    stepping = sum(steps.seconds)
    return Measured(
        {"step": stepping / len(steps.seconds), "request": (making + stepping) / scenario.count},
        {"steps": len(steps.seconds), "tokens": steps.tokens},
    )


def _long_prompt(scenario: LongPrompt, engine: Engine) -> Measured:
    engine.add(engine.make(scenario.request(0)))
    steps = _Steps(engine)
    while engine.num_running or engine.num_waiting:
        steps.step()
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
    start = perf_counter()
    engine.add(engine.make(spec))
    output = engine.schedule()
    seconds = perf_counter() - start
    engine.update(output, engine.answer(output))
    return seconds


def _timed(call: Callable[[], object]) -> float:
    start = perf_counter()
    call()
    return perf_counter() - start
