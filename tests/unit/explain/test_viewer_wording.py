"""The viewer says of every reason what the report says: the tables of ``viewer/src/data/wording.ts`` against ours."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from tokenyard.explain.held_back.agreement import FITTING_BUCKETS
from tokenyard.explain.held_back.classifier import BUCKET_OF
from tokenyard.explain.render.wording import BUCKET_MEANING, GAP_MEANING, REASON_MEANING
from tokenyard.sched.steps.outcomes import Reason

SOURCE = (Path(__file__).parents[3] / "viewer" / "src" / "data" / "wording.ts").read_text(encoding="utf-8")
TEXT = r'"(?:[^"\\]|\\.)*"'


def table(name: str) -> dict[str, str]:
    """Key -> value, as they stand in the TypeScript; a value ends with the comma at the end of its line."""
    head = re.search(rf"const {name}: .*\{{\n", SOURCE)
    assert head, f"the viewer has no {name}"
    body = SOURCE[head.end() : SOURCE.index("\n};", head.end())] + "\n"
    rows = re.findall(r'^  "?([\w-]+)"?:((?:(?!,\n)[\s\S])*),\n', body, re.MULTILINE)
    assert len(rows) == len(re.findall(r'^  "?[\w-]+"?:', body, re.MULTILINE)), f"{name} is written in another way"
    return dict(rows)


def texts(name: str) -> dict[str, str]:
    """The same for sentences, which may be added up from several parts."""
    return {key: "".join(map(json.loads, re.findall(TEXT, value))) for key, value in table(name).items()}


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("REASON_MEANING", REASON_MEANING),
        ("GAP_MEANING", GAP_MEANING),
        ("BUCKET_MEANING", {bucket.value: text for bucket, text in BUCKET_MEANING.items()}),
        ("BUCKET_OF", {reason.value: bucket.value for reason, bucket in BUCKET_OF.items()}),
    ],
)
def test_the_words_are_the_same(name: str, ours: Mapping[str, str]) -> None:
    assert texts(name) == ours


def test_every_reason_belongs_to_a_family() -> None:
    assert {reason.value for reason in Reason} - set(table("FAMILY")) == set()


def test_the_same_buckets_agree_with_a_reason() -> None:
    shared = re.search(r"const OUT_OF_BLOCKS: .*= \[(.*)\];", SOURCE)
    assert shared
    theirs = {
        reason: set(re.findall(r"[a-z-]+", value.replace("OUT_OF_BLOCKS", shared[1])))
        for reason, value in table("FITTING_BUCKETS").items()
    }
    assert theirs == {reason: {bucket.value for bucket in buckets} for reason, buckets in FITTING_BUCKETS.items()}
