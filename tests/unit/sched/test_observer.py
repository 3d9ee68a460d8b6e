"""An observer cannot harm the scheduler, and is told of everything that it wants to know."""

from __future__ import annotations

import warnings
from operator import methodcaller
from typing import Any

import pytest
from tests.support.toy_engine import ToyEngine, Watcher

from tokenyard.core.config import PauseState
from tokenyard.core.request import FinishReason
from tokenyard.core.sched.observer import Counts, Gauges, Observers, ObserverWarning, SchedulerState, StepObserver
from tokenyard.core.sched.outputs import EngineOutputs
from tokenyard.core.sched.scheduler_output import SchedulerOutput

EVENTS = [
    "request_arrived",
    "step_started",
    "prefix_looked_up",
    "step_decided",
    "step_completed",
    "request_finished",
    "cache_reset",
    "pause_changed",
]


class Fragile(Watcher):
    """Raises at one event."""

    def __init__(self, event: str) -> None:
        super().__init__()
        self.num_calls = 0

        def fail(*args: Any, **options: Any) -> None:
            self.num_calls += 1
            raise KeyError(event)

        setattr(self, event, fail)


def everything_happens(yard: ToyEngine) -> list[list[int]]:
    """One request from its arrival to its end, a pause and a reset; what clients get."""
    yard.add("a", 4, max_tokens=3)
    yard.scheduler.set_pause_state(PauseState.UNPAUSED)
    news = []
    while yard.scheduler.has_requests():
        output = yard.schedule()
        news.append(
            [
                token
                for each in yard.update(output, {"a": [7]} if output.req_ids else {})
                for token in each.new_token_ids
            ]
        )
    yard.scheduler.reset_prefix_cache()
    return news


@pytest.mark.parametrize("event", EVENTS)
def test_an_observer_that_raises_is_reported_once_and_left_out(event: str) -> None:
    fragile, sound = Fragile(event), Watcher()
    yard = ToyEngine()
    yard.scheduler.attach_observer(Observers(fragile, sound))
    with pytest.warns(
        ObserverWarning, match=f"observer Fragile raised KeyError in {event}.*the scheduler goes on"
    ) as seen:
        assert everything_happens(yard) == [[7], [7], [7], []]
    assert len(seen) == 1
    assert fragile.num_calls == 1
    assert "request_finished" in sound.names(), "others are told on"


def test_a_single_observer_may_raise_as_well() -> None:
    fragile = Fragile("step_decided")
    yard = ToyEngine()
    yard.scheduler.attach_observer(fragile)
    with pytest.warns(ObserverWarning):
        assert everything_happens(yard) == [[7], [7], [7], []]
    assert "step_completed" not in fragile.names()


class Resets(StepObserver):
    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    def cache_reset(self, ts: float, cache: str, *, done: bool) -> None:
        self.seen.append((cache, done))

    def pause_changed(self, ts: float, state: PauseState) -> None:
        self.seen.append((state,))


def test_resets_and_pauses_are_told() -> None:
    yard, watcher = ToyEngine(), Resets()
    yard.scheduler.attach_observer(watcher)
    yard.add("a", 4, max_tokens=3)
    yard.step()
    yard.scheduler.reset_prefix_cache(reset_connector=True)
    yard.scheduler.reset_prefix_cache(reset_running_requests=True)
    yard.scheduler.reset_encoder_cache()
    yard.scheduler.set_pause_state(PauseState.PAUSED_NEW)
    assert watcher.seen == [
        ("prefix", False),
        ("connector", False),
        ("prefix", True),
        ("encoder", False),
        (PauseState.PAUSED_NEW,),
    ]


