"""The largest video that an encoder is planned for is vLLM's, where its frames have embeddings of their own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.planner_answers import recorded

from planner.largest import compared
from tokenyard.deploy.kv_memory import largest_item
from tokenyard.errors import ConfigError
from tokenyard.models.asking import image_tokens, video_tokens
from tokenyard.models.images.largest import LARGEST, with_largest_images
from tokenyard.models.images.processors import Processors
from tokenyard.models.reading.read import model_from_config, read_model_file
from tokenyard.models.spec import ModelSpec

FAMILIES = recorded(Path(__file__).with_name("largest_videos.json.gz"))["families"]
BY_IMAGE = recorded(Path(__file__).with_name("image_tokens.json.gz"))["families"]
BUILT = recorded(Path(__file__).with_name("registry.json.gz"))["architectures"]


APART = {"Molmo2ForConditionalGeneration", "LlavaNextVideoForConditionalGeneration"}
"""A file has to say how many frames there are; a model that sees no images."""


def _config(name: str) -> dict[str, object]:
    (cases,) = (each["cases"] for each in BUILT if each["architecture"] == name)
    return dict(cases[0]["config"])


def _read(name: str) -> ModelSpec:
    return model_from_config(_config(name), name=name, where="config.json")


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_videos_are_as_large_as_vllms(name: str) -> None:
    pairs = [pair for case in FAMILIES[name] for pair in compared(name, case)]
    assert [ours for ours, _ in pairs] == [theirs for _, theirs in pairs]
    assert len(pairs) >= 60


def test_vllm_was_asked_about_every_family() -> None:
    asked = {name for name, cases in BY_IMAGE.items() if "planned" in cases[0]}
    assert set(LARGEST) == asked | set(FAMILIES)
    assert not asked & set(FAMILIES)


@pytest.mark.parametrize("name", sorted(set(FAMILIES) - APART))
def test_a_model_that_is_read_plans_for_it(name: str) -> None:
    """As a deployment without a file of a processor does; a line that forbids images leaves the context to videos."""
    model = replace(_read(name), max_model_len=131_072)
    image = max(each.planned_tokens_per_item for each in model.encoders)
    planned = {(length, images): theirs for length, images, theirs in FAMILIES[name][0]["planned"]}
    assert largest_item(model, None, 131_072) == max(image, planned[131_072, 1])
    assert largest_item(model, '{"image": 0}', 131_072) == planned[131_072, 0]
    assert largest_item(model, '{"video": 0}', 131_072) == image


def test_a_model_that_sees_videos_alone_plans_for_them() -> None:
    """LLaVA-Next Video: frames of 12 x 12 embeddings, as many as the context has room for."""
    model = _read("LlavaNextVideoForConditionalGeneration")
    assert largest_item(model, None, 4096) == 28 * 144
    assert largest_item(model, '{"video": 0}', 4096) == 0


def test_a_video_of_glm_4v_has_smaller_frames_the_more_there_are(tmp_path: Path) -> None:
    """Frames of the largest picture, scaled by the volume of all; 4.6V's processor knows a number for any context."""
    file = tmp_path / "config.json"
    file.write_text(json.dumps(_config("Glm4vMoeForConditionalGeneration")))
    model = read_model_file(file)
    tower = model.encoders[0]
    assert tower.planned_videos == tuple(sorted(set(tower.planned_videos)))
    assert tower.planned_tokens_per_frame == tower.planned_tokens_per_item == 7396
    assert largest_item(model, '{"image": 0}', 20_000) == max(each for each in tower.planned_videos if each <= 20_000)
    assert largest_item(model, None, 131_072) == max(tower.planned_videos) == 36_980
    (tmp_path / "processor_config.json").write_text(json.dumps({"processor_class": "Glm46VProcessor"}))
    assert largest_item(read_model_file(file), None, 32_768) == 30_000 + 320 * (2 + 4) + 2
    half = {"size": {"shortest_edge": 12_544, "longest_edge": 28 * 28 * 2 * 15_000}}
    (tmp_path / "video_preprocessor_config.json").write_text(json.dumps(half))
    assert largest_item(read_model_file(file), None, 32_768) == 15_000 + 320 * (2 + 4) + 2


