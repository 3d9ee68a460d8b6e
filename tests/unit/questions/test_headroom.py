"""Head-room: parts add up to the budget, limits are those with which it starts, dangerous steps are those too large."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.planner_answers import recorded

import tokenyard as ty
from tokenyard.cli.main import main
from tokenyard.errors import NoStartError

REGISTRY = recorded(Path(__file__).parents[1] / "models" / "registry.json.gz")["architectures"]
SMALL = ty.Deployment("vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 16384", gpu="rtx4090")
LARGE = ty.Deployment(
    "vllm serve Qwen/Qwen3-235B-A22B-FP8 -tp 4 --max-num-batched-tokens 16384 --gpu-memory-utilization 0.95", gpu="h100"
)


@pytest.mark.slow
@pytest.mark.parametrize("deployment", [SMALL, pytest.param(LARGE, marks=pytest.mark.slow)])
def test_parts_and_kv_are_the_budget(deployment: ty.Deployment) -> None:
    room = ty.headroom(deployment)
    budget = room.total - room.outside
    assert sum(each.likely for each in room.parts) + room.kv_likely == budget
    assert sum(each.most for each in room.parts) + room.kv_least == budget
    settled = deployment.resolve().settled
    assert 0 <= room.kv_likely - settled.kv_bytes < settled.plan.bytes_per_block
    assert room.left_least < room.left_likely < room.outside
    assert {row["part"] for row in room.as_table()} >= {"weights", "activations", "sampler", "runtime"}


def blocks(deployment: ty.Deployment, setting: str, value: int) -> int:
    """In any case; -1 where it does not start by the estimate."""
    changes: Any = {setting: value}
    try:
        return deployment.with_(**changes).resolve().settled.fewest_blocks or 0
    except NoStartError:
        return -1


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["max_num_seqs", "max_model_len"])
def test_limits_are_the_last_that_start(setting: str) -> None:
    limit = next(each for each in ty.headroom(SMALL).limits if each.setting == setting)
    assert limit.safe is not None
    assert limit.likely is not None
    assert limit.safe <= limit.likely
    assert blocks(SMALL, setting, limit.safe) > 0
    most = 2048 if setting == "max_num_seqs" else 131_072
    if limit.safe < most:
        assert blocks(SMALL, setting, limit.safe + 1) <= 0
    if limit.likely < most:
        assert blocks(SMALL, setting, limit.likely + 1) == -1


@pytest.mark.slow
def test_the_safe_utilization_leaves_room_for_every_step() -> None:
    risky = ty.Deployment("vllm serve meta-llama/Llama-3.1-8B-Instruct --max-num-batched-tokens 16384", gpu="h100")
    room = ty.headroom(risky)
    assert not all(step.fits for step in room.steps)
    assert room.safe_utilization is not None
    safe = ty.headroom(risky.with_(gpu_memory_utilization=room.safe_utilization))
    assert all(step.fits for step in safe.steps)
    beyond = ty.headroom(risky.with_(gpu_memory_utilization=round(room.safe_utilization + 0.01, 2)))
    assert not all(step.fits for step in beyond.steps)
    assert ty.headroom(LARGE).safe_utilization is None  # it would not start with so little


def test_memory_that_was_logged_is_taken() -> None:
    room = ty.headroom(SMALL.with_(kv_cache_memory_bytes=4 << 30))
    assert room.is_measured
    assert room.safe_utilization is None
    assert room.kv_likely == room.kv_least <= 4 << 30


def test_what_cannot_start_says_so() -> None:
    with pytest.raises(NoStartError):
        ty.headroom(ty.Deployment("vllm serve meta-llama/Llama-3.1-70B-Instruct", gpu="h100"))


def test_the_command_prints_the_verdict_first(capsys: pytest.CaptureFixture[str]) -> None:
    line = "vllm serve Qwen/Qwen3-8B"
    assert main(["headroom", line, "--gpu", "l40s"]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert "free once it runs" in first
    assert main(["headroom", line, "--gpu", "l40s", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["model"] == "qwen3-8b"


def _serving(folder: Path, architecture: str, *flags: str) -> ty.Deployment:
    """A model of an architecture, as its own class of configuration makes it."""
    (config,) = (
        case["config"]
        for entry in REGISTRY
        for case in entry["cases"]
        if entry["architecture"] == architecture and case["variant"] == "default"
    )
    (folder / "config.json").write_text(json.dumps({**config, "architectures": [architecture]}))
    return ty.Deployment(" ".join(("vllm serve", str(folder), *flags)), gpu="b300")


@pytest.mark.parametrize(
    ("architecture", "said"),
    [
        ("HfMoondream", "encoder no memory for its work, no time: what the tower of HfMoondream computes is not known"),
        ("GraniteSpeechForConditionalGeneration", "encoder no memory for its work: the largest input of Granite"),
    ],
)
def test_an_encoder_that_nothing_is_kept_free_for_is_named(tmp_path: Path, architecture: str, said: str) -> None:
    (line,) = (each for each in ty.headroom(_serving(tmp_path, architecture)).assumed if each.startswith("encoder "))
    assert line.startswith(said)
    assert line.endswith("vLLM has less room for KV than is shown")
    given = ty.headroom(_serving(tmp_path, architecture, "--kv-cache-memory-bytes", "20G"))
    assert not any("memory for its work" in each for each in given.assumed)
    assert any(each.startswith("encoder no time: ") for each in given.assumed) == ("no time" in said)
    skipping = ty.headroom(_serving(tmp_path, architecture, "--skip-mm-profiling"))
    assert not any(each.startswith("encoder ") for each in skipping.assumed)


def test_an_encoder_that_memory_is_kept_free_for_is_a_part(tmp_path: Path) -> None:
    room = ty.headroom(_serving(tmp_path, "Qwen2_5_VLForConditionalGeneration"))
    assert "encoder" in {each.name for each in room.parts}
    assert not any(each.startswith("encoder ") for each in room.assumed)
