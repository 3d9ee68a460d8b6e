"""A few bytes that ask for much: counted before anything is compiled or made, and bounded where it is."""

from __future__ import annotations

import json
import random
import re
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("starlette", reason="starlette is not installed (extra: server)")
pytest.importorskip("prometheus_client", reason="prometheus_client is not installed (extra: server)")

from hypothesis import given
from hypothesis import strategies as st
from tests.support import greedy
from tests.support.toy_model import EOS, VOCAB_SIZE, byte_tokenizer
from tests.unit.server.emulate.emulated import Emulated, emulated
from tests.unit.server.openai.api_server import ApiServer, serving_api

from tokenyard.errors import ConfigError
from tokenyard.serve import grammars
from tokenyard.serve.emulate.made_up import MOST_WORK, Work, WorkError, made_up_json, made_up_match
from tokenyard.serve.form_work import check_form

MOST_BYTES = 2**16
BOMB = {"type": "array", "minItems": 10**9, "items": {"type": "string", "minLength": 10**9}}
DOUBLING = {
    "$ref": "#/$defs/a0",
    "$defs": {
        f"a{i}": {
            "type": "object",
            "required": ["x", "y"],
            "properties": {"x": {"$ref": f"#/$defs/a{i + 1}"}, "y": {"$ref": f"#/$defs/a{i + 1}"}},
        }
        for i in range(40)
    },
}
DEEP_REFERENCES = {"$ref": "#/$defs/0", "$defs": {str(i): {"$ref": f"#/$defs/{i + 1}"} for i in range(1500)}}
WITHIN = {"type": "array", "minItems": 1000, "items": {"type": "string", "minLength": 10_000}}
TOO_MUCH: list[tuple[str, Any, str]] = [
    ("json", BOMB, "minItems = 1000000000: at most 10,000"),
    ("json", {"type": "array", "minItems": 10**6}, "minItems = 1000000: at most 10,000"),
    ("json", {"type": "array", "maxItems": 10**5}, "maxItems = 100000: at most 10,000"),
    ("json", {"type": "object", "minProperties": 10**9}, "minProperties"),
    ("json", {"type": "string", "minLength": 10**6}, "minLength = 1000000: at most 100,000"),
    ("json", {"type": "string", "maxLength": 1e300}, "maxLength"),
    ("json", {"anyOf": [{"not": {"items": {"minItems": 10**9}}}]}, "minItems"),
    ("json", {"properties": {f"p{i}": {"maxLength": 99_999} for i in range(3)}}, "add up to 299,997: at most 100,000"),
    ("json", {"type": "integer", "multipleOf": 1_000_003}, "multipleOf = 1000003 tells 100,000 remainders apart"),
    ("json", {"type": "number", "multipleOf": 1e22}, "multipleOf"),
    ("json", '{"multipleOf": 1' + "0" * 400 + "}", "multipleOf"),
    ("json", {"allOf": [{"multipleOf": n} for n in (11, 3, 2, 9997)]}, "multipleOf of what holds together tells"),
    ("json", {"multipleOf": 0.13, "anyOf": [{"multipleOf": 9973}, {}]}, "multipleOf of what holds together tells"),
    (
        "json",
        {"properties": {"a": {"$ref": "#/$defs/a", "multipleOf": 9}}, "$defs": {"a": {"multipleOf": 99991}}},
        "apart",
    ),
    ("json", {"properties": {n: {"multipleOf": 60_000 + n} for n in range(2)}}, "add up to 120,001"),
    ("json", {"properties": {n: {"pattern": "a{60000}"} for n in range(2)}}, "add up to 120,000"),
    ("json", {"patternProperties": {"a{1000000}": {}}}, "its pattern has 1,000,000 characters"),
    ("json", WITHIN, "the smallest value that keeps to it has 10,001,000 characters: at most 1,000,000"),
    ("json", json.dumps(WITHIN), "10,001,000 characters"),
    ("json", DOUBLING, "the smallest value that keeps to it has very many characters"),
    ("json", DEEP_REFERENCES, "its references lead too far"),
    ("json", "[" * 30_000, "nests deeper than 64 levels"),
    ("json", "{", "is no JSON schema"),
    ("json", {"type": "string", "pattern": "(a{1000}){1000}"}, "its pattern has 1,000,000 characters"),
    ("json", {"patternProperties": {"a": {"pattern": "a{1000000}"}}}, "its pattern has 1,000,000 characters"),
    ("regex", "a{1000000}", "has 1,000,000 characters with its repetitions written out: at most 100,000"),
    ("regex", "((a{1000}){1000}){1000}", "1,000,000,000 characters"),
    ("regex", "(?:(?<n>a{1,1000}){1000}?)|b{3,}", "1,000,005 characters"),
    ("regex", "a{" + "9" * 100 + "}", "very many characters"),
    ("regex", "(" * 100 + ")" * 100, "nests groups 100 deep: at most 64"),
    ("grammar", 'start: "a"~1000000000', "repetitions written out"),
    ("grammar", 'start: (("a" | x)~1..50000000)\nx: "b"+', "repetitions written out"),
    ("grammar", 'start: %json {"type": "array", "minItems": 1000000000}', "repetitions written out"),
    ("grammar", "start: /a{1000000}/", "repetitions written out"),
    ("grammar", 'start: %json {"type": "integer", "multipleOf": 1000003}', "repetitions written out"),
    ("choice", "abc", "give a list of texts"),
    ("regex", "a" * 70_000, "has 70000 bytes: give at most 65536 (max_grammar_bytes)"),
]
FINE: list[tuple[str, Any]] = [
    ("json", {"type": "array", "minItems": 1000, "maxItems": 1000, "items": {"type": "integer"}}),
    ("json", {"type": "string", "maxLength": 65_536}),
    *(("json", {"type": "number", "multipleOf": step}) for step in (0.01, 1e-6, 12.5, 7, 1000, 86_400)),
    ("json", {"allOf": [{"multipleOf": 0.01}, {"multipleOf": 5000}, {"multipleOf": -1}, {"multipleOf": 0}]}),
    ("json", {"properties": {n: {"multipleOf": 86_400} for n in "abc"}}),
    ("json", {"const": BOMB, "default": BOMB, "enum": [BOMB]}),
    ("json", {"type": "object", "properties": {"minItems": {"type": "integer"}, "pattern": {"maxLength": 5}}}),
    ("json", {"type": "array", "items": {"$ref": "#"}, "minItems": 2}),
    ("regex", r"(a{100}){100}"),
    ("regex", r"[^]x{1000000}]+\{1000000\}\p{Letter}{3}[\]{99999}]{5}"),
    ("regex", r"\d{4}-\d{2}-\d{2}T([01]\d|2[0-3]):[0-5]\d"),
    ("grammar", 'start: "a"~3..5 /[0-9]{2}/ -> x'),
    ("choice", ["yes", "no"]),
]


