#!/usr/bin/env python3
"""Print the table of the page `report.md` of the site: the rules of the advice, with what each of them sets."""

from __future__ import annotations

import tomllib
from pathlib import Path

__all__ = ["document"]

RULES = Path(__file__).resolve().parents[1] / "src" / "tokenyard" / "explain" / "advice" / "rules.toml"


def document() -> str:
    """The table, in the order in which rules are tried."""
    rules = tomllib.loads(RULES.read_text(encoding="utf-8"))["rules"]
    rows = [
        f"| `{each['name']}` | {each['symptom']} | {each['diagnosis']} | `{each['setting']}` {each['direction']} |"
        for each in rules
    ]
    return "\n".join(["| rule | applies when | diagnosis | setting |", "| --- | --- | --- | --- |", *rows])


if __name__ == "__main__":
    print(document())
