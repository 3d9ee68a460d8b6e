"""Reads a trace step by step; a run of several engines, one trace per engine."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby, islice
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec

from tokenyard.arguments import given_path
from tokenyard.errors import FileError, TraceError
from tokenyard.files import DamagedFileError, bounded_lines, open_input, packing_of, unpacked
from tokenyard.redaction import valid_text
from tokenyard.trace.facts import micros
from tokenyard.trace.schema import STEP_EVENTS, RequestArrived, RequestRecord, StepSnapshot, TraceStart
from tokenyard.trace.start import settings_of
from tokenyard.trace.steps import ReadNotes, RequestDecoder, Step, StepDecoder, StepJoiner

# ---------------------------------------------------------------------------------------------------------------------
# The files of a trace: finding them, their lines, traces that are not whole.

# ---------------------------------------------------------------------------------------------------------------------
# Finding the files of a trace, and their lines, whatever the files are packed in.

PACKINGS = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet")
"""How a trace file may end; where two of them hold the same trace, the first is read."""
_STEPS_ENDINGS = tuple(f".steps{packing}" for packing in PACKINGS)
_REQUESTS_ENDINGS = tuple(f".requests{packing}" for packing in PACKINGS)
_LINES_PROBED = 20
_RANK_FOLDER = re.compile(r"rank-(0|[1-9][0-9]{0,5})")


class TraceFiles(NamedTuple):
    """The pair, or one of the two."""

    steps: Path | None
    requests: Path | None

    @property
    def source(self) -> Path:
        """The file by which the trace is called."""
        path = self.steps or self.requests
        assert path is not None, "a trace has at least one file"
        return path

    @property
    def name(self) -> str:
        """What the trace is called in what is made of it: its file's name without the endings, as valid text."""
        return valid_text(self.source.name.partition(".steps.")[0].partition(".requests.")[0])


def find_trace(path: Path | str, *, joined: bool = False) -> TraceFiles:
    """The trace in a directory, or in the one file named.

    The name of a file gives its kind, else its first lines. Raises TraceError if there is no trace, or several: also if
    further engines' lie in ``rank-1`` ... below it, unless ``joined`` says that the caller reads them too.
    """
    path = given_path("path", path)
    if path.is_dir():
        return _in_directory(path, joined=joined)
    if not path.is_file():
        problem = "is no file on a disk" if path.exists() else "no such file or directory"
        fix = "name a trace file or the directory that holds it"
        raise TraceError(f"{path}: {problem}: {fix}", field="path", value=str(path), fix=fix)
    if path.name.endswith(_STEPS_ENDINGS):
        return TraceFiles(path, None)
    if path.name.endswith(_REQUESTS_ENDINGS):
        return TraceFiles(None, path)
    return _by_content(path)


def _in_directory(path: Path, *, joined: bool) -> TraceFiles:
    pairs = _pairs(path)
    engines = {} if joined else rank_folders(path)
    if engines:
        own = f"itself and {len(engines)} more" if pairs else f"{len(engines)}"
        example = next(iter(engines.values()))
        raise TraceError(
            f"{path}: holds the traces of several engines ({own}): name one of them, for example {example}"
        )
    if not pairs:
        raise TraceError(f"{path}: holds no *.steps.jsonl or *.requests.jsonl (plain, .gz, .zst or as .parquet)")
    if len(pairs) > 1:
        raise TraceError(f"{path}: holds {len(pairs)} traces ({', '.join(pairs)}): name one of the files")
    (pair,) = pairs.values()
    return TraceFiles(pair.get("steps"), pair.get("requests"))


def _pairs(path: Path) -> dict[str, dict[str, Path]]:
    """Name -> kind -> file, of the traces in a directory."""
    pairs: dict[str, dict[str, Path]] = {}
    for file in sorted(path.iterdir()):
        for kind, endings in (("steps", _STEPS_ENDINGS), ("requests", _REQUESTS_ENDINGS)):
            for ending in endings:
                if file.name.endswith(ending):
                    # Sorted by name, the packings come in the order in which they are preferred.
                    pairs.setdefault(file.name.removesuffix(ending), {}).setdefault(kind, file)
    return pairs


