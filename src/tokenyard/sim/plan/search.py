"""Which variants are replayed: all of a small space; of a larger one those that Optuna proposes, then the neighbours of
the best.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from math import inf
from typing import Any, NamedTuple

from tokenyard.errors import MissingExtraError
from tokenyard.sim.plan.goal import Goal, is_feasible, value_of
from tokenyard.sim.sweep.row import Row, Setting, Settings, key_of
from tokenyard.sim.sweep.variants import Grid

__all__ = ["Searched", "search"]

Evaluate = Callable[[Settings], Row]

_OF_OPTUNA = 0.6
"""Share of the replays that Optuna proposes; the rest look around the best."""
_SAME = 1e-3
"""Scores that differ by less, as a share, are the same."""
_MOST_REPEATS = 50
"""Times in a row that Optuna may propose what is known already."""


class Searched(NamedTuple):
    """What was tried."""

    rows: list[Row]
    is_whole: bool
    """The space was tried whole: the best of it is the best there is."""
    method: str


def search(grid: Grid, evaluate: Evaluate, goal: Goal, *, replays: int, seed: int = 0) -> Searched:
    """Try the grid whole if it has at most ``replays`` variants, else so many of it.

    Raises MissingExtraError where that takes Optuna, and it is not there.
    """
    if len(grid) <= replays:
        return Searched([evaluate(settings) for settings in grid.all()], True, "every variant")
    known: dict[str, Row] = {}

    def tried(settings: Settings) -> Row:
        key = key_of(settings)
        if key not in known:
            known[key] = evaluate(settings)
        return known[key]

    _proposed(grid, tried, known, goal, max(int(replays * _OF_OPTUNA), 1), seed)
    while len(known) < replays:
        around = next((each for each in _around(grid, list(known.values()), goal) if key_of(each) not in known), None)
        if around is None:
            break
        tried(around)
    return Searched(list(known.values()), False, "Optuna (TPE), then the neighbours of the best")


def _proposed(grid: Grid, tried: Evaluate, known: dict[str, Row], goal: Goal, most: int, seed: int) -> None:
    """Replay what Optuna proposes, corners of the space first."""
    optuna = _optuna()
    sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=max(most // 2, 4))
    study = optuna.create_study(direction="maximize", sampler=sampler)
    repeats = 0
    while len(known) < most and repeats < _MOST_REPEATS:
        trial = study.ask()
        settings = {name: _suggested(trial, name, values) for name, values in grid.dimensions}
        repeats = repeats + 1 if key_of(settings) in known else 0
        row = tried(settings)
        score = _score(row, goal)
        if score is None:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            study.tell(trial, score)


def _suggested(trial: Any, name: str, values: tuple[Setting, ...]) -> Setting:
    """Numbers keep their order; whatever else is chosen without one."""
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        ordered = sorted(values, key=float)  # type: ignore[arg-type]
        place: int = trial.suggest_int(name, 0, len(ordered) - 1)
        return ordered[place]
    choice: int = trial.suggest_categorical(name, list(range(len(values))))
    return values[choice]


def _score(row: Row, goal: Goal) -> float | None:
    """More is better: a variant that holds every bound before all others, those by how far they are from that."""
    if row.problem is not None:
        return None
    value = value_of(row, goal)
    if not is_feasible(row):
        return -1.0 - (row.tightness if row.tightness is not None else row.tightness_above or 1.0)
    if value is None:
        return None
    reached = 1.0 / value if goal.is_least and value else value
    return reached * (1.0 - 1e-3 * min(row.tightness or 0.0, 1.0))


def _around(grid: Grid, rows: list[Row], goal: Goal) -> Iterator[dict[str, Setting]]:
    """Variants that differ from the best in one setting, the nearest values first, out to the ends; then those of the
    next best, ...

    Beyond a value that changes nothing none is tried before the others: a limit that is not reached does not matter.
    """
    known = {key_of(row.settings): row for row in rows}
    left = list(rows)
    idle: list[dict[str, Setting]] = []
    while left:
        best = max(left, key=lambda row: _rank(row, goal))
        left.remove(best)
        if _score(best, goal) is None:
            continue
        for setting in _lines(grid, best):
            before = known.get(key_of(setting.nearer))
            if before is not None and setting.nearer != best.settings and _is_alike(before, best, goal):
                idle.append(setting.settings)
            else:
                yield setting.settings
    yield from idle


def _rank(row: Row, goal: Goal) -> float:
    """What the search climbs: every bit of the goal counts, where a recommendation takes like for like."""
    score = _score(row, goal)
    return -inf if score is None else score


class _Beside(NamedTuple):
    """A variant on a line through another one."""

    settings: dict[str, Setting]
    nearer: dict[str, Setting]
    """The one before it on that line."""


def _lines(grid: Grid, row: Row) -> Iterator[_Beside]:
    """All variants that differ from one in one setting; every setting's nearest values first."""
    farthest = max(len(values) for _, values in grid.dimensions)
    for distance in range(1, farthest):
        for name, values in grid.dimensions:
            at = values.index(row.settings[name])
            for step in (1, -1):
                if 0 <= at + step * distance < len(values):
                    nearer = {**row.settings, name: values[at + step * (distance - 1)]}
                    yield _Beside({**row.settings, name: values[at + step * distance]}, nearer)


def _is_alike(one: Row, other: Row, goal: Goal) -> bool:
    mine, theirs = _score(one, goal), _score(other, goal)
    return mine is not None and theirs is not None and abs(mine - theirs) <= _SAME * abs(theirs)


def _optuna() -> Any:
    try:
        optuna = import_module("optuna")
    except ImportError:
        raise MissingExtraError("optuna", "plan") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
