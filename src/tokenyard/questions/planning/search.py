"""Which variants are replayed, and the replays themselves."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from hashlib import blake2s
from itertools import islice
from math import ceil, inf, sqrt
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from tokenyard.errors import MissingExtraError
from tokenyard.explain.steady import ANSWERS_LONG, LoadState
from tokenyard.questions.experiment import workers_for
from tokenyard.questions.planning.answer import PRECISION, LoadSearch, is_borne, largest_load
from tokenyard.questions.planning.goal import Goal, best_row, goal_value, incumbent_of, is_feasible
from tokenyard.questions.scenario import Say, Scenario
from tokenyard.questions.sweeping.measuring import Incumbent, Measured, PreparedVariant, VariantSource, VariantWorker
from tokenyard.questions.sweeping.rows import Journal, Row, Setting, Settings, has_pace, key_of, settings_in_words
from tokenyard.questions.sweeping.variants import Grid
from tokenyard.questions.variant_sources import KnownSource, WorkloadVariants
from tokenyard.quick_dataclass import dataclass
from tokenyard.workload.load import GENERATORS, files_named, repeated
from tokenyard.workload.record import Workload

# ---------------------------------------------------------------------------------------------------------------------
# Traffic that goes on until a variant shows its steady state, or that it has none.
#
#     400 requests in 20 s        answers of 7 s: what has begun is not yet what goes on
#     800, 1,600 ...              more of the same, until both halves of what follows the first third agree
#
# A short log fills an empty server, which looks as if it bore more than it does. So no bound holds, and no load is
# borne, by a replay in which requests take longer and longer, or of which the second half would say another thing.

MOST_REQUESTS = 8_000
"""Requests beyond which traffic is not made longer; a workload that has more is replayed as it is."""
FEWEST_TO_LOOK = 400
"""Requests with which a load is looked for, before it is decided with more of them."""
FEWEST_FOR_LOAD = 5_000
"""Requests without which no load of drawn traffic is said to be borne: the rate of fewer is itself a matter of luck by
some percent."""
FEWEST_OF_A_LOG = 1_000
"""The same of a log that is repeated, whose rate is always its own."""
_LONGER = 4
"""Times :data:`FEWEST_TO_LOOK` from which on a workload is as long as what decides."""
_ANSWERS = 6
"""Times the mean answer, or session, that arrivals are made to go on for to begin with."""


@dataclass(frozen=True, kw_only=True)
class LongerSource:
    """The variants of another source, with so many times the traffic."""

    source: VariantSource
    times: int

    def prepared(self, settings: Settings) -> PreparedVariant:
        """The variant. Raises TokenyardError as the other source does."""
        if isinstance(self.source, WorkloadVariants):
            drawn = drawn_longer(self.source.run, self.source.workload, self.times)
            if drawn is not None:
                return WorkloadVariants(drawn).prepared(settings)
        variant = self.source.prepared(settings)
        if not has_pace(variant.workload):  # its settings make it a closed loop, or send all at once
            return variant
        return msgspec.structs.replace(variant, workload=repeated(variant.workload, self.times))


def drawn_longer(scenario: Scenario, workload: Workload, times: int) -> Scenario | None:
    """Return the scenario whose built-in workload draws so many times as many requests or sessions; None: it is read.

    ``workload`` is what it draws as it is.
    """
    name, arrivals = scenario.workload, scenario.arrivals
    if not isinstance(name, str) or name not in GENERATORS or files_named(name, format=arrivals.format) is not None:
        return None
    count = times * sum(not each.after for each in workload)
    if name == "random":
        return replace(scenario, arrivals=replace(arrivals, num_prompts=count, limit=None))
    return replace(scenario, arrivals=replace(arrivals, limit=count))


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """How long the traffic of a plan is made. It can be pickled."""

    job: VariantWorker
    """Measures variants with the traffic as it is."""
    most: int
    """Times that it is made as long at most; 1: it stays as it is."""
    fewest: int = FEWEST_FOR_LOAD
    """Requests without which no load is said to be borne."""
    looks: bool = False
    """It is only looked where the largest load is: what may be chance is not replayed again."""

    @property
    def looking(self) -> Lengths | None:
        """The same to look where the largest load is; None where traffic is long already."""
        is_long = _LONGER * self.most * FEWEST_TO_LOOK > MOST_REQUESTS
        return replace(self, fewest=FEWEST_TO_LOOK, looks=True) if is_long else None

    @property
    def enough(self) -> int:
        """Times that the traffic is made as long for the fewest requests; fewer of them may miss a bound by chance."""
        return ceil(self.fewest * self.most / MOST_REQUESTS)

    @classmethod
    def of(cls, job: VariantWorker, workload: Workload) -> Lengths:
        """Return what makes ``workload`` longer where it has a pace to go on at."""
        is_drawn = isinstance(job.source, WorkloadVariants) and drawn_longer(job.source.run, workload, 1) is not None
        most = max(MOST_REQUESTS // len(workload), 1) if has_pace(workload) else 1
        return cls(job=job, most=most, fewest=FEWEST_FOR_LOAD if is_drawn else FEWEST_OF_A_LOG)

    def chance(self, row: Row) -> float | None:
        """Return the share of a load that is a matter of luck: of which requests are drawn, or a log happens to have.

        What is repeated says no more of others than it does once.
        """
        drawn = row.requests if self.fewest == FEWEST_FOR_LOAD else row.requests / row.times
        return None if row.variation is None else 2 * row.variation / sqrt(max(drawn, 1))

    def worker(self, times: int) -> VariantWorker:
        """Return what measures variants with so many times the traffic."""
        return self.job if times == 1 else replace(self.job, source=LongerSource(source=self.job.source, times=times))

    def settled(self, at: Callable[[VariantWorker], Row], times: int = 1) -> tuple[Row, int]:
        """Replay ``at`` longer and longer traffic until the row shows a steady state of many requests, or none, or
        there is no longer traffic.

        Return the row, and the replays that took.
        """
        replays = 0
        while True:
            row = msgspec.structs.replace(at(self.worker(times)), times=times)
            replays += 1
            is_little = row.state is LoadState.STEADY and row.met is not False and row.requests < self.fewest
            if not self.may_settle(row) and (times >= self.most or not is_little):
                # There is no longer traffic that would tell chance from a trend.
                is_steady = row.nearly_steady and times >= self.most
                return (msgspec.structs.replace(row, state=LoadState.STEADY) if is_steady else row), replays
            is_little |= self.is_chance(row)
            enough = ceil(self.fewest * times / max(row.requests, 1)) if is_little else 1
            times = min(max(self.after(row) if self.may_settle(row) else times, enough), self.most)

    def may_settle(self, row: Row) -> bool:
        """Return whether longer traffic may show what a row within its bounds does not: a steady state, or none."""
        return row.times < self.most and is_unsettled(row) and not (self.looks and self.is_chance(row))

    @staticmethod
    def is_chance(row: Row) -> bool:
        """Return whether a row is unsettled though arrivals went on for long: what it shows may be chance."""
        return is_unsettled(row) and row.answers_long is not None and row.answers_long >= ANSWERS_LONG

    def after(self, row: Row) -> int:
        """Return how many times the traffic is to be as long after a row that was not steady."""
        return min(max(2 * row.times, ceil(self.wanted(row))), self.most)

    @staticmethod
    def wanted(row: Row) -> float:
        """Return how many times the traffic has to be as long for arrivals to outlast such answers by far."""
        return row.times * _ANSWERS / row.answers_long if row.answers_long else 1.0


def is_settled(row: Row) -> bool:
    """Return whether a row stays as it is with longer traffic: it cannot be replayed, or a bound is missed already."""
    return row.problem is not None or row.met is False


def is_unsettled(row: Row) -> bool:
    """Return whether a row within its bounds shows neither a steady state nor that there is none."""
    return row.is_measured and row.met is not False and row.state is LoadState.SHORT


# ---------------------------------------------------------------------------------------------------------------------
# The same in words.


def traffic_in_words(source: KnownSource, row: Row) -> str | None:
    """Return what was done to the traffic of a row, so that it shows a steady state; None: it is as it was given."""
    if row.times == 1:
        return None
    many = f"{row.requests:,} requests, {row.times:,} times as many as given"
    if isinstance(source, WorkloadVariants) and drawn_longer(source.run, source.workload, row.times) is not None:
        return f"{many}, drawn at the same rate"
    return f"{many}: the same again and again at the same rate, with prompts that share nothing with those before"


def unsteady_of(workload: Workload, row: Row) -> Iterator[str]:
    """Sentences on why the figures of a row are not those of a steady state; none where they are."""
    if row.state is LoadState.STEADY or workload.max_concurrency is not None:
        return
    if row.state is LoadState.SHORT:
        yield (
            f"no steady state was shown in {row.requests:,} requests, the most that are replayed for it: figures are of"
            " a server that fills, and no load is stated"
        )
    elif not has_pace(workload):
        yield (
            f"the figures are of these {len(workload):,} requests, once, from an empty server on: they are too few, or"
            " come all at once, so there is no rate that could go on, and no largest load"
        )


# ---------------------------------------------------------------------------------------------------------------------
# What a plan has come to so far: on disk, and in words when it is interrupted or told to stop.


@contextmanager
def progress_journal(output: Path | None, identity: Mapping[str, Any], say: Say) -> Iterator[Journal | None]:
    """Where the rows of a plan are kept: in ``output``, or in a folder of the user's that goes when the plan is whole.

    None where there is no ``output`` and that folder cannot be written: then nothing is kept. Raises ConfigError if
    another process is at the same plan, or ``output`` holds something else.
    """
    if output is not None:
        with Journal(output, identity) as journal:
            yield journal
        return
    folder = _folder_of(identity, say)
    if folder is None:
        yield None
        return
    with Journal(folder, identity) as journal:
        if journal.rows:
            say(f"{len(journal.rows):,} variants were finished by an earlier call of this plan: it goes on from there")
        try:
            yield journal
        except BaseException:
            if not journal.rows:
                journal.remove()
            raise
        journal.remove()


def _folder_of(identity: Mapping[str, Any], say: Say) -> Path | None:
    """The same for the same plan; None, and a warning, where it cannot be made."""
    digest = blake2s(msgspec.json.encode(identity, order="sorted"), digest_size=12).hexdigest()
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - Path.home() raises where there is no home
    cache = given if given.is_absolute() else home / ".cache"
    folder = cache / "tokenyard" / "plans" / digest
    try:
        if not folder.is_absolute():
            raise OSError("there is no home")
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        say(f"the progress of this plan is not kept: {folder} cannot be written ({error.strerror or error})")
        return None
    return folder


def say_so_far(trying: Trying, goal: Goal, tries: int, say: Say, *, is_kept: bool) -> None:
    """The best variant so far, or the nearest to the bounds, and how to go on."""
    say(f"a partial answer: {len(trying.rows):,} of at most {tries:,} variants were tried")
    best = trying.best
    if best is None:
        say("none of them is within every bound")
        known = [row for row in trying.rows if row.tightness is not None]
        if known:
            near = min(known, key=lambda row: row.tightness or 0.0)
            far = f"{near.tightest} is {near.tightness:,.3g} times its bound"
            say(f"the nearest so far: {settings_in_words(near.settings)}, whose {far}; another may be better")
    else:
        value = goal_value(best, goal)
        reaches = "" if value is None else f", with {value:,.4g} {goal.unit}"
        say(f"the best so far: {settings_in_words(best.settings)}{reaches}; another may be better")
    if is_kept:
        say("the same command goes on with the others")


# ---------------------------------------------------------------------------------------------------------------------
# How a plan ends that is told to stop: what was found so far is said before the process goes.


@contextmanager
def ends_after_saying() -> Iterator[None]:
    """SIGTERM is taken as Ctrl-C is: what was found so far is said. Then the process ends by it all the same."""
    process, before = os.getpid(), signal.getsignal(signal.SIGTERM)

    def end(*_: object) -> None:
        if os.getpid() != process:  # a worker
            os._exit(128 + signal.SIGTERM)
        raise _TerminatedError

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGTERM, end)
    try:
        yield
    except _TerminatedError:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        sys.stderr.flush()
        os.kill(process, signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


class _TerminatedError(KeyboardInterrupt):
    """SIGTERM came."""


# ---------------------------------------------------------------------------------------------------------------------

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
