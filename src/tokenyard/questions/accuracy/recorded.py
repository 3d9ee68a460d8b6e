"""Runs that were compared when the constants were fitted: what ``tokenyard accuracy`` says where no file is named.

``scripts/generate_accuracy.py`` writes them, from the folders that docs/accuracy.md names.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from tokenyard.questions.accuracy.comparison import AccuracyRow

RECORDED_RUNS = Path(__file__).with_name("recorded_runs.json")


def recorded_runs() -> list[AccuracyRow]:
    """Each run, with percentiles and the errors of its requests."""
    return msgspec.json.decode(RECORDED_RUNS.read_bytes(), type=list[AccuracyRow])


def record_runs(rows: Iterable[AccuracyRow]) -> None:
    """Write them anew; of a run's folder its name is kept."""
    named = [msgspec.structs.replace(row, file=Path(row.file).name) for row in rows]
    RECORDED_RUNS.write_bytes(msgspec.json.format(msgspec.json.encode(named), indent=1) + b"\n")
