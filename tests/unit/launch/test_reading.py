"""Words become flags and values as vLLM reads them."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

import hypothesis
import pytest
from hypothesis import strategies as st

from tokenyard.deploy.vllm_serve.flags import flag_table, readable_int
from tokenyard.deploy.vllm_serve.given import merged, read_words
from tokenyard.errors import ConfigError


def given(*words: str) -> dict[str, Any]:
    return {each.flag.name: each.value for each in read_words(words).given}


@pytest.mark.parametrize(
    ("text", "number"),
    [("8k", 8_000), ("8K", 8_192), ("1.5k", 1_500), ("25.6k", 25_600), ("2m", 2_000_000), ("1G", 1 << 30), ("7", 7)],
)
def test_readable_numbers(text: str, number: int) -> None:
    assert readable_int(text) == number
    assert given("--max-num-batched-tokens", text) == {"max-num-batched-tokens": number}


@pytest.mark.parametrize("text", ["1.5K", "1.5GiB", "8 k", "k", "", "8kb", "eight"])
def test_what_vllm_does_not_read_either(text: str) -> None:
    with pytest.raises(ConfigError, match="--max-num-batched-tokens"):
        given("--max-num-batched-tokens", text)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-tp", "2"], {"tensor-parallel-size": 2}),
        (["-tp=2"], {"tensor-parallel-size": 2}),
        (["--max-model-len", "auto"], {"max-model-len": -1}),
        (["--max-model-len", "-1"], {"max-model-len": -1}),
        (["--max_model_len=32k"], {"max-model-len": 32_000}),
        (["--enable-prefix-caching"], {"enable-prefix-caching": True}),
        (["--no-enable-prefix-caching"], {"enable-prefix-caching": False}),
        (["--enforce-eager"], {"enforce-eager": True}),
        (["--served-model-name", "a", "b", "--port", "1"], {"served-model-name": ["a", "b"], "port": 1}),
        (["--hf-token", "--port", "1"], {"hf-token": True, "port": 1}),
        (["--middleware", "a", "--middleware", "b"], {"middleware": ["a", "b"]}),
        (["-O3"], {"optimization-level": "3"}),
        (["-O", "2"], {"optimization-level": "2"}),
        (["--max-num-seqs", "3", "--max-num-seqs", "4"], {"max-num-seqs": 4}),
        (["-cc", '{"mode": 3}'], {"compilation-config": {"mode": 3}}),
        (["-cc.mode=3", "-cc.a.b", "true"], {"compilation-config": {"mode": 3, "a": {"b": True}}}),
        (["-cc.sizes+", "1,2", "-cc.sizes+=4"], {"compilation-config": {"sizes": ["1", "2", "4"]}}),
        (["--speculative_config.num_speculative_tokens=1k"], {"speculative-config": {"num_speculative_tokens": 1000}}),
        (["--kv-transfer-config", '{"a": 80m, "b": "80m"}'], {"kv-transfer-config": {"a": 80_000_000, "b": "80m"}}),
        (["--port", "$PORT"], {"port": "$PORT"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)  # fmt: skip
def test_values(words: list[str], expected: dict[str, Any]) -> None:
    assert given(*words) == expected


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--max-num-seqs"], "needs a value"),
        (["--max-num-seqs", "--port", "1"], "needs a value"),
        (["--max-num-seqs", "many"], "give a whole number"),
        (["--gpu-memory-utilization", "most"], "give a number"),
        (["--speculative-config", "{"], "give a JSON object"),
        (["--speculative-config", "[" * 100_000], "give a JSON object"),
        (["--enforce-eager=1"], "takes no value"),
        (["--max-num-seqs.most", "3"], "has no fields"),
    ],
)
def test_mistakes_name_the_flag(words: list[str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as mistake:
        read_words(words)
    assert str(mistake.value).startswith("--")


@pytest.mark.parametrize("later", [("-cc.mode", "3"), ("--compilation-config", "{}")])
def test_a_field_that_is_gone_is_refused_where_another_value_takes_its_place(later: tuple[str, str]) -> None:
    """vLLM reads both values."""
    with pytest.raises(ConfigError, match=r"--compilation-config.level = '3': vLLM has no such field"):
        read_words(["-cc", '{"level": 3}', *later])
    assert given("-cc", '{"mode": 3}', *later)


def test_plain_words_say_the_same() -> None:
    words = ["-tp", "2", "--no-enable-prefix-caching", "--max-model-len", "32K", "-sc.method", "ngram"]
    first = read_words(words).given
    again = read_words([word for each in first for word in each.words]).given
    assert again == first
    assert [str(each) for each in first][:3] == [
        "--tensor-parallel-size 2",
        "--no-enable-prefix-caching",
        "--max-model-len 32768",
    ]


def test_the_beginning_of_a_name_is_the_name_where_it_can_be_no_other() -> None:
    reading = read_words(["--max-num-seq", "4", "--adv=none", "--slo", "a"], own={"--advice", "--slo"})
    assert [str(each) for each in reading.given] == ["--max-num-seqs 4"]
    assert reading.rest == ["--advice=none", "--slo", "a"]
    with pytest.raises(ConfigError, match="option = '--seed-': is ambiguous: it could be --seed-a, --seed-b"):
        read_words(["--seed-"], own={"--seed-a", "--seed-b"})
    with pytest.raises(ConfigError, match=r"is ambiguous: it could be .*--limit-mm-per-prompt, --limits"):
        read_words(["--limi", "3"], own={"--limits"})
    assert read_words(["--enable-prefix-c"]).given == read_words(["--enable-prefix-caching"]).given
    assert read_words(["--no-enable-prefix-c"]).given == read_words(["--no-enable-prefix-caching"]).given


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise argparse.ArgumentError(None, message)


@hypothesis.given(st.sampled_from(sorted(flag_table().long_names)), st.data())
def test_every_beginning_means_what_it_means_to_argparse(name: str, data: st.DataObject) -> None:
    """argparse's own parser with all long flags, each of which stores its name."""
    word = name[: data.draw(st.integers(3, len(name)))]
    parser = _Parser(add_help=False)
    for long, (flag, is_off) in flag_table().long_names.items():
        parser.add_argument(long, dest=f"{flag} {is_off}", action="store_true")
    try:
        told = [each for each, is_set in vars(parser.parse_args([word])).items() if is_set]
    except argparse.ArgumentError:
        told = []
    options = {meant for long, meant in flag_table().long_names.items() if long.startswith(word)}
    if word not in flag_table().long_names and len(options) > 1:
        with pytest.raises(ConfigError, match="is ambiguous"):
            flag_table().named(word)
        assert told == []
        return
    found = flag_table().named(word)
    assert found is not None
    assert (found.flag.name, found.is_off) in options
    assert told in ([f"{found.flag.name} {found.is_off}"], []), (
        "argparse refuses two names of one option: vLLM merges them"
    )


