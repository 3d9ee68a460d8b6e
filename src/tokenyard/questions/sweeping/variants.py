"""Which variants there are, and how many are measured side by side."""

from __future__ import annotations

import csv
import ctypes
import io
import os
import pickle
import signal
import sys
import threading
import tomllib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from itertools import product
from math import prod
from multiprocessing import get_context
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path
from time import perf_counter
from types import ModuleType
from typing import Any, Generic, TypeVar

import msgspec

from tokenyard.errors import ConfigError, FileError
from tokenyard.files import read_input
from tokenyard.questions.sweeping.rows import Row, Setting, Settings, key_of, read_values

# ---------------------------------------------------------------------------------------------------------------------
# Which variants: a grid of settings, or a file of them (JSON, TOML, CSV).

Converter = Callable[[str, Any], tuple[str, Setting]]
"""A name and a value, as they were given -> the setting's own name, and the value in its type. Raises ConfigError."""

_MOST_BYTES = 64 << 20
_MOST_VARIANTS = 1_000_000
_MOST_PROBLEMS = 20
"""Most problems that are listed for one grid or file."""
_FORMATS = "*.json (a list of objects), *.toml ([[variant]] tables) or *.csv (a header of names)"


class Grid:
    """Every combination of the values of some settings, in the order in which they were given, as far as allowed."""

    def __init__(
        self,
        dimensions: Sequence[tuple[str, tuple[Setting, ...]]],
        allows: Callable[[Mapping[str, Setting]], bool] | None = None,
    ) -> None:
        """``allows``: which combinations there are; None: all."""
        self.dimensions = tuple(dimensions)
        self._allows = allows

    @property
    def is_narrowed(self) -> bool:
        """Whether not every combination is allowed."""
        return self._allows is not None

    def allows(self, settings: Mapping[str, Setting]) -> bool:
        """Whether a combination is one of them."""
        return self._allows is None or self._allows(settings)

    def narrowed(self, allows: Callable[[Mapping[str, Setting]], bool]) -> Grid:
        """The same, where only some of its combinations are allowed."""
        return Grid(self.dimensions, lambda settings: self.allows(settings) and allows(settings))

    def __len__(self) -> int:
        every = prod(len(values) for _, values in self.dimensions)
        return len(self.all()) if self.is_narrowed and every <= _MOST_VARIANTS else every

    def all(self) -> list[dict[str, Setting]]:
        """The variants; the last setting changes first."""
        names = [name for name, _ in self.dimensions]
        every = (dict(zip(names, values, strict=True)) for values in product(*(each for _, each in self.dimensions)))
        return [settings for settings in every if self.allows(settings)]


Spread = Callable[[str, str], Iterable[Any]]
"""A name and a text -> the values that it stands for: several of a range."""


def _one_value(_: str, text: str) -> Iterable[Any]:
    return (text,)


def read_grid(texts: Iterable[str], convert: Converter, flag: str = "--set", *, spread: Spread = _one_value) -> Grid:
    """The grid of texts like ``max_num_seqs=64,128``. Raises ConfigError naming ``flag`` and all that is wrong.

    Texts that set the same two settings or more are taken one for the other: ``tensor_parallel_size=1,replicas=8`` and
    ``tensor_parallel_size=2,replicas=4`` are two variants, and not four.
    """
    texts = tuple(texts)
    found: dict[str, tuple[Setting, ...]] = {}
    couples: dict[frozenset[str], list[dict[str, tuple[Setting, ...]]]] = {}
    problems: list[ConfigError] = []
    for text in texts:
        try:
            named = read_values(text, flag)
        except ConfigError as error:
            problems.append(error)
            continue
        mine: dict[str, tuple[Setting, ...]] = {}
        for name, values in named.items():
            try:
                several = [each for value in values for each in spread(name, value)]
                own, settings = _dimension(name, several, convert, problems)
                mine[own] = settings
            except ConfigError as error:
                problems.append(error)
        alike = couples.setdefault(frozenset(mine), [])
        alike.append(mine)
        for own, settings in mine.items():
            if own in found and (len(alike) == 1 or len(mine) == 1):
                problems.append(ConfigError(flag, text, f"{own} is given twice: give it once"))
            found[own] = tuple(dict.fromkeys((*found.get(own, ()), *settings)))
    _raise_all(flag, " ".join(texts), [("", error) for error in problems])
    grid = Grid(list(found.items()))
    for alike in couples.values():
        if len(alike) > 1:
            grid = grid.narrowed(partial(_is_one_of, alike))
    if len(grid) > _MOST_VARIANTS:
        raise ConfigError(flag, " ".join(texts), f"these are {len(grid):,} variants: give at most {_MOST_VARIANTS:,}")
    return grid


def _is_one_of(couples: Sequence[Mapping[str, tuple[Setting, ...]]], settings: Mapping[str, Setting]) -> bool:
    return any(all(settings[name] in values for name, values in each.items()) for each in couples)


