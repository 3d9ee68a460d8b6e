"""Which vLLM decides where no version is given, and how long a request may be that a few blocks have to hold."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.profiles import VLLM_0_22

from tokenyard.cli.support.asking import scenario_of
from tokenyard.cli.support.flags.replays import CompareCommand, DemoCommand, RunCommand, SplitCommand
from tokenyard.cli.support.parsing import parse
from tokenyard.core.config import SchedulerConfig
from tokenyard.core.profiles import NEWEST
from tokenyard.deploy.spec import ReplaySpec
from tokenyard.errors import NoStartError
from tokenyard.questions.scenario import replay_spec

FEW = ("--num-gpu-blocks-override", "300")
LINE = "vllm serve meta-llama/Llama-3.1-8B --num-gpu-blocks-override 300"
FITS = {"0.22": 4800, "0.33": 4784}
"""Tokens: 0.33 knows that one of the blocks holds nothing."""


def setup(*flags: str) -> ReplaySpec:
    command = parse(["run", "chat", "--limit", "1", *flags])
    assert isinstance(command, RunCommand)
    return replay_spec(scenario_of(command))


def assumed(which: ReplaySpec) -> dict[str, Any]:
    return {each.name: each.value for each in which.deployment.assumed}


def test_the_command_line_and_the_library_decide_as_the_newest() -> None:
    newest = setup()
    assert newest.scheduler.profile == NEWEST
    assert newest.deployment.vllm_version == assumed(newest)["vllm-version"] == NEWEST.vllm_version
    assert SchedulerConfig().profile == NEWEST


@pytest.mark.parametrize("typed", ["0.22", "0.22.1", "v0.22.1"])
def test_another_one_is_named(typed: str) -> None:
    older = setup("--vllm-version", typed)
    assert older.scheduler.profile == VLLM_0_22
    assert older.deployment.vllm_version == "0.22"
    assert "vllm-version" not in assumed(older)


def test_every_command_that_replays_takes_it() -> None:
    for words in (["run", "chat"], ["compare", "chat"], ["split", "chat"]):
        command = parse([*words, "--vllm-version", "0.22"])
        assert isinstance(command, RunCommand | CompareCommand | SplitCommand)
        assert command.launch.vllm_version == "0.22"
    demo = parse(["demo", "--vllm-version", "0.22"])
    assert isinstance(demo, DemoCommand)
    assert demo.vllm_version == "0.22"


@pytest.mark.parametrize(("version", "drifts"), [("0.22", True), ("0.33", False)])
def test_the_drift_of_0_22_can_be_left_out_and_no_later_version_gets_it(version: str, drifts: bool) -> None:
    for flag, wanted in (("--running-index-drifts", drifts), ("--no-running-index-drifts", False)):
        assert setup("--vllm-version", version, flag).scheduler.profile.running_index_drifts is wanted


@pytest.mark.parametrize(("version", "longest"), FITS.items())
def test_where_nobody_gives_a_length_the_pool_does(version: str, longest: int) -> None:
    """Answers are not cut for it: what the pool cannot hold is refused when it comes."""
    few = setup(*FEW, "--vllm-version", version)
    assert few.deployment.max_model_len == assumed(few)["max-model-len"] == longest
    assert few.scheduler.max_model_len == 131_072


@pytest.mark.parametrize(("version", "longest"), FITS.items())
def test_auto_is_a_length(version: str, longest: int) -> None:
    auto = setup(*FEW, "--max-model-len", "auto", "--vllm-version", version)
    assert auto.deployment.max_model_len == auto.scheduler.max_model_len == longest


def test_a_pool_that_holds_the_model_s_own_length_leaves_it() -> None:
    enough = setup("--num-gpu-blocks-override", "9000")
    assert assumed(enough)["max-model-len"] == 131_072


@pytest.mark.parametrize(("version", "longest"), FITS.items())
@pytest.mark.parametrize("flags", [(*FEW, "--max-model-len", "8000"), ("--serve", LINE)], ids=["given", "pasted"])
def test_a_length_beyond_the_pool_keeps_vllm_from_starting(version: str, longest: int, flags: tuple[str, ...]) -> None:
    with pytest.raises(NoStartError, match=f"give at most {longest}, or raise num_gpu_blocks_override"):
        setup(*flags, "--vllm-version", version)


def test_a_line_with_auto_starts() -> None:
    assert setup("--serve", f"{LINE} --max-model-len auto").scheduler.max_model_len == FITS["0.33"]
