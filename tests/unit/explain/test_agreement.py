"""Guess against truth: which buckets a recorded reason can rightly be put into."""

from __future__ import annotations

from pathlib import Path

import pytest

from generate_agreement import WORKLOADS, main, tables
from tokenyard.explain.classifier import Agreement, Bucket, Classification, StepReason
from tokenyard.trace.held_back import main_reason
from tokenyard.trace.schema import AdmissionOutcome


def verdict(bucket: Bucket, reason: StepReason | None = StepReason.UNKNOWN) -> Classification:
    return Classification(bucket, reason, 1, None)


@pytest.mark.parametrize(
    ("bucket", "recorded", "agrees"),
    [
        (Bucket.TOK_BUDGET, "token_budget", True),
        (Bucket.TOK_BUDGET, "prefill_exceeds_budget", True),
        (Bucket.MAX_SEQS, "max_num_seqs", True),
        (Bucket.KV_EXHAUSTED, "kv_blocks", True),
        (Bucket.KV_TIGHT, "kv_full_sequence", True),
        (Bucket.ALLOC_EXHAUSTED, "kv_watermark", True),
        (Bucket.ALLOC_FRAG, "kv_full_sequence", False),
        (Bucket.KV_EXHAUSTED, "preempted_this_step", True),
        (Bucket.ALLOC_EXHAUSTED, "preempted_this_step", False),
        (Bucket.MAX_SEQS, "token_budget", False),
        (Bucket.KV_TIGHT, "paused", False),
        (Bucket.KV_TIGHT, "a reason of the future", False),
    ],
)
def test_pairs(bucket: Bucket, recorded: str, agrees: bool) -> None:
    agreement = Agreement()
    agreement.add(verdict(bucket), AdmissionOutcome(step=0, reason=recorded, num_requests=1))
    result = agreement.result()
    assert (result.steps_compared, result.steps_disagreeing) == (1, 0 if agrees else 1)
    (pair,) = result.pairs
    assert (pair.bucket, pair.recorded, pair.steps, pair.agrees) == (bucket, recorded, 1, agrees)


def test_only_known_against_known_is_compared() -> None:
    agreement = Agreement()
    outcome = AdmissionOutcome(step=0, reason="kv_blocks", num_requests=1)
    agreement.add(verdict(Bucket.ADMITTED_ALL, None), outcome)
    agreement.add(verdict(Bucket.UNKNOWN), outcome)
    agreement.add(verdict(Bucket.KV_TIGHT), None)
    agreement.add(verdict(Bucket.KV_TIGHT), AdmissionOutcome(step=0))
    assert agreement.result().steps_compared == 0


def test_frequent_pairs_come_first() -> None:
    agreement = Agreement()
    for bucket in (Bucket.MAX_SEQS, Bucket.KV_TIGHT, Bucket.KV_TIGHT):
        agreement.add(verdict(bucket), AdmissionOutcome(step=0, reason="max_num_seqs", num_requests=1))
    assert [(pair.bucket, pair.steps) for pair in agreement.result().pairs] == [("kv-tight", 2), ("max-seqs", 1)]


def test_who_was_skipped_speaks_where_the_pass_held_back_nobody() -> None:
    skipped = {"waiting_grammar": 2, "lora_slots": 3}
    assert main_reason(AdmissionOutcome(step=0, reason="queues_empty", num_requests=0, skipped_counts=skipped)) == (
        "lora_slots"
    )
    assert main_reason(AdmissionOutcome(step=0, reason="kv_blocks", num_requests=1, skipped_counts=skipped)) == (
        "kv_blocks"
    )
    assert main_reason(AdmissionOutcome(step=0)) is None


def test_the_table_of_workloads_adds_up() -> None:
    first, second = Agreement(), Agreement()
    for agreement, bucket, recorded, steps in (
        (first, Bucket.TOK_BUDGET, "token_budget", 3),
        (first, Bucket.ALLOC_FRAG, "kv_full_sequence", 2),
        (second, Bucket.TOK_BUDGET, "token_budget", 2),
        (second, Bucket.TOK_BUDGET, "max_num_seqs", 1),
    ):
        outcome = AdmissionOutcome(step=0, kind="stopped", reason=recorded, num_requests=1)
        for _ in range(steps):
            agreement.add(verdict(bucket), outcome)
    made = tables({"One": first.result(), "Two": second.result()}).splitlines()
    assert made[0] == "| bucket | One | Two | all |"
    assert made[2:5] == [
        "| `tok-budget` | 100.0 % of 3 | 66.7 % of 3 | 83.3 % of 6 |",
        "| `alloc-frag` | 0.0 % of 2 | - | 0.0 % of 2 |",
        "| all | 60.0 % of 5 | 66.7 % of 3 | 62.5 % of 8 |",
    ]
    assert made[-2:] == [
        "| `alloc-frag` | `kv_full_sequence` | 2 | 25.0 % |",
        "| `tok-budget` | `max_num_seqs` | 1 | 12.5 % |",
    ]


def test_a_folder_that_lacks_a_workload(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / WORKLOADS[0].file).touch()
    assert main([str(tmp_path)]) == 2
    assert WORKLOADS[0].file not in capsys.readouterr().err
