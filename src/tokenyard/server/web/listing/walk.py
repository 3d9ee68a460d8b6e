"""Walks a directory for traces, a bounded way at a time: where a walk has stopped, another one goes on.

The order depends on names alone: a folder's traces, then the folders in it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tokenyard.trace.read.files import PACKINGS

__all__ = ["Pair", "Place", "Stretch", "folders_below", "is_on_the_way", "pairs_of", "stretch"]

_DEPTH = 8
_SKIPPED = frozenset({"node_modules", "__pycache__"})
"""Beside everything whose name begins with a dot."""


class Pair(NamedTuple):
    """The files of one trace: either may be absent."""

    stem: Path
    """Their common path, up to ``.steps`` or ``.requests``."""
    steps: Path | None
    requests: Path | None
    is_only: bool
    """No other trace is in its folder."""


class Place(NamedTuple):
    """Where a walk goes on: in a folder, at the first trace whose name is not before ``name``."""

    root: int = 0
    """Number of the directory in which it began."""
    folders: tuple[str, ...] = ()
    """Below the root."""
    name: str = ""


class Stretch(NamedTuple):
    """A part of a walk."""

    pairs: list[Pair]
    end: Place | None
    """Where the next one begins; None at the end of the walk."""


class _Folder(NamedTuple):
    place: Place
    num_entries: int
    pairs: list[Pair]
    """By name."""


def stretch(roots: Sequence[Path], place: Place, *, entries: int, most: int, wanted: Callable[[Path], bool]) -> Stretch:
    """The traces from ``place`` on: at most ``most``, in folders with ``entries`` entries together.

    One folder is looked at in any case. Only ``wanted`` files count, and regular ones; links to directories are not
    followed.
    """
    found: list[Pair] = []
    is_first = True
    for number, root in enumerate(roots[place.root :], start=place.root):
        begin = place if number == place.root else Place(number)
        for folder in _folders(root, begin, (), wanted):
            if entries < folder.num_entries and not is_first:
                return Stretch(found, folder.place)
            is_first = False
            entries -= folder.num_entries
            room = most - len(found)
            found += folder.pairs[:room]
            if len(folder.pairs) > room:
                return Stretch(found, folder.place._replace(name=folder.pairs[room].stem.name))
    return Stretch(found, None)


def folders_below(root: Path, *, entries: int) -> Iterator[Path]:
    """``root`` and the folders that a walk from it comes to, until so many entries have been looked at."""
    for folder in _folders(root, Place(), (), lambda _: False):
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


def pairs_of(paths: Iterable[Path]) -> list[Pair]:
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
        Pair(stem, pair.get("steps"), pair.get("requests"), in_folder[stem.parent] == 1)
        for stem, pair in sorted(pairs.items())
    ]


def _folders(folder: Path, begin: Place, below: tuple[str, ...], wanted: Callable[[Path], bool]) -> Iterator[_Folder]:
    """``folder``, which is ``below`` its root, and what lies in it; from ``begin`` on, which is relative to it."""
    count, files, folders = _entries(folder)
    if not begin.folders:
        pairs = [pair for pair in pairs_of(filter(wanted, files)) if pair.stem.name >= begin.name]
        yield _Folder(Place(begin.root, below, begin.name), count, pairs)
    for each in folders if len(below) < _DEPTH else ():
        if not begin.folders or each > begin.folders[0]:
            yield from _folders(folder / each, Place(begin.root), (*below, each), wanted)
        elif each == begin.folders[0]:
            yield from _folders(folder / each, begin._replace(folders=begin.folders[1:]), (*below, each), wanted)


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
    """A name that is no UTF-8 cannot be told to a browser."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _preference(path: Path) -> int:
    return next(place for place, packing in enumerate(PACKINGS) if path.name.endswith(packing))
