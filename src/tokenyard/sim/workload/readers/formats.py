"""The file formats by name, and how a file's first line tells which one it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from tokenyard.errors import WorkloadError, shown
from tokenyard.sim.workload.readers.azure import read_azure
from tokenyard.sim.workload.readers.lines import ReadOptions, first_line
from tokenyard.sim.workload.readers.lmcache import read_lmcache
from tokenyard.sim.workload.readers.messages import describe_bad_json
from tokenyard.sim.workload.readers.mooncake import read_mooncake
from tokenyard.sim.workload.readers.plain import read_plain
from tokenyard.sim.workload.readers.servegen import read_servegen
from tokenyard.sim.workload.readers.weka import read_weka
from tokenyard.sim.workload.record import WorkloadRequest

__all__ = ["FORMATS", "detect_format", "unknown_format"]

Reader = Callable[[Path, ReadOptions], Iterator[WorkloadRequest]]

FORMATS: dict[str, Reader] = {
    "azure": read_azure,
    "lmcache": read_lmcache,
    "mooncake": read_mooncake,
    "plain": read_plain,
    "servegen": read_servegen,
    "weka": read_weka,
}
"""By name, as ``--format`` takes it."""
_FIX = (
    f"name one of {', '.join(FORMATS)} with --format, or its columns with --columns "
    "arrival_time=NAME,prompt_len=NAME,max_tokens=NAME"
)
_MOST_NAMES = 12
_OWN = '; plain is {"request_id": "a", "arrival_time": 0.5, "prompt_len": 1200, "max_tokens": 64} a line'

_JSON_FIELDS: tuple[tuple[str, set[str]], ...] = (
    ("weka", {"requests", "hash_id_scope"}),
    ("lmcache", {"session", "hash_ids"}),
    ("mooncake", {"timestamp", "input_length"}),
    ("plain", {"request_id"}),
)
_CSV_COLUMNS: tuple[tuple[str, set[str]], ...] = (
    ("azure", {"timestamp", "contexttokens"}),
    ("servegen", {"t_s", "client"}),
)


def detect_format(path: Path) -> str | None:
    """Name of the format that the file's first line shows; None if it shows none, WorkloadError if it is empty."""
    number, line = first_line(path)
    line = line.lstrip()
    if line.startswith((b"{", b"[")):
        known, fields = _JSON_FIELDS, _keys(path, number, line)
    else:
        known = _CSV_COLUMNS
        fields = {cell.strip().lower() for cell in line.decode("utf-8", "replace").split(",")}
    for name, needed in known:
        if needed <= fields:
            return name
    return None


def unknown_format(path: Path) -> WorkloadError:
    """What to say of a file that nothing knows; of CSV and JSON with what its columns or keys are called."""
    number, line = first_line(path)
    line = line.lstrip()
    names = sorted(_keys(path, number, line)) if line.startswith(b"{") else []
    if not names and b"," in line:
        names = [cell.strip() for cell in line.decode("utf-8", "replace").split(",")]
    has = f"; it has {', '.join(map(shown, names[:_MOST_NAMES]))}" if names else ""
    return WorkloadError(path, number, f"is of no known format: {_FIX}{has}{_OWN}")


def _keys(path: Path, number: int, line: bytes) -> set[str]:
    try:
        raw = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WorkloadError(path, number, describe_bad_json(error)) from None
    return set(raw) if isinstance(raw, dict) else set()
