"""Bodies that no client would write: whatever comes, the answer is one of the API's, never a fault of the server's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.unit.server.openai.api_server import ApiServer, serving_api

from tokenyard.serve.openai.fields import (
    WITHOUT_EFFECT,
    ChatCompletionRequest,
    CompletionRequest,
    DetokenizeRequest,
    TokenizeRequest,
)

JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
ODD: Any = JSON | st.sampled_from(
    [0, -1, 0.5, -2.5, 2**31, 2**63, 10**40, 1e308, 5e-324, "", "\x00", "x" * 700, [], {}]
)
TEXTS = st.text(max_size=30) | st.sampled_from(["hello", "🦊", "</s>", "a b c"])
IDS = st.lists(st.integers(0, 258), min_size=1, max_size=9)
CONTENT = TEXTS | st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": TEXTS}), max_size=2)
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "system", "assistant", "tool"])}, optional={"content": CONTENT}
)
BY_NAME: dict[str, Any] = {
    "model": st.sampled_from(["toy", "also", None]),
    "prompt": st.text(min_size=1, max_size=30) | st.lists(st.just("hello"), min_size=1, max_size=3) | IDS,
    "messages": st.lists(MESSAGE, min_size=1, max_size=3),
    "stop": TEXTS.filter(bool) | st.lists(st.sampled_from([" ", "e", "fox"]), max_size=3),
    "tokens": IDS,
    "stream_options": st.fixed_dictionaries({"include_usage": st.booleans()}),
    "kv_transfer_params": st.sampled_from([{}, {"do_remote_decode": True}, {"do_remote_prefill": "x", "n": [1]}]),
    "response_format": st.sampled_from(
        [
            {"type": "text"},
            {"type": "json_object"},
            {"type": "json_schema"},
            {"type": "json_schema", "json_schema": {"schema": {"enum": ["a", 1]}}},
        ]
    ),
    "structured_outputs": st.dictionaries(
        st.sampled_from(["json", "regex", "choice", "grammar"]),
        st.sampled_from(["a*", "[", "{}", ["a", "b"], {"type": "integer"}, 'start: "x"']),
        max_size=1,
    ),
    "logit_bias": st.dictionaries(st.sampled_from(["1", "97", "271"]), st.integers(-100, 100), max_size=3),
    "vllm_xargs": st.fixed_dictionaries({}, optional={"job_id": TEXTS, "is_last_step": st.booleans()}),
    "chat_template_kwargs": st.dictionaries(st.sampled_from(["messages", "tools", "x"]), JSON, max_size=2),
    "tools": st.lists(st.dictionaries(st.text(max_size=5), JSON, max_size=2), max_size=2),
    "tool_choice": st.sampled_from(["none", "auto", None]),
    "top_p": st.sampled_from([0.1, 1, None]),
    "repetition_penalty": st.sampled_from([0.5, 1, 2]),
    "stop_token_ids": st.lists(st.integers(0, 271), max_size=3),
    "request_id": st.uuids().map(str),
    "max_tokens": st.integers(1, 60),
    "max_completion_tokens": st.integers(1, 60),
    "n": st.integers(1, 4),
    "min_tokens": st.integers(0, 1),
}
BY_TYPE: dict[str, Any] = {
    "bool": st.booleans(),
    "int": st.integers(0, 20),
    "float": st.sampled_from([0, 0.25, 1.0]),
    "str": TEXTS,
}
PATHS: dict[str, type[msgspec.Struct]] = {
    "/v1/completions": CompletionRequest,
    "/v1/chat/completions": ChatCompletionRequest,
    "/tokenize": TokenizeRequest,
    "/detokenize": DetokenizeRequest,
}


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    with serving_api(checks=False) as served:
        yield served


@pytest.fixture(scope="module")
def client(server: ApiServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as made:
        yield made


def value_of(kind: type[msgspec.Struct], name: str) -> Any:
    """Something that the field may hold, and now and then something that it may not."""
    if name in WITHOUT_EFFECT and name not in kind.__struct_fields__:
        likely: Any = st.sampled_from(WITHOUT_EFFECT[name])
    elif name in BY_NAME:
        likely = BY_NAME[name]
    else:
        annotations = {
            key: value for each in kind.__mro__ for key, value in getattr(each, "__annotations__", {}).items()
        }
        likely = BY_TYPE[str(annotations[name]).partition(" | ")[0]]
    return st.integers(0, 24).flatmap(lambda dice: ODD if dice == 0 else likely)


@st.composite
def requests(draw: Any) -> tuple[str, dict[str, Any]]:
    """A path and a body."""
    path = draw(st.sampled_from(sorted(PATHS)))
    kind = PATHS[path]
    names = set(draw(st.lists(st.sampled_from(kind.__struct_fields__), max_size=6)))
    names |= set(draw(st.lists(st.sampled_from(sorted(WITHOUT_EFFECT)), max_size=1)))
    names |= {field.name for field in msgspec.structs.fields(kind) if field.required}
    body = {name: draw(value_of(kind, name)) for name in sorted(names)}
    if draw(st.integers(0, 20)) == 0:
        body[draw(st.text(max_size=5))] = draw(JSON)
    return path, body


def check(answer: httpx.Response, body: object) -> None:
    """It is an answer, or a refusal that says what is wrong."""
    assert answer.status_code in (200, 400, 404), (answer.status_code, answer.text, body)
    if answer.status_code != 200:
        error = answer.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["message"]
        assert "Traceback" not in answer.text
    elif answer.headers["content-type"].startswith("text/event-stream"):
        *events, done = [line for line in answer.text.split("\n\n") if line]
        assert done == "data: [DONE]"
        assert not any("error" in json.loads(event[6:]) for event in events), body
    else:
        answer.json()


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(300), suppress_health_check=list(HealthCheck))
@given(asked=requests())
def test_no_body_is_a_fault_of_the_servers(server: ApiServer, client: httpx.Client, asked: tuple[str, Any]) -> None:
    path, body = asked
    check(client.post(path, json=body), body)
    assert server.context.llm.death is None


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(150), suppress_health_check=list(HealthCheck))
@given(
    path=st.sampled_from(sorted(PATHS)),
    content=st.binary(max_size=60) | JSON.map(lambda each: json.dumps(each).encode()),
)
def test_neither_are_bytes(client: httpx.Client, path: str, content: bytes) -> None:
    check(client.post(path, content=content, headers={"Content-Type": "application/json"}), content)
