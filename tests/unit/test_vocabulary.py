"""The vocabulary: complete, without two tellings of the same word, and the same in the viewer and in the documents."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from tokenyard.explain.classifier import BUCKETS, STEP_REASONS, Bucket, StepReason, meaning_of
from tokenyard.vocabulary import (
    FAMILIES,
    GAPS,
    PHASES,
    PLACES,
    REASONS,
    UNKNOWN_REASON,
    WAIT_STATES,
    Family,
    Gap,
    Phase,
    Place,
    Reason,
    WaitState,
    reason_meaning,
)

ROOT = Path(__file__).resolve().parents[2]
TABLES: list[tuple[type[StrEnum], dict[Any, Any]]] = [
    (Reason, REASONS),
    (Bucket, BUCKETS),
    (StepReason, STEP_REASONS),
    (Family, FAMILIES),
    (Gap, GAPS),
    (Phase, PHASES),
    (Place, PLACES),
    (WaitState, WAIT_STATES),
]
NOT_REASONS = {Reason.TOKEN_BUDGET, Reason.MAX_NUM_SEQS, Reason.PAUSED, Gap.FRONT_END}
"""Names of a setting, a column or a state as well."""


@pytest.mark.parametrize(("words", "table"), TABLES)
def test_every_word_is_explained(words: type[StrEnum], table: dict[Any, Any]) -> None:
    assert list(table) == list(words)


def test_sentences_are_sentences() -> None:
    meanings = [each.meaning for each in REASONS.values()] + [each.meaning for each in STEP_REASONS.values()]
    for meaning in (*meanings, *(each.meaning for each in GAPS.values())):
        assert re.fullmatch(r"[A-Z].*\.", meaning)
    assert all(re.fullmatch(r"[A-Za-z].*\.", entry.remedy) for entry in REASONS.values())


def test_what_a_request_waited_for_has_a_sentence() -> None:
    assert meaning_of("kv_blocks", Place.BEHIND) == REASONS[Reason.KV_BLOCKS].meaning
    assert meaning_of("kv-low", Place.GUESS).endswith("counts: Fewer than 20 blocks were free.")
    assert meaning_of("between_steps", Place.OUTSIDE) == GAPS[Gap.BETWEEN_STEPS].meaning
    assert reason_meaning("a reason of the future") == UNKNOWN_REASON


def test_a_step_reason_proves_only_what_its_bucket_says() -> None:
    for entry in STEP_REASONS.values():
        assert entry.proves is None or entry.proves in BUCKETS[entry.bucket].says


def test_the_viewer_has_the_same_words() -> None:
    script = ROOT / "scripts" / "generate_vocabulary.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_no_other_module_writes_a_reason_as_text() -> None:
    words = {*Reason, *Bucket, *StepReason, *Gap} - NOT_REASONS - {"unknown", "idle"}
    quoted = re.compile(rf"[\"'](?:{'|'.join(map(re.escape, words))})[\"']")
    found = []
    for path in (ROOT / "src" / "tokenyard").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if path.name not in ("vocabulary.py", "classifier.py") and quoted.search(text):  # there they are entered
            found += [
                f"{path.name}:{node.lineno}: {node.value!r}"
                for node in ast.walk(ast.parse(text))
                if isinstance(node, ast.Constant) and node.value in words
            ]
    assert found == []


def test_the_documents_explain_exactly_these_reasons() -> None:
    document = (ROOT / "docs" / "reasons.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `([a-z_]+)` \|", document, re.MULTILINE))
    numbers = {"needed", "free", "cached_hits", "smallest_need"}
    assert listed - numbers == set(Reason)
