"""Which variants are replayed, and the replays themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from math import ceil, inf
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from tokenyard.errors import MissingExtraError
from tokenyard.questions.experiment import workers_for
from tokenyard.questions.planning.answer import PRECISION, LoadSearch, is_borne, largest_load
from tokenyard.questions.planning.goal import Goal, best_row, goal_value, incumbent_of, is_feasible
from tokenyard.questions.planning.steadiness import Lengths, is_settled
from tokenyard.questions.sweeping.measuring import Incumbent, Measured
from tokenyard.questions.sweeping.rows import Journal, Row, Setting, Settings, key_of
from tokenyard.questions.sweeping.variants import Grid

# ---------------------------------------------------------------------------------------------------------------------
# The variants of a plan, replayed one after the other or some side by side: what is known of each, on disk if wanted.


class Trying:
    """Replays variants, and remembers what others have to beat. What a journal has is not replayed again."""

    def __init__(
        self,
        lengths: Lengths,
        goal: Goal,
        *,
        has_incumbents: bool,
        times: int = 1,
        known: Mapping[str, Row] = MappingProxyType({}),
        journal: Journal | None = None,
        advance: Callable[[], None] = lambda: None,
        processes: int | None = 1,
        ray: str | None = None,
    ) -> None:
        """``has_incumbents``: a variant ends early where a cheaper one within the bounds cannot be beaten any more.

        ``times``: the traffic is made so many times as long, but for ``known`` rows by their keys, which need none.

        ``processes``: variants that are replayed side by side; None: as many as pay. Their rows are those of one.
        ``ray``: the address of a cluster that replays instead.
        """
        self.job = lengths.worker(times)
        self._times = times
        self._known = known
        replay = partial(_replayed, lengths, times, goal)
        self._workers = workers_for(replay, processes, ray)
        self.goal = goal
        self._has_rivals = has_incumbents
        self._journal = journal
        self._advance = advance
        self._rows: dict[str, Row] = {}
        self.best: Row | None = None
        """The best of those that hold every bound."""

    @property
    def rows(self) -> list[Row]:
        """One of each variant that was tried, in their order."""
        return list(self._rows.values())

    @property
    def replays(self) -> int:
        """Steps that all of them took, those of an earlier call included."""
        return sum(row.replays for row in self._rows.values())

    def __enter__(self) -> Trying:
        return self

    def __exit__(self, *_: object) -> None:
        self._workers.__exit__()

    def evaluate(self, several: Sequence[Settings]) -> list[Row]:
        """The rows of some variants, each at the largest load that it bears where that is the goal.

        They are as if each had been replayed after those before it, whichever process is done first; a load that must
        be borne is that of the best before all of them.
        """
        known = {number: self._row_known(each) for number, each in enumerate(several)}
        left = [number for number in range(len(several)) if known.get(number) is None]
        must_bear = self.best.load if self.goal is Goal.LOAD and self.best is not None else None
        tasks = [_Task(dict(several[number]), (), must_bear) for number in left]
        done: dict[int, _Tried] = {}
        found = list(self._in_order(several, known, done))
        for number, tried in self._workers.each(tasks, lambda task: task._replace(incumbents=self._incumbents())):
            done[left[number]] = tried
            found += self._in_order(several[len(found) :], known, done, len(found))
        return found

    def _row_known(self, settings: Settings) -> Row | None:
        """A row that needs no replay: of an earlier call with traffic of this length, or missed with a shorter one."""
        key = key_of(settings)
        row = self._known.get(key) or (self._journal.get(settings) if self._journal is not None else None)
        is_ours = row is not None and (self.goal is Goal.LOAD or row.times == self._times or is_settled(row))
        return row if is_ours else None

    def _in_order(
        self,
        several: Sequence[Settings],
        known: Mapping[int, Row | None],
        done: dict[int, _Tried],
        first: int = 0,
    ) -> Iterator[Row]:
        """Take in the rows of the next variants, as far as they are there."""
        for number, settings in enumerate(several, first):
            row = known.get(number)
            if row is None:
                if number not in done:
                    return
                row = self._settled(done.pop(number))
                self._keep(row)
            self._advance()
            self._rows[key_of(settings)] = row
            self.best = best_row([row] if self.best is None else [self.best, row], self.goal)
            yield row

    def _settled(self, tried: _Tried) -> Row:
        """The row of a variant, now that all before it are known."""
        (settings, judged_by, _), measured = tried
        incumbents, row = self._incumbents(), measured.row
        if incumbents == judged_by:
            return row
        if row.stopped is not None and row.met is None:  # by one that is not the best any more
            row = self.job(settings, stops=True, incumbents=incumbents)
        else:
            row = measured.judged(incumbents)
        return msgspec.structs.replace(row, times=self._times)

    def _incumbents(self) -> tuple[Incumbent, ...]:
        """What a variant has to beat by now."""
        if not self._has_rivals or self.best is None or self.goal is Goal.LOAD:
            return ()
        incumbent = incumbent_of(self.best, self.goal)
        return () if incumbent is None else (incumbent,)

    def run_on(self, row: Row, most: float) -> Row:
        """A row whose replay was ended early, with all its figures, unless one is beyond ``most`` times its bound."""
        again = self.job(row.settings, load=row.load, stops=True, slack=most)
        again = msgspec.structs.replace(again, replays=row.replays + again.replays, times=self._times)
        self._keep(again)
        self._rows[key_of(row.settings)] = again
        return again

    def _keep(self, row: Row) -> None:
        """Finished rows on disk; a variant that could not be replayed costs nothing to try again, and may have been
        mended.
        """
        if self._journal is not None and row.problem is None:
            self._journal.add(row)


class _Task(NamedTuple):
    """A variant to replay, and what it has to beat."""

    settings: dict[str, Setting]
    incumbents: tuple[Incumbent, ...]
    must_bear: float | None
    """A load, where the largest one is the goal."""


class _Tried(NamedTuple):
    """What came of a task."""

    task: _Task
    measured: Measured


def _replayed(lengths: Lengths, times: int, goal: Goal, task: _Task) -> _Tried:
    """Do a task; it can be done in any process."""
    settings, incumbents, must_bear = task
    if goal is not Goal.LOAD:
        measured = lengths.worker(times).measured(settings, stops=True, incumbents=incumbents)
        return _Tried(task, msgspec.structs.replace(measured, row=msgspec.structs.replace(measured.row, times=times)))
    found = steady_load(lengths, settings, must_bear=must_bear)
    row = found.borne or found.missed
    assert row is not None, "a search has replayed something"
    return _Tried(task, Measured(msgspec.structs.replace(row, replays=found.replays)))


def loads_of(
    lengths: Lengths, settings: Settings, row: Row | None = None, *, whole: float = 0.0
) -> Callable[[float], Row]:
    """Return what replays a variant at a load, with traffic long enough for it; ``row``: what is known of it.

    Replays above a load of ``whole`` end as soon as a bound is missed for certain.
    """
    known = [] if row is None else [row]

    def at(load: float) -> Row:
        times = max((ceil(lengths.wanted(each) * load / each.load) for each in known[-1:]), default=1)
        times = max(times, lengths.enough)
        row, replays = lengths.settled(
            lambda job: job(settings, load=load, stops=load > whole), min(times, lengths.most)
        )
        if row.is_measured:
            known.append(row)
        return msgspec.structs.replace(row, replays=replays)

    return at


def steady_load(
    lengths: Lengths, settings: Settings, row: Row | None = None, *, must_bear: float | None = None, growth: float = 2.0
) -> LoadSearch:
    """The largest load that a variant bears: looked for with short traffic, and decided by long traffic near there.

    ``row``: what is known of it. One that does not bear ``must_bear`` is given up after one replay.
    """
    long, replays, start = loads_of(lengths, settings, row), 0, 1.0 if row is None else row.load
    borne = row if row is not None and is_borne(row) else None
    if must_bear is not None:
        borne = long(must_bear)
        replays = borne.replays
        if not is_borne(borne):
            return LoadSearch(None, borne, replays)
    if (looking := lengths.looking) is not None:
        near = largest_load(
            loads_of(looking, settings, row), start=start, borne=borne, growth=growth, precision=_LOOKED
        )
        replays += near.replays
        if near.borne is not None:
            start, growth = near.borne.load, _NEAR
            # Near the edge it is missed late, and the figures of what is missed are wanted.
            long = loads_of(lengths, settings, row, whole=start * (1 + _LOOKED))

    def at(load: float) -> Row:
        return msgspec.structs.replace(borne, replays=0) if borne is not None and load <= borne.load else long(load)

    is_known = borne is not None and start <= borne.load
    found = largest_load(at, start=start, borne=borne if is_known else None, growth=growth)
    return msgspec.structs.replace(found, replays=replays + found.replays)


_LOOKED = 4 * PRECISION
"""Precision with which is looked where it is."""
_NEAR = (1 + PRECISION) ** 2
"""Factor between loads that are tried where the largest one is about to be."""


# ---------------------------------------------------------------------------------------------------------------------
# Which variants are replayed: all of a small space; of a larger one those that Optuna proposes, then the neighbours
# of the best.

Evaluate = Callable[[Sequence[Settings]], list[Row]]
"""Replays some variants, side by side if there are processes for that."""

_OF_OPTUNA = 0.6
"""Share of the replays that Optuna proposes; the rest look around the best."""
_SAME = 1e-3
"""Scores that differ by less, as a share, are the same."""
_MOST_REPEATS = 50
"""Times in a row that Optuna may propose what is known already."""


class Searched(msgspec.Struct, frozen=True):
    """What was tried."""

    rows: list[Row]
    is_whole: bool
    """The space was tried whole: the best of it is the best there is."""
    method: str


def search(grid: Grid, evaluate: Evaluate, goal: Goal, *, replays: int, seed: int = 0, at_once: int = 1) -> Searched:
    """Try the grid whole if it has at most ``replays`` variants, else so many of it, ``at_once`` of them at a time.

    Raises MissingExtraError where that takes Optuna, and it is not there.
    """
    if len(grid) <= replays:
        whole, chunk = grid.all(), at_once if goal is Goal.LOAD else len(grid)
        several = [whole[i : i + chunk] for i in range(0, len(whole), chunk)]
        return Searched([row for each in several for row in evaluate(each)], True, "every variant")
    known: dict[str, Row] = {}

    def tried(some: Mapping[str, Settings]) -> None:
        new = {key: settings for key, settings in some.items() if key not in known}
        if new:
            known.update(zip(new, evaluate(list(new.values())), strict=True))

    _proposed(grid, tried, known, goal, max(int(replays * _OF_OPTUNA), 1), seed, at_once)
    while len(known) < replays:
        beside = ((key_of(each), each) for each in _around(grid, list(known.values()), goal))
        unknown = ((key, each) for key, each in beside if key not in known)
        some = dict(islice(unknown, min(at_once, replays - len(known))))
        if not some:
            break
        tried(some)
    return Searched(list(known.values()), False, "Optuna (TPE), then the neighbours of the best")


def _proposed(
    grid: Grid,
    tried: Callable[[Mapping[str, Settings]], None],
    known: Mapping[str, Row],
    goal: Goal,
    most: int,
    seed: int,
    at_once: int,
) -> None:
    """Replay what Optuna proposes, corners of the space first."""
    optuna = _optuna()
    sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=max(most // 2, 4))
    study = optuna.create_study(direction="maximize", sampler=sampler)
    repeats = 0
    while len(known) < most and repeats < _MOST_REPEATS:
        trials = [study.ask() for _ in range(min(at_once, most - len(known)))]
        asked = [{name: _suggested(trial, name, values) for name, values in grid.dimensions} for trial in trials]
        some = {key_of(settings): settings for settings in asked if grid.allows(settings)}
        repeats = repeats + len(trials) if all(key in known for key in some) else 0
        tried(some)
        for trial, settings in zip(trials, asked, strict=True):
            score = _score(known[key_of(settings)], goal) if grid.allows(settings) else None
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
    value = goal_value(row, goal)
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
    idle: list[dict[str, Setting]] = []
    for best in sorted(rows, key=lambda row: _rank(row, goal), reverse=True):
        if _score(best, goal) is None:
            continue
        for setting in _lines(grid, best):
            if not grid.allows(setting.settings):
                continue
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


class _Beside(msgspec.Struct, frozen=True):
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
        import optuna  # noqa: PLC0415 - an extra
    except ImportError:
        raise MissingExtraError("optuna", "plan") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