def _dimension(
    name: str, values: Sequence[Any], convert: Converter, problems: list[ConfigError]
) -> tuple[str, tuple[Setting, ...]]:
    """A setting and its values; those that cannot be used join ``problems``, but for the last of them."""
    pairs: list[tuple[str, Setting]] = []
    wrong: dict[str, ConfigError] = {}
    for value in values:
        try:
            pairs.append(convert(name, value))
        except ConfigError as error:
            wrong[str(error)] = error
    if wrong:
        *others, last = wrong.values()
        problems.extend(others)
        raise last
    return pairs[0][0], tuple(dict.fromkeys(value for _, value in pairs))


def read_variants(path: Path, convert: Converter) -> list[dict[str, Setting]]:
    """The variants of a file. Raises ConfigError naming every entry that cannot be used."""
    readers: dict[str, Callable[[str], Any]] = {".json": _json, ".toml": _toml, ".csv": _csv}
    read = readers.get(path.suffix.lower())
    if read is None:
        raise ConfigError("variants", str(path), f"give {_FORMATS}")
    try:
        entries = read(read_input(path, _MOST_BYTES).decode())
    except FileError as error:
        raise ConfigError("variants", str(path), error.problem) from None
    except (msgspec.DecodeError, tomllib.TOMLDecodeError, csv.Error, UnicodeDecodeError, _RaggedError) as error:
        raise ConfigError("variants", str(path), f"cannot be read: {error}") from None
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise ConfigError("variants", str(path), f"holds no variants: give {_FORMATS}")
    variants: dict[str, dict[str, Setting]] = {}
    problems: list[tuple[str, ConfigError]] = []
    for number, entry in enumerate(entries, start=1):
        settings, wrong = _converted(entry, convert)
        problems += [(f"variant {number}", error) for error in wrong]
        variants.setdefault(key_of(settings), settings)
    _raise_all("variants", str(path), problems)
    return list(variants.values())


def _converted(entry: dict[Any, Any], convert: Converter) -> tuple[dict[str, Setting], list[ConfigError]]:
    """The settings of an entry, and what is wrong with the others."""
    settings: dict[str, Setting] = {}
    problems = []
    for given, value in entry.items():
        try:
            name, setting = convert(str(given), value)
            if name in settings:
                raise ConfigError(name, value, "is given twice: give it once")
            settings[name] = setting
        except ConfigError as error:
            problems.append(error)
    return settings, problems


def _raise_all(field: str, value: str, problems: Sequence[tuple[str, ConfigError]]) -> None:
    """Raise the one problem that there is, or one error with all of them, each with where it is."""
    if not problems:
        return
    if len(problems) == 1 and not problems[0][0]:
        raise problems[0][1]
    lines = [f"{where}: {error}" if where else str(error) for where, error in problems[:_MOST_PROBLEMS]]
    if len(problems) > _MOST_PROBLEMS:
        lines.append(f"and {len(problems) - _MOST_PROBLEMS:,} more")
    if len(lines) == 1:
        raise ConfigError(field, value, lines[0])
    raise ConfigError(field, value, "\n".join((f"{len(problems):,} problems", *(f"  {line}" for line in lines))))


def _json(text: str) -> Any:
    return msgspec.json.decode(text)


def _toml(text: str) -> Any:
    return tomllib.loads(text).get("variant", [])


class _RaggedError(Exception):
    """A line of a table has more or fewer fields than its header."""


def _csv(text: str) -> Any:
    """A dictionary per line; an empty field leaves the setting as it is."""
    lines = csv.reader(io.StringIO(text), strict=True, skipinitialspace=True)
    rows = [(lines.line_num, fields) for fields in lines if fields]
    if not rows:
        return []
    (_, names), *rest = rows
    for line, fields in rest:
        if len(fields) != len(names):
            has, of = f"{len(fields)} field{'s' * (len(fields) != 1)}", f"{len(names)} name{'s' * (len(names) != 1)}"
            fix = "give one for each, an empty one to leave a setting as it is"
            raise _RaggedError(f"line {line} has {has}, and the header {of}: {fix}")
    return [{name: value for name, value in zip(names, fields, strict=True) if value} for _, fields in rest]


# ---------------------------------------------------------------------------------------------------------------------
# Measuring many variants: one after the other, or in processes of this machine (on a Ray cluster: ``cluster.py``).

Job = Callable[[Settings], Row]
"""Measures one variant; it can be pickled."""

MOST_PROCESSES = 1024
_MOST_DEATHS = 3
"""Times that worker processes may die without a variant finished in between."""


T = TypeVar("T")
R = TypeVar("R")

_WORTH_PROCESSES = 4.0
"""Seconds of work left from which on processes are started, where their number is not given."""
_MOST_UNASKED = 16
"""Processes, where their number is not given."""


