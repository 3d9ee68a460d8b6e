"""Why a request waited, against vectors that every implementation of the rule shares (the viewer's reads them too).

``TOKENYARD_UPDATE_VECTORS=1`` makes them anew: run it only after a change of the rule, and read the difference.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.trace.recorded import RecordedYard, records_of

from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.errors import TraceError
from tokenyard.explain.why.why import Why, waiting, why

VECTORS = Path(__file__).parent / "why_vectors.json"
ABOUT = (
    "Small traces and the life of each of their requests, as `tokenyard why --json` prints it: the rule is in "
    "docs/reasons.md. lines: records of the steps file in order; moments are microseconds."
)
PASSES_OVER: dict[str, Any] = {
    "enable_chunked_prefill": False,
    "skip_oversized_prefill": True,
    "max_model_len": 40,
    "max_num_batched_tokens": 40,
    "max_num_seqs": 3,
}
SCENARIOS: dict[str, dict[str, Any]] = {
    "out of memory": {"num_gpu_blocks": 15, "max_num_seqs": 4},
    "all seats taken": {"max_num_seqs": 2},
    "budget spent": {"max_num_batched_tokens": 16},
    "passed over while running": {
        "num_gpu_blocks": 12,
        "max_num_seqs": 4,
        "scheduler_reserve_full_isl": False,
        "policy": "priority",
    },
    "whole prompts, some passed over": PASSES_OVER,
    "preempts itself": {"num_gpu_blocks": 12, "scheduler_reserve_full_isl": False, "policy": "priority"},
    "two steps in flight": {"max_num_seqs": 3, "async_scheduling": True},
    "bounded": {"num_gpu_blocks": 15, "max_num_seqs": 4, "trace": {"max_ids_per_step": 1}},
    "bounded, some passed over": PASSES_OVER | {"trace": {"max_ids_per_step": 1}},
    "every third step": {"max_num_seqs": 2, "trace": {"every_n": 3}},
    "cut off": {"max_num_seqs": 2, "trace": {"max_steps": 9}},
    "of another emitter": {"num_gpu_blocks": 15, "max_num_seqs": 3},
}
SEEDS = {"preempts itself": 7, "passed over while running": 16}
NOT_NEEDED = {
    *["config", "tokenyard_version", "policy", "num_pinned", "pinned_blocks", "pinned_job_ids", "gpu_cached_blocks"],
    *["priority", "max_tokens", "status", "num_tokens", "load_kv_async"],
}
FOREIGN = {"step_snapshot", "step_decision", "prefix_cache_lookup"}


def load() -> list[dict[str, Any]]:
    return list(json.loads(VECTORS.read_text(encoding="utf-8"))["vectors"])


class Host:
    """Runs a toy's steps one after the other, or each before the one in front of it has come back."""

    def __init__(self, toy: RecordedYard, rng: random.Random) -> None:
        self._yard = toy
        self._rng = rng
        self._in_flight: list[SchedulerOutput] = []

    def step(self) -> None:
        toy = self._yard
        self._in_flight.append(toy.schedule())
        toy.now += self._rng.randint(1, 400_000) / 1e6
        if len(self._in_flight) > toy.scheduler.config.async_scheduling:
            toy.update(self._in_flight.pop(0))


def record(path: Path, name: str, seed: int) -> list[dict[str, Any]]:
    """The records of a short life under pressure."""
    settings = dict(SCENARIOS[name])
    trace = {"request_records": False} | settings.pop("trace", {})
    toy = RecordedYard(path, trace=trace, **settings)
    rng = random.Random(seed)
    host = Host(toy, rng)
    toy.now = 1_713_567_000.25
    for number in range(8):
        lengths = rng.randint(4, 30), rng.randint(2, 7)
        arrival = toy.now - 0.4 * rng.random()
        job, priority = f"job{number % 3}", rng.randint(0, 3)
        toy.add(f"r{number}", lengths[0], max_tokens=lengths[1], arrival_time=arrival, job_id=job, priority=priority)
        if number == 6:
            toy.abort("r5")
        if number % 3 == 2:
            host.step()
            toy.now += rng.choice((0.0, 0.000_9))
    while toy.scheduler.has_requests():
        host.step()
    toy.writer.close()
    records = records_of(path)
    records = [{name: value for name, value in each.items() if name not in NOT_NEEDED} for each in records]
    return [each for each in records if each["event"] in FOREIGN] if name == "of another emitter" else records


