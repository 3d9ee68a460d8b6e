"""Weights of the stages of a pipeline are those that vLLM's own classes make (``lab/record_stages.py``)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.support.planner_answers import LARGEST_WEIGHT_ERROR, recorded

from tokenyard.models.reading.read import model_from_config
from tokenyard.models.reading.table import ROWS

NO_PIPELINE = re.compile("is not supported for this model|does not support pipeline parallelism")
ANSWERS = recorded(Path(__file__).with_name("stages.json.gz"))["architectures"]
ENCODERS_ELSEWHERE = {
    "BeeForConditionalGeneration",
    "Cosmos3EdgeForConditionalGeneration",
    "Gemma4UnifiedForConditionalGeneration",
    "MossTranscribeDiarizeForConditionalGeneration",
    "RForConditionalGeneration",
    "VoxtralForConditionalGeneration",
    "VoxtralRealtimeGeneration",
}
"""vLLM makes parts of what encodes pictures or sound in the last stage, or leaves some out of the first."""
COMPARED = [
    name for name, answer in ANSWERS.items() if "stages" in answer and name in ROWS and name not in ENCODERS_ELSEWHERE
]


@pytest.mark.parametrize("name", COMPARED)
def test_each_of_two_stages_weighs_what_vllm_loads(name: str) -> None:
    model = model_from_config(ANSWERS[name]["config"], name=name, where="config.json")
    ours = [model.weight_bytes(pipeline_parallel_size=2, stage=stage) for stage in (0, 1)]
    theirs = [stage["weight_bytes"] for stage in ANSWERS[name]["stages"]]
    assert ours == pytest.approx(theirs, rel=LARGEST_WEIGHT_ERROR)
    assert model.runs_in_stages


def test_vllm_answered_for_most_of_them() -> None:
    assert len(COMPARED) > 180


def test_models_without_a_pipeline_are_refused_one() -> None:
    names = [name for name, answer in ANSWERS.items() if NO_PIPELINE.search(answer.get("error", ""))]
    assert "SmolVLMForConditionalGeneration" in names
    for name in set(names) & set(ROWS):
        assert not model_from_config(ANSWERS[name]["config"], name=name, where="config.json").runs_in_stages, name
