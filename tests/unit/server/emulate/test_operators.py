"""What operators of fleets ask an emulated server for: who tells KV events, what ends, what goes wrong on demand."""

from __future__ import annotations

import asyncio
import json

import pytest

pytest.importorskip("starlette", reason="starlette is not installed (extra: server)")
pytest.importorskip("httpx", reason="httpx is not installed (extra: server)")
pytest.importorskip("prometheus_client", reason="prometheus_client is not installed (extra: server)")

from tests.unit.server.emulate.emulated import LINE, emulated, emulated_servers

from tokenyard.errors import ConfigError
from tokenyard.serve.emulate.faults import read_fault

LONG = {"prompt": "hi", "max_tokens": 1500, "ignore_eos": True}


@pytest.mark.parametrize("named", [True, False], ids=["one", "all"])
def test_requests_under_way_are_ended(named: bool) -> None:
    async def run() -> None:
        async with emulated_servers(LINE, speed=1.0) as (emulation, (http,)):
            asked = [asyncio.create_task(http.post("/v1/completions", json={**LONG, "request_id": n})) for n in "ab"]
            while len(emulation.fronts[0].llm.processor.generations()) < 2:
                await asyncio.sleep(0.01)
            body = {"request_ids": ["cmpl-a"]} if named else {}
            answer = await http.post("/abort_requests", json=body)
            assert answer.json() == {"status": "aborted", "aborted": 1 if named else 2}
            ended = [(await each).json()["choices"][0] for each in (asked[:1] if named else asked)]
            assert {each["finish_reason"] for each in ended} == {"abort"}
            if named:
                assert not asked[1].done(), "the other goes on"
                asked[1].cancel()

    asyncio.run(run())


def test_each_server_tells_where_its_events_are() -> None:
    pytest.importorskip("zmq", reason="pyzmq is not installed (extra: zmq)")
    config = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": "tcp://127.0.0.1:*", "topic": "kv"}

    async def run() -> None:
        line = f"{LINE} --data-parallel-size 2 --kv-events-config '{json.dumps(config)}'"
        async with emulated_servers(line, servers=2) as (emulation, servers):
            told = [(await each.get("/kv_event_sources")).json() for each in servers]
            assert [list(each) for each in told] == [["0", "1"], ["0", "1"]]
            endpoints = [source["endpoint"] for each in told for source in each.values()]
            assert endpoints == [each.endpoint for each in emulation.publishers]
            assert len(set(endpoints)) == 4
            assert {source["topic"] for each in told for source in each.values()} == {"kv"}

    asyncio.run(run())


def test_a_fleet_is_scaled_to_what_it_is() -> None:
    with emulated(f"{LINE} --data-parallel-size 2") as server:
        assert server.post("/scale_elastic_ep", new_data_parallel_size=2).status_code == 200
        assert server.post("/scale_elastic_ep", new_data_parallel_size=4).status_code == 500


def test_a_batch_answers_each_talk() -> None:
    talks = [[{"role": "user", "content": "one " * number}] for number in (1, 40, 5)]
    with emulated(LINE) as server:
        alone = [
            server.post("/v1/chat/completions", messages=each, max_tokens=3, ignore_eos=True).json()["usage"]
            for each in talks
        ]
        told = server.post("/v1/chat/completions/batch", messages=talks, max_tokens=3, ignore_eos=True).json()
        assert [each["index"] for each in told["choices"]] == [0, 1, 2]
        assert told["usage"]["prompt_tokens"] == sum(each["prompt_tokens"] for each in alone)
        assert told["usage"]["completion_tokens"] == 9
        assert server.num_held_blocks == 0


def test_documents_are_told_the_nearest_first() -> None:
    with emulated(f"{LINE} --runner pooling", ignore_unmodelled=True) as server:
        documents = ["red", "green", "blue", "grey"]
        told = server.post("/v1/rerank", query="a colour", documents=documents, top_n=3).json()["results"]
        assert [documents[each["index"]] for each in told] == [each["document"]["text"] for each in told]
        scores = [each["relevance_score"] for each in told]
        assert scores == sorted(scores, reverse=True)
        assert len(scores) == 3
        scored = server.post("/score", queries="a colour", documents=documents).json()["data"]
        assert [each["index"] for each in scored] == [0, 1, 2, 3]
        assert all(-1 <= each["score"] <= 1 for each in scored)


# ---------------------------------------------------------------------------------------------------------------------
# Faults, as a newcomer tells them.


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("melt", "give a kind: slow_start, crash, cut"),
        ("throttle:status=429", "throttle has no status: it has seconds, factor"),
        ("crash:share=0.5", "crash has no share: it has seconds"),
        ("status:share=2", "give a share from 0 to 1"),
    ],
)
def test_a_fault_that_cannot_be_says_what_can(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        read_fault(text)


def test_faults_tell_the_fields_that_count() -> None:
    with emulated(LINE) as server:
        told = server.post("/emulate/fault", kind="throttle", factor=3).json()
        assert told == {"faults": [{"kind": "throttle", "seconds": None, "factor": 3.0}]}
        server.post("/emulate/fault", kind="crash")
        told = server.client.delete("/emulate/fault").json()
        assert [each["kind"] for each in told["faults"]] == ["crash"], "a crash is for good"
        assert server.client.get("/health").status_code == 503


def test_a_model_that_is_not_served_is_told_those_that_are() -> None:
    with emulated(f"{LINE} --enable-lora --lora-modules sql=/a") as server:
        said = server.post("/v1/completions", model="nope", prompt="hi")
        assert said.status_code == 404
        assert "give toy, sql" in said.json()["error"]["message"]