def trace_names(path: Path) -> list[str]:
    """Names of the traces that lie in a directory itself."""
    return list(_pairs(path))


def rank_folders(path: Path) -> dict[int, Path]:
    """Rank -> folder of each engine of several whose trace is below ``path``, by rank; empty if there is none."""
    if not path.is_dir():
        return {}
    ranked = ((rank_of(each), each) for each in path.iterdir() if each.is_dir())
    folders = {rank: folder for rank, folder in ranked if rank is not None and _pairs(folder)}
    return dict(sorted(folders.items()))


def rank_of(folder: Path) -> int | None:
    """The rank of the engine whose trace such a folder holds, by its name; None if it names none."""
    match = _RANK_FOLDER.fullmatch(folder.name)
    return int(match[1]) if match else None


def is_columnar(path: Path) -> bool:
    """The file is a Parquet trace, by its name."""
    return path.suffix == ".parquet"


def _by_content(path: Path) -> TraceFiles:
    if is_columnar(path):
        from tokenyard.trace.columnar.reading import columnar_head  # noqa: PLC0415 - only where one is read

        return TraceFiles(path, None) if columnar_head(path).kind == "steps" else TraceFiles(None, path)
    try:
        for _, line in islice(open_lines(path), _LINES_PROBED):
            try:
                record = msgspec.json.decode(line)
            except (ValueError, RecursionError):
                continue
            if not isinstance(record, dict):
                continue
            if record.get("event") in STEP_EVENTS:
                return TraceFiles(path, None)
            if "event" not in record and {"req_id", "step"} <= record.keys():
                return TraceFiles(None, path)
    except DamagedFileError as error:
        raise TraceError(str(error)) from None
    raise TraceError(
        f"{path}: not a trace: none of its first {_LINES_PROBED} lines is a step or request record;"
        f" `tokenyard run {path} --trace DIR` makes one of a log"
    )


def open_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """(number from 1, line) for every line that is not blank, without a byte-order mark; see :func:`raw_lines`."""
    for number, line in enumerate(raw_lines(path), start=1):
        text = line.removeprefix(BOM_UTF8) if number == 1 else line
        if text and not text.isspace():
            yield number, text


def raw_lines(path: Path) -> Iterator[bytes]:
    """Every line, blank and bad ones included, with its line feed.

    Raises TraceError if the file cannot be opened or read or exceeds a bound, DamagedFileError where compressed data
    ends early, MissingExtraError for a packing that needs pyarrow where that is absent.
    """
    if is_columnar(path):
        from tokenyard.trace.columnar.reading import columnar_lines  # noqa: PLC0415 - as above

        yield from columnar_lines(path)
        return
    try:
        yield from bounded_lines(path)
    except DamagedFileError:
        raise
    except FileError as error:
        raise TraceError(str(error)) from None


@contextmanager
def open_packed(path: Path) -> Iterator[IO[bytes]]:
    """A file for reading, unpacked if it ends in ``.gz`` or ``.zst``. Raises FileError."""
    with open_input(path) as file:
        yield unpacked(file, packing_of(path))


# ---------------------------------------------------------------------------------------------------------------------
# Whether a trace holds a whole run: a process that is killed, or still runs, leaves one that ends too early.


class Partial(msgspec.Struct, frozen=True, kw_only=True):
    """How a trace shows that its run went on after it."""

    cut_off: bool
    """The last line of a file is cut off, or packed data end early."""
    at_step_limit: bool
    """The trace ends because its step limit was reached."""
    unfinished: int
    """Requests that had arrived and not ended when the trace did."""
    requests: int
    """Requests that had arrived."""

    def __str__(self) -> str:
        signs = []
        if self.cut_off:
            signs.append("its last line is cut off")
        if self.at_step_limit:
            signs.append("it ends at its step limit")
        if self.unfinished:
            signs.append(f"{self.unfinished:,} of {self.requests:,} requests had not ended when it did")
        why = "" if self.at_step_limit else " What wrote it was interrupted, or still writes."
        return f"This trace is partial: {', and '.join(signs)}.{why}"


