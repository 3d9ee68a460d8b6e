"""Every step of every sample, judged alike by this package and by the viewer: both read ``sample_vectors.json``.

A sample is a trace as text, with what may go wrong in one: fields missing, values of wrong types, lines cut, doubled or
out of place. ``TOKENYARD_UPDATE_VECTORS=1`` makes the vectors anew: run it only after a change of the rules, and read
the difference.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.toy_engine import make_request
from tests.unit.trace.recorded import RecordedYard, lines_of

from tokenyard.explain.classifier import classify
from tokenyard.explain.report.summary import summarize
from tokenyard.trace.facts import CLASSIFIER_BLOCK_SIZE
from tokenyard.trace.reader import TraceReader
from tokenyard.trace.start import DeploymentHeader
from tokenyard.trace.steps import facts_of

VECTORS = Path(__file__).parent / "sample_vectors.json"
ABOUT = (
    "Traces as text, and what must be said of each of their steps and of the whole. steps: number, bucket, reason, "
    "unadmitted, effectiveFree, minNeed, tokens, runningConsumed. report: as `tokenyard report --json` prints it."
)
PRESSURE: dict[str, Any] = {"num_gpu_blocks": 15, "max_num_seqs": 4}
RECORDED: dict[str, dict[str, Any]] = {
    "memory runs out": PRESSURE,
    "lists bounded": PRESSURE | {"trace": {"max_ids_per_step": 2}},
    "seats taken, two steps in flight, seen late": {"max_num_seqs": 2, "async_scheduling": True, "late": 0.125},
    "whole prompts, some passed over": {
        "enable_chunked_prefill": False,
        "skip_oversized_prefill": True,
        "max_num_batched_tokens": 40,
        "max_model_len": 40,
    },
    "some cancelled, refused and unfinished": PRESSURE | {"until": 6},
    "some sent again": PRESSURE | {"again": (2, 4, 5)},
}
NAMES = [*RECORDED, "of another emitter", "damaged"]
NOT_NEEDED = {"config", "tokenyard_version", "gpu_cached_blocks", "load_kv_async", "priority", "policy", "status"}
NEEDED = {"step", "queue", "req_id", "num_prompt_tokens", "num_cached_tokens"}
REPORTED = [
    *["steps", "buckets", "reasons", "recorded_reasons", "unseen_s", "disagreements", "prefix_hit_rate"],
    *[
        "prefix_lookups",
        "preemptions",
        "recomputed_tokens",
        "token_budget_use",
        "running",
        "waiting",
        "peak_kv_use",
        "queue_ms",
        "ttft_ms",
    ],
    *["tpot_ms", "e2e_ms", "itl_ms", "outcomes", "attempts", "reading", "header"],
]


def recorded(path: Path, name: str) -> tuple[list[str], list[str]]:
    """The lines of a short life under pressure: the steps file's, the requests file's."""
    settings = dict(RECORDED[name])
    late, until, again = settings.pop("late", 0.0), settings.pop("until", None), settings.pop("again", ())
    toy = RecordedYard(path, trace={"request_records": True} | settings.pop("trace", {}), **settings)
    rng = random.Random(name)
    toy.now = 1_713_567_000.25
    for number in range(7):
        job = f"job_{number % 3:04}"
        toy.add(
            f"{job}_t{number // 3}",
            rng.randint(4, 30),
            max_tokens=rng.randint(2, 6),
            arrival_time=toy.now - late * number,
            job_id=job,
        )
        if number % 3 == 2:
            toy.step()
    if until is not None:
        toy.recorder.request_refused(toy.now, make_request("refused", 500, arrival_time=toy.now))
    while toy.scheduler.has_requests() and toy.scheduler.step != until:
        toy.step()
        if until is not None and toy.scheduler.step == 4:
            toy.abort(next(iter(toy.scheduler.requests)))
        if toy.scheduler.step in again:
            given_up = list(toy.scheduler.requests)[-1]
            first, _, attempt = given_up.partition("~")
            toy.abort(given_up)
            toy.add(f"{first}~{int(attempt or 1) + 1}", 12, max_tokens=3, arrival_time=toy.now)
    toy.writer.close()
    return [slim(line) for line in lines_of(path)], [slim(line, NEEDED) for line in lines_of(path, "requests")]


def slim(line: bytes, needed: set[str] | None = None) -> str:
    fields = json.loads(line).items()
    return written({name: value for name, value in fields if (name in needed if needed else name not in NOT_NEEDED)})


def written(record: dict[str, Any]) -> str:
    return json.dumps(record, separators=(",", ":"))


def of_another_emitter() -> tuple[list[str], list[str]]:
    """Steps around every threshold of the classifier, fields missing here and there, nothing recorded."""
    rng = random.Random(2)
    steps, requests = [], []
    for step in range(90):
        waiting = [f"swe_{rng.randrange(90):04}_t{rng.randrange(12)}" for _ in range(rng.choice((0, 1, 3)))]
        running = [f"run_{number}" for number in range(rng.choice((0, 2, 4)))]
        snapshot = {
            "event": "step_snapshot",
            "step": step,
            "ts": 50.0 + step / 4,
            "free_blocks": rng.choice((0, 19, 20, 199, 200, 230, 500, 501, 9000)),
            "total_blocks": 10318,
            "num_running": len(running),
            "num_waiting": len(waiting),
            "running_req_ids": running,
            "waiting_req_ids": waiting,
            "max_num_scheduled_tokens": 2048,
            "max_num_running_reqs": rng.choice((4, 100)),
        }
        admitted = waiting[: rng.choice((0, 0, 1, 3))]
        tokens = {name: rng.choice((1, 1, 17, 480)) for name in [*running[1:], *admitted]}
        if tokens and rng.random() < 0.15:
            tokens[next(iter(tokens))] = rng.choice((1945, 1946, 2048))
        decision = {
            "event": "step_decision",
            "step": step,
            "scheduled_new_req_ids": admitted,
            "scheduled_resumed_req_ids": [],
            "scheduled_running_req_ids": running[1:],
            "preempted_req_ids": [],
            "num_scheduled_tokens": tokens,
        }
        for record in (snapshot, decision):
            for name in list(record)[2:]:
                if rng.random() < 0.03:
                    del record[name]
            steps.append(written(record))
        if rng.random() < 0.5:
            for name in waiting:
                cached = rng.choice((0, 16, 90))
                request = {
                    "step": step,
                    "queue": "waiting",
                    "req_id": name,
                    "num_prompt_tokens": rng.choice((90, 3200, 8410)),
                }
                requests.append(written(request | {"num_cached_tokens": cached}))
    return steps, requests


def damaged(lines: list[str]) -> list[str]:
    """Lines of a good trace, mistreated."""
    rng = random.Random(3)
    out: list[str] = []
    for line in lines:
        record = json.loads(line)
        chance = rng.random()
        if chance < 0.04:
            out.append(line[: len(line) // 2])
        elif chance < 0.08 and record["event"] in ("step_snapshot", "step_decision"):
            out += [line, line]
        elif chance < 0.12:
            out.insert(max(len(out) - 2, 0), line)
        elif chance < 0.16:
            out.append(
                written(record | {rng.choice(("free_blocks", "num_running", "waiting_req_ids", "ts")): {"not": "so"}})
            )
        elif chance < 0.19:
            out.append(written(record | {"event": "of_tomorrow"}))
        elif chance < 0.21:
            out.append(written(record | {"step": None}))
        elif chance < 0.25:
            out.append(written(record | {"free_blocks": "12", "constructor": 1, "__proto__": {"event": 2}}))
        else:
            out.append(line)
    return [*out, "[]", "", '{"event":"step_snapshot","step":99']


def make(path: Path) -> dict[str, tuple[list[str], list[str]]]:
    samples = {name: recorded(path / name.replace(" ", "-"), name) for name in RECORDED}
    steps, requests = samples["memory runs out"]
    return samples | {"of another emitter": of_another_emitter(), "damaged": (damaged(steps), requests[:-5])}


def judged(path: Path, steps: list[str], requests: list[str]) -> dict[str, Any]:
    """What this package says of a sample."""
    path.mkdir(exist_ok=True)
    for kind, lines in (("steps", steps), ("requests", requests)):
        (path / f"sched_trace.sample.{kind}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    reader = TraceReader(path)
    rows = []
    for step in reader.steps():
        facts = facts_of(step, (reader.start.block_size if reader.start else None) or CLASSIFIER_BLOCK_SIZE)
        verdict = classify(facts)
        numbers = verdict.unadmitted, verdict.effective_free, facts.min_need, facts.token_sum, facts.running_consumed
        rows.append([step.number, verdict.bucket.value, verdict.reason and verdict.reason.value, *numbers])
    report = json.loads(msgspec.json.encode(summarize(path)))
    for name in ("source", *DeploymentHeader.__struct_fields__):
        report["header"].pop(name)
    report["reading"].pop("first_bad_lines")
    return {"steps": rows, "report": {name: report[name] for name in REPORTED}}


@pytest.mark.skipif("TOKENYARD_UPDATE_VECTORS" not in os.environ, reason="only makes the vectors anew")
def test_make_vectors(tmp_path: Path) -> None:
    rows = []
    for name, (steps, requests) in make(tmp_path).items():
        expect = judged(tmp_path / f"{name}-read".replace(" ", "-"), steps, requests)
        parts = [
            f'{{"name":{json.dumps(name)}',
            *(
                f'"{kind}":[\n' + ",\n".join(map(json.dumps, lines)) + "]"
                for kind, lines in (("lines", steps), ("requests", requests))
            ),
            '"expect":{"steps":[\n'
            + ",\n".join(json.dumps(row, separators=(",", ":")) for row in expect["steps"])
            + "]",
            f'"report":{json.dumps(expect["report"], separators=(",", ":"))}}}}}',
        ]
        rows.append(",\n".join(parts))
    vectors = ",\n".join(rows)
    VECTORS.write_text(f'{{"about":{json.dumps(ABOUT)},\n"vectors":[\n{vectors}\n]}}\n', encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_sample(tmp_path: Path, name: str) -> None:
    vectors = json.loads(VECTORS.read_text(encoding="utf-8"))["vectors"]
    (vector,) = [each for each in vectors if each["name"] == name]
    assert judged(tmp_path / "trace", vector["lines"], vector["requests"]) == vector["expect"]


def test_samples_reach_every_bucket_and_reason() -> None:
    """But for `idle`, which a replay never reaches, and what needs a trace without any field."""
    vectors = json.loads(VECTORS.read_text(encoding="utf-8"))["vectors"]
    buckets = {row[1] for vector in vectors for row in vector["expect"]["steps"]}
    reasons = {row[2] for vector in vectors for row in vector["expect"]["steps"]}
    assert len(buckets) == 10
    assert len(reasons - {None}) == 9
