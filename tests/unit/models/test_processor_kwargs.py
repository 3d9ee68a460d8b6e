"""``--mm-processor-kwargs``: the largest image and video with it, as vLLM's own processing classes have them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.planner_answers import recorded

from tokenyard.cli.support.asking import scenario_of
from tokenyard.cli.support.flags.replays import RunCommand
from tokenyard.cli.support.parsing import parse
from tokenyard.deploy.kv_memory import largest_item
from tokenyard.errors import ConfigError, NoStartError
from tokenyard.models.asking import image_tokens, video_tokens
from tokenyard.models.images.largest import with_largest_images
from tokenyard.models.images.processor_kwargs import with_processor_kwargs
from tokenyard.models.images.processors import Processors
from tokenyard.models.images.table import image_rule
from tokenyard.models.images.videos import video_rule
from tokenyard.models.reading.read import model_from_config
from tokenyard.questions.scenario import replay_spec

CASES: list[dict[str, Any]] = json.loads(Path(__file__).with_name("processor_kwargs.json").read_text())
BUILT = recorded(Path(__file__).with_name("registry.json.gz"))["architectures"]
CONFIGS = {each["architecture"]: each["cases"][0]["config"] for each in BUILT if each["cases"]}
LENGTH, SHOWN = 131_072, (3000, 2000, 8)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['name']}-{json.dumps(case['said'])}")
def test_the_largest_image_and_video_are_vllms(case: dict[str, Any]) -> None:
    raw = CONFIGS[case["name"]]
    model = model_from_config(raw, name=case["name"], where="config.json")
    files = Processors(*case["files"])
    model = model.with_encoders(with_largest_images(model.encoders, model.architecture, raw, files))
    if isinstance(case["planned"], str):
        with pytest.raises(NoStartError, match="has no shortest_edge"):
            with_processor_kwargs(model, raw, files, json.dumps(case["said"]), "0.33")
        return
    changed, told = with_processor_kwargs(model, raw, files, json.dumps(case["said"]), "0.33")
    planned = [largest_item(changed, json.dumps({other: 0}), LENGTH) for other in ("video", "image")]
    wide, high, frames = SHOWN
    shown = [
        image_rule(raw, told.image).num_tokens(wide, high),
        video_rule(raw, told.video).num_tokens(wide, high, frames),
    ]
    assert [*planned, *shown] == case["planned"]
    assert len(changed.ignored) - len(model.ignored) == ("fps" in case["said"])


def test_enough_cases_are_compared() -> None:
    refused = [case for case in CASES if isinstance(case["planned"], str)]
    assert (len(CASES), len(refused), len({case["name"] for case in CASES})) == (54, 6, 6)


def _settled(model: str, said: dict[str, Any], version: str = "0.33") -> Any:
    line = f"vllm serve {model} --mm-processor-kwargs '{json.dumps(said)}'"
    words = ["run", "random", "--limit", "1", "--serve", line, "--gpu", "h100", "--vllm-version", version]
    command = parse(words)
    assert isinstance(command, RunCommand)
    return replay_spec(scenario_of(command)).settled


def test_smaller_images_leave_more_blocks() -> None:
    plain, small = (_settled("qwen2.5-vl-7b", said) for said in ({}, {"max_pixels": 1_003_520}))
    assert plain.encoded.embeddings == 114_688
    assert small.encoded.embeddings < 10 * 8960
    assert largest_item(small.model, None, LENGTH) == 8960
    assert small.plan.num_blocks > plain.plan.num_blocks
    assert not any("mm_processor_kwargs" in each for each in small.model.ignored)


@pytest.mark.parametrize(
    ("model", "said", "version", "named"),
    [
        ("qwen2.5-vl-7b", {"fps": 1, "max_pixels": 1_003_520}, "0.33", ['{"fps": 1}']),
        ("mistral-small-3.1-24b", {"max_pixels": 1_003_520}, "0.33", ['{"max_pixels": 1003520}']),
        ("qwen3-vl-8b", {"max_pixels": 1_003_520}, "0.33", []),
        ("qwen3-vl-8b", {"max_pixels": 1_003_520}, "0.22", ["max_pixels of videos"]),
        ("qwen3-8b", {"max_pixels": 1_003_520}, "0.33", []),
    ],
)
def test_what_is_not_read_is_named(model: str, said: dict[str, Any], version: str, named: list[str]) -> None:
    ignored = [each for each in _settled(model, said, version).model.ignored if "mm_processor_kwargs" in each]
    assert ignored == [f"mm_processor_kwargs {each}: how large images and videos are" for each in named]


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"max_pixels": "big"}, "max_pixels of mm_processor_kwargs = 'big': give a whole number"),
        ({"max_pixels": 9}, "of mm_processor_kwargs = 9: give 784 at least"),
        ({"size": 9}, "mm_processor_kwargs.size = 9: give"),
    ],
)
def test_values_that_cannot_be_are_refused(said: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        _settled("qwen2.5-vl-7b", said)


def test_tokens_of_an_image_and_a_video_follow_arguments() -> None:
    said = {"max_pixels": 1_003_520}
    assert image_tokens("qwen2.5-vl-7b", 3000, 2000, mm_processor_kwargs=said) < image_tokens(
        "qwen2.5-vl-7b", 3000, 2000
    )
    with pytest.raises(ConfigError, match="no rule for sizes of this model reads it"):
        image_tokens("qwen3-vl-8b", 90, 90, mm_processor_kwargs={"fps": 1})
    with pytest.raises(ConfigError, match="no rule for sizes of this model reads it"):
        video_tokens("qwen3-vl-8b", 90, 90, 2, mm_processor_kwargs={"fps": 1})
