"""What a pasted text says beside flags is taken, or named in the header, and flags that are typed count more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.integration.command import call
from tests.unit.launch.test_startup_log import V22
from tests.unit.launch.test_texts import DEPLOYMENT, KSERVE

RUN = ("run", "chat", "--limit", "1", "--ignore-unmodelled")
DENSE = DEPLOYMENT.replace("openai/gpt-oss-20b", "Qwen/Qwen3-8B")


def header(*words: str, cwd: Path) -> dict[str, Any]:
    outcome = call(*RUN, *words, "--json", cwd=cwd)
    assert outcome.code == 0, outcome.stderr
    found: dict[str, Any] = json.loads(outcome.stdout)["header"]
    return found


def assumed(found: dict[str, Any]) -> dict[str, tuple[Any, str]]:
    return {each["name"]: (each["value"], each["why"]) for each in found["assumed"]}


def test_a_manifest(tmp_path: Path) -> None:
    found = header("--serve", DENSE, cwd=tmp_path)
    said = assumed(found)
    assert (found["vllm_version"], found["gpu"]) == ("0.22", "h100")
    assert "0.22.1, the tag of the image" in said["vllm-version"][1]
    assert said["gpu"] == ("h100", "nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3")
    assert said["replicas"][0] == "4"
    assert "gpu_memory_utilization" not in said
    typed = assumed(
        header("--serve", DENSE, "--gpu", "h200", "--vllm-version", "0.33", "--replicas", "1", cwd=tmp_path)
    )
    assert not {"gpu", "vllm-version", "replicas"} & typed.keys()


TASK = """
resources: {accelerators: {L4, A100, H100}}
setup: pip install vllm==0.30.0
run: vllm serve Qwen/Qwen3-8B
"""


def test_one_of_several_kinds_of_gpu_is_not_chosen(tmp_path: Path) -> None:
    refused = call(*RUN, "--serve", TASK, cwd=tmp_path)
    assert refused.code == 2
    assert "gpu = 'l4 or a100-40gb or h100': accelerators of the task: these are several kinds" in refused.stderr
    said = assumed(header("--serve", TASK, "--gpu", "h100", cwd=tmp_path))
    assert said["gpu"] == ("h100", "given; accelerators of the task says l4 or a100-40gb or h100")


def test_replicas_reach_the_replay(tmp_path: Path) -> None:
    outcome = call(*RUN, "--serve", DENSE, "--json", cwd=tmp_path)
    assert json.loads(outcome.stdout)["replicas"]["most"] == 4
    scaled = call(*RUN, "--serve", KSERVE, "--json", cwd=tmp_path)
    assert json.loads(scaled.stdout)["replicas"]["most"] == 3


def test_replicas_that_cannot_be_replayed_are_named(tmp_path: Path) -> None:
    traced = assumed(header("--serve", DENSE, "--trace", "t", cwd=tmp_path))
    assert "writes no trace, so that one of them gets all the traffic here" in traced["replicas"][1]
    engines = DENSE.replace("--max-num-seqs=7", "--data-parallel-size=2")
    several = assumed(header("--serve", engines, cwd=tmp_path))
    assert "replicas of several engines each are not replayed" in several["replicas"][1]


@pytest.mark.parametrize(
    ("tag", "version", "why"),
    [
        ("v0.22.1-cu130", "0.22", "0.22.1, the tag"),
        ("v0.33.0", "0.33", "0.33.0, the tag"),
        ("v0.11.0", "0.22", "decisions of 0.11.0"),
        ("v0.31.2", "0.31", "0.31.2, the tag"),
        ("latest", "0.33", "names no version"),
    ],
)
def test_the_image_is_the_version(tag: str, version: str, why: str, tmp_path: Path) -> None:
    found = header("--serve", DENSE.replace("v0.22.1-cu130", tag), "--replicas", "1", cwd=tmp_path)
    assert found["vllm_version"] == version
    assert why in assumed(found)["vllm-version"][1]


def test_a_gpu_that_is_not_known(tmp_path: Path) -> None:
    text = DENSE.replace("NVIDIA-H100-80GB-HBM3", "Tesla-M4")
    call(*RUN, "--serve", text, cwd=tmp_path).refused("gpu = 'Tesla-M4'", "nvidia.com/gpu.product=Tesla-M4", "--gpu")
    assert header("--serve", text, "--gpu", "l40s", "--replicas", "1", cwd=tmp_path)["gpu"] == "l40s"


def test_a_start_up_log(tmp_path: Path) -> None:
    (tmp_path / "vllm.log").write_text(V22)
    found = header("--serve", "vllm.log", cwd=tmp_path)
    said = assumed(found)
    assert (found["vllm_version"], found["gpu"]) == ("0.22", "h100")
    assert said["kv-cache-memory-bytes"][0] == int(58.25 * (1 << 30))
    value, why = said["KV cache size"]
    assert value == "848,224 tokens"
    assert f"{found['kv_tokens']:,} here" in why
    assert abs(found["kv_tokens"] / 848_224 - 1) < 0.001
    assert found["max_num_batched_tokens"] == said["max-num-batched-tokens"][0] == 8192


def test_a_log_without_a_gpu(tmp_path: Path) -> None:
    log = "INFO 06-10 10:21:13 [utils.py:253] non-default args: {'model': 'llama-3.2-1b', 'max_model_len': 8192}"
    assert assumed(header("--serve", log, cwd=tmp_path))["start-up log"][0] == "no GPU"
    assert "start-up log" not in assumed(header("--serve", log, "--gpu", "l4", cwd=tmp_path))


@pytest.mark.parametrize("name", ["H100", "NVIDIA H100 80GB HBM3", "NVIDIA-H100-80GB-HBM3"])
def test_a_gpu_by_its_drivers_name(name: str, tmp_path: Path) -> None:
    found = header("--serve", V22, "--gpu", name, cwd=tmp_path)
    assert found["gpu"] == "h100"
    assert "not taken" not in assumed(found)["kv-cache-memory-bytes"][1]


@pytest.mark.parametrize("name", ["NVIDIA A100", "NVIDIA A10X", "2 x h100", "NVIDIA"])
def test_gpus_that_only_look_alike(name: str, tmp_path: Path) -> None:
    call(*RUN, "--model", "llama-3.2-1b", "--gpu", name, cwd=tmp_path).refused("--gpu = ", "use one of: v100-16gb, ")


def test_a_file_of_flags_is_for_config(tmp_path: Path) -> None:
    (tmp_path / "flags.yaml").write_text("model: llama-3.2-1b\nmax-model-len: 8192\n")
    call(*RUN, "--serve", "flags.yaml", cwd=tmp_path).refused("holds no `vllm serve`", "is given by --config")
    assert header("--config", "flags.yaml", cwd=tmp_path)["max_model_len"] == 8192


@pytest.mark.parametrize("other", [("-tp", "1"), ("--gpu", "h200"), ("--max-num-seqs", "8")])
def test_memory_of_another_deployment_is_not_taken(other: tuple[str, str], tmp_path: Path) -> None:
    said = assumed(header("--serve", V22, *other, cwd=tmp_path))
    assert "not taken" in said["kv-cache-memory-bytes"][1]
    assert "KV blocks" in said  # estimated


def test_other_commands(tmp_path: Path) -> None:
    compare = call("compare", "chat", "--limit", "1", "--serve", DENSE, "--policies", "fcfs,priority", cwd=tmp_path)
    assert compare.code == 0, compare.stderr
    few = ("chat", "--limit", "1", "--serve", V22)
    plan = call("plan", *few, "--space", "max_num_seqs=4,8", "--slo", "ttft:1000", cwd=tmp_path)
    assert plan.code == 0, plan.stderr
    split = call("split", "chat", "--limit", "1", "--serve", DENSE, "--split", "1+1", "--json", cwd=tmp_path)
    assert split.code == 0, split.stderr
    said = assumed(json.loads(split.stdout)["header"])
    assert "so that one of them gets all the traffic here" in said["replicas"][1]


def test_a_plan_takes_replicas_and_says_what_it_took(tmp_path: Path) -> None:
    """As `run` does; a variant of another GPU says nothing of the manifest's, and a split has one number of engines."""
    words = ("plan", "chat", "--limit", "1", "--serve", DENSE, "--slo", "ttft:9000", "--no-largest-load")
    plan = json.loads(call(*words, "--set", "max_num_seqs=4,8", "--json", cwd=tmp_path).stdout)
    assert (plan["replicas"], plan["recommended"]["gpus"]) == ("4", 4)
    said = assumed(plan["header"])
    assert said["gpu"] == ("h100", "nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3")
    assert said["replicas"][0] == "4"
    run = call("run", *words[1:-1], "--max-num-seqs", "4", "--advice", "none", "--json", cwd=tmp_path)
    figures = {row["settings"]["max_num_seqs"]: row["figures"] for row in plan["rows"]}
    assert figures[4]["ttft_ms.mean"] == json.loads(run.stdout)["ttft_ms"]["mean"]
    shown = call(*words, "--set", "gpu=h200", "replicas=2", cwd=tmp_path).stdout
    assert "Deployment" in shown
    assert "vllm-version 0.22: 0.22.1, the tag of the image" in " ".join(shown.split())
    assert "nvidia.com/gpu.product" not in shown
    assert "replicas of the manifest" not in shown
    for split in (("--split", "1+1"), ("--set", "split=1+1")):
        apart = json.loads(call(*words, *split, "--json", cwd=tmp_path).stdout)
        assert "so that one of them gets all the traffic here" in assumed(apart["header"])["replicas"][1]
        assert apart["replicas"] is None
