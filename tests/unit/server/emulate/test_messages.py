"""Anthropic's messages API of an emulated server: blocks, events, tools, why an answer ended, errors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest

pytest.importorskip("starlette", reason="starlette is not installed (extra: server)")
pytest.importorskip("httpx", reason="httpx is not installed (extra: server)")
pytest.importorskip("prometheus_client", reason="prometheus_client is not installed (extra: server)")

from tests.unit.server.emulate.emulated import LINE, Emulated, emulated

from tokenyard.serve.emulate.message_events import MessagesAnswer
from tokenyard.serve.openai.fields import ApiError
from tokenyard.serve.openai.generating import AnswerWriter, PromptNews

USER = [{"role": "user", "content": "hello there"}]
TOOLS = [
    {
        "name": "look_up",
        "description": "a city's weather",
        "input_schema": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 7}},
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    }
]
TOOLED = LINE + " --enable-auto-tool-choice --tool-call-parser hermes --enable-prompt-tokens-details"


@pytest.fixture(scope="module")
def server() -> Iterator[Emulated]:
    with emulated(TOOLED) as made:
        yield made


@pytest.fixture(scope="module")
def echoing() -> Iterator[Emulated]:
    with emulated(LINE, answers="echo", speed=1.0) as made:
        yield made


def asked(server: Emulated, **fields: Any) -> Any:
    return server.post("/v1/messages", **{"model": "toy", "messages": USER, "max_tokens": 200, **fields})


def events(server: Emulated, **fields: Any) -> list[dict[str, Any]]:
    """The events of a stream; each is named by its type."""
    answer = asked(server, stream=True, **fields)
    assert answer.status_code == 200, answer.text
    told = []
    for each in filter(None, answer.text.split("\n\n")):
        name, data = each.split("\n")
        told.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {told[-1]['type']}"
    return told


def test_a_whole_answer_is_a_message_of_a_text(server: Emulated) -> None:
    said = asked(server, max_tokens=5, system="be brief").json()
    assert (said["type"], said["role"], said["model"]) == ("message", "assistant", "toy")
    assert said["stop_reason"] == "max_tokens"
    assert [each["type"] for each in said["content"]] == ["text"]
    assert said["usage"]["output_tokens"] == 5


def test_usage_tells_apart_what_the_cache_held(server: Emulated) -> None:
    long = [{"role": "user", "content": "word " * 300}]
    first, second = (asked(server, messages=long, max_tokens=1).json()["usage"] for _ in range(2))
    total = first["input_tokens"] + first["cache_creation_input_tokens"]
    assert first["cache_read_input_tokens"] == 0 < first["cache_creation_input_tokens"]
    assert second["cache_read_input_tokens"] > 0
    told = (second[f"{name}input_tokens"] for name in ("", "cache_read_", "cache_creation_"))
    assert sum(told) == total
    counted = server.post("/v1/messages/count_tokens", model="toy", messages=long).json()
    assert counted == {"input_tokens": total, "context_management": {"original_input_tokens": total}}


def test_a_stream_opens_and_closes_its_blocks_and_says_what_the_whole_says(echoing: Emulated) -> None:
    whole = asked(echoing).json()
    told = events(echoing)
    kinds = [each["type"] for each in told]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(kinds[2:-3]) == {"content_block_delta"}
    assert "".join(each["delta"]["text"] for each in told[2:-3]) == whole["content"][0]["text"] == "hello there"
    assert told[-2]["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
    assert told[-2]["usage"]["output_tokens"] == whole["usage"]["output_tokens"]


def test_the_stop_sequence_that_ended_it_is_told(echoing: Emulated) -> None:
    said = asked(echoing, stop_sequences=["zzz", " there"]).json()
    assert (said["stop_reason"], said["stop_sequence"]) == ("stop_sequence", " there")
    assert said["content"] == [{"type": "text", "text": "hello"}]


@pytest.mark.parametrize("choice", [None, {"type": "auto"}, {"type": "any"}, {"type": "tool", "name": "look_up"}])
def test_tools_are_called_at_once_and_in_a_stream(server: Emulated, choice: Any) -> None:
    more = {} if choice is None else {"tool_choice": choice}
    said = asked(server, tools=TOOLS, **more).json()
    assert said["stop_reason"] == "tool_use"
    for call in said["content"]:
        assert (call["type"], call["name"], set(call["input"])) == ("tool_use", "look_up", {"city", "days"})
    told = events(server, tools=TOOLS, **more)
    begun = [each for each in told if each["type"] == "content_block_start"]
    assert [each["index"] for each in begun] == list(range(len(begun)))
    assert {each["content_block"]["type"] for each in begun} == {"tool_use"}
    for number in range(len(begun)):
        deltas = [each["delta"] for each in told if each["type"] == "content_block_delta" and each["index"] == number]
        assert set(json.loads("".join(each["partial_json"] for each in deltas))) == {"city", "days"}
    assert told[-2]["delta"]["stop_reason"] == "tool_use"


def test_after_a_tool_has_answered_the_model_speaks(server: Emulated) -> None:
    call = {"type": "tool_use", "id": "t1", "name": "look_up", "input": {"city": "a", "days": 1}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "rain"}]}
    turns = [*USER, {"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    said = asked(server, messages=turns, tools=TOOLS, max_tokens=8).json()
    assert [each["type"] for each in said["content"]] == ["text"]


def test_tools_that_the_system_removes_are_not_called(server: Emulated) -> None:
    removal = {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "look_up"}}
    definition = {"type": "tool_definition", "definition": {**TOOLS[0], "name": "other"}}
    removed = {"role": "system", "content": [removal]}
    added = {"role": "system", "content": [{"type": "tool_addition", "tool": definition}]}
    plain = asked(server, messages=[*USER, removed], tools=TOOLS, max_tokens=8).json()
    assert [each["type"] for each in plain["content"]] == ["text"]
    said = asked(server, messages=[*USER, removed, added], tools=TOOLS).json()
    assert {each["name"] for each in said["content"]} == {"other"}


def test_a_schema_is_kept_to(server: Emulated) -> None:
    schema = {"type": "object", "properties": {"seen": {"type": "boolean"}}, "required": ["seen"]}
    said = asked(server, output_config={"format": {"type": "json_schema", "schema": schema}}).json()
    assert isinstance(json.loads(said["content"][0]["text"])["seen"], bool)


@pytest.mark.parametrize(
    ("fields", "status", "kind"),
    [
        ({"model": "nope"}, 404, "not_found_error"),
        ({"max_tokens": 99999}, 400, "invalid_request_error"),
        ({"messages": []}, 400, "invalid_request_error"),
        ({"temperature": -1}, 400, "invalid_request_error"),
        ({"temperature": -1, "stream": True}, 400, "invalid_request_error"),
    ],
)
def test_errors_are_named_as_anthropic_names_them(
    server: Emulated, fields: dict[str, Any], status: int, kind: str
) -> None:
    answer = asked(server, **fields)
    assert answer.status_code == status
    assert answer.json()["type"] == "error"
    assert answer.json()["error"]["type"] == kind


def test_errors_of_an_earlier_version_are_named_as_vllm_names_them() -> None:
    with emulated(TOOLED, surface="0.32") as server:
        assert asked(server, model="nope").json()["error"]["type"] == "NotFoundError"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": 0}, "body.max_tokens"),
        ({"messages": [{"role": "wizard", "content": "a"}]}, "body.messages.0.role"),
        ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "body.messages.0.content"),
        ({"tool_choice": {"type": "tool"}}, "body.tool_choice"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, "body"),
    ],
)
def test_bodies_that_are_no_messages_are_refused_in_vllms_form(
    server: Emulated, fields: dict[str, Any], param: str
) -> None:
    answer = asked(server, **fields)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


class _OneWord(AnswerWriter):
    """A chat that says who answers, and a word."""

    def chunks(self, piece: PromptNews) -> Sequence[dict[str, Any]]:
        said = {"finish_reason": None, "stop_reason": None, "delta": {"content": "hello"}}
        head = {"id": "a", "model": "toy", "usage": {"prompt_tokens": 1, "completion_tokens": 1}}
        return [{**head, "choices": []}, {**head, "choices": [said]}]


def test_an_error_in_the_middle_ends_the_open_block() -> None:
    def told(own_names: bool) -> bytes:
        answer = MessagesAnswer(_OneWord(), own_names=own_names)
        kinds = [event["type"] for event in answer.chunks(cast(PromptNews, None))]
        assert kinds == ["message_start", "content_block_start", "content_block_delta"]
        return answer.event(answer.problem(ApiError(503, "full")))

    assert told(True).startswith(b"event: content_block_stop\n")
    assert b'"type":"overloaded_error"' in told(True)
    assert told(False).startswith(b"event: error\n")
    assert b'"type":"internal_error"' in told(False)


def test_nothing_is_held_when_all_have_been_answered(server: Emulated) -> None:
    asked(server)
    assert server.num_held_blocks == 0


def test_a_host_asks_at_one_path_for_all(server: Emulated) -> None:
    chat = server.post("/invocations", messages=USER, max_tokens=3)
    assert chat.json()["object"] == "chat.completion"
    assert server.post("/invocations", prompt="hi", max_tokens=3).json()["object"] == "text_completion"
    assert server.post("/invocations").status_code == 400
    assert server.client.get("/get_world_size").json() == {"world_size": 1}
    assert server.client.post("/v1/responses/resp_0/cancel").status_code == 404