def test_what_is_not_vllms_stays_in_its_order() -> None:
    reading = read_words(
        ["LOG", "--gpu", "l4", "-tp", "2", "--seed", "7", "--limit=3"], own={"--seed", "--gpu", "--limit"}
    )
    assert reading.rest == ["LOG", "--gpu", "l4", "--seed", "7", "--limit=3"]
    assert [each.flag.name for each in reading.given] == ["tensor-parallel-size"]


def test_later_flags_take_the_place_of_earlier_ones() -> None:
    file, line = read_words(["-tp", "4", "--port", "1"]).given, read_words(["--tensor-parallel-size", "2"]).given
    assert {each.flag.name: each.value for each in merged(file, line)} == {"tensor-parallel-size": 2, "port": 1}


@pytest.mark.parametrize(
    ("words", "changes_nothing"),
    [
        (["--pipeline-parallel-size", "1"], True),
        (["-pp", "2"], False),
        (["--enforce-eager"], False),
        (["--no-enforce-eager"], True),
        (["--no-enable-expert-parallel"], True),
        (["--no-enable-lora"], True),
        (["--dtype", "auto"], True),
        (["--cpu-offload-gb", "0"], True),
    ],
)
def test_values_that_vllm_takes_anyway(words: list[str], changes_nothing: bool) -> None:
    (only,) = read_words(words).given
    assert only.changes_nothing is changes_nothing


def test_every_flag_can_be_read() -> None:
    samples = {"int": "1", "readable_int": "1k", "readable_int_or_auto": "auto", "float": "0.5", "json": "{}"}
    for flag in flag_table():
        words = [flag.flag, samples.get(flag.kind, "a")] if flag.kind.has_value else [flag.flag]
        reading = read_words(words)
        assert [each.flag for each in reading.given] == [flag]
        assert reading.rest == []
