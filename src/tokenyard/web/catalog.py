"""What there is to look at: roots, folders, traces and what each says about itself."""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from tokenyard.errors import TokenyardError
from tokenyard.files import open_input, opened_path
from tokenyard.trace.columnar.reading import ColumnarHeads
from tokenyard.trace.columnar.writing import FooterFacts
from tokenyard.trace.reader import PACKINGS, TraceFiles, find_trace, is_at_step_limit, is_columnar, open_packed, rank_of
from tokenyard.trace.schema import TraceStart
from tokenyard.trace.steps import ReadNotes, StepDecoder
from tokenyard.web.connections import RefusedError, json_response

# ---------------------------------------------------------------------------------------------------------------------
# Distinguishes a file from another of the same name: a new run may write over the old one, or beside it and rename.

_FIRST_LINE = 64 * 1024


def file_identity(file: BinaryIO) -> str:
    """Where the file is and how it begins; the latter only once its first line is whole. Moves the file's position."""
    status = os.fstat(file.fileno())
    file.seek(0)
    first = file.readline(_FIRST_LINE)
    digest = hashlib.blake2s(first, digest_size=6).hexdigest() if first.endswith(b"\n") else ""
    return f"{status.st_dev:x}-{status.st_ino:x}.{digest}"


def is_other(before: str, now: str) -> bool:
    """Whether two identities are of different runs; an empty one was not known."""
    if not before:
        return False
    (place, _, line), (place_now, _, line_now) = before.partition("."), now.partition(".")
    return place != place_now or bool(line and line != line_now)


# ---------------------------------------------------------------------------------------------------------------------
# What may be read: trace files below the directories that were named, and the files that were named.

ANNOTATIONS_ENDING = ".annotations.json"
_MARKERS = "markers.jsonl"
"""Name of the file of marked moments beside a trace."""
_MARKERS_BYTES = 1 << 20
_ENDINGS = (*PACKINGS, ANNOTATIONS_ENDING)
_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


class Roots:
    """The directories and files that were named, with all links resolved."""

    def __init__(self, paths: Iterable[Path]) -> None:
        """Take existing directories and files."""
        real = [Path(os.path.realpath(path)) for path in paths]
        self.directories = [path for path in real if path.is_dir()]
        named = [path for path in real if not path.is_dir()]
        self.files = {each for path in named for each in (path, *siblings(path))}

    def resolve(self, text: str | None) -> Path:
        """The file that a request names. Raises RefusedError if it is not to be read, be it there or not."""
        if not text:
            raise RefusedError(400, "path", text or "", "name a file, as /api/traces gives it")
        path = Path(text)
        if "\0" in text or not path.is_absolute() or ".." in path.parts:
            raise RefusedError(403, "path", text, "must be an absolute path without `..`, as /api/traces gives it")
        real = Path(os.path.realpath(path))
        if not self.allows(real):
            raise RefusedError(403, "path", text, "is not a trace file in the folders that this server serves")
        return real

    def allows(self, real: Path) -> bool:
        """Whether a path without links may be read."""
        if real in self.files:
            return True
        return real.name.endswith(_ENDINGS) and any(real.is_relative_to(root) for root in self.directories)

    def open(self, text: str | None) -> BinaryIO:
        """The file itself. Raises RefusedError, with 404 if it is not there."""
        real = self.resolve(text)
        try:
            fd = os.open(real, _FLAGS)
        except OSError as error:
            raise RefusedError(404, "path", text, f"cannot be opened: {error.strerror or error}") from None
        if not stat.S_ISREG(os.fstat(fd).st_mode) or not self.allows(opened_path(fd, real)):
            os.close(fd)
            raise RefusedError(403, "path", text, "is no file")
        return os.fdopen(fd, "rb")

    def existing(self, text: str | None) -> Path:
        """The path of a file that is there and may be read. Raises RefusedError."""
        with self.open(text):
            return self.resolve(text)

    def trace(self, text: str | None, *, with_requests: bool) -> TraceFiles:
        """The trace file that a request names, and the requests file beside it if it is requested.

        Raises RefusedError where one of them is not to be read, TraceError where the one named is no trace.
        """
        found = find_trace(self.existing(text))
        if found.steps is None or not with_requests:
            return found
        beside = (path for path in siblings(found.steps) if path.name.endswith(PACKINGS) and path.is_file())
        path = next(beside, None)
        return found if path is None else found._replace(requests=self.existing(str(path)))


