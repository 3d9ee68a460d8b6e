"""Pictures that a line makes smaller: those that memory is measured with, and what budgets are made for, are vLLM's."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.planner_answers import recorded

from planner.limited import compared, compared_videos
from tokenyard.cli.support.asking import scenario_of
from tokenyard.cli.support.flags.replays import RunCommand
from tokenyard.cli.support.parsing import parse
from tokenyard.deploy.kv_memory import largest_item
from tokenyard.deploy.resolve import ResolvedSettings
from tokenyard.deploy.vllm_serve.models import input_limits, item_sizes
from tokenyard.errors import ConfigError, NoStartError
from tokenyard.models.images.largest import heeds_sizes, knows_its_budget
from tokenyard.questions.scenario import replay_spec

FAMILIES = recorded(Path(__file__).with_name("limited_items.json.gz"))["families"]


@pytest.mark.parametrize("name", sorted(name for name, cases in FAMILIES.items() if cases[0].get("heeded")))
def test_pictures_are_as_large_as_vllms(name: str) -> None:
    pairs = [pair for case in FAMILIES[name] for pair in compared(name, case)]
    assert [ours for ours, _ in pairs] == [theirs for _, theirs in pairs]
    assert len(pairs) == 120
    assert heeds_sizes(name)


def test_some_classes_do_not_heed_sizes() -> None:
    silent = {name for name, cases in FAMILIES.items() if cases[0].get("heeded") is False}
    assert {name for name in FAMILIES if heeds_sizes(name) is False} == silent
    assert "DeepseekOCRForCausalLM" in silent
    assert heeds_sizes("KimiK25ForConditionalGeneration") is None


def _settled(model: str, limits: str, *flags: str) -> ResolvedSettings:
    line = f"vllm serve {model} --limit-mm-per-prompt '{limits}'"
    command = parse(["run", "random", "--limit", "1", "--serve", line, "--gpu", "h100", *flags])
    assert isinstance(command, RunCommand)
    return replay_spec(scenario_of(command)).settled


def test_smaller_pictures_leave_more_memory_and_a_budget_that_the_class_knows() -> None:
    """Qwen2.5-VL: 512 x 512 pixels are 324 embeddings, and one is measured with as many pictures as before."""
    plain, small = (
        _settled("qwen2.5-vl-7b", f'{{"video": 0, "image": {image}}}')
        for image in ("9", '{"count": 9, "width": 512, "height": 512}')
    )
    assert knows_its_budget(plain.model.architecture)
    assert plain.encoded is not None
    assert small.encoded is not None
    assert (plain.encoded.embeddings, small.encoded.embeddings) == (16_384, 324)
    assert plain.encoded.items == small.encoded.items == 1
    assert small.plan.num_blocks > plain.plan.num_blocks
    assert not any("limit_mm_per_prompt" in each for each in small.model.ignored)


def test_a_budget_that_a_class_builds_a_picture_for_is_smaller_too() -> None:
    """Mistral 3.1: 560 x 560 pixels are 400 embeddings; as many are measured with as a step has tokens for."""
    small = _settled("mistral-small-3.1-24b", '{"image": {"width": 560, "height": 560}}')
    assert not knows_its_budget(small.model.architecture)
    assert small.encoded is not None
    assert small.encoded.items == small.scheduling.max_num_batched_tokens // 400
    assert small.encoded.embeddings == small.encoded.items * 400


@pytest.mark.parametrize("name", sorted(name for name, cases in FAMILIES.items() if cases[0].get("videos")))
def test_videos_are_as_large_as_vllms(name: str) -> None:
    pairs = [pair for case in FAMILIES[name] for pair in compared_videos(name, case)]
    assert [ours for ours, _ in pairs] == [theirs for _, theirs in pairs]
    assert len(pairs) >= 21


def test_fewer_and_smaller_frames_leave_more_memory() -> None:
    """Qwen2.5-VL: seven layers of 16,384 embeddings; of eight frames four, as large or of 512 x 512 pixels."""
    plain, few, small = (
        _settled("qwen2.5-vl-7b", limits)
        for limits in (
            "{}",
            '{"video": {"num_frames": 8}}',
            '{"video": {"num_frames": 8, "width": 512, "height": 512}}',
        )
    )
    found = [each.encoded.embeddings for each in (plain, few, small) if each.encoded is not None]
    assert found == [7 * 16_384, 4 * 16_384, 4 * 324]
    assert plain.plan.num_blocks < few.plan.num_blocks < small.plan.num_blocks


def test_a_budget_that_is_made_for_frames_is_smaller_with_fewer() -> None:
    """Gemma 4: 78 embeddings for each of 32 frames at most; pictures have 280."""
    lines = ("{}", '{"video": {"num_frames": 8}}')
    models = [_settled("gemma-4-31b --tensor-parallel-size 4", line).model for line in lines]
    assert [largest_item(each, None, 8192) for each in models] == [32 * 78, 8 * 78]


def test_sizes_that_are_larger_change_nothing() -> None:
    plain, large = (
        _settled("mistral-small-3.1-24b", image)
        for image in ('{"image": 4}', '{"image": {"count": 4, "width": 9000, "height": 9000}}')
    )
    assert plain.encoded is not None
    assert large.encoded is not None
    assert large.encoded[1:] == plain.encoded[1:]
    assert large.plan == plain.plan


def test_what_is_not_heeded_is_said() -> None:
    heard = _settled("qwen2.5-vl-7b", '{"image": {"width": 512}, "video": {"num_frames": 8}, "audio": {"length": 9}}')
    (said,) = (each for each in heard.model.ignored if "limit_mm_per_prompt" in each)
    assert '{"audio": {"length": 9}}' in said
    assert not any("limit_mm" in each for each in _settled("gemma-3-12b", '{"image": {"width": 64}}').model.ignored)


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        ('{"image": {"length": 5}}', "limit_mm_per_prompt.image.length"),
        ('{"image": {"width": 0}}', "limit_mm_per_prompt.image.width"),
        ('{"video": {"num_frames": 8.5}}', "limit_mm_per_prompt.video.num_frames"),
        ('{"video": {"num_frames": "few"}}', "limit_mm_per_prompt.video.num_frames"),
        ('{"image": {"count": 2, "foo": 3}}', "limit_mm_per_prompt.image.foo"),
        ('{"image": {"count": 0, "foo": 3}}', "limit_mm_per_prompt.image.foo"),
        ('{"image": null}', "limit_mm_per_prompt.image = None"),
        ('{"image": "2"}', "limit_mm_per_prompt.image"),
        ('{"image": 2.0}', "limit_mm_per_prompt.image"),
        ('{"image": {"count": null}}', "limit_mm_per_prompt.image.count"),
        ('{"image": {"count": -1}}', "limit_mm_per_prompt.image.count"),
    ],
)
def test_sizes_that_cannot_be_are_refused(limits: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        _settled("qwen2.5-vl-7b", limits)


@pytest.mark.parametrize(
    ("limits", "counts", "sizes"),
    [
        ('{"image": true, "video": {"count": 2.0}}', {"image": 1, "video": 2}, {}),
        ('{"video": {"num_frames": "8", "width": null}}', {}, {"video": {"num_frames": 8}}),
        ('{"vision_chunk": {"count": 3, "width": 64}}', {"vision_chunk": 3}, {}),
        ('{"image": {"count": 0, "width": 64}}', {"image": 0}, {}),
    ],
)
def test_numbers_are_read_as_vllm_reads_them(
    limits: str, counts: dict[str, int], sizes: dict[str, dict[str, int]]
) -> None:
    assert input_limits(limits) == counts
    assert item_sizes(limits) == sizes


def test_a_picture_that_the_processor_refuses_keeps_vllm_from_starting() -> None:
    with pytest.raises(NoStartError, match="refused by its processor"):
        _settled("qwen2.5-vl-7b", '{"image": {"width": 10}}')