def test_a_decoder_without_a_word_for_videos_reads_none() -> None:
    raw = _config("InternVLChatModel")
    other = {**raw, "llm_config": {**raw["llm_config"], "model_type": "internlm2"}}  # type: ignore[dict-item]
    encoders = _read("InternVLChatModel").encoders
    shown, silent = (
        with_largest_images(encoders, "InternVLChatModel", each, Processors({}, {})) for each in (raw, other)
    )
    assert [each.planned_tokens_per_frame for each in shown if each.kind == "vision"] == [256]
    assert [each.planned_tokens_per_frame for each in silent if each.kind == "vision"] == [0]


def test_files_of_processors_beside_the_config_count(tmp_path: Path) -> None:
    """Only Molmo 2's file says how many frames a video has."""
    file = tmp_path / "config.json"
    file.write_text(json.dumps(_config("Molmo2ForConditionalGeneration")))
    without = read_model_file(file)
    image = max(each.planned_tokens_per_item for each in without.encoders)
    assert largest_item(without, None, 32_768) == image
    (tmp_path / "video_preprocessor_config.json").write_text(json.dumps({"num_frames": 64}))
    assert largest_item(read_model_file(file), None, 32_768) == 64 * (2 + 9 * 9)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"max_crops": 24}))
    assert max(each.planned_tokens_per_item for each in read_model_file(file).encoders) > image
    (tmp_path / "preprocessor_config.json").write_text("[")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_model_file(file)


QWEN = {"shortest_edge": 4096, "longest_edge": 1_310_720}
_WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("processor_config.json", {"image_processor": {"size": {"longest_edge": -5}}}, "longest_edge of processor_con"),
    ("processor_config.json", {"image_processor": [1]}, "image_processor of .*processor_config.json"),
    ("preprocessor_config.json", {"max_pixels": "big"}, "max_pixels of preprocessor_config.json = 'big': give a whole"),
    ("preprocessor_config.json", {"max_pixels": 9}, "give 1024 at least"),
    ("video_preprocessor_config.json", {"size": {"longest_edge": 0}}, "size.longest_edge of video_preprocessor_config"),
    ("video_preprocessor_config.json", {"size": {"longest_edge": 2047}}, "give 2048 at least"),
]


def _written(folder: Path, name: str) -> Path:
    file = folder / "config.json"
    file.write_text(json.dumps(_config(name)))
    return file


def test_sections_of_processor_config_win_over_files_of_their_own(tmp_path: Path) -> None:
    """As transformers reads them: a section, else a file of its own; videos else the images' file."""
    file = _written(tmp_path, "Qwen3VLForConditionalGeneration")
    assert largest_item(read_model_file(file), None, 32_768) == 16_384
    assert largest_item(read_model_file(file), '{"image": 0}', 32_768) == 12_288
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"size": {**QWEN, "longest_edge": 655_360}}))
    of_file = read_model_file(file)
    assert of_file.encoders[0].planned_tokens_per_item == image_tokens(str(file), 3000, 3000) + 15 == 640
    assert largest_item(of_file, '{"image": 0}', 32_768) == 320
    sections = {"image_processor": {"size": QWEN}, "video_processor": {"size": {**QWEN, "longest_edge": 2_621_440}}}
    (tmp_path / "processor_config.json").write_text(json.dumps(sections))
    of_section = read_model_file(file)
    assert of_section.encoders[0].planned_tokens_per_item == 1280
    assert image_tokens(str(file), 3000, 2000) == 1247
    assert largest_item(of_section, '{"image": 0}', 32_768) == 1280
    assert video_tokens(str(file), 1280, 720, 4) == 2 * 33 * 18


@pytest.mark.parametrize(("name", "content", "problem"), _WRONG)
def test_what_a_processor_cannot_be_told_is_refused(
    tmp_path: Path, name: str, content: dict[str, Any], problem: str
) -> None:
    file = _written(tmp_path, "Qwen3VLForConditionalGeneration")
    (tmp_path / name).write_text(json.dumps(content))
    with pytest.raises(ConfigError, match=problem):
        read_model_file(file)