@pytest.mark.parametrize(("kind", "value", "told"), TOO_MUCH)
def test_what_asks_for_too_much_is_refused_with_the_bound(kind: str, value: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)) as refused:
        check_form(kind, value, MOST_BYTES)
    assert refused.value.field == f"structured_outputs.{kind}"


@pytest.mark.parametrize(("kind", "value"), FINE)
def test_what_people_ask_for_is_not(kind: str, value: Any) -> None:
    check_form(kind, value, MOST_BYTES)


@given(st.text(alphabet="a(){}[]|,0129\\^~.?*+ \n", max_size=60))
def test_any_text_is_counted_or_refused(text: str) -> None:
    for kind in ("regex", "grammar"):
        with suppress(ConfigError):
            check_form(kind, text, MOST_BYTES)


ENDLESS = ("{" + "9" * 60_000, "~" + " " * 60_000)


@pytest.mark.parametrize("piece", ["[", "{", "(?<", r"\p{", "~ ", "{ ", "{1", "9", "[^]", "[\\", *ENDLESS])
def test_a_text_of_brackets_is_counted_as_soon_as_another(piece: str) -> None:
    """Where each bracket is looked for its end, these take minutes."""
    text = piece * (MOST_BYTES // len(piece))
    for kind in ("regex", "grammar"):
        with suppress(ConfigError):
            check_form(kind, text, MOST_BYTES)


# ---------------------------------------------------------------------------------------------------------------------
# An emulation makes no more than an answer can hold.


@pytest.fixture(scope="module")
def server() -> Iterator[Emulated]:
    with emulated() as made:
        yield made


def _form(kind: str, value: Any) -> dict[str, Any]:
    if kind == "json" and isinstance(value, dict):
        return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": value}}}
    return {"structured_outputs": {kind: value}}


@pytest.mark.parametrize(("kind", "value", "told"), TOO_MUCH)
def test_an_emulation_refuses_the_same(server: Emulated, kind: str, value: Any, told: str) -> None:
    answer = server.post(
        "/v1/chat/completions", messages=[{"role": "user", "content": "hi"}], max_tokens=5, **_form(kind, value)
    )
    assert answer.status_code == 400
    assert told in answer.json()["error"]["message"] or kind == "choice"
    assert server.client.get("/health").status_code == 200


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("json", {"type": "array", "minItems": 10_000, "items": {"type": "string", "minLength": 20}}),
        ("json", {"type": "string", "minLength": 100_000}),
        ("regex", "(a{300}){300}"),
        ("json", {"type": "string", "pattern": "^(ab{100}){100}$"}),
    ],
)
def test_a_long_form_is_made_as_far_as_the_answer_goes(server: Emulated, kind: str, value: Any) -> None:
    said = server.chat(max_tokens=40, **_form(kind, value))
    assert (said["choices"][0]["finish_reason"], said["usage"]["completion_tokens"]) == ("length", 40)