def siblings(path: Path) -> list[Path]:
    """The other file of the pair, in whatever packing it is there, the annotations, and marked moments."""
    found = [path.with_name(path.name + ANNOTATIONS_ENDING), path.with_name(_MARKERS)]
    for mine, other in ((".steps", ".requests"), (".requests", ".steps")):
        for packing in PACKINGS:
            if path.name.endswith(mine + packing):
                stem = path.name.removesuffix(mine + packing)
                found += [path.with_name(stem + other + each) for each in PACKINGS]
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Walks a directory for traces, a bounded way at a time: where a walk has stopped, another one goes on.
#
# The order depends on names alone: a folder's traces, then the folders in it.

_DEPTH = 8
_SKIPPED = frozenset({"node_modules", "__pycache__"})
"""Folders that are skipped, besides those whose name begins with a dot."""


class TracePair(msgspec.Struct, frozen=True):
    """The files of one trace: either may be absent."""

    stem: Path
    """Their common path, up to ``.steps`` or ``.requests``."""
    steps: Path | None
    requests: Path | None
    is_only: bool
    """No other trace is in its folder."""


class WalkPosition(msgspec.Struct, frozen=True, array_like=True):
    """Where a walk goes on: in a folder, at the first trace whose name is not before ``name``."""

    root: int = 0
    """Number of the directory in which it began."""
    folders: tuple[str, ...] = ()
    """Below the root."""
    name: str = ""


class Stretch(msgspec.Struct, frozen=True):
    """A part of a walk."""

    pairs: list[TracePair]
    end: WalkPosition | None
    """Where the next one begins; None at the end of the walk."""


class _Folder(msgspec.Struct, frozen=True):
    place: WalkPosition
    num_entries: int
    pairs: list[TracePair]
    """The pairs by name."""


def stretch(
    roots: Sequence[Path], place: WalkPosition, *, entries: int, most: int, wanted: Callable[[Path], bool]
) -> Stretch:
    """The traces from ``place`` on: at most ``most``, in folders with ``entries`` entries together.

    One folder is looked at in any case. Only ``wanted`` files count, and regular ones; links to directories are not
    followed.
    """
    found: list[TracePair] = []
    is_first = True
    for number, root in enumerate(roots[place.root :], start=place.root):
        begin = place if number == place.root else WalkPosition(number)
        for folder in _folders(root, begin, (), wanted):
            if entries < folder.num_entries and not is_first:
                return Stretch(found, folder.place)
            is_first = False
            entries -= folder.num_entries
            room = most - len(found)
            found += folder.pairs[:room]
            if len(folder.pairs) > room:
                return Stretch(found, msgspec.structs.replace(folder.place, name=folder.pairs[room].stem.name))
    return Stretch(found, None)


def folders_below(root: Path, *, entries: int) -> Iterator[Path]:
    """``root`` and the folders that a walk from it comes to, until so many entries have been looked at."""
    for folder in _folders(root, WalkPosition(), (), lambda _: False):
        yield root.joinpath(*folder.place.folders)
        entries -= folder.num_entries
        if entries <= 0:
            return


def is_on_the_way(folder: Path, root: Path) -> bool:
    """Whether a walk from ``root`` comes to ``folder``."""
    if not folder.is_relative_to(root):
        return False
    parts = folder.relative_to(root).parts
    return len(parts) <= _DEPTH and not any(map(_is_skipped, parts))


