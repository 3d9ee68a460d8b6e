"""How many pictures, videos and sounds a prompt may have: the line's number, the class's at most, as vLLM says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.planner_answers import recorded

from planner.items import prompts
from tokenyard.deploy.kv_memory import largest_item, measured_encoder
from tokenyard.deploy.settings import DeploymentSettings, HardwareSettings
from tokenyard.deploy.vllm_serve.defaults import BatchLimits
from tokenyard.deploy.vllm_serve.models import items_allowed
from tokenyard.models.inputs import item_kind, most_items
from tokenyard.models.named import named_model
from tokenyard.models.reading.read import model_from_config
from tokenyard.models.reading.table import ROWS
from tokenyard.models.spec import ModelSpec

ANSWERS = recorded(Path(__file__).with_name("items.json.gz"))["architectures"]
BUILT = recorded(Path(__file__).with_name("registry.json.gz"))["architectures"]


def _read(name: str) -> ModelSpec:
    (cases,) = (each["cases"] for each in BUILT if each["architecture"] == name)
    return model_from_config(cases[0]["config"], name=name, where="config.json")


def test_prompts_are_taken_and_refused_as_by_vllm() -> None:
    asked = list(prompts(ANSWERS))
    assert [each for each in asked if each.theirs != each.ours] == []
    assert {each.theirs for each in asked if each.kind == "image"} == {True, False}
    assert len(asked) > 10_000


def test_what_is_read_and_sees_was_asked_about() -> None:
    named = {
        each["architecture"]
        for each in BUILT
        if each["kind"] == "multimodal" and each["architecture"] in ROWS and ROWS[each["architecture"]].towers
    }
    assert {name for name in named if "supported" not in ANSWERS[name]} == set()


def test_a_class_has_a_limit_that_no_line_raises() -> None:
    name = "PaliGemmaForConditionalGeneration"
    assert (most_items(name, "image"), most_items(name, "video")) == (1, 0)
    assert [items_allowed(name, "image", line) for line in (None, '{"image": 0}', '{"image": 8}')] == [1, 0, 1]
    assert items_allowed("LlavaForConditionalGeneration", "image", None) == 999
    assert items_allowed("Nobody", "image", '{"image": {"count": 3}}') == 3


def test_pictures_of_kimi_go_by_the_number_of_another_kind() -> None:
    model = _read("KimiK25ForConditionalGeneration")
    kind = item_kind(model)
    line = json.dumps({"image": 0, "vision_chunk": 2})
    assert (kind, items_allowed("KimiK25ForConditionalGeneration", kind, line)) == ("vision_chunk", 2)
    assert largest_item(model, '{"image": 0}', 32_768) == largest_item(model, None, 32_768) > 0
    assert largest_item(model, '{"vision_chunk": 0}', 32_768) == 0


def test_an_encoder_is_measured_with_as_many_as_a_prompt_may_have() -> None:
    """vLLM measures with the pictures of all prompts of a step, of each the class's number at most."""
    model, limits = named_model("gemma-3-12b"), BatchLimits(max_num_batched_tokens=8192, max_num_seqs=4)

    def embeddings(model: ModelSpec, line: str | None) -> int:
        flags = DeploymentSettings(hardware=HardwareSettings(limit_mm_per_prompt=line))
        found = measured_encoder(flags, model, limits, 32_768)
        assert found is not None
        return found.embeddings

    one = replace(model, architecture="PaliGemmaForConditionalGeneration")
    assert embeddings(model, None) == 8192
    assert embeddings(model, '{"image": 1}') == embeddings(one, None) == embeddings(one, '{"image": 8}') == 4 * 256


@pytest.mark.parametrize("name", ["Nobody", "Emu3ForConditionalGeneration"])
def test_a_model_without_a_known_number_goes_by_the_line(name: str) -> None:
    assert most_items(name, "image") is None
    assert items_allowed(name, "image", None) == 999
