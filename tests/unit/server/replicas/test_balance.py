"""Which replica gets a request, by what a front has sent: without Ray, whose seam is thin."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tokenyard.errors import ConfigError
from tokenyard.serve.replicas.passing import read_settings
from tokenyard.serve.replicas.routing import Balance, RoutedPrompt, as_request, prompt_of
from tokenyard.sim.routers import LeastLoaded, PrefixAffinity, Router

EXAMPLE = Path(__file__).resolve().parents[4] / "examples" / "ray_serve.yaml"
NAMES = ("a", "b")
LONG = b"a beginning that is a good deal longer than sixty-four bytes, so that it fills a block; "


def balance(router: Router | None = None, most_blocks: int = 1000) -> Balance:
    made = Balance(router or PrefixAffinity(8), most_blocks, lambda: 0.0)
    made.keep(NAMES)
    return made


def send(to: Balance, name: str, text: bytes, salt: str | None = None) -> str:
    """Where it goes."""
    request = as_request(name, RoutedPrompt(text, salt))
    chosen = to.choose(request, NAMES)
    to.sent(request, chosen)
    return chosen


def test_who_was_sent_the_beginning_gets_the_rest() -> None:
    made = balance()
    first = send(made, "0", LONG)
    made.ended("0")
    assert send(made, "1", b"x" * 200) != first, "the other one was sent less"
    assert send(made, "2", LONG + b"and more") == first
    assert send(made, "3", LONG + b"and something else") == first


def test_salts_share_nothing() -> None:
    made = balance(LeastLoaded())
    request = as_request("0", RoutedPrompt(LONG * 2, "mine"))
    made.sent(request, "a")
    assert made.matched("a", as_request("1", RoutedPrompt(LONG * 2, "mine"))) == 128
    assert made.matched("a", as_request("1", RoutedPrompt(LONG * 2, "yours"))) == 0
    assert made.matched("b", as_request("1", RoutedPrompt(LONG * 2, "mine"))) == 0


def test_a_replica_that_is_far_ahead_is_passed_over() -> None:
    made = balance(PrefixAffinity(3))
    chosen = [send(made, str(i), LONG) for i in range(8)]
    first = chosen[0]
    assert chosen[:3] == [first] * 3
    assert chosen[3] != first
    assert max(made.loads.values()) - min(made.loads.values()) <= 3
    for i in range(8):
        made.ended(str(i))
        made.ended(str(i))
    assert made.loads == {"a": 0, "b": 0}
    made.ended("nobody")


def test_a_request_that_another_replica_took_counts_there() -> None:
    made = balance()
    request = as_request("0", RoutedPrompt(LONG))
    made.sent(request, "a")
    made.sent(request, "b")
    assert made.loads == {"a": 0, "b": 1}


def test_of_replicas_that_are_gone_nothing_is_known() -> None:
    made = balance()
    lost = send(made, "0", LONG)
    kept = next(name for name in NAMES if name != lost)
    made.keep((kept, "c"))
    assert made.loads == {kept: 0, "c": 0}
    assert made.num_blocks == 0
    made.ended("0")
    assert made.loads == {kept: 0, "c": 0}


def test_the_oldest_blocks_are_forgotten() -> None:
    made = balance(most_blocks=4)
    made.sent(as_request("0", RoutedPrompt(b"0" * 256)), "a")
    made.sent(as_request("1", RoutedPrompt(b"1" * 128)), "b")
    assert made.num_blocks == 4
    assert made.matched("b", as_request("2", RoutedPrompt(b"1" * 128))) == 128
    assert made.matched("a", as_request("2", RoutedPrompt(b"0" * 256))) == 0, "its first block is gone"


def test_a_request_without_a_prompt_goes_anywhere() -> None:
    assert balance().choose(as_request("0", None), NAMES) in NAMES


def test_what_a_prompt_is() -> None:
    def text(body: bytes) -> bytes:
        prompt = prompt_of(body)
        assert prompt is not None
        return prompt.text

    assert text(b'{"prompt": "hello", "max_tokens": 3}') == b"hello"
    assert text(b'{"prompt": ["one", "two"]}') == b"one"
    assert text(b'{"prompt": [[1, 2], [3]]}') == text(b'{"prompt": [1, 2]}')
    turn = b'{"messages": [{"role": "user", "content": "hi"}'
    longer = text(turn + b', {"role": "assistant", "content": "ho"}]}')
    assert longer.startswith(text(turn + b"]}"))
    assert text(turn + b'], "tools": [{"a": 1}]}') != text(turn + b"]}")
    salted = prompt_of(b'{"prompt": "x", "cache_salt": "s"}')
    assert salted is not None
    assert salted.cache_salt == "s"
    for nothing in (b"", b"{", b"[]", b'{"model": "x"}', b'{"prompt": ""}', b'{"prompt": 3}', b"\xff", b"[" * 10_000):
        assert prompt_of(nothing) is None, nothing
    assert len(text(b'{"prompt": "' + b"x" * 100_000 + b'"}')) == 64 * 1024


@pytest.mark.parametrize(
    ("args", "field"),
    [
        ({"model": "m", "num_replicas": 0}, "num_replicas"),
        ({"model": "m", "router": "vllm"}, "router"),
        ({"model": "m", "num_gpus": -1}, "num_gpus"),
        ({"model": "m", "replicas": 2}, "replicas"),
        ({"model": "m", "front": {"gather": 2}}, "gather"),
        ({"model": "m", "front": {"gather_ms": "soon"}}, "gather_ms"),
        ({"model": "m", "front": 3}, "front"),
        ({}, "model"),
    ],
)
def test_mistakes_in_a_deployment_file_are_named(args: dict[str, object], field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        read_settings(args)


def test_the_example_is_one_that_can_be_read() -> None:
    application = yaml.safe_load(EXAMPLE.read_text())["applications"][0]
    assert application["import_path"] == "tokenyard.serve.replicas.application:app"
    assert read_settings(application["args"]).num_replicas == 2


def test_a_deployment_file_is_read() -> None:
    front = {"gather_ms": 2.0, "override_generation_config": {"top_k": 3}}
    settings = read_settings({"model": "m", "engine": {"dtype": "float32"}, "front": front})
    assert (settings.names, settings.engine, settings.front.gather_ms) == (["m"], {"dtype": "float32"}, 2.0)
    assert settings.front.generation_overrides == {"top_k": 3}
