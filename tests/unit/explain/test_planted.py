"""Traces with something planted in them: the answer names what it is, since when, whose it is, and what would help.

Half of them are written in the bare format by an emitter of another kind (``tests/support/bare.py``), half by replays.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.support.bare import Engine, Turn, write_bare
from tests.unit.explain.test_bare import chat

import tokenyard as ty
from tokenyard.explain.answer.answer import Answer

SECONDS = 120.0
QWEN = ty.Deployment(model="Qwen/Qwen3-8B", gpu="l40s", max_model_len=32_768)


class Truth(NamedTuple):
    """What was planted."""

    write: Callable[[Path], None]
    code: str
    cause: str | None
    since: float | None = None
    """Seconds after the trace's beginning; None: it is not said."""
    who: tuple[str, str] | None = None
    remedy: str | None = None
    """What the first remedy begins with; None: nothing helps, or nothing has to."""
    until: float | None = None


def bare(engine: Engine, turns: list[Turn], seconds: float = SECONDS) -> Callable[[Path], None]:
    return lambda folder: (write_bare(folder, engine, turns, seconds), None)[1]


def engines(*rates: float) -> Callable[[Path], None]:
    """Engines beside each other, each with a rate of its own."""

    def write(folder: Path) -> None:
        for rank, rate in enumerate(rates):
            write_bare(folder / f"rank-{rank}", Engine(seats=8), chat(rate, seed=rank), SECONDS)

    return write


def replayed(
    make: Callable[[random.Random], list[dict[str, Any]]], deployment: ty.Deployment, **more: Any
) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        rows = sorted(make(random.Random(1)), key=lambda row: row["arrival_time"])
        workload = folder.with_suffix(".jsonl")
        workload.write_text("\n".join(map(json.dumps, rows)), "utf-8")
        ty.run(workload, deployment, trace=folder, rows=False, **more)

    return write


def questions(rng: random.Random, rate: float, seconds: float = SECONDS) -> list[dict[str, Any]]:
    at, rows = 0.0, list[dict[str, Any]]()
    while (at := at + rng.expovariate(rate)) < seconds:
        prompt, output = int(rng.lognormvariate(6, 0.6)) + 20, int(rng.lognormvariate(4, 0.6)) + 5
        rows.append({"request_id": f"r{len(rows)}", "arrival_time": at, "prompt_len": prompt, "max_tokens": output})
    return rows


def with_a_tenant(rng: random.Random) -> list[dict[str, Any]]:
    rows = [row | {"cache_salt": rng.choice("abcd")} for row in questions(rng, 4)]
    long: dict[str, Any] = {"prompt_len": 15_000, "max_tokens": 30, "cache_salt": "zeta"}
    return rows + [{"request_id": f"z{i}", "arrival_time": 60 + i / 2, **long} for i in range(50)]


def with_an_adapter(rng: random.Random) -> list[dict[str, Any]]:
    rows = [
        row | ({"lora_name": rng.choice(["sql", "law"])} if rng.random() < 0.7 else {}) for row in questions(rng, 4)
    ]
    tax: dict[str, Any] = {"prompt_len": 600, "max_tokens": 150, "lora_name": "tax"}
    return rows + [{"request_id": f"t{i}", "arrival_time": 50 + i / 2, **tax} for i in range(60)]


def with_essays(rng: random.Random) -> list[dict[str, Any]]:
    long: dict[str, Any] = {"prompt_len": 100, "max_tokens": 1500}
    essays = [{"request_id": f"e{i}", "arrival_time": 40 + 0.3 * i, "job_id": f"essay/{i}", **long} for i in range(50)]
    return questions(rng, 2) + essays


def with_a_hot_session(rng: random.Random) -> list[dict[str, Any]]:
    return [
        row | {"job_id": "u99/s" if rng.random() < 0.6 else f"u{rng.randrange(60)}/s"} for row in questions(rng, 30, 40)
    ]


