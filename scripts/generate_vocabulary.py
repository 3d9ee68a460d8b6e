#!/usr/bin/env python3
"""Writes what is made from the vocabulary: ``viewer/src/generated``, and the tables of ``docs/reasons.md``.

The viewer's files hold plain JSON, as TypeScript constants, so that the compiler knows every name in them. ``--check``
only compares.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from tokenyard import vocabulary
from tokenyard.explain import classifier
from tokenyard.explain.report import classes
from tokenyard.trace.schema import STEP_EVENTS

__all__ = ["generated_files"]

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "reasons.md"
FOLDER = ROOT / "viewer" / "src" / "generated"
HEAD = "/** {about} Made by scripts/generate_vocabulary.py: change it there, and run `make viewer`. */\n"


def _vocabulary() -> dict[str, Any]:
    """Constant -> value."""
    return {
        "FAMILIES": vocabulary.FAMILIES,
        "REASONS": {
            name: {
                "meaning": entry.meaning,
                "family": entry.family,
                "countedIn": entry.counted_in,
                "holds": entry.holds,
            }
            for name, entry in vocabulary.REASONS.items()
        },
        "BUCKETS": {
            name: {
                "meaning": entry.meaning,
                "family": entry.family,
                "blocked": entry.blocked,
                "says": sorted(entry.says),
            }
            for name, entry in classifier.BUCKETS.items()
        },
        "STEP_REASONS": {
            name: {"meaning": entry.meaning, "bucket": entry.bucket, "proves": entry.proves}
            for name, entry in classifier.STEP_REASONS.items()
        },
        "LIMITS": {
            "budgetShare": classifier.BUDGET_SHARE,
            "freeLow": classifier.FREE_LOW,
            "freeTight": classifier.FREE_TIGHT,
            "freePlenty": classifier.FREE_PLENTY,
        },
        "PHASES": vocabulary.PHASES,
        "WAIT_STATES": vocabulary.WAIT_STATES,
        "PLACES": {name: {"word": entry.word, "meaning": entry.meaning} for name, entry in vocabulary.PLACES.items()},
        "GAPS": {name: {"meaning": entry.meaning, "family": entry.family} for name, entry in vocabulary.GAPS.items()},
        "EVENTS": {
            name: {"needsStep": any(field.name == "step" and field.required for field in msgspec.structs.fields(event))}
            for name, event in STEP_EVENTS.items()
        },
        "GUESS": classifier.GUESS,
        "CLASSES": {"mostValues": classes.MOST_VALUES, "bounds": classes.BOUNDS},
        "UNKNOWN_REASON": vocabulary.UNKNOWN_REASON,
    }


def _module(about: str, constants: Mapping[str, Any]) -> str:
    parts = [
        f"export const {name} = {json.dumps(value, indent=2, ensure_ascii=False)} as const;"
        for name, value in constants.items()
    ]
    return HEAD.format(about=about) + "\n" + "\n\n".join(parts) + "\n"


_TABLE = re.compile(r"(<!-- scripts/generate_vocabulary.py: (\w+) -->\n).*?(<!-- end -->\n)", re.DOTALL)
_FIELD = re.compile(r"\b[a-z]+(?:_[a-z]+)+\b")


def _document() -> str:
    """docs/reasons.md with a table for every way in which a reason ends something."""
    text = DOCUMENT.read_text(encoding="utf-8")
    return _TABLE.sub(lambda found: f"{found[1]}\n{_rows(vocabulary.OutcomeKind(found[2]))}\n{found[3]}", text)


def _rows(kind: vocabulary.OutcomeKind) -> str:
    lines = ["| reason | meaning | what to change |", "| --- | --- | --- |"]
    for reason, entry in vocabulary.REASONS.items():
        if entry.ends is kind:
            numbers = f" Numbers: {entry.unit}." if entry.unit else ""
            meaning = _marked(entry.meaning) + numbers + (f" {entry.note}" if entry.note else "")
            lines.append(f"| `{reason}` | {meaning} | {_marked(entry.remedy)} |")
    return "\n".join(lines) + "\n"


def _marked(sentence: str) -> str:
    """The sentence with the names of settings marked as such."""
    return _FIELD.sub(lambda name: f"`{name[0]}`", sentence)


def generated_files() -> dict[Path, str]:
    """What each generated file has to hold."""
    return {
        DOCUMENT: _document(),
        FOLDER / "vocabulary.ts": _module("The words of src/tokenyard/vocabulary.", _vocabulary()),
    }


def main() -> int:
    """Write the files, or say which are not up to date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is not up to date")
    check = parser.parse_args().check
    stale = [
        path
        for path, text in generated_files().items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    for path in stale:
        if check:
            print(f"{path.relative_to(ROOT)} is not what the package says: run `make viewer`", file=sys.stderr)
        else:
            path.write_text(generated_files()[path], encoding="utf-8")
            print(f"wrote {path.relative_to(ROOT)}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