class Meddler(StepObserver):
    """Tries to change what it is shown."""

    def __init__(self) -> None:
        self.refused = 0
        self.gauges: Gauges | None = None

    def step_started(self, ts: float, step: int, state: SchedulerState) -> None:
        self.gauges = state.gauges()
        for target, change in (
            (state.running, methodcaller("clear")),
            (state.waiting, methodcaller("pop")),
            (state.skipped_waiting, methodcaller("add", None)),
            (state.pinned, methodcaller("clear")),
            (state, lambda it: setattr(it, "num_free_blocks", 0)),
            (state.counts(), lambda it: setattr(it, "num_running", 0)),
        ):
            try:
                change(target)
            except AttributeError:
                self.refused += 1


def test_what_observers_are_shown_is_read_only() -> None:
    yard, meddler = ToyEngine(num_gpu_blocks=20), Meddler()
    yard.scheduler.attach_observer(meddler)
    for name in "ab":
        yard.add(name, 4, max_tokens=2)
    yard.step()
    assert meddler.refused == 6
    assert meddler.gauges == Gauges(0, 19, 0, 2, 0, 0, None)
    assert yard.scheduler.state.counts() == Counts(17, 2, 0, None)


@pytest.mark.parametrize("event", EVENTS)
def test_where_warnings_are_errors_an_observer_that_raises_is_logged(
    event: str, caplog: pytest.LogCaptureFixture
) -> None:
    yard = ToyEngine()
    yard.scheduler.attach_observer(Observers(Fragile(event), yard.watcher))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert everything_happens(yard) == everything_happens(ToyEngine())
    assert f"raised KeyError in {event}" in caplog.text
    yard.scheduler.check_invariants()


class Mute(Exception):  # noqa: N818 - of another library
    """Cannot say what it is."""

    def __str__(self) -> str:
        raise ValueError


def test_an_error_that_cannot_be_shown_harms_nobody() -> None:
    class Wordless(Watcher):
        def step_decided(self, *args: Any) -> None:
            raise Mute

    yard = ToyEngine()
    yard.scheduler.attach_observer(Wordless())
    yard.add("a", 4, max_tokens=2)
    with pytest.warns(ObserverWarning, match="Wordless raised Mute in step_decided: <Mute without a text>"):
        assert yard.step().req_ids == ("a",)


def test_of_two_equal_observers_the_one_that_raises_is_left_out() -> None:
    class Equal(Watcher):
        def __init__(self, *, fails: bool) -> None:
            super().__init__()
            self.fails, self.num_steps = fails, 0

        def step_started(self, *args: Any) -> None:
            self.num_steps += 1
            if self.fails:
                raise KeyError

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Equal)

        __hash__ = None  # type: ignore[assignment]

    sound, fragile = Equal(fails=False), Equal(fails=True)
    yard = ToyEngine()
    yard.scheduler.attach_observer(Observers(sound, fragile))
    yard.add("a", 4, max_tokens=4)
    with pytest.warns(ObserverWarning):
        yard.step()
    yard.step()
    assert (sound.num_steps, fragile.num_steps) == (2, 1)


def test_observers_change_neither_plans_nor_what_clients_get() -> None:
    class Vandal(StepObserver):
        refused = 0

        def step_decided(self, ts: float, output: SchedulerOutput, *args: Any) -> None:
            for column in (output.num_prompt, output.slots, output.num_new_tokens, output.num_known):
                self._spoil(column)

        def step_completed(self, ts: float, output: SchedulerOutput, outputs: EngineOutputs) -> None:
            self._spoil(outputs.tokens)
            self._spoil(outputs.num_tokens)
            outputs.finish_reasons[0] = FinishReason.ERROR  # type: ignore[index]

        def _spoil(self, column: Any) -> None:
            try:
                column[:] = 0
            except ValueError:
                self.refused += 1

    yard, vandal = ToyEngine(), Vandal()
    yard.scheduler.attach_observer(vandal)
    yard.add("a", 4, max_tokens=3)
    for _ in range(2):
        (news,) = yard.update(yard.schedule(), {"a": [5]})
        assert (news.new_token_ids, news.finish_reason) == ([5], None)
    assert vandal.refused == 12
