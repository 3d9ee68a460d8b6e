"""Which requests get an answer, and which do not: keys, full queues, time, people who leave, an engine that dies."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import httpx
import pytest
from tests.support.gathering import gather_until
from tests.support.toy_model import text_to, toy_core, toy_tokenizer
from tests.unit.server.openai.api_server import serving_api
from tests.unit.server.real_server import serving_app

from tokenyard.core.request import Request
from tokenyard.core.sched.connector import KVConnector, Match
from tokenyard.serve.async_llm import AsyncLLM
from tokenyard.serve.openai.app import make_api
from tokenyard.serve.openai.asking import ClientLimits, ServerContext

TOKENIZER = toy_tokenizer()


def body(prompt: str = "hello", **fields: Any) -> dict[str, Any]:
    return {"model": "toy", "prompt": prompt, **fields}


def error_of(response: httpx.Response) -> dict[str, Any]:
    error: dict[str, Any] = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


# ---- crowds


async def stream_text(client: httpx.AsyncClient, prompt: str, max_tokens: int, leaves_after: int | None) -> str:
    """The text of a stream; of one who leaves after so many events, what there was until then."""
    text, events = "", 0
    asked = body(prompt, max_tokens=max_tokens, stream=True)
    async with client.stream("POST", "/v1/completions", json=asked) as response:
        assert response.status_code == 200
        async for line in response.aiter_lines():
            if not line.startswith("data: {"):
                continue
            text += json.loads(line[6:])["choices"][0]["text"]
            events += 1
            if leaves_after is not None and events >= leaves_after:
                break
    return text


@pytest.mark.slow
@pytest.mark.parametrize("async_scheduling", [False, True])
def test_a_hundred_streams_a_third_of_which_is_left(async_scheduling: bool) -> None:
    """Must show: every answer right, no request's blocks kept, no task left."""
    chance = random.Random(14)
    plan = [(f"client {i}", chance.randint(1, 60), chance.randint(1, 20) if i % 3 == 0 else None) for i in range(100)]

    async def everybody(url: str) -> list[str]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=url, timeout=120, limits=limits) as client:
            return await asyncio.gather(*(stream_text(client, *each) for each in plan))

    with serving_api(async_scheduling=async_scheduling, num_gpu_blocks=250, max_num_seqs=32) as server:
        texts = asyncio.run(everybody(server.url))
        for (prompt, max_tokens, leaves_after), text in zip(plan, texts, strict=True):
            whole = text_to(TOKENIZER.encode(prompt), max_tokens)
            assert whole.startswith(text) if leaves_after is not None else text == whole
        server.until_empty()
        assert any(len(step) > 16 for step in server.executor.steps)


def test_who_waits_for_a_whole_answer_and_leaves_is_aborted() -> None:
    with serving_api(seconds=0.01) as server:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{server.url}/v1/completions", json=body(max_tokens=400), timeout=0.3)
        server.until_empty()
        assert len(server.executor.steps) < 400


def test_a_full_queue_asks_to_come_again() -> None:
    with serving_api(max_num_seqs=1, max_queued_requests=1, seconds=0.02) as server:

        async def crowd() -> list[httpx.Response]:
            async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
                asked = [client.post("/v1/completions", json=body(max_tokens=20)) for _ in range(8)]
                return await asyncio.gather(*asked)

        answers = asyncio.run(crowd())
        codes = [each.status_code for each in answers]
        assert sorted(set(codes)) == [200, 503]
        for each in answers:
            if each.status_code == 503:
                assert each.headers["Retry-After"] == "1"
                assert error_of(each)["code"] == "queue_full"
            else:
                assert each.json()["choices"][0]["text"] == text_to(TOKENIZER.encode("hello"), 20)
        assert httpx.post(f"{server.url}/v1/completions", json=body()).status_code == 200


