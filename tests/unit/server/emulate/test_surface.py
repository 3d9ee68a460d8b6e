"""An emulated server answers as vLLM does: forms, codes, metrics, tools, adapters, sleep."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("starlette", reason="starlette is not installed (extra: server)")
pytest.importorskip("httpx", reason="httpx is not installed (extra: server)")
pytest.importorskip("prometheus_client", reason="prometheus_client is not installed (extra: server)")

from tests.unit.server.emulate.emulated import LINE, Emulated, emulated

from tokenyard.serve.recorded_surface import surface_of

TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "look_up",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 7}},
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    },
}


@pytest.fixture(scope="module")
def server() -> Iterator[Emulated]:
    with emulated(LINE + " --enable-lora --enable-auto-tool-choice --tool-call-parser hermes") as made:
        yield made


def events(server: Emulated, path: str, **fields: Any) -> list[dict[str, Any]]:
    """The chunks of a stream, without its end, which is looked at."""
    answer = server.post(path, stream=True, **fields)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    lines = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


def test_a_whole_chat_has_the_fields_of_vllm_in_their_order(server: Emulated) -> None:
    forms = surface_of("0.33").answers
    said = server.chat(max_tokens=5, ignore_eos=True)
    assert list(said) == list(forms["chat"])
    (choice,) = said["choices"]
    assert list(choice) == list(forms["chat_choice"])
    assert list(choice["message"]) == [name for name in forms["chat_message"] if name != "tool_calls"]
    assert list(said["usage"]) == list(forms["usage"])
    assert said["usage"]["completion_tokens"] == 5
    assert choice["finish_reason"] == "length"


def test_a_streamed_chat_is_told_as_vllm_tells_it(server: Emulated) -> None:
    first, *rest, last = events(
        server, "/v1/chat/completions", messages=[{"role": "user", "content": "hi"}], max_tokens=6, ignore_eos=True
    )
    head = ["id", "object", "created", "model", "choices"]
    assert list(first) == [*head, "prompt_token_ids", "prompt_text"]
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert all(
        list(each["choices"][0]) == ["index", "delta", "logprobs", "finish_reason", "token_ids"] for each in rest
    )
    assert list(last["choices"][0])[3:] == ["finish_reason", "stop_reason", "token_ids", "weight_versions"]
    assert list(last) == [*head, "system_fingerprint", "kv_transfer_params"]


def test_streams_and_whole_answers_count_alike(server: Emulated) -> None:
    chunks = events(
        server,
        "/v1/completions",
        prompt="one two three",
        max_tokens=9,
        ignore_eos=True,
        stream_options={"include_usage": True},
    )
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 9
    text = "".join(each["choices"][0]["text"] for each in chunks[:-1])
    assert server.post("/tokenize", prompt=text).json()["count"] == 9


@pytest.mark.parametrize(
    ("fields", "reason", "tokens"),
    [
        ({"max_tokens": 7, "ignore_eos": True}, "length", range(7, 8)),
        ({"max_tokens": 1500, "min_tokens": 1200}, "stop", range(1200, 1500)),
        ({"max_tokens": 1}, "length", range(1, 2)),
    ],
)
def test_limits_hold(server: Emulated, fields: dict[str, Any], reason: str, tokens: range) -> None:
    said = server.chat(**fields)
    assert said["choices"][0]["finish_reason"] == reason
    assert said["usage"]["completion_tokens"] in tokens


def test_stop_strings_end_an_answer() -> None:
    with emulated(answers="echo") as server:
        said = server.chat("alpha beta gamma", stop=["gamma"])
        assert said["choices"][0]["message"]["content"] == "alpha beta "
        assert said["choices"][0]["stop_reason"] == "gamma"
        assert server.chat("alpha beta gamma")["choices"][0]["finish_reason"] == "stop"


def test_n_answers_and_logprobs(server: Emulated) -> None:
    said = server.chat(n=3, max_tokens=4, ignore_eos=True, logprobs=True, top_logprobs=2)
    assert [choice["index"] for choice in said["choices"]] == [0, 1, 2]
    assert len({choice["message"]["content"] for choice in said["choices"]}) == 3
    for choice in said["choices"]:
        told = choice["logprobs"]["content"]
        assert len(told) == 4
        assert all(len(each["top_logprobs"]) == 2 and each["logprob"] < 0 for each in told)


@pytest.mark.slow
def test_tools_are_called_and_then_answered(server: Emulated) -> None:
    schema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    said = server.chat(tools=[TOOL])
    (choice,) = said["choices"]
    assert choice["finish_reason"] == "tool_calls"
    (call,) = choice["message"]["tool_calls"]
    schema.validate(json.loads(call["function"]["arguments"]), TOOL["function"]["parameters"])
    answered = [
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": "sunny"},
    ]
    after = server.post("/v1/chat/completions", messages=answered, tools=[TOOL]).json()
    assert "tool_calls" not in after["choices"][0]["message"]


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "look_up"}}])
def test_forced_tools_are_called(server: Emulated, choice: Any) -> None:
    (said,) = server.chat(tools=[TOOL], tool_choice=choice)["choices"]
    assert said["message"]["tool_calls"][0]["function"]["name"] == "look_up"


def test_schemas_are_kept_to(server: Emulated) -> None:
    schema = {"type": "object", "properties": {"x": {"enum": [1, 2]}}, "required": ["x"]}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    said = server.chat(response_format=form)
    assert json.loads(said["choices"][0]["message"]["content"])["x"] in (1, 2)
    said = server.chat(structured_outputs={"choice": ["yes", "no"]})
    assert said["choices"][0]["message"]["content"] in ("yes", "no")


def test_errors_are_those_of_vllm(server: Emulated) -> None:
    answer = server.post("/v1/completions", model="nope", prompt="hi")
    assert answer.status_code == 404
    assert answer.json()["error"] | {"message": ""} == {
        "message": "",
        "type": "NotFoundError",
        "param": "model",
        "code": 404,
    }
    assert server.post("/v1/completions", prompt="hi", max_tokens=-1).json()["error"]["type"] == "BadRequestError"
    assert server.client.get("/nope").json() == {"detail": "Not Found"}
    assert server.client.get("/v1/completions").json() == {"detail": "Method Not Allowed"}


def test_unknown_fields_are_passed_over(server: Emulated) -> None:
    assert server.chat(max_tokens=2, frobnicate=1, response_format={"type": "text", "other": 2})["choices"]


def test_every_metric_of_the_version_is_told(server: Emulated) -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    server.chat(max_tokens=3)
    families = {each.name: each for each in parser.text_string_to_metric_families(server.client.get("/metrics").text)}
    metrics = [each for each in surface_of("0.33").metrics if each.when != "speculation"]
    assert len(metrics) >= 40
    for known in metrics:
        family = families[known.name]
        assert family.type == known.kind
        labels = {name for sample in family.samples for name in sample.labels} - {"le"}
        assert labels == set(known.labels), known.name
        if known.kind == "histogram":
            told = {float(each.labels["le"]) for each in family.samples if each.name.endswith("_bucket")}
            assert told == {*known.bounds(2048), float("inf")}, known.name


def test_adapters_come_and_go(server: Emulated) -> None:
    assert server.post("/v1/load_lora_adapter", lora_name="sql", lora_path="/a").status_code == 200
    assert server.chat(model="sql", max_tokens=2)["model"] == "sql"
    assert server.post("/v1/load_lora_adapter", lora_name="sql", lora_path="/a").status_code == 400
    assert server.post("/v1/unload_lora_adapter", lora_name="sql").status_code == 200
    assert server.post("/v1/completions", model="sql", prompt="hi").status_code == 404


def test_sleep_and_pause(server: Emulated) -> None:
    assert server.client.post("/sleep").status_code == 200
    assert server.client.get("/is_sleeping").json() == {"is_sleeping": True}
    assert 'sleep_state="weights_offloaded"} 1.0' in server.client.get("/metrics").text
    assert server.client.post("/wake_up").status_code == 200
    assert server.client.post("/pause?mode=keep").json() == {"status": "paused"}
    assert server.client.post("/resume").json() == {"status": "resumed"}
    assert server.client.post("/reset_prefix_cache").status_code == 200
    assert server.chat(max_tokens=2)["choices"]


def test_responses(server: Emulated) -> None:
    said = server.post("/v1/responses", input="hi", max_output_tokens=4, ignore_eos=True).json()
    assert list(said)[: len(surface_of("0.33").answers["response"])] == list(surface_of("0.33").answers["response"])
    assert said["usage"]["output_tokens"] == 4
    streamed = server.post("/v1/responses", input="hi", max_output_tokens=4, stream=True).text
    kinds = [line.removeprefix("event: ") for line in streamed.splitlines() if line.startswith("event: ")]
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.incomplete", "it was cut at max_output_tokens: 0.33 says so"


def test_the_head_says_what_is_not_real(server: Emulated) -> None:
    head = server.client.get("/health").headers
    assert head["x-approximate-tokens"] == "true"
    assert float(head["x-emulated-time"]) > 1e9


def test_faults_come_and_go(server: Emulated) -> None:
    assert server.post("/emulate/fault", kind="status", status=429).status_code == 200
    assert server.post("/v1/completions", prompt="hi").status_code == 429
    assert server.client.delete("/emulate/fault?kind=status").json() == {"faults": []}
    assert server.post("/v1/completions", prompt="hi", max_tokens=2).status_code == 200
    assert server.post("/emulate/fault", kind="earthquake").status_code == 400


def test_nothing_is_held_in_the_end(server: Emulated) -> None:
    assert server.num_held_blocks == 0
    assert server.client.get("/load").json() == {"server_load": 0}


def test_a_crash_is_for_good() -> None:
    with emulated() as server:
        server.post("/emulate/fault", kind="crash")
        assert server.post("/v1/completions", prompt="hi").status_code == 500
        assert server.client.get("/health").status_code == 503
