"""``GET /api/traces``: what there is to look at, newest first."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tokenyard.server.web.roots import ANNOTATIONS_ENDING, Roots
from tokenyard.server.web.trace_summary import TraceFacts, facts_of_file
from tokenyard.trace.read.files import PACKINGS

__all__ = ["Catalog"]

_ENTRIES = 20_000
"""Directory entries looked at."""
_DEPTH = 8
_TRACES = 2_000
_SKIPPED = frozenset({"node_modules", "__pycache__"})
"""Beside everything whose name begins with a dot."""
_Key = tuple[Path, int, int]


class _Pair(NamedTuple):
    """The files of one trace: either may be absent."""

    stem: Path
    """Their common path, up to ``.steps`` or ``.requests``."""
    steps: Path | None
    requests: Path | None


class Catalog:
    """Looks again at every question; what a file says about itself is remembered until the file changes."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._facts: dict[_Key, TraceFacts] = {}
        self._lock = threading.Lock()

    def traces(self) -> list[dict[str, Any]]:
        """One object per trace, the newest first."""
        with self._lock:
            pairs = self._pairs()
            per_folder: dict[Path, int] = {}
            for pair in pairs:
                per_folder[pair.stem.parent] = per_folder.get(pair.stem.parent, 0) + 1
            facts, self._facts = self._facts, {}
            found = [self._described(pair, facts, alone=per_folder[pair.stem.parent] == 1) for pair in pairs]
        return sorted((each for each in found if each is not None), key=lambda each: -each["mtime"])

    def _pairs(self) -> list[_Pair]:
        """All traces that may be read."""
        files: dict[Path, dict[str, Path]] = {}
        for path in self._files():
            for kind in ("steps", "requests"):
                for packing in PACKINGS:
                    if path.name.endswith(f".{kind}{packing}"):
                        stem = path.with_name(path.name.removesuffix(f".{kind}{packing}"))
                        known = files.setdefault(stem, {}).setdefault(kind, path)
                        files[stem][kind] = min(known, path, key=_preference)
        for path in sorted(self._roots.files):
            if path.is_file() and not any(path in pair.values() for pair in files.values()) and _is_named(path):
                files[path] = {"steps": path}
        pairs = [_Pair(stem, pair.get("steps"), pair.get("requests")) for stem, pair in files.items()]
        return pairs[:_TRACES]

    def _files(self) -> Iterator[Path]:
        """Files that may be read, without following links to directories."""
        yield from (path for path in sorted(self._roots.files) if path.is_file())
        left = _ENTRIES
        for root in self._roots.directories:
            for folder, folders, names in os.walk(root):
                here = Path(folder)
                deep = len(here.relative_to(root).parts) >= _DEPTH
                folders[:] = [] if deep else sorted(name for name in folders if not _is_skipped(name))
                left -= len(names) + len(folders)
                if left < 0:
                    return
                for name in sorted(names):
                    path = here / name
                    if name.endswith(PACKINGS) and _is_text(path) and self._roots.allows(Path(os.path.realpath(path))):
                        yield path

    def _described(self, pair: _Pair, known: dict[_Key, TraceFacts], *, alone: bool) -> dict[str, Any] | None:
        main = pair.steps or pair.requests
        assert main is not None
        try:
            status = main.stat()
            requests = pair.requests.stat().st_size if pair.requests is not None else None
        except OSError:
            return None  # gone meanwhile
        facts = TraceFacts()
        if pair.steps is not None:
            key = (pair.steps, status.st_mtime_ns, status.st_size)
            facts = self._facts[key] = known.get(key) or facts_of_file(pair.steps)
        steps = status.st_size if pair.steps is not None else None
        annotations = main.with_name(main.name + ANNOTATIONS_ENDING)
        return {
            "name": self._name(pair, alone=alone),
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
            **msgspec.structs.asdict(facts),
        }

    def _name(self, pair: _Pair, *, alone: bool) -> str:
        """The folder, as seen from its root; with the file's own name where a folder holds several traces."""
        folder = pair.stem.parent
        name = folder.name
        for root in self._roots.directories:
            if folder.is_relative_to(root) and folder != root:
                name = folder.relative_to(root).as_posix()
                break
        return name if alone and name else f"{name}/{pair.stem.name}".lstrip("/")


def _preference(path: Path) -> int:
    return next(place for place, packing in enumerate(PACKINGS) if path.name.endswith(packing))


def _is_named(path: Path) -> bool:
    return not path.name.endswith(ANNOTATIONS_ENDING)


def _is_text(path: Path) -> bool:
    """A name that is no UTF-8 cannot be told to a browser."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_skipped(name: str) -> bool:
    return name.startswith(".") or name in _SKIPPED


def _megabytes(count: int | None) -> float | None:
    return None if count is None else round(count / 1e6, 1)


def _format(path: Path) -> str:
    return {".gz": "gz", ".zst": "zst", ".parquet": "parquet"}.get(path.suffix, "jsonl")