def test_sixteen_clients_share_a_step_if_they_are_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Document 001: 16 prompts that fit the budget together."""
    gather_until(16, monkeypatch)
    with serving_api(gather_ms=500) as server:

        async def crowd() -> None:
            async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
                asked = [client.post("/v1/completions", json=body([i] * 16, max_tokens=4)) for i in range(16)]  # type: ignore[arg-type]
                await asyncio.gather(*asked)

        asyncio.run(crowd())
        assert len(server.executor.steps[0]) == 16


# ---- time and size


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_takes_too_long_ends(stream: bool) -> None:
    with serving_api(limits=ClientLimits(request_timeout_s=0.3), seconds=0.02) as server:
        answer = httpx.post(f"{server.url}/v1/completions", json=body(max_tokens=400, stream=stream))
        if stream:
            *_, last, done = [line for line in answer.text.split("\n\n") if line]
            assert json.loads(last[6:])["error"]["code"] == "timeout"
            assert done == "data: [DONE]"
        else:
            assert answer.status_code == 504
            assert error_of(answer)["code"] == "timeout"


def test_bodies_are_bounded_and_json() -> None:
    with serving_api(limits=ClientLimits(max_body_bytes=1000)) as server:
        url = f"{server.url}/v1/completions"
        assert httpx.post(url, json=body("x" * 2000)).status_code == 413
        assert httpx.post(url, content="{}").status_code == 415
        kind = {"Content-Type": "application/json"}
        for content in ("", "{", "[]", "1", '{"prompt": "\\ud800"}', "[" * 900, '{"prompt": NaN}'):
            answer = httpx.post(url, content=content, headers=kind)
            assert answer.status_code == 400, content
            assert error_of(answer)["type"] == "invalid_request_error"


# ---- who may ask


def test_keys() -> None:
    with serving_api(api_keys=("first", "second")) as server, httpx.Client(base_url=server.url) as client:
        for headers in ({}, {"Authorization": "Bearer third"}, {"Authorization": "first"}, {"Authorization": "Bearer"}):
            for method, path in (
                ("GET", "/v1/models"),
                ("POST", "/v1/completions"),
                ("GET", "/metrics"),
                ("GET", "/x"),
            ):
                refused = client.request(method, path, headers=headers)
                assert refused.status_code == 401
                assert error_of(refused)["code"] == "invalid_api_key"
                assert refused.headers["WWW-Authenticate"] == "Bearer"
        for key in ("first", "second"):
            assert client.get("/v1/models", headers={"Authorization": f"Bearer {key}"}).status_code == 200
        assert client.get("/health").status_code == 200


def test_pages_of_other_sites_are_refused() -> None:
    with serving_api() as server:
        for name, value in (("Host", "evil.example"), ("Origin", "http://evil.example")):
            refused = httpx.post(f"{server.url}/v1/completions", json=body(), headers={name: value})
            assert refused.status_code == 403
            assert name in error_of(refused)["message"]


def test_paths_that_are_not_there() -> None:
    with serving_api() as server:
        assert error_of(httpx.get(f"{server.url}/v1/nothing"))["type"] == "not_found_error"
        wrong = httpx.get(f"{server.url}/v1/completions")
        assert (wrong.status_code, wrong.headers["Allow"]) == (405, "POST")
        error_of(wrong)


# ---- what operators ask


def test_metrics_have_vllms_names() -> None:
    with serving_api() as server:
        httpx.post(f"{server.url}/v1/completions", json=body(max_tokens=7))
        text = httpx.get(f"{server.url}/metrics").text
        assert 'vllm:generation_tokens_total{engine="0",model_name="toy"} 7.0' in text
        assert "vllm:time_to_first_token_seconds_bucket" in text


def test_tokenize_and_back() -> None:
    with serving_api() as server, httpx.Client(base_url=server.url) as client:
        ids = TOKENIZER.encode("größer")
        answer = client.post("/tokenize", json={"prompt": "größer", "return_token_strs": True}).json()
        assert (answer["tokens"], answer["count"], answer["max_model_len"]) == (ids, len(ids), 512)
        assert answer["token_strs"][0] == "g"
        assert client.post("/detokenize", json={"tokens": ids}).json() == {"prompt": "größer"}
        chat = client.post("/tokenize", json={"messages": [{"role": "user", "content": "hi"}]}).json()
        assert (
            client.post("/detokenize", json={"tokens": chat["tokens"]}).json()["prompt"] == "<s>[user] hi\n[assistant] "
        )
        assert error_of(client.post("/detokenize", json={"tokens": [272]}))["param"] == "tokens"
        assert error_of(client.post("/tokenize", json={}))["param"] == "prompt"


def test_an_engine_that_dies_answers_everybody_and_says_so() -> None:
    with serving_api(max_num_seqs=2, seconds=0.005) as server:
        server.executor.fails_at = 30

        async def crowd() -> list[httpx.Response]:
            async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
                asked = [
                    client.post("/v1/completions", json=body(max_tokens=100, stream=bool(i % 2))) for i in range(6)
                ]
                return await asyncio.gather(*asked)

        for answer in asyncio.run(crowd()):
            assert "the engine has ended: RuntimeError: the device is gone" in answer.text
        assert httpx.get(f"{server.url}/health").status_code == 500
        assert error_of(httpx.post(f"{server.url}/v1/completions", json=body()))["code"] == "engine_dead"
        assert httpx.get(f"{server.url}/v1/models").status_code == 200


def test_a_server_that_goes_down_takes_nobody_new() -> None:
    with serving_api(seconds=0.01) as server:
        server.context.is_draining = True
        refused = httpx.post(f"{server.url}/v1/completions", json=body())
        assert (refused.status_code, error_of(refused)["code"]) == (503, "draining")
        assert httpx.get(f"{server.url}/health").status_code == 503


@pytest.mark.slow
def test_requests_in_a_row_leave_nothing_behind() -> None:
    """Memory, tasks and blocks; ``lab/serve_soak.py`` does the same for ten thousand."""
    with serving_api() as server, httpx.Client(base_url=server.url, timeout=60) as client:
        for i in range(120):
            prompt = f"request {i}"
            answer = client.post("/v1/completions", json=body(prompt, max_tokens=1 + i % 20)).json()
            assert answer["choices"][0]["text"] == text_to(TOKENIZER.encode(prompt), 1 + i % 20)
        server.until_empty()
        processor = server.context.llm.processor
        assert (len(processor), processor.num_requests) == (0, 0)


class Endless(KVConnector):
    """Has something of long prompts, which never comes."""

    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> Match:
        return Match(16, is_async=True) if request.num_prompt_tokens > 100 else Match(0)


def test_a_load_that_never_comes_holds_its_request_alone() -> None:
    """Its blocks stay: the load could still write into them."""
    core = toy_core(kv_connector=Endless())
    free = core.scheduler.num_free_blocks
    context = ServerContext(
        llm=AsyncLLM(core, tokenizer=TOKENIZER), names=("toy",), limits=ClientLimits(request_timeout_s=0.3)
    )
    with serving_app(make_api(context)) as port:
        url = f"http://127.0.0.1:{port}/v1/completions"
        ended = httpx.post(url, json=body("x" * 150), timeout=60)
        assert (ended.status_code, error_of(ended)["code"]) == (504, "timeout")
        assert httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
        while core.scheduler.requests:
            pass
        assert core.scheduler.num_free_blocks == free - 4
        context.limits = ClientLimits()
        assert httpx.post(url, json=body(max_tokens=3), timeout=60).json()["usage"]["completion_tokens"] == 3