class Workers(Generic[T, R]):
    """Does tasks in so many processes, which stay until it is closed; with one, in this process.

    None: tasks are done in this process as long as what is left takes but seconds, else in one for each core.

    Processes do not run the script that has asked: they need no ``if __name__ == "__main__":`` unless the job holds
    something that the script defines. Where this process has no other threads, they are forks of it.
    """

    def __init__(self, job: Callable[[T], R], processes: int | None) -> None:
        self._job = job
        self._processes = _cores() if processes is None else processes
        self._is_asked = processes is not None
        self._pool: ProcessPoolExecutor | None = None
        self._needs_script = False

    def __enter__(self) -> Workers[T, R]:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def each(self, tasks: Sequence[T], given: Callable[[T], T] = lambda task: task) -> Iterator[tuple[int, R]]:
        """Number and result of each task, as they finish; one whose process dies is begun anew.

        A task is begun as what it is ``given`` then. Raises ConfigError if processes die again and again.
        """
        left = dict(enumerate(tasks))
        for number, task in enumerate(tasks):
            if self._pool is not None or (self._is_asked and self._processes > 1 and len(tasks) > 1):
                break
            begun = perf_counter()
            found = self._job(given(task))
            del left[number]
            yield number, found
            lasted = perf_counter() - begun
            if not self._is_asked and len(left) > 1 and lasted * len(left) > _WORTH_PROCESSES and self._processes > 1:
                break
        deaths = 0
        while left:
            try:
                for number, found in self._finished(left, given):
                    del left[number]
                    deaths = 0
                    yield number, found
            except BrokenProcessPool:
                deaths += 1
                if deaths > _MOST_DEATHS:
                    raise self._gone() from None

    def _finished(self, tasks: dict[int, T], given: Callable[[T], T]) -> Iterator[tuple[int, R]]:
        pool = self._pool = self._pool or self._started(len(tasks))
        numbers: dict[Future[R], int] = {}
        waiting = iter(list(tasks.items()))
        try:
            while True:
                for number, task in waiting:
                    numbers[pool.submit(_measure, given(task))] = number
                    if len(numbers) >= 2 * self._processes:
                        break
                if not numbers:
                    return
                for future in wait(numbers, return_when=FIRST_COMPLETED).done:
                    yield numbers.pop(future), future.result()
        except BrokenProcessPool:
            self._pool = None
            pool.shutdown()  # its threads close its pipes, and must not close what is opened after them
            raise

    def _started(self, tasks: int) -> ProcessPoolExecutor:
        processes = self._processes if self._is_asked else min(self._processes, tasks)
        if _may_fork():
            return ProcessPoolExecutor(processes, _Forks(), _take_over, (self._job, os.getpid()))
        packed = pickle.dumps(self._job)
        self._needs_script = b"__main__" in packed
        context = get_context("spawn") if self._needs_script else _WithoutScript()
        return ProcessPoolExecutor(processes, context, _begin, (packed,))

    def _gone(self) -> ConfigError:
        fix = "worker processes died several times in a row: there may not be enough memory for so many"
        if self._needs_script:
            fix += ', or the script that starts them has no `if __name__ == "__main__":`'
        return ConfigError("processes", self._processes, fix)


class _WithoutScript(SpawnContext):
    """Starts processes that do not run the script of this one first, as those of multiprocessing do."""

    class Process(SpawnProcess):
        """One of them."""

        @staticmethod
        def _Popen(process_obj: Any) -> Any:  # noqa: N802 - multiprocessing's name
            script = sys.modules["__main__"]
            sys.modules["__main__"] = ModuleType("__main__")
            try:
                return SpawnProcess._Popen(process_obj)  # noqa: SLF001 - as above
            finally:
                sys.modules["__main__"] = script


def _cores() -> int:
    """How many this process may use; not more than is wanted without asking."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(usable, _MOST_UNASKED)


def _may_fork() -> bool:
    """Whether a fork finds all that it needs: no thread of Python's holds a lock, no system library minds."""
    return sys.platform == "linux" and threading.active_count() == 1


if sys.platform == "linux":
    from multiprocessing.context import ForkContext, ForkProcess

    class _Forks(ForkContext):
        """Starts processes with all that this one has loaded and read."""

        class Process(ForkProcess):
            """One of them."""

            @staticmethod
            def _Popen(process_obj: Any) -> Any:  # noqa: N802 - multiprocessing's name
                with warnings.catch_warnings():  # NumPy's threads, which Python 3.12 minds, bear a fork
                    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
                    return ForkProcess._Popen(process_obj)  # noqa: SLF001 - as below


_job: Callable[[Any], Any] | None = None
"""What a worker process runs for each task."""


_PR_SET_PDEATHSIG = 1


def _take_over(job: Callable[[Any], Any], parent: int) -> None:
    """Begin as a fork, which ends with its parent: it would keep the lock of the parent's folder."""
    global _job  # noqa: PLW0603 - as below
    _job = job
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _begin(packed: bytes) -> None:
    global _job  # noqa: PLW0603 - sent once per process, not with every variant
    _job = pickle.loads(packed)  # of the process that has started this one


def _measure(task: Any) -> Any:
    assert _job is not None
    return _job(task)