def pairs_of(paths: Iterable[Path]) -> list[TracePair]:
    """Files of traces, paired, in the order of their names; files with other names are left out."""
    pairs: dict[Path, dict[str, Path]] = {}
    for path in paths:
        for kind in ("steps", "requests"):
            for packing in PACKINGS:
                if path.name.endswith(f".{kind}{packing}"):
                    stem = path.with_name(path.name.removesuffix(f".{kind}{packing}"))
                    known = pairs.setdefault(stem, {}).setdefault(kind, path)
                    pairs[stem][kind] = min(known, path, key=_preference)
    in_folder = Counter(stem.parent for stem in pairs)
    return [
        TracePair(stem, pair.get("steps"), pair.get("requests"), in_folder[stem.parent] == 1)
        for stem, pair in sorted(pairs.items())
    ]


def _folders(
    folder: Path, begin: WalkPosition, below: tuple[str, ...], wanted: Callable[[Path], bool]
) -> Iterator[_Folder]:
    """``folder``, which is ``below`` its root, and what lies in it; from ``begin`` on, which is relative to it."""
    count, files, folders = _entries(folder)
    if not begin.folders:
        pairs = [pair for pair in pairs_of(filter(wanted, files)) if pair.stem.name >= begin.name]
        yield _Folder(WalkPosition(begin.root, below, begin.name), count, pairs)
    for each in folders if len(below) < _DEPTH else ():
        if not begin.folders or each > begin.folders[0]:
            yield from _folders(folder / each, WalkPosition(begin.root), (*below, each), wanted)
        elif each == begin.folders[0]:
            yield from _folders(
                folder / each, msgspec.structs.replace(begin, folders=begin.folders[1:]), (*below, each), wanted
            )


def _entries(folder: Path) -> tuple[int, list[Path], list[str]]:
    """How many there are; the files that may be traces; the names of the folders to look into."""
    count, files, folders = 0, [], []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                count += 1
                if entry.is_dir(follow_symlinks=False):
                    if not _is_skipped(entry.name):
                        folders.append(entry.name)
                elif entry.name.endswith(PACKINGS) and _is_text(entry.path) and entry.is_file():
                    files.append(folder / entry.name)
    except OSError:
        pass  # gone, or not ours to read: what was found of it counts
    return count, files, sorted(folders)


def _is_skipped(folder: str) -> bool:
    return folder.startswith(".") or folder in _SKIPPED


