"""Drafts of a recorded run: in a replay of it requests have them where they had them, as right as they were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random

import pytest

from tokenyard.core.config import CacheConfig, SchedulerConfig, SpeculativeConfig
from tokenyard.errors import ConfigError
from tokenyard.questions.recorded.ask import replay_as_it_was
from tokenyard.questions.recorded.decisions import drive
from tokenyard.questions.recorded.recorded_drafts import DraftRecords
from tokenyard.questions.recorded.recorded_run import RecordedRun, read_run
from tokenyard.record.recorder import TraceRecorder
from tokenyard.record.writer import TraceWriter
from tokenyard.sim.drafts import DraftRow, RecordedDrafts
from tokenyard.sim.executor import SimulatedSpeculation
from tokenyard.sim.replay import replay
from tokenyard.steptime.model import ConstantLatency
from tokenyard.trace.config import TraceConfig
from tokenyard.trace.schema import RequestArrived, RequestFinished, StepCompleted, StepDecision
from tokenyard.trace.start import describe_run
from tokenyard.trace.steps import Step
from tokenyard.workload.record import Workload, WorkloadRequest
from tokenyard.workload.tokens import StreamTokens, seed_of

MOST, STEP = 3, 1 / 64
NGRAM = Path(__file__).resolve().parents[2] / "samples" / "runs" / "vllm-0.32-ngram.steps.jsonl.gz"
"""A run of vLLM 0.32 with n-gram drafts: 120 requests, clients that leave, grammars; its first step took 1.7 s."""


# ---- a trace of vLLM


@cache
def of_vllm() -> RecordedRun:
    return read_run(NGRAM)


def test_a_run_with_ngram_drafts_is_repeated() -> None:
    """Half of its decode steps had drafts, and one step was cold: means within three hundredths all the same."""
    run = of_vllm()
    assert run.speculation is not None
    assert 0.45 < run.speculation.presence < 0.6
    assert [each.step for each in run.stalls] == [0]
    check = replay_as_it_was(run).check
    assert check.holds
    for name in ("ttft_ms.mean", "ttft_ms.p90", "tpot_ms.mean", "tpot_ms.p90", "e2e_ms.mean", "e2e_ms.p90"):
        assert check.error_of(name) == pytest.approx(0.0, abs=0.03), name


def test_every_step_of_it_is_decided_as_vllm_did() -> None:
    """Which drafts were right follows from the trace, or the steps after would be others."""
    driven = drive(of_vllm())
    assert (driven.first_difference, driven.difference, driven.stopped_by) == (None, None, None)
    assert driven.equal == driven.steps == 1201


def test_with_drafts_in_every_step_it_would_be_far_off() -> None:
    """What this is about: a rate of those that have drafts, applied to all."""
    run = of_vllm()
    assert run.speculation is not None
    everywhere = replace(run, speculation=replace(run.speculation, presence=1.0, recorded=None))
    error = replay_as_it_was(everywhere).check.error_of("tpot_ms.mean")
    assert error is not None
    assert error < -0.2
    drawn = replace(run, speculation=replace(run.speculation, recorded=None))
    assert replay_as_it_was(drawn).check.error_of("tpot_ms.mean") == pytest.approx(0.0, abs=0.15)


# ---- planted drafts


def planted(seed: int) -> tuple[Workload, RecordedDrafts]:
    """Requests that begin without drafts, and of which some repeat themselves from some position on."""
    chance = Random(seed)
    requests, rows = [], {}
    for number in range(24):
        name, length, answer = f"r{number}", chance.randint(4, 40), chance.randint(8, 60)
        requests.append(
            WorkloadRequest(
                request_id=name,
                prompt=StreamTokens.unique(seed_of(seed, number), length),
                max_tokens=answer,
                arrival_time=number * 3.3 * STEP,
                output_seed=seed_of(seed, number),
            )
        )
        repeats_from = length + chance.randint(1, answer) if number % 3 else length + answer
        found, position = [DraftRow(length, 0, 0)], length + 1
        while position < length + answer:
            offered = chance.randint(1, MOST) if position >= repeats_from and chance.random() < 0.9 else 0
            found.append(DraftRow(position, offered, chance.choice((offered, offered, chance.randint(0, offered)))))
            position += 1 + found[-1].right
        rows[name] = found
    return Workload("planted", requests), RecordedDrafts(rows)


def record(folder: Path, workload: Workload, drafts: RecordedDrafts, max_ids: int | None = None) -> None:
    """Replay ``workload`` with ``drafts``, and leave its trace in ``folder``."""
    scheduler = SchedulerConfig(max_num_seqs=6, max_num_batched_tokens=64, max_model_len=128)
    cache_config = CacheConfig(num_gpu_blocks=90, block_size=4)
    sections = {"speculation": {"num_speculative_tokens": MOST, "speculative_method": "ngram"}}
    start = describe_run(scheduler, cache_config, host="replay", model="tiny", sections=sections)
    config = TraceConfig(path=folder, policy="fcfs", request_records=False)
    with TraceWriter(config if max_ids is None else replace(config, max_ids_per_step=max_ids)) as writer:
        replay(
            workload,
            scheduler,
            cache_config,
            ConstantLatency(seconds=STEP),
            observer=TraceRecorder(writer, start=start),
            speculation=SimulatedSpeculation(
                config=SpeculativeConfig(num_speculative_tokens=MOST), acceptance=(0.0,), recorded=drafts
            ),
        )


@pytest.mark.parametrize("seed", range(4))
def test_drafts_are_found_in_a_trace_and_repeated(seed: int, tmp_path: Path) -> None:
    workload, drafts = planted(seed)
    record(tmp_path, workload, drafts)
    run = read_run(tmp_path)
    assert run.speculation is not None
    found = run.speculation.recorded
    assert found is not None
    assert len(found) == len(workload)
    check = replay_as_it_was(run).check
    assert check.error_of("tpot_ms.mean") == pytest.approx(0.0, abs=0.01)
    assert check.error_of("e2e_ms.mean") == pytest.approx(0.0, abs=0.01)
    assert check.decisions.equal > 0.8 * check.decisions.steps
    everywhere = replace(run, speculation=replace(run.speculation, presence=1.0, recorded=None))
    error = replay_as_it_was(everywhere).check.error_of("tpot_ms.mean")
    assert error is not None
    assert error < -0.1


def test_where_ids_are_left_out_the_share_of_all_is_drawn(tmp_path: Path) -> None:
    workload, drafts = planted(1)
    record(tmp_path / "whole", workload, drafts)
    record(tmp_path / "cut", workload, drafts, max_ids=2)
    whole, cut = (read_run(tmp_path / name).speculation for name in ("whole", "cut"))
    assert whole is not None
    assert cut is not None
    assert whole.recorded is not None
    assert cut.recorded is None
    assert cut.presence == pytest.approx(whole.presence)
    assert cut.acceptance == pytest.approx(whole.acceptance)
    assert 0.1 < cut.presence < 0.8
    assert replay_as_it_was(read_run(tmp_path / "cut")).check.recorded_steps > 50


# ---- whose drafts were right, where a trace says it of a step


def step(number: int, scheduled: Mapping[str, int], right: Sequence[int] = ()) -> Step:
    """A step with so many tokens of each request, and how often the draft at each position was right."""
    made = Step(number)
    made.decision = StepDecision(step=number, num_scheduled_tokens=dict(scheduled))
    made.completed = StepCompleted(step=number, num_accepted_tokens_per_pos=list(right) or None)
    return made


def test_of_two_whose_drafts_are_verified_together_the_lengths_of_answers_tell() -> None:
    """The first got four tokens in three steps, the second six: all that was right is the second's."""
    records = DraftRecords(MOST)
    first = step(0, {"a": 5, "b": 7})
    first.arrived = [
        RequestArrived(step=0, req_id=name, num_prompt_tokens=length) for name, length in (("a", 5), ("b", 7))
    ]
    records.add(first)
    records.add(step(1, {"a": 4, "b": 4}, [1, 1, 0]))
    records.add(step(2, {"a": 1, "b": 1}))
    last = step(3, {"a": 1, "b": 1})
    last.finished = [
        RequestFinished(step=3, req_id=name, num_output_tokens=tokens, finish_reason="length")
        for name, tokens in (("a", 4), ("b", 6))
    ]
    records.add(last)
    found = records.recorded()
    assert found is not None
    assert [found.offered("a", position) for position in (5, 6, 7, 8)] == [0, 3, 0, 0]
    assert [found.offered("b", position) for position in (7, 8, 9, 10, 11, 12)] == [0, 3, 3, 3, 0, 0]
    assert (found.right("a", 6), found.right("b", 8)) == (0, 2)


