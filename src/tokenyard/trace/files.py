"""The files of a trace: finding them, their lines, traces that are not whole."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, NamedTuple

import msgspec

from tokenyard.arguments import given_path
from tokenyard.errors import FileError, TraceError
from tokenyard.files import DamagedFileError, bounded_lines, open_input, packing_of, unpacked
from tokenyard.redaction import valid_text
from tokenyard.trace.schema import STEP_EVENTS, TraceStart

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