def _is_text(path: str) -> bool:
    """A name that is no UTF-8 cannot be sent to a browser."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _preference(path: Path) -> int:
    return next(place for place, packing in enumerate(PACKINGS) if path.name.endswith(packing))


# ---------------------------------------------------------------------------------------------------------------------
# What a trace says about itself in its first and last lines, without reading what lies between.

_LINES = 200
"""A snapshot comes within so many lines, not counting arrivals before the first step."""
LONGEST_LINE = 1 << 20
"""Bytes of a line that are read: the beginning of a longer one is no record."""
_TAIL = 1 << 20


class TraceFacts(FooterFacts, omit_defaults=False, kw_only=True):
    """None where the trace does not record it."""

    last_step: int | None = None
    partial: bool | None = None
    """Its end shows that the run went on after it; None as well where only the whole file would tell."""


def facts_of_file(path: Path, heads: ColumnarHeads) -> TraceFacts:
    """The facts of a steps file; none at all if it cannot be read. ``heads`` reads those of Parquet traces."""
    facts = TraceFacts()
    with suppress(TokenyardError, OSError, EOFError, zlib.error):
        if is_columnar(path):
            head = heads.head(path)
            return TraceFacts(**msgspec.structs.asdict(head.facts), last_step=head.last_step)
        decoder = StepDecoder(path.name, ReadNotes(), keep_unknown=False)
        start = None
        for number, line in enumerate(islice(_first_lines(path), _LINES), start=1):
            record, _ = decoder.decode(number, line) or (None, None)
            if isinstance(record, TraceStart):
                start = record
            if facts.take(record):
                break
        # Only of a plain file the end can be had without reading all of it.
        if path.suffix == ".jsonl":
            _take_end(facts, start, *_last_lines(path))
    return facts


def _first_lines(path: Path) -> Iterator[bytes]:
    with open_packed(path) as file:
        yield from iter(lambda: file.readline(LONGEST_LINE), b"")


def _take_end(facts: TraceFacts, start: TraceStart | None, lines: Iterator[bytes], rest: bytes) -> None:
    """The last step, and whether the run went on after it, as far as the end alone shows (see ``partial_of``)."""
    arrived = finished = 0
    unfinished = None
    for line in lines:
        with suppress(ValueError, RecursionError):
            record = msgspec.json.decode(line, type=_AtEnd)
            if facts.last_step is None:
                facts.last_step = record.step
            arrived += record.event == "request_arrived"
            finished += record.event == "request_finished"
            if record.event == "trace_end":  # whoever is unfinished then stays so
                unfinished = 0
                continue
            if record.event == "step_snapshot":
                if unfinished is None and record.num_running is not None and record.num_waiting is not None:
                    unfinished = record.num_running + record.num_waiting + arrived - finished
                break
    if start is not None:
        at_limit = is_at_step_limit(start, facts.first_step, facts.last_step)
        facts.partial = at_limit or _is_cut_off(rest) or (None if unfinished is None else unfinished > 0)


class _AtEnd(msgspec.Struct):
    step: int | None = None
    event: str | None = None
    num_running: int | None = None
    num_waiting: int | None = None


def _is_cut_off(rest: bytes) -> bool:
    """What follows the last line feed is the beginning of a record."""
    try:
        msgspec.json.decode(rest or b"0")
    except (ValueError, RecursionError):
        return True
    return False


def _last_lines(path: Path) -> tuple[Iterator[bytes], bytes]:
    """Whole lines from the end of a file backwards, as far as a bound, and what follows the last line feed."""
    with open_input(path) as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _TAIL))
        lines = file.read(_TAIL).split(b"\n")
    whole = lines[:-1] if size <= _TAIL else lines[1:-1]
    return reversed(whole), lines[-1]


# ---------------------------------------------------------------------------------------------------------------------
# ``GET /api/traces``: what there is to look at, a page at a time, newest first.

MOST_ENTRIES = 20_000
"""Directory entries looked at for a page."""
TRACES_ON_A_PAGE = 2_000
"""Traces on a page of the list."""
_REMEMBERED = 20_000
"""Traces whose facts are kept."""


class _Page(msgspec.Struct, frozen=True):
    traces: list[dict[str, Any]]
    end: WalkPosition | None
    """Where the next page begins."""


class _Shared(msgspec.Struct, frozen=True):
    """The last page that was made."""

    place: WalkPosition
    began: float
    page: _Page


class Catalog:
    """Lists traces. Folders are read anew for every request; what a file says about itself is kept until it changes."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._heads = ColumnarHeads()
        self._facts = lru_cache(_REMEMBERED)(self._read_facts)
        self._lock = asyncio.Lock()
        self._last: _Shared | None = None

    async def serve(self, request: Request) -> Response:
        """Answer one request. Those that come while a page is being made share the next one."""
        place, came = _place(request.query_params.get("from")), time.monotonic()
        async with self._lock:
            last = self._last
            if last is None or last.place != place or last.began < came:
                began = time.monotonic()
                last = self._last = _Shared(place, began, await run_in_threadpool(self.page, place))
        page, headers = last.page, {}
        if page.end is not None:
            text = quote(msgspec.json.encode(page.end, enc_hook=str), safe="")
            headers["Link"] = f'</api/traces?from={text}>; rel="next"'
        return json_response(page.traces, headers=headers)

    def page(self, place: WalkPosition) -> _Page:
        """One object per trace, the newest first. The files that were named are on the first page."""
        pairs = self._named() if place == WalkPosition() else []
        room = max(0, TRACES_ON_A_PAGE - len(pairs))
        found = stretch(self._roots.directories, place, entries=MOST_ENTRIES, most=room, wanted=self._stays_inside)
        pairs += found.pairs
        with self._heads:  # one page is made at a time
            traces = [each for pair in pairs if (each := self._described(pair)) is not None]
        _mark_first_ranks(traces)
        return _Page(sorted(traces, key=lambda each: -each["mtime"]), found.end)

    def _named(self) -> list[TracePair]:
        """The files that were named, but for those that a walk finds."""
        files = [path for path in sorted(self._roots.files) if path.is_file()]
        pairs = pairs_of(files)
        paired = {path for pair in pairs for path in (pair.steps, pair.requests)}
        others = [path for path in files if path not in paired and not path.name.endswith(ANNOTATIONS_ENDING)]
        directories = self._roots.directories
        apart = [pair for pair in pairs if not any(is_on_the_way(pair.stem.parent, root) for root in directories)]
        return apart + [TracePair(path, path, None, is_only=False) for path in others]

    def _stays_inside(self, path: Path) -> bool:
        """Whether a path, with its links followed, may be read."""
        return self._roots.allows(Path(os.path.realpath(path)))

    def _read_facts(self, path: Path, _mtime: int, _size: int) -> TraceFacts:
        return facts_of_file(path, self._heads)

    def _described(self, pair: TracePair) -> dict[str, Any] | None:
        main = pair.steps or pair.requests
        assert main is not None
        try:
            status = main.stat()
            requests = pair.requests.stat().st_size if pair.requests is not None else None
        except OSError:
            return None  # gone meanwhile
        facts = TraceFacts()
        if pair.steps is not None:
            facts = self._facts(pair.steps, status.st_mtime_ns, status.st_size)
        steps = status.st_size if pair.steps is not None else None
        annotations = main.with_name(main.name + ANNOTATIONS_ENDING)
        markers = main.with_name(_MARKERS)
        rank = rank_of(main.parent)
        return {
            "name": self._name(pair),
            "date": datetime.fromtimestamp(status.st_mtime).astimezone().strftime("%Y-%m-%d %H:%M"),
            "mtime": status.st_mtime,
            "steps": [str(pair.steps)] if pair.steps is not None else [],
            "requests": [str(pair.requests)] if pair.requests is not None else [],
            "steps_mb": _megabytes(steps),
            "requests_mb": _megabytes(requests),
            "steps_bytes": steps,
            "requests_bytes": requests,
            "format": _format(main),
            "annotations": str(annotations) if annotations.is_file() else None,
            "markers": str(markers) if _is_small(markers) and self._stays_inside(markers) else None,
            "run": str(main.parent if rank is None else main.parent.parent),
            "rank": rank,
            **msgspec.structs.asdict(facts),
        }

    def _name(self, pair: TracePair) -> str:
        """The folder, as seen from its root; with the file's own name where a folder holds several traces."""
        folder = pair.stem.parent
        name = folder.name
        for root in self._roots.directories:
            if folder.is_relative_to(root) and folder != root:
                name = folder.relative_to(root).as_posix()
                break
        return name if pair.is_only and name else f"{name}/{pair.stem.name}".lstrip("/")


def _is_small(path: Path) -> bool:
    try:
        status = path.stat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size <= _MARKERS_BYTES


def _mark_first_ranks(traces: list[dict[str, Any]]) -> None:
    """A first engine that does not know of its siblings writes into the folder that holds theirs."""
    others = {each["run"] for each in traces if each["rank"] is not None}
    others -= {each["run"] for each in traces if each["rank"] == 0}
    alone = Counter(each["run"] for each in traces if each["rank"] is None)
    for each in traces:
        if each["rank"] is None and each["run"] in others and alone[each["run"]] == 1:
            each["rank"] = 0


def _place(text: str | None) -> WalkPosition:
    """Where a page begins, as the link to it says."""
    try:
        place = msgspec.json.decode(text, type=WalkPosition) if text is not None else WalkPosition()
    except (ValueError, RecursionError):
        place = WalkPosition(-1)
    if place.root < 0:
        raise RefusedError(400, "from", text, "take it from the Link header of the page before")
    return place


def _megabytes(count: int | None) -> float | None:
    return None if count is None else round(count / 1e6, 1)


def _format(path: Path) -> str:
    return {".gz": "gz", ".zst": "zst", ".parquet": "parquet"}.get(path.suffix, "jsonl")
