"""The worked example of the trace format, taken by the real scheduler: guess and truth side by side.

Twelve requests run, sixteen wait, 533 blocks are free, the smallest waiter needs 347: counts alone suggest that the
allocator refused for no good reason. What happened is that the first in the queue needs more than there is.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.trace.recorded import RecordedYard

from tokenyard.explain.classifier import Bucket, StepReason, classify
from tokenyard.explain.report.summary import summarize
from tokenyard.trace.reader import TraceReader
from tokenyard.trace.steps import Step, facts_of

PROMPTS = [6664, *[6872] * 10]
LAST_PROMPT = 4 * 1788 + 1542
HEAD, SMALLEST = 8410, 5549


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace whose last step is the example's."""
    path = tmp_path_factory.mktemp("trace")
    toy = RecordedYard(
        path,
        num_gpu_blocks=5711,
        block_size=16,
        max_num_batched_tokens=2048,
        max_num_seqs=100,
        max_model_len=16_384,
        long_prefill_token_threshold=1788,
    )
    for number, prompt in enumerate(PROMPTS):
        toy.add(f"swe_{number:04}_t6", prompt, max_tokens=4000, job_id=f"swe_{number:04}")
    while len(toy.running) < 11 or not all(request.num_output_tokens for request in toy.scheduler.running):
        toy.step()
    toy.add("swe_0019_t7", LAST_PROMPT, max_tokens=100, job_id="swe_0019")
    toy.steps(4)
    toy.add("swe_0011_t10", HEAD, max_tokens=100, job_id="swe_0011")
    for number in range(20, 35):
        prompt = SMALLEST if number == 27 else 6000 + 16 * number
        toy.add(f"swe_{number:04}_t9", prompt, max_tokens=100, job_id=f"swe_{number:04}")
    toy.step()
    toy.writer.close()
    return path


def last_step(path: Path) -> Step:
    *_, step = TraceReader(path).steps()
    return step


@pytest.mark.slow
def test_the_counts_are_the_examples(trace: Path) -> None:
    facts = facts_of(last_step(trace))
    assert (facts.num_running, facts.num_waiting, facts.free_blocks, facts.total_blocks) == (12, 16, 533, 5711)
    assert (facts.token_sum, facts.token_budget, facts.max_running) == (1553, 2048, 100)
    assert facts.min_need == 347
    assert facts.num_new == facts.num_resumed == 0


def test_the_classifier_says_alloc_rejected(trace: Path) -> None:
    verdict = classify(facts_of(last_step(trace)))
    assert verdict.unadmitted == 16
    assert verdict.effective_free == 533 - 97
    assert verdict.reason is StepReason.ALLOC_REJECTED
    assert verdict.bucket is Bucket.ALLOC_FRAG


def test_it_says_so_without_the_requests_file_too(trace: Path) -> None:
    (steps_file,) = trace.glob("*.steps.jsonl")
    facts = facts_of(last_step(steps_file))
    assert facts.min_need is None
    assert classify(facts).reason is StepReason.ALLOC_REJECTED


def test_the_record_names_what_happened(trace: Path) -> None:
    outcome = last_step(trace).outcome
    assert outcome is not None
    assert outcome.kv is not None
    assert (outcome.kind, outcome.reason, outcome.req_id) == ("stopped", "kv_full_sequence", "swe_0011_t10")
    assert outcome.num_requests == 16
    assert outcome.kv.needed == 526  # of the head: 8,410 tokens
    assert outcome.kv.free == 533 - 97 - 2  # the running prefill took its share first, and two others began a block
    assert outcome.smallest_need == 347
    assert outcome.kv.needed > outcome.kv.free > outcome.smallest_need


def test_the_report_counts_the_disagreement(trace: Path) -> None:
    report = summarize(trace)
    assert report.buckets["alloc-frag"] == 1
    assert report.reasons["alloc-rejected"] == 1
    wrong = [pair for pair in report.disagreements.pairs if not pair.agrees]
    assert [(pair.bucket, pair.recorded, pair.steps) for pair in wrong] == [("alloc-frag", "kv_full_sequence", 1)]
    assert report.disagreements.steps_disagreeing == 1
    reason = report.recorded_reasons["kv_full_sequence"]
    assert (reason.steps, reason.requests, reason.seconds) == (1, 16, 8.0)
    assert reason.kv is not None
    assert (reason.kv.needed, reason.kv.free, reason.kv.smallest_need) == (526, 434, 347)
    assert reason.kv.smaller_would_fit_steps == 1
