"""The official client: real calls over a socket, every answer compared with what the toy model must say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from tests.support.toy_model import TEMPLATE, answer_to, text_to, toy_tokenizer
from tests.unit.server.openai.api_server import ApiServer, serving_api

from tokenyard.serve.text import ChatTemplate

TOKENIZER = toy_tokenizer()


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    with serving_api() as served:
        yield served


@pytest.fixture
def client(server: ApiServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def ids(text: str) -> list[int]:
    return TOKENIZER.encode(text)


def chat_ids(messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None) -> list[int]:
    template = ChatTemplate(TEMPLATE, {"bos_token": "<s>"})
    return TOKENIZER.encode(template.render(messages, tools=tools), add_special_tokens=False)


HELLO: list[Any] = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]


# ---- completions


def test_a_completion(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="toy", prompt="a prompt of its own")
    assert (answer.object, answer.model) == ("text_completion", "toy")
    (choice,) = answer.choices
    assert choice.text == text_to(ids("a prompt of its own"), 16)
    assert choice.finish_reason == "length"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (19, 16, 35)


def test_cached_tokens_are_counted(client: openai.OpenAI) -> None:
    prompt = "a prompt that is asked twice, and then found"
    client.completions.create(model="toy", prompt=prompt)
    usage = client.completions.create(model="toy", prompt=prompt).usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens == 40  # 44 tokens in blocks of 4; the last is computed


@pytest.mark.parametrize("stream", [False, True])
def test_many_prompts_of_text_and_of_tokens(client: openai.OpenAI, stream: bool) -> None:
    for prompts, tokens in (
        (["one", "two", "three"], [ids("one"), ids("two"), ids("three")]),
        ([[1, 2, 3], [4, 5]], [[1, 2, 3], [4, 5]]),
        ([7, 8, 9], [[7, 8, 9]]),
    ):
        texts: dict[int, str] = {}
        answer: Any = client.completions.create(model="also", prompt=prompts, max_tokens=30, n=2, stream=stream)
        for chunk in answer if stream else [answer]:
            for choice in chunk.choices:
                texts[choice.index] = texts.get(choice.index, "") + choice.text
        assert texts == {2 * i + j: text_to(each, 30) for i, each in enumerate(tokens) for j in range(2)}


def test_a_stream_of_completions(client: openai.OpenAI) -> None:
    chunks = list(
        client.completions.create(
            model="toy", prompt="stream me", max_tokens=50, stream=True, stream_options={"include_usage": True}
        )
    )
    *parts, last = chunks
    assert "".join(part.choices[0].text for part in parts) == text_to(ids("stream me"), 50)
    assert [part.choices[0].finish_reason for part in parts] == [None] * (len(parts) - 1) + ["length"]
    assert last.choices == []
    assert last.usage is not None
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (9, 50)
    assert all(part.usage is None for part in parts)
    assert len({part.id for part in chunks}) == 1


def test_the_prompt_is_echoed(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="toy", prompt="say it again: ", echo=True, max_tokens=4)
    assert answer.choices[0].text == "say it again: " + text_to(ids("say it again: "), 4)


@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_stop_strings(client: openai.OpenAI, stream: bool, include: bool) -> None:
    whole = text_to(ids("until"), 60)
    stop = whole[20:23]
    end = whole.find(stop) + (len(stop) if include else 0)
    answer: Any = client.completions.create(
        model="toy",
        prompt="until",
        max_tokens=60,
        stop=["nowhere", stop],
        stream=stream,
        extra_body={"include_stop_str_in_output": include},
    )
    chunks = list(answer) if stream else [answer]
    assert "".join(each.choices[0].text for each in chunks) == whole[:end]
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert chunks[-1].choices[0].model_extra["stop_reason"] == stop


def test_log_probabilities_of_a_completion(client: openai.OpenAI) -> None:
    choice = client.completions.create(model="toy", prompt="likely", logprobs=2, max_tokens=3).choices[0]
    said = choice.logprobs
    assert said is not None
    assert said.tokens == [TOKENIZER.token_text(each) for each in answer_to(ids("likely"), 3)]
    assert said.token_logprobs == [-0.5] * 3
    assert said.top_logprobs is not None
    assert all(max(each.values()) == -0.5 for each in said.top_logprobs)
    assert said.text_offset is not None
    assert said.text_offset[0] == 0


# ---- chats


def test_a_chat(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="toy", messages=HELLO, max_completion_tokens=24)
    (choice,) = answer.choices
    assert (choice.message.role, choice.message.content) == ("assistant", text_to(chat_ids(HELLO), 24))
    assert choice.finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len(chat_ids(HELLO))


def test_a_chat_goes_on_until_the_model_ends_it(client: openai.OpenAI) -> None:
    said = answer_to(chat_ids(HELLO), 10_000)
    answer = client.chat.completions.create(model="toy", messages=HELLO)
    room = 512 - len(chat_ids(HELLO))
    assert answer.choices[0].finish_reason == ("stop" if len(said) <= room else "length")
    assert answer.choices[0].message.content == text_to(chat_ids(HELLO), room)


def test_a_stream_of_a_chat_with_two_answers(client: openai.OpenAI) -> None:
    texts = {0: "", 1: ""}
    ends: dict[int, str] = {}
    with client.chat.completions.create(model="toy", messages=HELLO, max_tokens=40, n=2, stream=True) as stream:
        for chunk in stream:
            for choice in chunk.choices:
                if not texts[choice.index]:
                    assert choice.delta.role == "assistant"
                texts[choice.index] += choice.delta.content or ""
                if choice.finish_reason:
                    ends[choice.index] = choice.finish_reason
    assert texts == dict.fromkeys((0, 1), text_to(chat_ids(HELLO), 40))
    assert ends == {0: "length", 1: "length"}


def test_log_probabilities_of_a_chat(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="toy", messages=HELLO, logprobs=True, top_logprobs=3, max_tokens=2)
    said = answer.choices[0].logprobs
    assert said is not None
    assert said.content is not None
    for token, each in zip(answer_to(chat_ids(HELLO), 2), said.content, strict=True):
        assert (each.token, each.logprob) == (TOKENIZER.token_text(token), -0.5)
        assert each.bytes == list(each.token.encode())
        assert len(each.top_logprobs) == 3
        assert each.top_logprobs[0].token == each.token


def test_tools_reach_the_template(client: openai.OpenAI) -> None:
    tools: list[Any] = [{"type": "function", "function": {"name": "search", "parameters": {}}}]
    with_tools = client.chat.completions.create(model="toy", messages=HELLO, tools=tools, max_tokens=12)
    assert with_tools.choices[0].message.content == text_to(chat_ids(HELLO, tools), 12)
    none = client.chat.completions.create(model="toy", messages=HELLO, tools=tools, tool_choice="none", max_tokens=12)
    assert none.choices[0].message.content == text_to(chat_ids(HELLO), 12)


SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["fox", "dog"]}, "age": {"type": "integer", "minimum": 10, "maximum": 12}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_keeps_to_a_schema(client: openai.OpenAI, stream: bool) -> None:
    wanted: Any = {"type": "json_schema", "json_schema": {"name": "animal", "schema": SCHEMA, "strict": True}}
    answer: Any = client.chat.completions.create(
        model="toy", messages=HELLO, response_format=wanted, stream=stream, max_tokens=200
    )
    if stream:
        chunks = list(answer)
        text, end = "".join(each.choices[0].delta.content or "" for each in chunks), chunks[-1].choices[0].finish_reason
    else:
        text, end = answer.choices[0].message.content, answer.choices[0].finish_reason
    assert end == "stop"
    found = json.loads(text)
    assert set(found) == {"name", "age"}
    assert found["name"] in ("fox", "dog")
    assert found["age"] in (10, 11, 12)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"regex": "[0-9]{3}-[xyz]{2}"}, r"[0-9]{3}-[xyz]{2}"),
        ({"choice": ["yes", 'no "thanks"']}, r'yes|no "thanks"'),
        ({"grammar": 'start: "a" "b"+ "c"'}, r"ab+c.*|ab*"),
        ({"json": {"type": "boolean"}}, r"true|false"),
        ({"json_object": True}, r"\s*\{(.|\n)*"),
    ],
)
def test_an_answer_keeps_to_what_vllms_clients_ask(client: openai.OpenAI, asked: Any, expected: str) -> None:
    answer = client.completions.create(
        model="toy", prompt="x", n=2, max_tokens=40, extra_body={"structured_outputs": asked}
    )
    assert len(answer.choices) == 2
    for choice in answer.choices:
        assert re.fullmatch(expected, choice.text), choice.text


def test_content_in_parts_is_text(client: openai.OpenAI) -> None:
    parts: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
    joined = [{"role": "user", "content": "a\nb"}]
    answer = client.chat.completions.create(model="toy", messages=parts, max_tokens=8)
    assert answer.choices[0].message.content == text_to(chat_ids(joined), 8)


# ---- the rest


def test_models(client: openai.OpenAI) -> None:
    listed = client.models.list().data
    assert [each.id for each in listed] == ["toy", "also"]
    assert listed[0].model_extra is not None
    assert listed[0].model_extra["max_model_len"] == 512


@pytest.mark.parametrize(
    "fields",
    [
        {"vllm_xargs": {"job_id": "j7", "is_last_step": "true", "this_func_call": "ls"}},
        {"job_id": "j7", "is_last_step": True, "this_func_call": "ls"},
    ],
)
def test_a_job_and_a_priority_reach_the_scheduler(
    server: ApiServer, client: openai.OpenAI, fields: dict[str, Any]
) -> None:
    client.completions.create(model="toy", prompt="of a job", extra_body={"priority": 3, "cache_salt": "s", **fields})
    request = server.arrivals.newest
    assert (request.job_id, request.is_last_step, request.this_func_call) == ("j7", True, "ls")
    assert (request.priority, request.cache_salt) == (3, "s")


@pytest.mark.parametrize(
    ("asked", "job"),
    [
        ({"extra_body": {"session_id": "body"}}, "body"),
        ({"extra_headers": {"X-Session-ID": "header"}}, "header"),
        ({"extra_body": {"vllm_xargs": {"session_id": "xargs"}}}, "xargs"),
        ({"extra_body": {"session_id": "body"}, "extra_headers": {"X-Session-ID": "header"}}, "body"),
        (
            {"extra_body": {"vllm_xargs": {"session_id": "xargs"}}, "extra_headers": {"X-Session-ID": "header"}},
            "header",
        ),
        ({"extra_body": {"session_id": "body", "job_id": "job", "last_func_call": "ls"}}, "job"),
    ],
)
def test_a_session_is_the_job_as_vllm_takes_it(
    server: ApiServer, client: openai.OpenAI, asked: dict[str, Any], job: str
) -> None:
    client.completions.create(model="toy", prompt="of a session", **asked)
    assert server.arrivals.newest.job_id == job


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"temperature": -1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"n": 0}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 600}, "max_tokens"),
        ({"prompt": "x" * 600}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [99999]}, "prompt"),
        ({"stop": [""]}, "stop"),
        ({"logprobs": 21}, "logprobs"),
        ({"extra_body": {"best_of": 4}}, "best_of"),
        ({"extra_body": {"nonsense": 1}}, "nonsense"),
        ({"extra_body": {"stream_options": {"x": 1}}}, "stream_options.x"),
        ({"extra_body": {"max_tokens": "many"}}, "max_tokens"),
        ({"extra_body": {"logit_bias": {"a": 1}}}, "logit_bias"),
        ({"extra_body": {"vllm_xargs": {"job": "x"}}}, "vllm_xargs.job"),
        ({"extra_body": {"priority": 2**70}}, "priority"),
        ({"seed": 2**70}, "seed"),
        ({"extra_body": {"response_format": {"type": "json_schema"}}}, "response_format.json_schema"),
        ({"extra_body": {"structured_outputs": {"regex": "("}}}, "structured_outputs.regex"),
        ({"extra_body": {"structured_outputs": {"regex": "a", "json": "{}"}}}, "structured_outputs"),
        ({"extra_body": {"structured_outputs": {"choice": []}}}, "structured_outputs.choice"),
        ({"extra_body": {"structured_outputs": {"grammar": "nonsense"}}}, "structured_outputs.grammar"),
    ],
)
def test_mistakes_name_their_field(client: openai.OpenAI, fields: dict[str, Any], field: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(**{"model": "toy", "prompt": "x", **fields})
    assert refused.value.param == field, refused.value
    assert refused.value.type == "invalid_request_error"
    assert field in refused.value.message


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "nobody", "content": "x"}]}, "messages"),
        ({"messages": [{"role": "user", "content": "x" * 600}]}, "messages"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"max_completion_tokens": 600}, "max_completion_tokens"),
    ],
)
def test_mistakes_in_chats_name_their_field(client: openai.OpenAI, fields: dict[str, Any], field: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(**{"model": "toy", "messages": HELLO, **fields})
    assert refused.value.param == field, refused.value


def test_a_mistake_in_a_stream_is_refused_before_it_begins(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="max_tokens"):
        client.completions.create(model="toy", prompt="x", max_tokens=600, stream=True)


def test_another_model_is_not_there(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="is not served here"):
        client.completions.create(model="gpt-4", prompt="x")


def test_fields_about_the_client_are_named_as_ignored(client: openai.OpenAI) -> None:
    answer = client.completions.with_raw_response.create(model="toy", prompt="x", user="me", max_tokens=1)
    assert answer.headers["Tokenyard-Ignored"] == "user"
