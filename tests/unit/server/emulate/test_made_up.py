"""Texts of a form: whatever a schema or a pattern asks, what is made up keeps to it. Tokens come back as the text."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

from tokenyard.errors import ConfigError
from tokenyard.serve.emulate.approximate import ApproximateTokenizer
from tokenyard.serve.emulate.made_up import made_up_json, made_up_match

SCHEMAS: list[Any] = [
    {"type": "object", "properties": {"a": {"type": "integer", "minimum": 3}}, "required": ["a"]},
    {"type": "array", "items": {"type": "number", "exclusiveMinimum": 0}, "minItems": 2, "maxItems": 4},
    {"anyOf": [{"type": "null"}, {"type": "string", "maxLength": 3}]},
    {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "type": "object",
                "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
                "required": ["next"],
            }
        },
    },
    {
        "allOf": [
            {"properties": {"x": {"const": 1}}, "required": ["x"]},
            {"properties": {"y": {"type": "boolean"}}, "required": ["y"]},
        ],
        "type": "object",
    },
    {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"},
    {"type": ["string", "null"], "minLength": 20},
    {"enum": ["red", "green"]},
    {"type": "array", "items": {"enum": [1, 2, 3]}, "uniqueItems": True, "minItems": 3},
    {"type": "integer", "multipleOf": 7, "minimum": 10, "maximum": 30},
    {"type": "object", "required": ["free"], "additionalProperties": {"type": "integer"}},
]


@pytest.mark.slow
@pytest.mark.parametrize("schema", SCHEMAS)
@settings(max_examples=examples(24))
@given(seed=st.integers(0, 1000))
def test_values_keep_to_their_schema(schema: Any, seed: int) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    jsonschema.validate(made_up_json(schema, random.Random(seed)), schema)


@given(
    seed=st.integers(0, 1000),
    pattern=st.sampled_from([r"\d{3}-\d{4}", r"(a|b)+c?", r"[^abc]x*", r"v\d+\.\d+", r"(ab)\1"]),
)
def test_texts_keep_to_their_pattern(seed: int, pattern: str) -> None:
    assert re.fullmatch(pattern, made_up_match(pattern, random.Random(seed)))


@pytest.mark.parametrize("pattern", ["(", r"a\bb", "x(?=y)z"])
def test_patterns_that_cannot_be_made_up_are_refused(pattern: str) -> None:
    with pytest.raises(ConfigError):
        made_up_match(pattern, random.Random(0))


def test_a_schema_without_a_value_is_refused() -> None:
    with pytest.raises(ConfigError):
        made_up_json({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, random.Random(0))
    with pytest.raises(ConfigError):
        made_up_json({"type": "integer", "minimum": 2, "maximum": 1, "multipleOf": 5}, random.Random(0))


@given(st.text())
def test_every_text_comes_back_from_its_tokens(text: str) -> None:
    tokenizer = ApproximateTokenizer(151_936)
    ids = tokenizer.encode(text)
    assert all(0 <= each < tokenizer.vocab_size for each in ids)
    assert tokenizer.decode(ids) == text


def test_processes_agree_on_tokens() -> None:
    text = "A router hashes the same prompt to the same blocks everywhere."
    program = (
        "from tokenyard.serve.emulate.approximate import ApproximateTokenizer\n"
        f"print(ApproximateTokenizer(32_000).encode({text!r}))"
    )
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, env=environment)
        assert done.stdout.decode().strip() == str(ApproximateTokenizer(32_000).encode(text))
