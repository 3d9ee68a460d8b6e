"""``--limit-mm-per-prompt`` leaves out the encoders that vLLM leaves out (``lab/record_limits.py``)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.planner_answers import LARGEST_WEIGHT_ERROR, recorded

from tokenyard.deploy.vllm_serve.models import encoders_in_use
from tokenyard.errors import ConfigError
from tokenyard.models.inputs import inputs_of
from tokenyard.models.reading.read import model_from_config
from tokenyard.models.reading.table import ROWS
from tokenyard.models.spec import ModelSpec

ANSWERS = recorded(Path(__file__).with_name("limits.json.gz"))["architectures"]
COMPARED = [name for name, answer in ANSWERS.items() if "inputs" in answer and name in ROWS]


def _read(name: str) -> ModelSpec:
    return model_from_config(ANSWERS[name]["config"], name=name, where="config.json")


@pytest.mark.parametrize("name", COMPARED)
def test_limits_leave_out_as_many_bytes_as_vllm_does(name: str) -> None:
    model, weights = _read(name), ANSWERS[name]["weight_bytes"]
    for forbidden, theirs in weights.items():
        limits = json.dumps(dict.fromkeys(forbidden.split(), 0)) if forbidden else None
        kept = model.with_encoders(encoders_in_use(model, limits))
        saved = model.weight_bytes() - kept.weight_bytes()
        assert saved == pytest.approx(weights[""] - theirs, abs=LARGEST_WEIGHT_ERROR * weights[""]), forbidden


def test_vllm_answered_for_most_of_them() -> None:
    assert len(COMPARED) > 20


def test_a_tower_for_pictures_stays_while_videos_are_allowed() -> None:
    model = _read("Qwen2_5_VLForConditionalGeneration")
    assert encoders_in_use(model, '{"image": 0}') == model.encoders
    assert encoders_in_use(model, '{"image": 0, "video": {"count": 0}}') == ()


def test_sound_and_pictures_are_left_out_each_by_its_own_limit() -> None:
    model = _read("Qwen2_5OmniModel")
    assert [each.kind for each in encoders_in_use(model, '{"audio": 0}')] == ["vision"]
    assert [each.kind for each in encoders_in_use(model, '{"image": 0, "video": 0}')] == ["audio"]


def test_a_model_that_vllm_was_not_asked_about_is_taken_by_its_name() -> None:
    model = _read("Qwen2_5_VLForConditionalGeneration")
    assert inputs_of(replace(model, architecture="NobodyVL"), model.encoders[0]) == {"image", "video"}
    assert inputs_of(replace(model, architecture="Nobody"), model.encoders[0]) == {"image"}


def test_a_limit_that_is_no_number_names_its_input() -> None:
    with pytest.raises(ConfigError, match=r"limit_mm_per_prompt\.image"):
        encoders_in_use(_read("Qwen2_5_VLForConditionalGeneration"), '{"image": -1}')
