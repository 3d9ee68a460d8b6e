"""How much work a grammar may make: one compilation for all answers, bounded texts, nothing for who has left."""

from __future__ import annotations

import json
import threading
import time
from http.client import HTTPConnection
from typing import Any

import httpx
import pytest
from tests.unit.server.openai.api_server import ApiServer, serving_api, until

from tokenyard.serve.grammars import Grammar

LETTERS = {"regex": "[a-z]{3}"}


def counted(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch, seconds: float = 0, release: threading.Event | None = None
) -> list[Any]:
    """What is compiled from now on, each after so long, or once it is released."""
    compiler = server.context.grammars
    assert compiler is not None
    compile_one, seen = compiler.compile_one, list[Any]()

    def slowly(kind: str, value: Any) -> Any:
        seen.append(value)
        time.sleep(seconds)
        if release is not None:
            release.wait(30)
        return compile_one(kind, value)

    monkeypatch.setattr(compiler, "compile_one", slowly)
    return seen


def ask(server: ApiServer, timeout: float = 30, **fields: Any) -> httpx.Response:
    body = {"prompt": "a", "max_tokens": 3, **fields}
    return httpx.post(f"{server.url}/v1/completions", json=body, timeout=timeout)


@pytest.mark.parametrize("outputs", [None, LETTERS])
def test_more_answers_than_the_queue_takes_are_refused_before_any_work(
    outputs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving_api() as server:
        seen, tokenizer = counted(server, monkeypatch), server.context.tokenizer
        encoded: list[str] = []
        monkeypatch.setattr(tokenizer, "encode", lambda text, **_: encoded.append(text))
        answer = ask(server, prompt=["a"] * 300, n=128, structured_outputs=outputs)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "queue_full")
        assert "38400 more do not fit" in answer.json()["error"]["message"]
        assert ask(server, n=10**9, structured_outputs=outputs).json()["error"]["param"] == "n"
        assert (seen, encoded) == ([], [])


