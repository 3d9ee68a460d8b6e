"""A workload that is written and read again is the one it was: nothing that a replay sees is lost on the way."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.profiles import VLLM_0_33

from tokenyard.core.config import CacheConfig, SchedulerConfig
from tokenyard.core.request import MultiModalItem
from tokenyard.errors import WorkloadError
from tokenyard.explain.report.builder import ReportBuilder
from tokenyard.record.recorder import TraceRecorder
from tokenyard.sim.replay import replay
from tokenyard.steptime.model import ConstantLatency
from tokenyard.workload.builder import Text, WorkloadBuilder
from tokenyard.workload.load import GENERATORS, read_workload
from tokenyard.workload.measured import Measured
from tokenyard.workload.readers.plain import workload_lines
from tokenyard.workload.record import Clients, Remark, Workload, WorkloadRequest
from tokenyard.workload.tokens import HashedTokens, ListedTokens, Segment, StreamTokens

_UNSEEN = {"prompt", "arrival_time", "gap", "spacing", "lora_name", "cache_salt"}


def _seen(workload: Workload) -> list[Any]:
    """All that a replay sees: of requests every field, of prompts every token."""
    told: list[Any] = [workload.max_concurrency, workload.clients, workload.remarks]
    for each in workload:
        told.append({field.name: getattr(each, field.name) for field in fields(each) if field.name not in _UNSEEN})
        told.append((each.gap, each.spacing) if each.after else each.arrival_time)
        told.append((each.lora_name or None, each.cache_salt or None))  # an empty one is none
        told.append(each.prompt.tokens().tolist())
    return told


def _again(workload: Workload, folder: Path) -> Workload:
    path = folder / "again.jsonl"
    path.write_bytes(b"".join(workload_lines(workload)))
    return read_workload(path)


_SECONDS = st.floats(0, 1e6)
_SEEDS = st.integers(-(2**63), 2**63 - 1)
_NAMES = st.text(min_size=1, max_size=8)


def _hashed(ranges: list[tuple[int, int]], size: int, tail: int, scope: int, seed: int) -> HashedTokens:
    covered = sum(count for _, count in ranges) * size
    return HashedTokens(ranges, max(1, covered - size + 1 + tail), block_size=size, scope=scope, tail=seed)


_PROMPTS = st.one_of(
    st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=40).map(lambda ids: ListedTokens(np.array(ids, np.int32))),
    st.builds(
        _hashed,
        st.lists(st.tuples(st.integers(0, 2**62 - 4), st.integers(0, 4)), max_size=3),
        st.integers(1, 20),
        st.integers(0, 40),
        _SEEDS,
        _SEEDS,
    ),
    st.lists(st.tuples(_SEEDS, st.integers(0, 2**31), st.integers(0, 30)), min_size=1, max_size=4)
    .filter(lambda pieces: any(length for _, _, length in pieces))
    .map(lambda pieces: StreamTokens(*(Segment(seed, start, start + length) for seed, start, length in pieces))),
)


@st.composite
def _images(draw: st.DrawFn, num_tokens: int) -> tuple[MultiModalItem, ...]:
    items, at = [], 0
    while at < num_tokens and draw(st.booleans()):
        offset = draw(st.integers(at, num_tokens - 1))
        length = draw(st.integers(1, num_tokens - offset))
        flags = draw(st.none() | st.lists(st.booleans(), min_size=length, max_size=length).map(tuple))
        items.append(MultiModalItem(mm_hash=draw(_NAMES), offset=offset, length=length, is_embed=flags))
        at = offset + length
    return tuple(items)


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    # A file is text: half a pair of surrogates is none.
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)
_MEASURED = st.builds(
    Measured,
    ttft_s=st.none() | st.floats(0, 1e4),
    e2e_s=st.none() | st.floats(0, 1e4),
    cached_tokens=st.none() | st.integers(0, 999),
).filter(lambda each: any(value is not None for value in each))
_METAS = st.dictionaries(st.text(max_size=4), _JSON, max_size=3)


@st.composite
def _workloads(draw: st.DrawFn) -> Workload:
    requests: list[WorkloadRequest] = []
    for name in draw(st.lists(_NAMES, min_size=1, max_size=6, unique=True)):
        prompt = draw(_PROMPTS)
        after = draw(st.lists(st.sampled_from([r.request_id for r in requests]), max_size=2)) if requests else []
        length = draw(st.integers(1, 2**31 - 1))
        requests.append(
            WorkloadRequest(
                request_id=name,
                prompt=prompt,
                max_tokens=length,
                limit=draw(st.none() | st.integers(length, 2**31 - 1)),
                arrival_time=draw(_SECONDS),
                after=tuple(after),
                gap=draw(_SECONDS),
                spacing=draw(_SECONDS),
                job_id=draw(st.none() | st.text(max_size=8)),
                is_last_step=draw(st.booleans()),
                this_func_call=draw(st.none() | st.text(max_size=8)),
                priority=draw(st.integers(-(2**31) + 1, 2**31 - 1)),
                lora_name=draw(st.none() | st.text(max_size=4)),
                cache_salt=draw(st.none() | st.text(max_size=4)),
                images=draw(_images(len(prompt))),
                delay=draw(_SECONDS),
                patience=draw(st.none() | _SECONDS),
                output_seed=draw(_SEEDS),
                predicted_output_tokens=draw(st.none() | st.integers(0, 2**31 - 1)),
                meta=draw(_METAS),
                measured=draw(st.none() | _MEASURED),
            )
        )
    clients = st.builds(Clients, timeout=st.floats(0.1, 1e6), retries=st.integers(0, 5), wait=_SECONDS)
    remarks = st.lists(st.builds(Remark, _NAMES, st.text(), st.booleans()), max_size=2)
    return Workload(
        "drawn",
        requests,
        max_concurrency=draw(st.none() | st.integers(1, 99)),
        notes=draw(remarks),
        clients=draw(st.none() | clients),
    )


@given(_workloads())
def test_any_workload_comes_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, workload: Workload) -> None:
    assert _seen(_again(workload, tmp_path_factory.getbasetemp())) == _seen(workload)


def test_every_field_of_a_request_is_drawn() -> None:
    """A field that is added is written too, or this list does not grow with it."""
    drawn = {*(field.name for field in fields(WorkloadRequest))}
    assert drawn == {
        *("request_id", "prompt", "max_tokens", "limit", "arrival_time", "after", "gap", "spacing", "job_id"),
        *("is_last_step", "this_func_call", "priority", "lora_name", "cache_salt", "images", "delay", "patience"),
        *("output_seed", "predicted_output_tokens", "meta", "measured"),
    }


@pytest.mark.parametrize("wrong", [{"priority": 2**40}, {"images": (MultiModalItem(mm_hash="x", offset=9, length=9),)}])
def test_what_has_no_room_in_the_format_is_refused(wrong: dict[str, Any]) -> None:
    request = WorkloadRequest(request_id="a", prompt=StreamTokens.unique(1, 5), max_tokens=1, **wrong)
    with pytest.raises(WorkloadError, match=rf"request 'a' cannot be written: {next(iter(wrong))}"):
        list(workload_lines(Workload("mine", [request])))


def _weka(tmp_path: Path) -> Path:
    """Eight sessions of two calls, each with ids of its own from 0 on."""
    path = tmp_path / "weka.jsonl"
    call = {"type": "s", "out": 8, "api_time": 1.0, "think_time": 0.5, "stop": "tool_use"}
    calls = [
        {**call, "t": 0.0, "in": 640, "keep": 0, "new": [[0, 10]]},
        {**call, "t": 2.0, "in": 960, "keep": 10, "new": [[10, 5]]},
    ]
    session = {"block_size": 64, "hash_id_scope": "local", "requests": calls}
    path.write_text("".join(json.dumps({"id": f"s{i}"} | session) + "\n" for i in range(8)))
    return path


def _lmcache(tmp_path: Path) -> Path:
    path = tmp_path / "lmcache.jsonl"
    row = {"suite": "a", "input_length": 200, "output_length": 9, "hash_ids": [1, 2, 3]}
    lines = [row | {"session": f"s{i % 3}", "timestamp": 700.0 * i} for i in range(9)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def _mooncake(tmp_path: Path) -> Path:
    path = tmp_path / "mooncake.jsonl"
    row = {"input_length": 1100, "output_length": 9, "hash_ids": [4, 5, 6]}
    path.write_text("".join(json.dumps(row | {"timestamp": 100 * i}) + "\n" for i in range(5)))
    return path


def _rows(tmp_path: Path, name: str, header: str, row: str) -> Path:
    path = tmp_path / name
    path.write_text("".join(f"{line}\n" for line in (header, *(row.format(i) for i in range(5)))))
    return path


_SOURCES: dict[str, Callable[[Path], Workload]] = {
    **{name: lambda _, name=name: read_workload(name, limit=12) for name in GENERATORS},  # type: ignore[misc]
    "weka": lambda tmp_path: read_workload(_weka(tmp_path)),
    "lmcache": lambda tmp_path: read_workload(_lmcache(tmp_path)),
    "mooncake": lambda tmp_path: read_workload(_mooncake(tmp_path)),
    "azure": lambda tmp_path: read_workload(
        _rows(tmp_path, "a.csv", "TIMESTAMP,ContextTokens,GeneratedTokens", "2023-11-16 18:17:0{}.5,90,5")
    ),
    "servegen": lambda tmp_path: read_workload(
        _rows(tmp_path, "s.csv", "t_s,client,input_tokens,output_tokens", "{},1,70,9")
    ),
    "a log with hits": lambda tmp_path: read_workload(
        _rows(tmp_path, "log.csv", "ts,prompt_tokens,completion_tokens,cached_tokens,user", "176400000{},99,5,64,u")
    ),
    "a closed loop": lambda _: read_workload("random", limit=9).with_max_concurrency(2),
    "clients who hang up": lambda _: read_workload("chat", limit=9).with_clients(Clients(timeout=3.0, retries=1)),
    "a way to the server": lambda _: read_workload("rag", limit=9).with_delays([0.01] * 9),
}


@st.composite
def _built(draw: st.DrawFn) -> Workload:
    """A few sessions and requests whose prompts share texts, ids and answers."""
    w = WorkloadBuilder("built", seed=draw(st.integers(0, 3)))
    texts: list[Text] = [w.text(100), w.text([3, 1, 4] * 11)]
    words = st.integers(1, 70) | st.sampled_from(texts) | st.just([7] * 20)
    for at in draw(st.lists(st.floats(0, 3), min_size=1, max_size=4)):
        prefix = draw(st.none() | words)
        if draw(st.booleans()):
            prompt = texts[0] + texts[1] if prefix is None else prefix
            w.request(
                at=at, prompt=prompt, output=draw(st.integers(1, 20)), cache_salt=draw(st.sampled_from([None, "a"]))
            )
            continue
        session = w.session(at=at, prefix=prefix, meta={"at": at})
        for k in range(draw(st.integers(1, 4))):
            session.turn(user=draw(words), output=draw(st.integers(1, 40)), think=draw(st.floats(0, 1)), meta={"k": k})
        texts.append(session.text)
    return w.build()


@given(_built())
def test_what_is_built_keeps_its_hits(tmp_path_factory: pytest.TempPathFactory, built: Workload) -> None:
    again = _again(built, tmp_path_factory.getbasetemp())
    assert _seen(again) == _seen(built)
    assert _figures(again) == _figures(built)


def _figures(workload: Workload) -> tuple[float, dict[str, float | None]]:
    """The hit rate and the times of a replay."""
    config = SchedulerConfig(max_num_batched_tokens=8192, max_num_seqs=64, max_model_len=65536, profile=VLLM_0_33)
    builder = ReportBuilder(())
    recorder = TraceRecorder(None, builder)
    replay(workload, config, CacheConfig(num_gpu_blocks=20_000), ConstantLatency(seconds=0.02), observer=recorder)
    report = builder.report()
    return report.prefix_hit_rate.local or 0.0, msgspec.to_builtins(report.ttft_ms)


@pytest.mark.parametrize("source", _SOURCES)
def test_generators_and_readers_keep_their_hits(source: str, tmp_path: Path) -> None:
    workload = _SOURCES[source](tmp_path)
    again = _again(workload, tmp_path)
    assert _seen(again) == _seen(workload)
    assert _figures(again) == _figures(workload)


def test_what_was_lost_is_there() -> None:
    """Else the figures above would be equal because there is nothing to lose."""
    assert _figures(read_workload("agentic", limit=5))[0] > 0.8
