"""Golden vectors, each replayed, and what came of all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tokenyard.errors import ParityError
from tokenyard.parity.replay import VectorResult, replay_vector

MANIFEST = "manifest.json"
_PATTERNS = ("*.jsonl", "*.jsonl.gz")


class Manifest(msgspec.Struct, frozen=True):
    """What a folder of vectors says of itself."""

    vllm: str
    """The version that decided."""
    before: str | None
    """The folder beside it that holds what is not here; None: all is here."""
    steps: dict[str, int]
    """Name of each scenario -> calls of ``schedule()`` that were recorded."""


class RecordedVector(NamedTuple):
    """A file, and the later version that decided the same, where it is not the one that it was recorded from."""

    path: Path
    vllm: str | None


class VectorComparison(msgspec.Struct, frozen=True):
    """The outcome of replaying some golden vectors."""

    results: list[VectorResult]
    damaged: list[str]
    """Messages about files that cannot be replayed."""
    missing: list[Path]
    """Files that were named and are not there."""

    @property
    def compared(self) -> list[VectorResult]:
        """The vectors whose features are all supported."""
        return [each for each in self.results if not each.unsupported]

    @property
    def different(self) -> list[VectorResult]:
        """The vectors in which a decision differs."""
        return [each for each in self.results if each.difference is not None]

    @property
    def unsupported(self) -> list[VectorResult]:
        """The vectors with a feature that is not supported."""
        return [each for each in self.results if each.unsupported]

    @property
    def steps(self) -> int:
        """Steps that were compared."""
        return sum(each.steps for each in self.compared)

    @property
    def exit_code(self) -> int:
        """0 if all are equal, 1 if one differs, 2 if one is damaged, missing or unsupported."""
        if self.different:
            return 1
        return 2 if self.damaged or self.missing or self.unsupported else 0

    def to_dict(self) -> dict[str, Any]:
        """The comparison as ``tokenyard parity --json`` prints it."""
        return {
            "files": len(self.compared),
            "steps": self.steps,
            "all_equal": self.exit_code == 0,
            "damaged": self.damaged,
            "missing": [str(path) for path in self.missing],
            "results": [
                {
                    "file": str(each.path),
                    "vllm": each.vllm,
                    "name": each.name,
                    "steps": each.steps,
                    "equal": not each.unsupported and each.difference is None,
                    "unsupported": each.unsupported,
                    "difference": each.difference._asdict() if each.difference else None,
                }
                for each in self.results
            ],
        }


def compare_vectors(
    paths: Sequence[Path], track: Callable[[Iterable[RecordedVector]], Iterable[RecordedVector]] = iter
) -> VectorComparison:
    """Replay the vectors of some files and directories; ``track`` passes the files on, and may show how far it is.

    Raises ParityError where none is named, or a directory holds none.
    """
    comparison = VectorComparison([], [], [])
    for recording in track(_expand(paths)):
        if not recording.path.exists():
            comparison.missing.append(recording.path)
            continue
        try:
            comparison.results.append(replay_vector(recording.path, recording.vllm))
        except ParityError as error:
            comparison.damaged.append(str(error))
    return comparison


def recordings(folder: Path) -> list[RecordedVector]:
    """The vectors of a folder: its own files, and those of the version before it that its version decided the same.

    The folder's manifest tells both; without one there are only files. Raises ParityError for a manifest that is none.
    """
    try:
        manifest = _read(folder)
        lacking = set() if manifest is None else set(manifest.steps)
        own = sorted(file for pattern in _PATTERNS for file in folder.glob(pattern))
        found = [RecordedVector(file, None) for file in own]
        at = folder
        lacking -= {file.name.partition(".jsonl")[0] for file in own}
        while lacking and (described := _read(at)) is not None and described.before is not None:
            at = at.parent / described.before
            there = {name: file for name in lacking if (file := at / f"{name}.jsonl.gz").exists()}
            assert manifest is not None
            found += [RecordedVector(file, manifest.vllm) for file in there.values()]
            lacking -= there.keys()
    except (msgspec.MsgspecError, OSError) as problem:
        raise ParityError(f"{folder / MANIFEST}: not a manifest of golden vectors: {problem}") from None
    found += [RecordedVector(folder / f"{name}.jsonl.gz", None) for name in lacking]
    return sorted(found, key=lambda recording: recording.path.name)


def _read(folder: Path) -> Manifest | None:
    path = folder / MANIFEST
    return msgspec.json.decode(path.read_bytes(), type=Manifest) if path.exists() else None


def _expand(paths: Sequence[Path]) -> list[RecordedVector]:
    """The files named, and those in the directories named."""
    if not paths:
        raise ParityError("name at least one golden vector (*.jsonl or *.jsonl.gz) or a directory with some")
    files: list[RecordedVector] = []
    for path in paths:
        if not path.is_dir():
            files.append(RecordedVector(path, None))
            continue
        found = recordings(path)
        if not found:
            raise ParityError(f"{path}: no *.jsonl or *.jsonl.gz in this directory")
        files += found
    return files
