#!/usr/bin/env python3
"""Print the page `parity-map.md` of the site: vLLM's names, ours, and the test of each (parity_map.tsv)."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

__all__ = ["document", "tables"]

FOLDER = Path(__file__).parent
HEAD = """\
# The whole map: vLLM's names and ours

What vLLM V1's scheduler and KV-cache manager have, method by method and field by field, with its counterpart here and
the test that covers it. A name of ours stands without the leading `tokenyard.`, a test without the leading `tests/`. A
row without counterpart says *absent* and why. `tests/integration/test_parity_map.py` checks that all of it exists.
"""


def document() -> str:
    """The page."""
    return "\n".join([HEAD, *tables(FOLDER / "parity_map.tsv")])


def tables(path: Path) -> Iterator[str]:
    """Lines of a file of tab-separated columns, of which the first names the part: a heading and a table for each."""
    with path.open(encoding="utf-8", newline="") as file:
        (_, *heads), *rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
    for part, entries in groupby(rows, key=lambda row: row[0]):
        yield f"### {part}\n"
        yield f"| {' | '.join(heads)} |\n| {' | '.join('---' for _ in heads)} |"
        yield from (f"| {' | '.join(cells)} |" for _, *cells in entries)
        yield ""


if __name__ == "__main__":
    print(document())
