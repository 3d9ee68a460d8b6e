#!/usr/bin/env python3
"""Writes the viewer's copy of what it shares with the package: ``viewer/src/generated``. ``--check`` only compares.

The files hold plain JSON, as TypeScript constants, so that the compiler knows every name in them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from tokenyard import vocabulary as buckets
from tokenyard import vocabulary as families
from tokenyard import vocabulary as reasons
from tokenyard import vocabulary as waits
from tokenyard import vocabulary as wording
from tokenyard.explain.advice.rules import rule_book
from tokenyard.trace.schema import STEP_EVENTS

__all__ = ["generated_files"]

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "viewer" / "src" / "generated"
HEAD = "/** {about} Made by scripts/generate_vocabulary.py: change it there, and run `make viewer`. */\n"


def _vocabulary() -> dict[str, Any]:
    """Constant -> value."""
    return {
        "FAMILIES": families.FAMILIES,
        "REASONS": {
            name: {
                "meaning": entry.meaning,
                "family": entry.family,
                "countedIn": entry.counted_in,
                "holds": entry.holds,
            }
            for name, entry in reasons.REASONS.items()
        },
        "BUCKETS": {
            name: {
                "meaning": entry.meaning,
                "family": entry.family,
                "blocked": entry.blocked,
                "says": sorted(entry.says),
            }
            for name, entry in buckets.BUCKETS.items()
        },
        "STEP_REASONS": {
            name: {"meaning": entry.meaning, "bucket": entry.bucket, "proves": entry.proves}
            for name, entry in buckets.STEP_REASONS.items()
        },
        "LIMITS": {
            "budgetShare": buckets.BUDGET_SHARE,
            "freeLow": buckets.FREE_LOW,
            "freeTight": buckets.FREE_TIGHT,
            "freePlenty": buckets.FREE_PLENTY,
        },
        "PHASES": waits.PHASES,
        "WAIT_STATES": waits.WAIT_STATES,
        "PLACES": {name: {"word": entry.word, "meaning": entry.meaning} for name, entry in waits.PLACES.items()},
        "GAPS": {name: {"meaning": entry.meaning, "family": entry.family} for name, entry in waits.GAPS.items()},
        "EVENTS": {
            name: {"needsStep": any(field.name == "step" and field.required for field in msgspec.structs.fields(event))}
            for name, event in STEP_EVENTS.items()
        },
        "GUESS": wording.GUESS,
        "UNKNOWN_REASON": wording.UNKNOWN_REASON,
    }


def _module(about: str, constants: Mapping[str, Any], head: str = "", type_: str = "", end: str = " as const") -> str:
    parts = [head] if head else []
    parts += [
        f"export const {name}{type_} = {json.dumps(value, indent=2, ensure_ascii=False)}{end};"
        for name, value in constants.items()
    ]
    return HEAD.format(about=about) + "\n" + "\n\n".join(parts) + "\n"


def _advice() -> dict[str, Any]:
    """The rule book without what is not set."""
    book: dict[str, Any] = _set(msgspec.to_builtins(rule_book()))
    return {"RULE_BOOK": book}


def _set(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _set(each) for name, each in value.items() if each is not None}
    return [_set(each) for each in value] if isinstance(value, list | tuple) else value


def generated_files() -> dict[Path, str]:
    """What each generated file has to hold."""
    rule_type = ('import type { RuleBook } from "../advice/rule";', ": RuleBook", "")
    return {
        FOLDER / "vocabulary.ts": _module("The words of src/tokenyard/vocabulary.", _vocabulary()),
        FOLDER / "advice.ts": _module("The rules of src/tokenyard/explain/advice/rules.toml.", _advice(), *rule_type),
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