FLOOD = [Turn(40 + i / 8, f"zeta_{i:04}", 5000, 8) for i in range(240)]
ESSAYS = [Turn(40 + 0.4 * i, f"essay/{i}", 200, 1500) for i in range(30)]
ZETA = "9d221f0344f73f11"
"""Hash of the salt of tenant zeta."""
PLANTED: dict[str, Truth] = {
    "nothing": Truth(bare(Engine(), chat(2)), "idle", None),
    "flood": Truth(
        bare(Engine(), chat(3) + FLOOD),
        "held_back",
        "held_back",
        40,
        ("user", "zeta"),
        "limit jobs zeta... to about 2",
        90,
    ),
    "hog": Truth(
        bare(Engine(blocks=1_450), [*chat(3), Turn(20, "hog", 20_000, 2_000)]),
        "held_back",
        "held_back",
        26,
        ("request", "hog_t58"),
        "bound how long one request may be",
        110,
    ),
    "eight seats": Truth(
        bare(Engine(seats=8), chat(4)), "overloaded", "held_back", None, None, "raise max_num_seqs to"
    ),
    "a pool that halves": Truth(
        bare(Engine(blocks=400, halved_at=60), chat(4)), "overloaded", "pool_fell", 60, None, "give the engine its KV"
    ),
    "pins that leak": Truth(
        bare(Engine(blocks=2_000, leaks_from=30), chat(4)), "stuck", "pins_leak", 30, None, "let the pins go"
    ),
    "a scheduler that is stuck": Truth(
        bare(Engine(stuck_from=70), chat(3)), "stuck", "stuck", 70, None, "restart the engine"
    ),
    "essays": Truth(
        bare(Engine(blocks=700), chat(2) + ESSAYS),
        "overloaded",
        "held_back",
        50,
        ("user", "essay"),
        "limit how many of jobs essay... run at once",
    ),
    "a cache that is cold": Truth(
        bare(Engine(hits=0.8, cold_from=60), chat(2)), "idle", "cache_missed", 60, None, None
    ),
    "one hot engine": Truth(engines(4, 1, 1), "overloaded", "hot_engine", None, None, "choose a router"),
    "a tenant": Truth(
        replayed(with_a_tenant, QWEN),
        "overloaded",
        "held_back",
        60,
        ("tenant", ZETA),
        f"limit tenant {ZETA} to about ",
        144,
    ),
    "an adapter": Truth(
        replayed(with_an_adapter, QWEN.with_(max_loras=2, enable_lora=True)),
        "held_back",
        "held_back",
        50,
        ("lora", "tax"),
        "raise max_loras to 3",
        83,
    ),
    "a preemption storm": Truth(
        replayed(with_essays, QWEN.with_(num_gpu_blocks_override=1500, max_model_len=4096)),
        "held_back",
        "preemption_storm",
        57,
        ("user", "essay"),
        "limit how many of jobs essay... run at once",
        123,
    ),
    "a hot session": Truth(
        replayed(with_a_hot_session, QWEN.with_(data_parallel_size=4, max_num_seqs=8), router="session-affinity"),
        "overloaded",
        "hot_engine",
        1,
        None,
        "choose a router",
        173,
    ),
}


def answer_to(folder: Path) -> tuple[Answer, float]:
    report = ty.report(folder)
    return report.answer, report.progress.start_ts or 0.0


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_what_was_planted_is_named(tmp_path: Path, name: str) -> None:
    truth = PLANTED[name]
    truth.write(tmp_path / "it")
    answer, start = answer_to(tmp_path / "it")
    whose = None if not answer.causes else answer.causes[0].whose
    assert (answer.code, answer.cause) == (truth.code, truth.cause)
    assert (whose and (whose.kind, whose.name)) == truth.who
    if truth.since is not None:
        assert answer.since_ts is not None
        assert answer.since_ts - start == pytest.approx(truth.since, abs=3)
    assert (None if answer.until_ts is None else round(answer.until_ts - start)) == (
        None if truth.until is None else pytest.approx(truth.until, abs=3)
    )
    first = answer.remedies[0].title if answer.remedies else None
    assert (first is None) == (truth.remedy is None)
    assert (first or "").startswith(truth.remedy or "")
    if whose is not None:
        assert whose.share > 0.5
        assert f"{100 * whose.share:.1f} %" in answer.sentence