def test_one_that_fits_is_whole_and_alike_however_long_it_may_be(server: Emulated) -> None:
    form = _form("json", {"type": "array", "minItems": 300, "maxItems": 300, "items": {"type": "integer"}})
    said = server.chat(max_tokens=1500, **form)
    assert len(json.loads(said["choices"][0]["message"]["content"])) == 300
    assert said["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize(
    "schema",
    [
        {"$defs": {"a": {"type": "array", "minItems": 2, "items": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"},
        {"allOf": [{"$ref": "#"}]},
        {"$defs": {str(i): {"allOf": [{"$ref": f"#/$defs/{i + 1}"}] * 2} for i in range(30)}, "$ref": "#/$defs/0"},
        {"type": "object", "required": [["a"]]},
        {"type": "array", "uniqueItems": True, "minItems": 9000, "items": {"type": "string", "pattern": "a?"}},
        {"type": "number", "minimum": -1e308, "multipleOf": 1e-300},
        {"type": "string", "pattern": "a$b"},
        {"type": "string", "pattern": "((()))" * 3 + "(" * 40 + ")" * 40 + r"\bx\b\b$$^"},
    ],
)
def test_forms_without_a_text_are_refused(server: Emulated, schema: Any) -> None:
    answer = server.post(
        "/v1/chat/completions", messages=[{"role": "user", "content": "hi"}], max_tokens=9, **_form("json", schema)
    )
    assert answer.status_code == 400, answer.text
    call = {"type": "function", "function": {"name": "f", "parameters": schema}}
    assert server.post("/v1/chat/completions", messages=[], tools=[call]).status_code == 400


def test_work_without_a_text_is_bounded_as_well() -> None:
    for pattern in ("((){1000}){1000}", "(a{0}){100000000}", "(|){200000}|a{99999999}"):
        with pytest.raises(WorkError, match=f"{MOST_WORK:,} pieces"):
            [made_up_match(pattern, random.Random(seed)) for seed in range(20)]
    with pytest.raises(WorkError):
        made_up_json(BOMB, random.Random(0), Work(1000))


@pytest.mark.parametrize(
    "pattern", [r"\bab\b c\b", r"^\w+$", "(?i)[^abcx]y", "x*^a", r"(a|b\b)( c)?$", r"\d+\B\d", r"[\W]", r"(ab)?(?:c)\2"]
)
def test_what_is_made_is_what_the_pattern_takes(pattern: str) -> None:
    for seed in range(30):
        try:
            made = made_up_match(pattern, random.Random(seed))
        except ConfigError:
            assert pattern.endswith(r"\2")
            continue
        assert re.fullmatch(pattern, made)


def test_answers_and_tokens_that_a_request_names_are_counted(server: Emulated) -> None:
    for field, value in (("logit_bias", {str(i): 1 for i in range(10_001)}), ("stop_token_ids", [1] * 10_001)):
        answer = server.post("/v1/completions", prompt="hi", max_tokens=1, **{field: value})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)
    answer = server.post("/v1/completions", prompt=["hi"] * 1000, n=128, max_tokens=1)
    assert answer.status_code == 400
    assert "n = 128: 1000 prompts with as many answers each are more than 4096" in answer.json()["error"]["message"]
    answer = server.post("/v1/completions", prompt="hi", stop=["a"] * 65, max_tokens=1)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "stop")


@pytest.fixture(scope="module")
def model_server() -> Iterator[ApiServer]:
    pytest.importorskip("llguidance", reason="llguidance is not installed (extra: torch)")
    with serving_api() as made:
        yield made


@pytest.mark.parametrize(("kind", "value", "told"), TOO_MUCH)
def test_so_does_a_server_with_a_model(model_server: ApiServer, kind: str, value: Any, told: str) -> None:
    asked = {"prompt": "a", "max_tokens": 2, "structured_outputs": {kind: value}}
    answer = httpx.post(f"{model_server.url}/v1/completions", json=asked, timeout=60)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"]) == (400, "invalid_request_error")
    assert told in error["message"] or kind == "choice"


# ---------------------------------------------------------------------------------------------------------------------
# A grammar is compiled in a process of its own first.


@pytest.fixture
def compiler(tmp_path: Path) -> Iterator[grammars.GrammarCompiler]:
    pytest.importorskip("llguidance", reason="llguidance is not installed (extra: torch)")
    byte_tokenizer().save(str(tmp_path / "tokenizer.json"))
    made = grammars.GrammarCompiler(tmp_path, VOCAB_SIZE, [EOS])
    yield made
    made.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("compiles", "told"),
    [
        (greedy.sleeps, "cannot be compiled within 0.2 seconds"),
        (greedy.grows, "cannot be compiled within 64 MiB"),
        (greedy.dies, "cannot be compiled within 64 MiB"),
    ],
)
def test_one_that_takes_too_much_ends_its_own_process(
    compiler: grammars.GrammarCompiler, monkeypatch: pytest.MonkeyPatch, compiles: Any, told: str
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(grammars, "compiles", compiles)
        patched.setattr(grammars, "TRIAL_SECONDS", 0.2 if compiles is greedy.sleeps else 60.0)
        patched.setattr(grammars, "TRIAL_MEGABYTES", 64)
        with pytest.raises(ConfigError, match=told):
            compiler.compile(regex="[a-z]{3}").check()
    compiler.compile(regex="[a-z]{3}").check()


@pytest.mark.slow
def test_what_the_library_refuses_is_told_by_it(compiler: grammars.GrammarCompiler) -> None:
    for _ in range(2):
        with pytest.raises(ConfigError, match="cannot be compiled: "):
            compiler.compile(regex="(a").check()
    with pytest.raises(ConfigError, match="minItems = 1000000000"):
        compiler.compile(json=BOMB)


AMBIGUOUS = 'start: e\ne: e e | e e e | "a" | "" | e "a" e | e "b" e'


@pytest.mark.parametrize(
    "grammar", ['start: T "a"\nT: /a*/', 'start: T "a"\nT: /a+/', 'start: "b" | T "a" T*\nT: /(a?)*/']
)
def test_terminals_that_overlap_are_gone_through_elsewhere_first(
    compiler: grammars.GrammarCompiler, monkeypatch: pytest.MonkeyPatch, grammar: str
) -> None:
    """llguidance, 1.9 as well, goes round for ever at the second or third token."""
    monkeypatch.setattr(grammars, "TRIAL_SECONDS", 1.0)
    with pytest.raises(ConfigError, match="cannot be compiled within 1 seconds"):
        compiler.compile(grammar=grammar).check()


class Endless:
    """A matcher that does not come back before it is told to."""

    def __init__(self) -> None:
        self.may_end = threading.Event()

    def deep_copy(self) -> Endless:
        return self

    def is_error(self) -> bool:
        return False

    def compute_bitmask(self) -> bytes:
        self.may_end.wait()
        return b""

    def rollback(self, tokens: int) -> None:
        pass


def test_a_mask_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammars, "ANSWER_SECONDS", 0.05)
    watch, endless, ready = grammars.Watch(), Endless(), Future[Any]()
    ready.set_result(endless)
    grammar = grammars.Grammar(ready, 9, frozenset({EOS}), watch)
    assert grammar.bitmask([3]).tolist() == [[-1] * 9] * 2
    assert grammar.problem == "it took longer than 0.05 s for a token"
    assert not grammar.accept_tokens([1])
    assert grammar.validate_tokens([1]) == []
    monkeypatch.setattr(grammars, "ANSWER_SECONDS", 60.0)
    assert (watch.num_lost, watch.call(lambda: 5)) == (1, 5)
    endless.may_end.set()
    watch.shutdown()