def partial_of(*, cut_off: bool, at_step_limit: bool, requests: int, finished: int) -> Partial | None:
    """None for a trace that shows no sign of ending too early.

    ``finished`` may be more than ``requests``, where a trace began while some ran. A trace that does not record
    arrivals and ends has no ``requests``.
    """
    unfinished = max(requests - finished, 0)
    if not (cut_off or at_step_limit or unfinished):
        return None
    return Partial(cut_off=cut_off, at_step_limit=at_step_limit, unfinished=unfinished, requests=requests)


def is_at_step_limit(start: TraceStart | None, first_step: int | None, last_step: int | None) -> bool:
    """The trace holds as many steps as its first record allows."""
    if start is None or not start.max_steps or first_step is None or last_step is None:
        return False
    return last_step - first_step + (start.every_n or 1) >= start.max_steps


# ---------------------------------------------------------------------------------------------------------------------

# ---------------------------------------------------------------------------------------------------------------------
# A request's way to the scheduler, as far as a trace shows: the one rule for `why` and for what-if.
#
# A server notes when a request arrived; the scheduler gets it later. The trace shows the first step that sees it, and
# the step before that one, which did not:
#
#     sent ── on its way ── step_began ── a step runs ── step_ended ── on its way ── received ── nothing runs ── seen
#
# It was surely on its way until ``step_began``: the step before began without it. From there to ``step_ended`` the
# trace cannot tell whether it was on its way or there. An engine without work takes a request in at once, so from
# ``step_ended`` to ``received`` it was on its way again. An engine whose last request ended after this one was sent
# was not without work for the whole way: the time until ``step_ended`` stays untold.


class Ingress(msgspec.Struct, frozen=True):
    """Moments of one request in microseconds, none earlier than the one before it."""

    sent: int
    step_began: int
    step_ended: int
    received: int
    seen: int

    @property
    def on_its_way(self) -> int:
        """Microseconds that it was surely on its way; all of them where the engine was without work since ``sent``."""
        return self.step_began - self.sent + self.received - self.step_ended


def ingress_of(sent: int, seen: int, *, before: int | None, over: int | None, taken_in: int | None) -> Ingress:
    """What is known of a request that was ``sent`` and that the step which began at ``seen`` is the first to see.

    ``before`` and ``over`` are begin and end of the step before: ``before`` is None if there is none, and ``over`` is
    None if the trace does not record its end. ``taken_in`` is when an engine without work got the request, and None
    where a request ran (`taken_in_at_once`). All are microseconds on one clock.
    """
    sent = min(sent, seen)
    step_began = sent if before is None else min(max(before, sent), seen)
    step_ended = seen if over is None else min(max(over, step_began), seen)
    received = step_ended if taken_in is None else min(max(taken_in, step_ended), seen)
    return Ingress(sent, step_began, step_ended, received, seen)


def taken_in_at_once(arrived: RequestArrived, snapshot: StepSnapshot | None) -> int | None:
    """When the scheduler got a request, in microseconds, if the step that sees it first found no request running."""
    if arrived.ts is None or snapshot is None or snapshot.num_running != 0:
        return None
    return micros(arrived.ts)


# ---------------------------------------------------------------------------------------------------------------------
# Reads a trace step by step: the pair of files or either one, plain or gzipped, of this or of another emitter.
#
# Memory holds a few steps at a time, whatever the size of the files. Nothing in a file is fatal: what cannot be used
# is counted in ``notes``.

_RequestLine = tuple[RequestRecord, dict[str, Any]]


