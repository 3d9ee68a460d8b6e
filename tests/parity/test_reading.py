"""The scheduler to read, docs/reading/scheduler.py, decides as vLLM did wherever no other feature is used."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
READING = run_path(str(ROOT / "docs" / "reading" / "scheduler.py"))
VECTORS = ROOT / "conformance" / "vectors" / "0.22"
SETTINGS = {
    "max_num_seqs",
    "max_num_batched_tokens",
    "max_model_len",
    "num_blocks",
    "block_size",
    "enable_prefix_caching",
    "long_prefill_token_threshold",
    "scheduler_reserve_full_isl",
}
OF_A_REQUEST = {"id", "prompt", "max_tokens", "eos", "arrival_step", "arrival_time", "after"}
Json = dict[str, Any]


def _lines(name: str) -> Iterator[Json]:
    with gzip.open(VECTORS / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        yield from (json.loads(line) for line in file if line.strip())


def _is_plain(header: Json) -> bool:
    """Whether nothing but what the file has is switched on."""
    config = {name: value for name, value in header["config"].items() if value not in (None, False, 0, [])}
    fixed = {"policy": "fcfs", "enable_chunked_prefill": True}
    others = config.keys() - SETTINGS
    return (
        all(fixed.get(name) == config[name] for name in others)
        and config.keys() >= fixed.keys()
        and all({name for name, value in each.items() if value} <= OF_A_REQUEST for each in header["requests"])
        and not header.get("events")
    )


PLAIN = [name for name in json.loads((VECTORS / "manifest.json").read_text())["steps"] if _is_plain(next(_lines(name)))]


def test_the_plain_recordings_are_those_that_are_expected() -> None:
    """A rule that found none would compare nothing."""
    assert len(PLAIN) >= 15
    assert {"fcfs", "fcfs_cache_off", "prefixes_evicted", "pressure", "slices_of_24", "pool_filled_exactly"} <= {*PLAIN}


@pytest.mark.parametrize("name", PLAIN)
def test_it_decides_as_vllm_did(name: str) -> None:
    header, *ticks = _lines(name)
    settings = {setting: header["config"][setting] for setting in SETTINGS & header["config"].keys()}
    scheduler = READING["Scheduler"](**settings)
    specs = {each["id"]: each for each in header["requests"]}
    before: set[str] = set()
    for tick in ticks:
        for rid in tick.get("add", ()):
            spec = specs[rid]
            scheduler.add(READING["Request"](rid, list(spec["prompt"]), spec["max_tokens"], spec["eos"]))
        assert bool(scheduler.running or scheduler.waiting or scheduler.finished) == ("s" in tick)
        if "s" not in tick:
            continue
        step = scheduler.schedule()
        assert _decided(step, before) | _queues(scheduler) == {key: tick["s"][key] for key in _KEYS}, (
            f"tick {tick['t']}"
        )
        before = {each.request_id for each in step.num_tokens}
        if "u" in tick:
            news = scheduler.update(dict(tick["u"]["sampled"]))
            ours = {"out": [[*each, None] for each in news], **_queues(scheduler)}
            ours["nct"] = [[each.request_id, each.num_computed] for each in scheduler.running]
            assert ours == {key: tick["u"][key] for key in ours}, f"tick {tick['t']}"


_KEYS = ("new", "cached", "nst", "preempted", "finished", "running", "waiting", "free")


def _decided(step: Any, before: set[str]) -> Json:
    """In the words of the recordings; ``before``: who was scheduled in the step before."""
    start = {each: each.num_computed - count for each, count in step.num_tokens.items()}
    running = [each for each in step.num_tokens if each not in {*step.admitted, *step.resumed}]
    cached = [
        [
            each.request_id,
            start[each],
            each.num_output,
            [step.new_blocks[each]] if step.new_blocks[each] else None,
            int(each in step.resumed),
            int(each.request_id not in before),
        ]
        for each in (*running, *step.resumed)
    ]
    return {
        "new": [[each.request_id, start[each], [step.new_blocks[each]]] for each in step.admitted],
        "cached": cached,
        "nst": [[each.request_id, count] for each, count in step.num_tokens.items()],
        "preempted": sorted(each.request_id for each in step.preempted),
        "finished": sorted(step.finished_before),
    }


def _queues(scheduler: Any) -> Json:
    return {
        "running": [each.request_id for each in scheduler.running],
        "waiting": [each.request_id for each in scheduler.waiting],
        "free": len(scheduler.pool.free),
    }
