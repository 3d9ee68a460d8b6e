"""The table of architectures: a row each, which says which fields of a ``config.json`` fill which piece.

The rows stand in ``families/*.json``, a family of models each. A row is an object with the fields of
:class:`~tokenyard.models.reading.row.ArchitectureRow`, those left out that have their default values, and

* ``about``: a note for readers, which any part of it may have
* ``architectures``: the names in a file's ``architectures`` that it is for; none for one that others are only like
* ``like``: the row that it takes everything else over from. Its objects ``names``, ``around`` and ``defaults`` and its
  lists ``harmless`` and ``harmless_around`` add to those of that row; whatever else it says stands in place of theirs

A mixer may be ``like`` that of another kind of layer in the row, and a tower like the first tower of a row. A row is
there only if vLLM's own model class and planner were seen to come to the same (``lab/record_registry.py``, which
compares; ``lab/generate_models.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from tokenyard.models.reading.row import ArchitectureRow

Raw = dict[str, Any]
"""A row, or a part of one, as its family's file has it."""


class _Family(msgspec.Struct, forbid_unknown_fields=True):
    """A file of rows."""

    about: tuple[str, ...]
    rows: dict[str, Raw]


@cache
def written_rows() -> dict[str, Raw]:
    """The rows of all families by their names, of which no two are the same."""
    files = sorted(Path(__file__).with_name("families").glob("*.json"))
    families = [msgspec.json.decode(file.read_bytes(), type=_Family) for file in files]
    return {name: row for family in families for name, row in family.rows.items()}


@cache
def _row_names() -> dict[str, str]:
    """Name in ``architectures`` -> name of its row."""
    return {each: name for name, row in written_rows().items() for each in row.get("architectures", ())}


_ADDED_TO = ("names", "around", "defaults", "outer", "harmless", "harmless_around")
"""Fields of a row or a tower that add to those of the one that it is like."""


def _changed(base: Raw, changes: Raw) -> Raw:
    """A row or a part of one, with changes."""
    added = {
        name: {**base[name], **value} if isinstance(value, dict) else [*base[name], *value]
        for name, value in changes.items()
        if name in _ADDED_TO and name in base
    }
    return {**base, **changes, **added}


def _whole(name: str) -> Raw:
    """A row with what it takes over from others, as :class:`ArchitectureRow` reads it."""
    row = {**written_rows()[name]}
    row.pop("architectures", None)
    like = row.pop("like", None)
    if "mixers" in row:
        row["mixers"] = {kind: _mixers(row["mixers"], kind) for kind in row["mixers"]}
    if "experts" in row:
        row["experts"] = {"is": "experts", **(row["experts"] or {})}
    if "towers" in row:
        row["towers"] = [_tower(tower) for tower in row["towers"]]
    if "decoders" in row:
        row["decoders"] = {kind: _whole(decoder) for kind, decoder in row["decoders"].items()}
    return _changed(_whole(like), row) if like else row


def _mixers(mixers: Raw, kind: str) -> list[Raw]:
    """What mixes in layers of a kind, as a list: one that is alone is written without."""
    given = mixers[kind]
    if isinstance(given, list):
        return given
    changes = {**given}
    like = changes.pop("like", None)
    return [_changed(_mixers(mixers, like)[0], changes) if like else changes]


def _tower(changes: Raw) -> Raw:
    changes = {**changes}
    like = changes.pop("like", None)
    return _changed(_whole(like)["towers"][0], changes) if like else changes


@cache
def named_row(name: str) -> ArchitectureRow:
    """The row of this name. Raises ValueError for a field that does not exist."""
    try:
        return msgspec.convert(_whole(name), ArchitectureRow)
    except msgspec.ValidationError as error:
        raise ValueError(f"row {name!r}: {error}") from None


class _Rows(Mapping[str, ArchitectureRow]):
    """The rows by the names of architectures; one is made when it is looked up."""

    def __getitem__(self, name: str) -> ArchitectureRow:
        return named_row(_row_names()[name])

    def __contains__(self, name: object) -> bool:
        return name in _row_names()

    def __iter__(self) -> Iterator[str]:
        return iter(_row_names())

    def __len__(self) -> int:
        return len(_row_names())


ROWS: Mapping[str, ArchitectureRow] = _Rows()
"""Name in ``architectures`` -> row."""


def only_pools(name: str) -> bool:
    """Whether vLLM serves an architecture for its hidden states alone: embeddings, scores, labels."""
    return name in ROWS and ROWS[name].pools


def pools_whole_prompts(name: str) -> bool:
    """Whether a pooling architecture needs a prompt's first token or its steps: vLLM computes it in one step."""
    return name in ROWS and ROWS[name].pools_whole_prompts
