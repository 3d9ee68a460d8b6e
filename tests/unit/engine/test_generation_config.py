"""Defaults of a model: from its file, from another folder, from nowhere, and put over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.toy_model import toy_core

from tokenyard.errors import ConfigError
from tokenyard.serve.generation import GenerationParams, read_generation_config
from tokenyard.serve.llm import LLM


def folder(path: Path, **fields: Any) -> Path:
    path.mkdir(exist_ok=True)
    (path / "generation_config.json").write_text(json.dumps(fields))
    return path


def test_the_models_own_file_is_taken(tmp_path: Path) -> None:
    others = {"do_sample": True, "eos_token_id": [1, 2]}
    model = folder(tmp_path / "m", temperature=0.6, top_p=0.9, top_k=None, max_new_tokens=99, **others)
    found = read_generation_config(model)
    assert found.params == {"temperature": 0.6, "top_p": 0.9}
    assert found.max_new_tokens == 99


def test_without_a_file_there_are_none(tmp_path: Path) -> None:
    assert read_generation_config(tmp_path) == ({}, None)


def test_nothing_another_folder_and_what_is_put_over(tmp_path: Path) -> None:
    model, other = folder(tmp_path / "m", temperature=0.6), folder(tmp_path / "o", top_k=5)
    assert read_generation_config(model, "vllm").params == {}
    assert read_generation_config(model, str(other)).params == {"top_k": 5}
    over = {"temperature": 0.1, "min_p": 0.2}
    assert read_generation_config(model, "auto", over).params == over
    assert read_generation_config(model, "vllm", {"max_new_tokens": 3}) == ({}, 3)


@pytest.mark.parametrize(
    ("asked", "override", "field"),
    [
        ("nowhere", None, "generation_config"),
        ("auto", {"best": 1}, "override_generation_config"),
        ("auto", {"temperature": -1}, "temperature"),
        ("auto", {"top_p": "much"}, "top_p"),
        ("auto", {"max_new_tokens": 0}, "max_new_tokens"),
        ("auto", {"max_new_tokens": True}, "max_new_tokens"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, asked: str, override: dict[str, Any] | None, field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_generation_config(tmp_path, asked, override)
    assert caught.value.field == field


def test_offline_prompts_without_parameters_get_them() -> None:
    core = toy_core()
    with LLM(core, override_generation_config={"temperature": 0.5, "max_new_tokens": 3}) as llm:
        assert llm.default_sampling_params == GenerationParams(temperature=0.5, max_tokens=3)
        (answer,) = llm.generate([[1, 2, 3]])
        assert len(answer.outputs[0].token_ids) == 3
        (asked,) = llm.generate([[1, 2, 3]], GenerationParams(max_tokens=5))
        assert len(asked.outputs[0].token_ids) == 5


@pytest.mark.parametrize("text", ["{", "[]", "\xff"])
def test_a_damaged_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "generation_config.json").write_text(text, encoding="latin-1")
    with pytest.raises(ConfigError) as caught:
        read_generation_config(tmp_path)
    assert caught.value.field == "generation_config"
