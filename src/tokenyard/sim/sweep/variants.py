"""Which variants: a grid of settings, or a file of them (JSON, TOML, CSV)."""

from __future__ import annotations

import csv
import io
import tomllib
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import msgspec

from tokenyard.errors import ConfigError, FileError
from tokenyard.files.opening import read_input
from tokenyard.sim.sweep.row import Setting, key_of

__all__ = ["Converter", "Grid", "read_grid", "read_variants"]

Converter = Callable[[str, Any], tuple[str, Setting]]
"""A name and a value, as they were given -> the setting's own name, and the value in its type. Raises ConfigError."""

_MOST_BYTES = 64 << 20
_MOST_VARIANTS = 1_000_000
_FORMATS = "*.json (a list of objects), *.toml ([[variant]] tables) or *.csv (a header of names)"


class Grid:
    """Every combination of the values of some settings, in the order in which they were given."""

    def __init__(self, dimensions: Sequence[tuple[str, tuple[Setting, ...]]]) -> None:
        self.dimensions = tuple(dimensions)

    def __len__(self) -> int:
        return prod(len(values) for _, values in self.dimensions)

    def all(self) -> list[dict[str, Setting]]:
        """The variants; the last setting changes first."""
        names = [name for name, _ in self.dimensions]
        return [dict(zip(names, values, strict=True)) for values in product(*(each for _, each in self.dimensions))]


def read_grid(texts: Iterable[str], convert: Converter, flag: str = "--set") -> Grid:
    """The grid of texts like ``max_num_seqs=64,128``. Raises ConfigError naming ``flag``."""
    found: dict[str, tuple[Setting, ...]] = {}
    for text in texts:
        name, sign, values = text.partition("=")
        parts = [part.strip() for part in values.split(",")]
        if not sign or not all(parts):
            raise ConfigError(flag, text, "give NAME=A,B,..., for example max_num_seqs=64,128,256")
        if any("=" in part for part in parts):
            fix = "give values of one setting, with commas between them, and each setting by itself"
            raise ConfigError(flag, text, fix)
        pairs = [convert(name.strip(), part) for part in parts]
        own = pairs[0][0]
        if own in found:
            raise ConfigError(flag, text, f"{own} is given twice: give it once")
        found[own] = tuple(dict.fromkeys(value for _, value in pairs))
    grid = Grid(list(found.items()))
    if len(grid) > _MOST_VARIANTS:
        raise ConfigError(flag, " ".join(texts), f"these are {len(grid):,} variants: give at most {_MOST_VARIANTS:,}")
    return grid


def read_variants(path: Path, convert: Converter) -> list[dict[str, Setting]]:
    """The variants of a file. Raises ConfigError naming the entry that cannot be used."""
    readers: dict[str, Callable[[str], Any]] = {".json": _json, ".toml": _toml, ".csv": _csv}
    read = readers.get(path.suffix.lower())
    if read is None:
        raise ConfigError("variants", str(path), f"give {_FORMATS}")
    try:
        entries = read(read_input(path, _MOST_BYTES).decode())
    except FileError as error:
        raise ConfigError("variants", str(path), error.problem) from None
    except (msgspec.DecodeError, tomllib.TOMLDecodeError, csv.Error, UnicodeDecodeError) as error:
        raise ConfigError("variants", str(path), f"cannot be read: {error}") from None
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise ConfigError("variants", str(path), f"holds no variants: give {_FORMATS}")
    variants: dict[str, dict[str, Setting]] = {}
    for number, entry in enumerate(entries, start=1):
        settings: dict[str, Setting] = {}
        for given, value in entry.items():
            name, setting = convert(str(given), value)
            if name in settings:
                raise ConfigError("variants", f"{path}, variant {number}", f"{name} is given twice: give it once")
            settings[name] = setting
        variants.setdefault(key_of(settings), settings)
    return list(variants.values())


def _json(text: str) -> Any:
    return msgspec.json.decode(text)


def _toml(text: str) -> Any:
    return tomllib.loads(text).get("variant", [])


def _csv(text: str) -> Any:
    rows = csv.DictReader(io.StringIO(text), strict=True, restkey="", skipinitialspace=True)
    return [{name: value for name, value in row.items() if value not in (None, "")} for row in rows]
