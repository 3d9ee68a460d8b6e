"""Golden vectors, each replayed, and what came of all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tokenyard.errors import ParityError
from tokenyard.parity.replay import VectorResult, replay_vector

_PATTERNS = ("*.jsonl", "*.jsonl.gz")


class VectorComparison(NamedTuple):
    """What came of some golden vectors."""

    results: list[VectorResult]
    damaged: list[str]
    """Messages about files that cannot be replayed."""
    missing: list[Path]
    """Files that were named and are not there."""

    @property
    def compared(self) -> list[VectorResult]:
        """Those whose features are all supported."""
        return [each for each in self.results if not each.unsupported]

    @property
    def different(self) -> list[VectorResult]:
        """Those in which a decision differs."""
        return [each for each in self.results if each.difference is not None]

    @property
    def unsupported(self) -> list[VectorResult]:
        """Those with a feature that is not supported."""
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
        """As ``tokenyard parity --json`` prints it."""
        return {
            "files": len(self.compared),
            "steps": self.steps,
            "all_equal": self.exit_code == 0,
            "damaged": self.damaged,
            "missing": [str(path) for path in self.missing],
            "results": [
                {
                    "file": str(each.path),
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
    paths: Sequence[Path], track: Callable[[Iterable[Path]], Iterable[Path]] = iter
) -> VectorComparison:
    """Replay the vectors of some files and directories; ``track`` passes the files on, and may show how far it is.

    Raises ParityError where none is named, or a directory holds none.
    """
    comparison = VectorComparison([], [], [])
    for path in track(_expand(paths)):
        if not path.exists():
            comparison.missing.append(path)
            continue
        try:
            comparison.results.append(replay_vector(path))
        except ParityError as error:
            comparison.damaged.append(str(error))
    return comparison


def _expand(paths: Sequence[Path]) -> list[Path]:
    """The files named, and those in the directories named."""
    if not paths:
        raise ParityError("name at least one golden vector (*.jsonl or *.jsonl.gz) or a directory with some")
    files: list[Path] = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        found = sorted(file for pattern in _PATTERNS for file in path.glob(pattern))
        if not found:
            raise ParityError(f"{path}: no *.jsonl or *.jsonl.gz in this directory")
        files += found
    return files
