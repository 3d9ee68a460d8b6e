"""Machines and replicas that a text asks for are those of the deployment."""

from __future__ import annotations

import pytest

from tokenyard.deploy.given import given_by, settings_of_line
from tokenyard.deploy.serve_line import read_serve_text
from tokenyard.deploy.setting_values import names_of
from tokenyard.deploy.settings import DeploymentSettings

TASK = """
resources: {accelerators: A100-80GB:4}
num_nodes: 2
run: vllm serve Qwen/Qwen3-32B --tensor-parallel-size 8
"""
GROUP = """
kind: LeaderWorkerSet
spec:
  replicas: 3
  leaderWorkerTemplate:
    size: 2
    leaderTemplate:
      spec:
        containers:
        - image: vllm/vllm-openai:v0.22.1
          command: [sh, -c, "multi-node-serving.sh leader; vllm serve Qwen/Qwen3-32B -tp 4 -pp 2"]
          resources: {limits: {nvidia.com/gpu: "4"}}
    workerTemplate:
      spec:
        containers:
        - {image: vllm/vllm-openai:v0.22.1, command: [sh, -c, "multi-node-serving.sh worker"]}
"""
ONE = TASK.replace("size 8", "size 4")


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        (TASK, 2),
        (TASK.replace("num_nodes: 2", "num_nodes: 4"), 2),
        (TASK.replace("resources: {accelerators: A100-80GB:4}", "envs: {}"), 2),
        (TASK.replace("size 8", "size $SKYPILOT_NUM_GPUS_PER_NODE -pp $SKYPILOT_NUM_NODES"), 2),
        (TASK.replace("size 8", "size 8 --nnodes 4"), 4),
        (TASK.replace("num_nodes: 2", ""), 1),
        (GROUP, 2),
        (GROUP.replace("size: 2", "size: 1"), 1),
        (ONE, 1),
    ],
)
def test_machines(text: str, nodes: int) -> None:
    assert settings_of_line(read_serve_text(text)).parallel.nnodes == nodes


@pytest.mark.parametrize(
    ("text", "one_deployment", "why"),
    [
        (TASK, True, "num_nodes of the task"),
        (GROUP, True, "size of the LeaderWorkerSet"),
        (ONE, True, "num_nodes of the task; its GPUs, 4, fit on one of them, and what the others run is not read"),
        (TASK.replace("num_nodes: 2", "num_nodes: 3").replace(":4", ":3"), True, "8 GPUs do not divide by it"),
        (TASK, False, "num_nodes of the task; not taken for variants of it (--nnodes)"),
    ],
)
def test_machines_are_named(text: str, one_deployment: bool, why: str) -> None:
    line = read_serve_text(text)
    given = given_by(line, has=names_of(DeploymentSettings), one_deployment=one_deployment)
    (found,) = (each for each in given.asked.found if each.name == "nnodes")
    assert why in found.why


def test_what_is_typed_counts_more() -> None:
    given = given_by(read_serve_text(TASK), typed=["nnodes"], has=names_of(DeploymentSettings))
    assert "nnodes" not in given.values
    assert "nnodes" not in {each.name for each in given.asked.found}


SERVED = """
kind: Deployment
metadata: {name: a}
spec:
  replicas: 4
  template: {spec: {containers: [{image: vllm/vllm-openai:v0.22.1, args: [m]}]}}
"""
JOB = SERVED.replace("Deployment", "Job").replace("replicas: 4", "parallelism: 3")
HPA = "kind: HorizontalPodAutoscaler\nspec: {minReplicas: 2, maxReplicas: 8, scaleTargetRef: {name: a}}"
KEDA = "kind: ScaledObject\nspec: {minReplicaCount: 3, maxReplicaCount: 9, scaleTargetRef: {name: a}}"
VALUES = """
servingEngineSpec:
  modelSpec:
  - {modelURL: m, replicaCount: 2, keda: {enabled: true, minReplicaCount: 3, maxReplicaCount: 6}}
"""


@pytest.mark.parametrize(
    ("text", "replicas"),
    [
        (f"{SERVED}---\n{HPA}", "2..8"),
        (f"{HPA}\n---{SERVED}", "2..8"),
        (f"{SERVED}---\n{KEDA}".replace("  replicas: 4\n", ""), "3..9"),
        (f"{SERVED}---\n{KEDA}".replace(", maxReplicaCount: 9", ""), "3..100"),
        (f"{SERVED}---\n{KEDA}".replace("minReplicaCount: 3", "minReplicaCount: 0"), "1..9"),
        (JOB, "3"),
        (VALUES, "3..6"),
        (VALUES.replace("true", "false"), "2"),
    ],
)
def test_replicas(text: str, replicas: str) -> None:
    line = read_serve_text(text)
    assert line.replicas is not None
    assert line.replicas.value == replicas
    assert not [each for each in line.notes if each.name != "prefix caching"]


def test_documents_of_a_list_are_scaled_too() -> None:
    served = "{kind: Deployment, metadata: {name: a}, spec: {containers: [{image: vllm/vllm-openai, args: [m]}]}}"
    scaler = "{kind: HorizontalPodAutoscaler, spec: {maxReplicas: 5, scaleTargetRef: {name: a}}}"
    line = read_serve_text(f"kind: List\nitems: [{served}, {scaler}]")
    assert line.replicas is not None
    assert line.replicas.value == "1..5"


def test_what_scales_something_else_is_named() -> None:
    line = read_serve_text(f"{SERVED}---\n{HPA.replace('name: a', 'name: b')}")
    assert line.replicas is not None
    assert line.replicas.value == "4"
    assert [each[:2] for each in line.notes] == [("HorizontalPodAutoscaler", "b")]


def test_a_daemon_set_says_not_how_many_there_are() -> None:
    line = read_serve_text(SERVED.replace("Deployment", "DaemonSet").replace("  replicas: 4\n", ""))
    assert line.replicas is None
    assert [each.name for each in line.notes] == ["DaemonSet"]