def test_grammars_are_refused_where_some_never_came_back(
    compiler: grammars.GrammarCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grammars, "MOST_LOST", 0)
    with pytest.raises(ConfigError, match="not taken any more"):
        compiler.compile(grammar='start: "a"')
    compiler.compile(regex="a").check()


@pytest.mark.parametrize("per_token", [1.0, 0.0])
def test_a_grammar_that_takes_longer_with_each_token_ends_its_answer(
    compiler: grammars.GrammarCompiler, monkeypatch: pytest.MonkeyPatch, per_token: float
) -> None:
    """By the processor's time, which is counted here: a second for each look at it."""
    seconds = count()
    monkeypatch.setattr(grammars, "thread_time", lambda: next(seconds))
    monkeypatch.setattr(grammars, "MASK_SECONDS_PER_TOKEN", per_token * 2)
    grammar = compiler.compile(grammar=AMBIGUOUS)
    grammar.check()
    tokens = 0
    while tokens < 50 and grammar.problem is None:
        assert grammar.bitmask([]).shape == (1, -(-VOCAB_SIZE // 32))
        grammar.accept_tokens([ord("a")])
        tokens += 1
    if per_token:
        assert (tokens, grammar.problem) == (50, None)
    else:
        assert (tokens, grammar.problem) == (2, "it took 3.0 s of a processor for 2 tokens")
        assert not grammar.accept_tokens([ord("a")])
        assert not grammar.another().problem