def test_a_grammar_is_compiled_once_for_all_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving_api() as server:
        seen = counted(server, monkeypatch)
        answer = ask(server, prompt=["a", "b"], n=4, structured_outputs=LETTERS)
        texts = [each["text"] for each in answer.json()["choices"]]
        assert len(texts) == 8
        assert all(len(text) == 3 and text.isalpha() for text in texts)
        assert len(seen) == 1


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("structured_outputs.regex", {"structured_outputs": {"regex": "a" * 70_000}}),
        ("structured_outputs.json", {"structured_outputs": {"json": {"required": ["a" * 10] * 7_000}}}),
        ("structured_outputs.choice", {"structured_outputs": {"choice": ["a" * 10] * 7_000}}),
        ("structured_outputs.grammar", {"structured_outputs": {"grammar": "start: " + '"a" ' * 20_000}}),
        (
            "response_format.json_schema.schema",
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"title": "a" * 70_000}}}},
        ),
    ],
)
def test_a_grammar_that_is_too_long_is_refused(field: str, fields: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving_api() as server:
        seen = counted(server, monkeypatch)
        answer = ask(server, **fields)
        error = answer.json()["error"]
        assert (answer.status_code, error["param"]) == (400, field)
        assert "at most 65536 (max_grammar_bytes)" in error["message"]
        assert len(error["message"]) < 500
        assert seen == []


def test_who_leaves_while_grammars_are_compiled_has_none_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight come; two grammars at a time are compiled. All leave before any is done."""
    with serving_api() as server:
        compiler = server.context.grammars
        assert compiler is not None
        made: list[Grammar] = []
        compile_any = compiler.compile

        def kept(**fields: Any) -> Grammar:
            made.append(compile_any(**fields))
            return made[-1]

        monkeypatch.setattr(compiler, "compile", kept)
        release = threading.Event()
        seen = counted(server, monkeypatch, release=release)
        clients = [HTTPConnection("127.0.0.1", server.port) for _ in range(8)]
        for i, client in enumerate(clients):
            body = {"prompt": "a", "structured_outputs": {"regex": f"[a-z]{{{i + 1}}}"}}
            client.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        until(lambda: len(made) == 8 and len(seen) == 2)
        for client in clients:
            client.close()
        until(lambda: sum(each.compiled.cancelled() for each in made) == 6)
        release.set()
        assert ask(server, structured_outputs={"regex": "[0-9]"}, max_tokens=1).status_code == 200
        assert seen[2:] == ["[0-9]"], "those two that were begun, and its own"


def test_what_is_being_compiled_is_not_waited_for() -> None:
    release = threading.Event()
    with serving_api() as server:
        compiler = server.context.grammars
        assert compiler is not None
        pool = compiler.threads
        running = [pool.submit(lambda: release.wait(30)) for _ in range(2)]
        waiting = pool.submit(lambda: None)
        until(lambda: all(each.running() for each in running))
        start = time.monotonic()
    assert time.monotonic() - start < 20, "they are released after 30"
    assert not any(each.done() for each in running)
    assert all(each.daemon for each in pool.threads)
    release.set()
    until(waiting.cancelled)


@pytest.mark.slow
def test_one_that_asks_for_very_much_is_refused_before_it_is_compiled() -> None:
    with serving_api() as server:
        answer = ask(server, structured_outputs={"regex": "a{1000000000}"})
        error = answer.json()["error"]
        assert (answer.status_code, error["param"]) == (400, "structured_outputs.regex")
        assert "repetitions written out" in error["message"]


NESTED = "[" * 100_000
WRONG_DEFINITIONS: list[Any] = [5, "abc", ["a"], [0]]


def chat(server: ApiServer, **fields: Any) -> httpx.Response:
    body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 3, **fields}
    return httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=30)


def test_what_crashed_the_chat_is_refused() -> None:
    with serving_api() as server:
        call = {"function": {"name": "f", "arguments": NESTED}}
        answer = chat(server, messages=[{"role": "assistant", "tool_calls": [call]}])
        error = answer.json()["error"]
        assert (answer.status_code, error["param"]) == (400, "messages[0].tool_calls[0].function.arguments")
        for definitions in WRONG_DEFINITIONS:
            parameters = {"type": "object", "$defs": definitions}
            tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
            for choice in ("required", {"type": "function", "function": {"name": "f"}}):
                answer = chat(server, tools=[tool], tool_choice=choice)
                assert answer.status_code == 400, json.dumps([definitions, choice])
                assert answer.json()["error"]["param"] == "tools[0].function.parameters.$defs"


MANY = " | ".join(json.dumps(f"{number:04}"[::-1]) for number in range(3000))


@pytest.mark.parametrize(
    ("text", "code"),
    [("start: " + MANY, None), (f"start: /[a-z]/ /[a-z]/ /[a-z]/ y\ny: {MANY}", "grammar_too_complex")],
    ids=["at once", "after some tokens"],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_clients_grammar_that_is_too_large_is_the_clients_mistake(text: str, code: str | None, stream: bool) -> None:
    """The library says so when it is compiled, or only while tokens are sampled by it; others go on."""
    with serving_api() as server:
        others: list[httpx.Response] = []
        beside = threading.Thread(target=lambda: others.append(ask(server, prompt="hello", max_tokens=40)))
        beside.start()
        answer = ask(server, structured_outputs={"grammar": text}, max_tokens=20, stream=stream)
        if answer.status_code == 200:
            assert stream
            *_, last, done = [line for line in answer.text.splitlines() if line]
            assert done == "data: [DONE]"
            error = json.loads(last.removeprefix("data: "))["error"]
        else:
            assert answer.status_code == 400
            error = answer.json()["error"]
        assert (error["type"], error["code"]) == ("invalid_request_error", code)
        assert "items; max is" in error["message"]
        beside.join()
        assert others[0].status_code == 200
        assert server.context.llm.death is None
