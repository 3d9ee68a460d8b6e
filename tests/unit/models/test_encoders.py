"""Encoders have vLLM's parameters, part by part: those of every stack of layers, and all of them, shared out or not.

vLLM 0.33's own modules on the meta device, as ``lab/record_encoders.py`` recorded them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.planner_answers import recorded

from tokenyard.errors import ConfigError
from tokenyard.models.inputs import may_share_images
from tokenyard.models.reading.read import model_from_config
from tokenyard.models.spec import EncoderSpec, ModelSpec
from tokenyard.steptime.encoders import timed_encoders

BUILT = recorded(Path(__file__).with_name("encoders.json.gz"))["architectures"]
REGISTRY = recorded(Path(__file__).with_name("registry.json.gz"))["architectures"]
LARGEST_ERROR = 0.012
"""Biases and norms of some towers are not counted, and embeddings around pictures are not."""
LARGEST_LAYERS_ERROR = 0.02
"""The first layer of FunASR stands apart from the lists."""
_DECODERS_OWN = ("lm_head", "proj_out", "score", "classifier", "pooler", "custom_text_proj", "text_")
"""Parts beside the decoder that are no encoder."""
_HEARING = ("audio", "apm", "embed_tokens_extend")
INSIDE = {"InklingForConditionalGeneration": {"audio"}}
"""Encoders that vLLM's decoder holds."""
NOT_ASKED = {
    "DeepseekVLV2ForCausalLM": "Please install timm",
    "Gemma3nForConditionalGeneration": "requires the timm library",
    "KananaVForConditionalGeneration": "failed to be inspected",
    "OpenVLAForActionPrediction": "Please install timm",
}
"""What vLLM said where it could not build them."""
ASKED = sorted(name for name, each in BUILT.items() if any(case["parts"] for case in each.get("cases", ())))


def _models(name: str) -> list[tuple[ModelSpec, dict[str, Any]]]:
    return [(model_from_config(case["config"], name=name, where="file"), case) for case in BUILT[name]["cases"]]


def _kind(model: ModelSpec, part: str) -> str:
    kinds = {each.kind for each in model.encoders}
    return "audio" if kinds == {"audio"} or any(word in part for word in _HEARING) else "vision"


@pytest.mark.parametrize("name", ASKED)
def test_encoders_have_as_many_parameters(name: str) -> None:
    for model, case in _models(name):
        parts = {part: size for part, size in case["parts"].items() if not part.startswith(_DECODERS_OWN)}
        for kind in {each.kind for each in model.encoders} - INSIDE.get(name, set()):
            ours = sum(each.num_parameters for each in model.encoders if each.kind == kind)
            theirs = sum(size for part, size in parts.items() if _kind(model, part) == kind)
            assert ours == pytest.approx(theirs, rel=LARGEST_ERROR), f"{kind}: {parts}"


def _stacks(model: ModelSpec, case: dict[str, Any], encoder: EncoderSpec) -> list[int]:
    """Parameters of the lists of blocks that may be this encoder's, and of two in a row (FunASR, MiniCPM 4.6)."""
    sizes = [each["parameters"] for path, each in case["lists"].items() if _kind(model, path) == encoder.kind]
    return sizes + [a + b for i, a in enumerate(sizes) for b in sizes[i + 1 :]]


@pytest.mark.parametrize("name", ASKED)
def test_layers_of_timed_encoders_have_as_many_parameters(name: str) -> None:
    """An encoder that runs in two stretches (MiniCPM 4.6) counts both together."""
    for model, case in _models(name):
        timed = [each for each in model.encoders if each.num_layers]
        whole = sum(each.layer_parameters for each in timed)
        for each in timed:
            stacks = _stacks(model, case, each)
            assert any(
                size == pytest.approx(found, rel=LARGEST_LAYERS_ERROR)
                for size in (each.layer_parameters, whole)
                for found in stacks
            ), f"{each.layer_parameters:,}: {case['lists']}"


SHARING = sorted(name for name, each in BUILT.items() if each.get("shares_work"))


def _sharing_images(model: ModelSpec) -> ModelSpec:
    return replace(model, encoders=tuple(replace(each, shares_work=each.kind == "vision") for each in model.encoders))


@pytest.mark.parametrize("name", SHARING)
def test_encoders_whose_images_are_shared_out_weigh_what_they_do(name: str) -> None:
    """On one of two GPUs: what ``--mm-encoder-tp-mode data`` is more than ``weights``, of which others tell."""
    assert may_share_images(name)
    for model, case in _models(name):
        theirs = case["weight_bytes"]
        if isinstance(theirs["data"], str):  # Kimi-VL's defaults, whose heads cannot be shared out
            assert theirs["data"] == theirs["weights"]
            continue
        both = [each.weight_bytes(2) for each in (model, _sharing_images(model))]
        assert both[1] - both[0] == pytest.approx(theirs["data"] - theirs["weights"], rel=0.001)


@pytest.mark.parametrize("name", sorted(set(ASKED) - set(SHARING)))
def test_others_share_weights_all_the_same(name: str) -> None:
    assert not may_share_images(name)
    for case in BUILT[name]["cases"]:
        assert case["weight_bytes"]["data"] == case["weight_bytes"]["weights"]


def test_vllm_was_asked_about_every_timed_encoder() -> None:
    priced = set()
    for entry in REGISTRY:
        for case in entry["cases"][:1]:
            try:
                model = model_from_config(case["config"], name=entry["architecture"], where="file")
            except ConfigError:  # a model that is not read
                continue
            if entry["kind"] != "transformers" and timed_encoders(model):
                priced.add(entry["architecture"])
    assert len(priced) >= 120
    assert priced - set(ASKED) <= set(NOT_ASKED)
    for name, said in NOT_ASKED.items():
        assert said in BUILT[name]["error"]
