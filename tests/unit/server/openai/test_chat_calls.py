"""Calls of tools over HTTP, by the official client; and defaults of the model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from tests.unit.server.openai.api_server import ApiServer, serving_api

from tokenyard.serve.generation import GenerationDefaults
from tokenyard.serve.openai.tool_calls.parsers import Hermes

MESSAGES: list[Any] = [{"role": "user", "content": "how is the weather?"}]
TOOLS: list[Any] = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
CALL = '<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>'


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    defaults = GenerationDefaults({"temperature": 0.25, "top_k": 7}, max_new_tokens=200)
    with serving_api(tool_parser=Hermes, defaults=defaults, max_model_len=1024) as served:
        yield served


@pytest.fixture
def client(server: ApiServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def says(text: str) -> dict[str, Any]:
    """What makes the model say exactly this."""
    return {"structured_outputs": {"choice": [text]}}


def test_calls_are_read_out_of_an_answer(client: openai.OpenAI) -> None:
    text = f"I look. {CALL} {CALL}"
    answer = client.chat.completions.create(model="toy", messages=MESSAGES, tools=TOOLS, extra_body=says(text))
    (choice,) = answer.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "I look."
    calls: list[Any] = choice.message.tool_calls or []
    assert [(each.type, each.function.name) for each in calls] == [("function", "weather")] * 2
    assert all(json.loads(each.function.arguments) == {"city": "Rome"} for each in calls)
    assert len({each.id for each in calls}) == 2
    back: list[Any] = [*MESSAGES, choice.message.model_dump(exclude_none=True)]
    back.append({"role": "tool", "tool_call_id": calls[0].id, "content": "sunny"})
    assert client.chat.completions.create(model="toy", messages=back, tools=TOOLS, max_tokens=3).choices


def test_a_stream_of_a_call(client: openai.OpenAI) -> None:
    text = f"I look. {CALL}"
    stream = client.chat.completions.create(
        model="toy", messages=MESSAGES, tools=TOOLS, stream=True, extra_body=says(text), logprobs=True
    )
    content, calls, ends, tokens = "", [], [], 0
    for chunk in stream:
        (choice,) = chunk.choices
        content += choice.delta.content or ""
        calls += choice.delta.tool_calls or []
        ends.append(choice.finish_reason)
        tokens += len(choice.logprobs.content or []) if choice.logprobs else 0
    assert content == "I look."
    (call,) = calls
    assert (call.index, call.type) == (0, "function")
    assert call.function is not None
    assert (call.function.name, json.loads(call.function.arguments or "")) == ("weather", {"city": "Rome"})
    assert ends == [None] * (len(ends) - 1) + ["tool_calls"]
    assert tokens >= len(text), "a token is a byte"


@pytest.mark.parametrize("more", [{}, {"tools": TOOLS, "tool_choice": "none"}])
def test_who_has_no_tools_gets_text(client: openai.OpenAI, more: dict[str, Any]) -> None:
    answer = client.chat.completions.create(model="toy", messages=MESSAGES, extra_body={**says(CALL), **more})
    (choice,) = answer.choices
    assert (choice.message.content, choice.message.tool_calls, choice.finish_reason) == (CALL, None, "stop")


def test_a_call_that_is_cut_is_text(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="toy", messages=MESSAGES, tools=TOOLS, max_tokens=20, extra_body=says(CALL)
    )
    (choice,) = answer.choices
    assert (choice.message.content, choice.finish_reason) == (CALL[:20], "length")


WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"$ref": "#/$defs/city"}, "days": {"type": "integer", "minimum": 1, "maximum": 3}},
    "required": ["city", "days"],
    "additionalProperties": False,
    "$defs": {"city": {"enum": ["Rome", "Oslo"]}},
}
STRICT: list[Any] = [
    {"type": "function", "function": {"name": "weather", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "ping", "parameters": {"type": "object", "additionalProperties": False}}},
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", ["weather", "ping", None])
def test_a_tool_that_has_to_be_called_is(client: openai.OpenAI, name: str | None, stream: bool) -> None:
    choice: Any = "required" if name is None else {"type": "function", "function": {"name": name}}
    answer: Any = client.chat.completions.create(
        model="toy", messages=MESSAGES, tools=STRICT, tool_choice=choice, stream=stream, max_tokens=200
    )
    if stream:
        choices = [chunk.choices[0] for chunk in answer]
        calls = [call for each in choices for call in each.delta.tool_calls or []]
        content, end = "".join(each.delta.content or "" for each in choices), choices[-1].finish_reason
    else:
        (one,) = answer.choices
        calls, content, end = one.message.tool_calls, one.message.content or "", one.finish_reason
    assert content == ""
    assert calls
    assert end == ("tool_calls" if name is None else "stop")
    for call in calls:
        assert call.function.name == name or (name is None and call.function.name in ("weather", "ping"))
        arguments = json.loads(call.function.arguments)
        if call.function.name == "weather":
            assert arguments["city"] in ("Rome", "Oslo")
            assert 1 <= arguments["days"] <= 3
        else:
            assert arguments == {}


NOBODY = {"type": "function", "function": {"name": "x"}}


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"tool_choice": "required"}, "tool_choice"),
        (
            {"tool_choice": NOBODY, "tools": STRICT},
            "tool_choice.function.name",
        ),
        ({"tool_choice": {"type": "function"}, "tools": STRICT}, "tool_choice.function"),
        ({"tool_choice": "always", "tools": STRICT}, "tool_choice"),
        ({"tool_choice": "required", "tools": [{"type": "function"}]}, "tools[0]"),
        ({"tool_choice": "required", "tools": STRICT, "response_format": {"type": "json_object"}}, "tool_choice"),
    ],
)
def test_tools_that_cannot_be_called_are_named(server: ApiServer, more: dict[str, Any], field: str) -> None:
    body = {"messages": MESSAGES, **more}
    answer = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == field


def test_defaults_of_the_model(server: ApiServer) -> None:
    def params(**more: Any) -> Any:
        body = {"prompt": "x" * 30, "max_tokens": 400, **more}
        assert httpx.post(f"{server.url}/v1/completions", json=body, timeout=60).status_code == 200
        return server.arrivals.newest.sampling_params

    own = params()
    assert (own.temperature, own.top_k, own.max_tokens) == (0.25, 7, 200)
    said = params(temperature=0.5, top_k=0, max_tokens=10)
    assert (said.temperature, said.top_k, said.max_tokens) == (0.5, 0, 10)
