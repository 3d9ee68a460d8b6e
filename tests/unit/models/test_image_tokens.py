"""Embeddings of an image are vLLM's own count, family by family and size by size."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tokenyard.errors import ConfigError
from tokenyard.models.asking import image_tokens, video_tokens
from tokenyard.models.images import table
from tokenyard.models.images.largest import LARGEST
from tokenyard.models.images.table import RULES, image_rule
from tokenyard.models.images.videos import KNOWN, video_rule
from tokenyard.models.named import model_spec

RECORDED = json.loads(gzip.decompress(Path(__file__).with_name("image_tokens.json.gz").read_bytes()))["families"]


def _count(rule: Any, width: int, height: int) -> int | None:
    try:
        return int(rule.num_tokens(width, height))
    except ConfigError:
        return None


def test_no_architecture_is_in_two_families() -> None:
    families = json.loads(Path(table.__file__).with_name("families.json").read_text())["families"]
    named = Counter(name for family in families for name in family["architectures"])
    assert named == Counter([*table.FAMILIES])


@pytest.mark.parametrize("architecture", sorted(RULES))
def test_counts_are_vllms(architecture: str) -> None:
    for case in RECORDED[architecture]:
        rule = image_rule(case["config"], case["processor"])
        wrong = [each for each in case["images"] if _count(rule, *each[:2]) != each[2]]
        assert not wrong
        assert case["largest"] in (None, rule.planned)
        assert all((tokens or 0) <= rule.bound for _, _, tokens in case["images"])


@pytest.mark.parametrize("architecture", KNOWN)
def test_counts_of_videos_are_vllms(architecture: str) -> None:
    refused = 0
    for case in RECORDED[architecture]:
        rule = video_rule(case["config"], case["video"]["processor"])
        for wide, high, frames, tokens in case["video"]["videos"]:
            try:
                assert rule.num_tokens(wide, high, frames) == tokens, (wide, high, frames)
            except ConfigError:
                assert tokens is None, (wide, high, frames)
                refused += 1
    assert refused < 0.2 * sum(len(case["video"]["videos"]) for case in RECORDED[architecture])


@pytest.mark.parametrize("architecture", sorted(name for name, cases in RECORDED.items() if "planned" in cases[0]))
def test_an_encoder_is_planned_for_a_video_as_large_as_in_vllm(architecture: str) -> None:
    for case in RECORDED[architecture]:
        for length, has_images, image, video in case["planned"]:
            ours = LARGEST[architecture].num_tokens(image, length, has_images=bool(has_images))
            assert max(ours, image) == max(video, image), (length, has_images)


def test_a_video_of_a_named_model() -> None:
    assert video_tokens("qwen2.5-vl-7b", 1280, 720, 16) == 8 * 46 * 26
    assert video_tokens("qwen3-vl-8b", 1280, 720, 16) == 8 * 40 * 22
    with pytest.raises(ConfigError, match="no rule is known for its videos"):
        video_tokens("llama-3.1-8b", 1280, 720, 16)
    with pytest.raises(ConfigError, match="give 2 at least"):
        video_tokens("qwen3-vl-8b", 1280, 720, 1)


def test_hundreds_of_sizes_were_asked_of_each_family_and_most_are_images_that_it_takes() -> None:
    for cases in RECORDED.values():
        sizes = {(wide, high) for case in cases for wide, high, _ in case["images"]}
        taken = sum(tokens is not None for case in cases for _, _, tokens in case["images"])
        assert len(sizes) >= 300
        assert taken >= 0.9 * sum(len(case["images"]) for case in cases)


def test_a_named_model_and_a_file_beside_another(tmp_path: Path) -> None:
    assert image_tokens("qwen2.5-vl-7b", 1280, 720) == 46 * 26
    config = {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        "vision_config": {"patch_size": 14, "spatial_merge_size": 2},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert image_tokens(str(tmp_path / "config.json"), 1280, 720) == 46 * 26
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"max_pixels": 200 * 28 * 28}))
    assert image_tokens(str(tmp_path / "config.json"), 1280, 720) == 18 * 10
    (tmp_path / "preprocessor_config.json").write_text("[")
    with pytest.raises(ConfigError, match="cannot be read"):
        image_tokens(str(tmp_path / "config.json"), 1280, 720)


@pytest.mark.parametrize(
    ("model", "size", "problem"),
    [
        ("llama-3.1-8b", (640, 480), "no rule is known"),
        ("qwen2.5-vl-7b", (10, 4000), "more than 200 times"),
        ("qwen2.5-vl-7b", (0, 4000), "width"),
    ],
)
def test_what_has_no_answer(model: str, size: tuple[int, int], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        image_tokens(model, *size)


def test_the_encoder_of_a_model_is_planned_for_its_own_largest_image() -> None:
    """A tile of Llama 4 has 144 embeddings, and an image up to 16 of them and itself made small."""
    (encoder,) = model_spec("llama-4-scout").encoders
    assert encoder.max_tokens_per_item == encoder.planned_tokens_per_item == 17 * 144