class TraceReader:
    """One pass over a trace.

    ``requests=False`` leaves the requests file alone; ``keep_unknown`` keeps fields that the schema does not know, at a
    third of the speed. Raises TraceError if there is no trace at ``path``.
    """

    def __init__(self, path: Path | str | TraceFiles, *, requests: bool = True, keep_unknown: bool = False) -> None:
        files = path if isinstance(path, TraceFiles) else find_trace(path)
        if not requests and files.steps is not None:
            files = TraceFiles(files.steps, None)
        self.files = files
        self.notes = ReadNotes()
        self._keep_unknown = keep_unknown
        self._joiner = StepJoiner(self.notes)

    @property
    def start(self) -> TraceStart | None:
        """The ``trace_start`` record; known, if there is one, when the first step has been read."""
        return self._joiner.start

    @property
    def ended_at(self) -> float | None:
        """When the run was ended, with whatever was unfinished; known, if it was, when all steps have been read."""
        return self._joiner.ended_at

    def steps(self) -> Iterator[Step]:
        """All steps in file order. Raises TraceError at the end if there was none."""
        found = False
        for step in self._from_pair() if self.files.steps is not None else self._from_requests():
            found = True
            yield step
        if not found:
            raise TraceError(f"{self.files.source}: holds no step ({self._unusable()})")

    def _unusable(self) -> str:
        notes = self.notes
        if notes.first_bad_lines:
            first = notes.first_bad_lines[0]
            return f"{notes.bad_lines} bad lines, the first is line {first.line}: {first.problem}"
        return "it is empty" if not notes.unknown_events else f"only unknown events: {', '.join(notes.unknown_events)}"

    def _from_pair(self) -> Iterator[Step]:
        requests = _RequestsByStep(self._request_lines(), self.notes) if self.files.requests is not None else None
        for step in self._joined():
            if requests is not None:
                self._attach(step, requests.of(step.number))
            yield step
        if requests is not None:
            requests.skip_rest()

    def _joined(self) -> Iterator[Step]:
        path = self.files.steps
        assert path is not None
        decoder = StepDecoder(path.name, self.notes, keep_unknown=self._keep_unknown)
        for number, line in self._lines(path):
            decoded = decoder.decode(number, line)
            if decoded is not None:
                yield from self._joiner.add(*decoded)
        yield from self._joiner.rest()

    def _from_requests(self) -> Iterator[Step]:
        """Steps as far as the requests file alone shows them: queues without decisions."""
        for number, lines in groupby(self._request_lines(), lambda line: line[0].step):
            step = Step(number)
            self._attach(step, list(lines))
            yield step

    def _attach(self, step: Step, lines: list[_RequestLine]) -> None:
        step.requests = [record for record, _ in lines]
        if self._keep_unknown:
            step.request_unknown = [unknown for _, unknown in lines]

    def _request_lines(self) -> Iterator[_RequestLine]:
        path = self.files.requests
        assert path is not None
        decoder = RequestDecoder(path.name, self.notes, keep_unknown=self._keep_unknown)
        for number, line in self._lines(path):
            decoded = decoder.decode(number, line)
            if decoded is not None:
                self.notes.request_records += 1
                yield decoded

    def _lines(self, path: Path) -> Iterator[tuple[int, bytes]]:
        number = 0
        try:
            for number, line in open_lines(path):
                bad_before = self.notes.bad_lines
                yield number, line
                self.notes.cut_off |= not line.endswith(b"\n") and self.notes.bad_lines > bad_before
        except DamagedFileError as error:
            self.notes.cut_off = True
            self.notes.bad(path.name, number + 1, error.problem)


class _RequestsByStep:
    """Walks the requests file alongside the steps; both are in the order of steps."""

    def __init__(self, lines: Iterator[_RequestLine], notes: ReadNotes) -> None:
        self._lines = lines
        self._notes = notes
        self._next = next(lines, None)

    def of(self, number: int) -> list[_RequestLine]:
        """The records of step ``number``; records of steps before it are ignored."""
        taken: list[_RequestLine] = []
        while self._next is not None and self._next[0].step <= number:
            if self._next[0].step == number:
                taken.append(self._next)
            else:
                self._notes.unmatched_request_records += 1
            self._next = next(self._lines, None)
        return taken

    def skip_rest(self) -> None:
        """Count what belongs to no step."""
        while self._next is not None:
            self._notes.unmatched_request_records += 1
            self._next = next(self._lines, None)


# ---------------------------------------------------------------------------------------------------------------------
# A run of several engines: one trace per engine, side by side in one directory.
#
#     DIR/rank-0  DIR/rank-1 ...     of a replay, and of a server whose engines know of each other
#     DIR         DIR/rank-1 ...     of a server whose first engine does not know that it has siblings
#
# Whatever reads a trace reads such a directory as one run.

_OWN_OF_EACH = frozenset({"data_parallel_rank", "kv_tokens", "num_gpu_blocks", "kv_gib"})
"""Settings in which engines of one run may differ: each counts its own blocks."""