def write(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.mkdir(exist_ok=True)
    file = path / "sched_trace.fcfs.steps.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return file


def _told(answer: Why) -> dict[str, Any]:
    """As JSON; the page's own reading has no word of a policy, which these traces have none of."""
    told: dict[str, Any] = msgspec.to_builtins(answer)
    for span in told["spans"]:
        assert span.pop("detail") is None
    return told


def answers(file: Path, lines: list[dict[str, Any]]) -> dict[str, Any]:
    ids = {name: None for line in lines for name in line.get("waiting_req_ids", [])}
    ids |= {line["req_id"]: None for line in lines if line["event"] in ("request_arrived", "request_finished")}
    return {name: _told(why(file, name)) for name in sorted(ids)}


@pytest.mark.skipif("TOKENYARD_UPDATE_VECTORS" not in os.environ, reason="only makes the vectors anew")
def test_make_vectors(tmp_path: Path) -> None:
    vectors: list[dict[str, Any]] = []
    for name in SCENARIOS:
        lines = record(tmp_path / name, name, SEEDS.get(name, 5))
        expect = answers(write(tmp_path / f"{name}-read", lines), lines)
        vectors.append({"name": name, "lines": lines, "expect": expect})
    rows = ",\n".join(
        f'{{"name":{json.dumps(vector["name"])},\n"lines":[\n'
        + ",\n".join(json.dumps(line, separators=(",", ":")) for line in vector["lines"])
        + '],\n"expect":{\n'
        + ",\n".join(f"{json.dumps(k)}:{json.dumps(v, separators=(',', ':'))}" for k, v in vector["expect"].items())
        + "}}"
        for vector in vectors
    )
    VECTORS.write_text(f'{{"about":{json.dumps(ABOUT)},\n"vectors":[\n{rows}\n]}}\n', encoding="utf-8")


@pytest.mark.parametrize("name", SCENARIOS)
def test_vector(tmp_path: Path, name: str) -> None:
    (vector,) = [each for each in load() if each["name"] == name]
    assert answers(write(tmp_path, vector["lines"]), vector["lines"]) == vector["expect"]


@pytest.mark.parametrize("name", SCENARIOS)
def test_everything_adds_up(tmp_path: Path, name: str) -> None:
    (vector,) = [each for each in load() if each["name"] == name]
    file = write(tmp_path, vector["lines"])
    total = 0
    for request_id in vector["expect"]:
        answer: Why = why(file, request_id)
        phases = answer.phases
        assert sum(reason.us for reason in answer.reasons) == answer.waited_us
        assert sum(span.us for span in answer.spans) == answer.waited_us
        assert phases.queued_us + phases.preempted_us + phases.stalled_us == answer.waited_us
        life = answer.until_us - (answer.arrived_us or 0)
        assert sum(msgspec.structs.astuple(phases)) == life
        for earlier, later in zip(answer.spans, answer.spans[1:], strict=False):
            assert earlier.end_us <= later.start_us
        total += answer.waited_us
    everybody = waiting(file)
    assert everybody.waited_us == total == sum(reason.us for reason in everybody.reasons)
    assert everybody.requests == len(vector["expect"])


def test_the_vectors_hold_every_place_state_and_kind_of_gap() -> None:
    spans = [span for vector in load() for answer in vector["expect"].values() for span in answer["spans"]]
    assert {span["place"] for span in spans} == {"own", "behind", "all", "guess", "outside"}
    assert {span["state"] for span in spans} == {"queued", "preempted", "stalled"}
    outside = {span["reason"] for span in spans if span["place"] == "outside"}
    assert outside == {"front_end", "step_in_progress", "between_steps", "not_recorded", "not_listed"}
    assert {"self_preempted", "preempted_this_step"} <= {span["reason"] for span in spans}


def test_a_request_that_is_not_there(tmp_path: Path) -> None:
    vector = load()[0]
    file = write(tmp_path, vector["lines"])
    with pytest.raises(TraceError, match="no request 'r77'; it has 'r"):
        why(file, "r77")