def test_a_row_that_begins_within_a_recorded_one_has_what_is_left_of_it() -> None:
    drafts = RecordedDrafts({"a": [DraftRow(10, 0, 0), DraftRow(11, 3, 2), DraftRow(14, 0, 0)]})
    assert [drafts.right("a", position) for position in (10, 11, 12, 13, 14)] == [0, 2, 1, 0, 0]
    assert [drafts.offered("a", position) for position in (10, 11, 12, 13, 14)] == [0, 3, 3, 3, 0]
    assert drafts.right("a", 15) is None, "nothing is known of what follows"
    assert drafts.right("a", 9) is None
    assert drafts.offered("b", 11) is None


def test_a_text_that_was_drafted_rightly_to_the_end_of_a_row_goes_on_so() -> None:
    drafts = RecordedDrafts({"a": [DraftRow(10, 2, 2), DraftRow(13, 3, 1), DraftRow(15, 0, 0)]})
    assert [drafts.right("a", position) for position in (10, 11, 12, 13, 14)] == [4, 3, 2, 1, 0]


def test_a_presence_is_a_probability() -> None:
    config = SpeculativeConfig(num_speculative_tokens=MOST)
    with pytest.raises(ConfigError, match="presence"):
        SimulatedSpeculation(config=config, presence=1.5)