class RankTrace(msgspec.Struct, frozen=True):
    """The trace of one engine."""

    rank: int | None
    """None: the trace is not one of several."""
    files: TraceFiles
    is_idle: bool = False
    """The engine has not scheduled a single step: its trace is empty, or holds its first record alone."""
    run_start: float | None = None
    """Moment of the first step of all engines; None: not one of several, or not known."""


class _Beginning(msgspec.Struct, frozen=True):
    trace: RankTrace
    start: TraceStart | None
    first_ts: float | None
    """Time of its first step, in seconds."""


def find_ranks(path: Path | str) -> list[RankTrace]:
    """The traces at ``path``: of every engine by its rank where a directory holds several, else the only one.

    Raises TraceError if there is no trace, or traces of different runs.
    """
    path = Path(path)
    folders = rank_folders(path)
    if not folders:
        return [RankTrace(None, find_trace(path))]
    if trace_names(path):
        if 0 in folders:
            fix = f"name one of them, for example {folders[0]}"
            raise TraceError(f"{path}: holds a trace of its own and rank-0, which are of different runs: {fix}")
        folders = {0: path, **folders}
    beginnings = [_beginning(RankTrace(rank, find_trace(path, joined=True))) for rank, path in folders.items()]
    _check_one_run(path, beginnings)
    if all(each.trace.is_idle for each in beginnings):
        raise TraceError(f"{path}: holds no step, in the traces of {len(beginnings)} engines")
    starts = [each.first_ts for each in beginnings if each.first_ts is not None]
    return [msgspec.structs.replace(each.trace, run_start=min(starts, default=None)) for each in beginnings]


def _beginning(trace: RankTrace) -> _Beginning:
    reader = TraceReader(trace.files, requests=False)
    try:
        first = next(reader.steps())
    except TraceError:
        if reader.notes != ReadNotes():
            raise
        return _Beginning(msgspec.structs.replace(trace, is_idle=True), reader.start, None)
    return _Beginning(trace, reader.start, first.ts)


def _check_one_run(path: Path, beginnings: Sequence[_Beginning]) -> None:
    """All that say anything ran the same, and all had begun before the first of them scheduled anything."""
    beginnings = [each for each in beginnings if each.start is not None or not each.trace.is_idle]
    first = next(iter(beginnings), None)
    for each in beginnings:
        assert first is not None
        said = (each.start.config or {}).get("data_parallel_rank") if each.start is not None else None
        if said is not None and said != each.trace.rank:
            raise _different(path, first, each, f"the trace in rank-{each.trace.rank} says that it is of rank {said}")
        differing = _differing(first.start, each.start)
        if differing is not None:
            raise _different(path, first, each, differing)
    steps = [each.first_ts for each in beginnings if each.first_ts is not None]
    for each in beginnings:
        began = each.start.ts if each.start is not None else None
        if began is not None and steps and began > min(steps):
            earlier = next(other for other in beginnings if other.first_ts == min(steps))
            why = f"rank {each.trace.rank} began {began - min(steps):,.1f} s after the first step of the other"
            raise _different(path, earlier, each, why)


def _different(path: Path, a: _Beginning, b: _Beginning, why: str) -> TraceError:
    pair = f"rank {a.trace.rank} and rank {b.trace.rank}" if a is not b else f"rank {a.trace.rank}"
    fix = f"remove what is old, or name one of them, for example {a.trace.files.source}"
    return TraceError(f"{path}: the traces are of different runs ({pair}): {why}; {fix}")


def _differing(a: TraceStart | None, b: TraceStart | None) -> str | None:
    """The first setting in which two engines differ that engines of one run share; None if there is none."""
    if a is None or b is None:
        return None if a is b else "one has a trace_start record and the other none"
    in_a, in_b = _shared(a), _shared(b)
    for name in in_a | in_b:
        if in_a.get(name) != in_b.get(name):
            return f"{name} is {in_a.get(name)!r} in one and {in_b.get(name)!r} in the other"
    return None


def _shared(start: TraceStart) -> dict[str, Any]:
    """The settings that engines of one run share."""
    settings = settings_of(start)
    return {name: value for name, value in settings.items() if name.rpartition(".")[2] not in _OWN_OF_EACH}
