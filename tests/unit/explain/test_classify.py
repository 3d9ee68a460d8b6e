"""The classifier against vectors that every implementation of it shares."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tokenyard.explain.classifier import STEP_REASONS, Bucket, StepReason, classify
from tokenyard.trace.schema import RequestRecord, StepDecision, StepSnapshot
from tokenyard.trace.steps import Step, facts_of

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "classifier_vectors.json").read_text())["vectors"]


def step_of(vector: dict[str, Any]) -> Step:
    step = Step(vector["snapshot"]["step"])
    step.snapshot = msgspec.convert(vector["snapshot"], StepSnapshot)
    if vector["decision"] is not None:
        step.decision = msgspec.convert(vector["decision"], StepDecision)
    step.requests = msgspec.convert(vector["requests"], list[RequestRecord])
    return step


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
def test_vector(vector: dict[str, Any]) -> None:
    facts = facts_of(step_of(vector), vector.get("block_size", 16))
    verdict = classify(facts)
    assert {
        "unadmitted": verdict.unadmitted,
        "min_need": facts.min_need,
        "running_consumed": facts.running_consumed,
        "effective_free": verdict.effective_free,
        "reason": verdict.reason,
        "bucket": verdict.bucket,
    } == vector["expect"]


def test_the_vectors_reach_every_bucket_and_reason() -> None:
    assert {vector["expect"]["bucket"] for vector in VECTORS} == set(Bucket)
    assert {vector["expect"]["reason"] for vector in VECTORS} == {*StepReason, None}


def test_names_are_the_formats() -> None:
    assert [bucket.value for bucket in Bucket] == [
        *["tok-budget", "kv-exhausted", "max-seqs", "alloc-frag", "alloc-exhausted", "kv-tight"],
        *["admitted-all", "under-capacity", "idle", "unknown"],
    ]
    absorbed: dict[Bucket, list[str]] = {}
    for reason in StepReason:
        absorbed.setdefault(STEP_REASONS[reason].bucket, []).append(reason.value)
    assert absorbed == {
        Bucket.TOK_BUDGET: ["tok-budget"],
        Bucket.KV_EXHAUSTED: ["kv-after-run", "kv-insuf", "kv-low"],
        Bucket.MAX_SEQS: ["max-seqs"],
        Bucket.KV_TIGHT: ["kv-tight-after-run", "kv-marginal"],
        Bucket.ALLOC_EXHAUSTED: ["alloc-exhausted"],
        Bucket.ALLOC_FRAG: ["alloc-rejected"],
        Bucket.UNKNOWN: ["unknown"],
    }
