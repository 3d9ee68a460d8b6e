"""Values that stand in a text, away from the command that uses them, are read; what is not read is named."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import pytest

from tokenyard.deploy.serve_line import ServeLine, read_serve_text
from tokenyard.errors import ConfigError

CONFIG_MAP = """
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data:
  MODEL_ID: Qwen/Qwen3-32B-FP8
  MAX_SEQS: "96"
  start.sh: |
    exec vllm serve $MODEL_ID --max-num-seqs 48
---
apiVersion: apps/v1
kind: Deployment
spec:
  replicas: 5
  template:
    spec:
      nodeSelector: {nvidia.com/gpu.product: NVIDIA-L40S}
      containers:
      - name: vllm
        image: vllm/vllm-openai:v0.22.1
"""
BY_ARGUMENTS = """
        args: ["--model=$(MODEL_ID)", --max-num-seqs, $(SEQS)]
        envFrom: [{configMapRef: {name: settings}}]
        env:
        - {name: SEQS, valueFrom: {configMapKeyRef: {name: settings, key: MAX_SEQS}}}
"""
BY_SCRIPT = """
        command: [/bin/bash, /scripts/start.sh]
        envFrom: [{configMapRef: {name: settings}}, {secretRef: {name: keys}}]
"""
COMPOSE = """
services:
  llm:
    image: vllm/vllm-openai:${TAG:-v0.22.1}
    command:
    - --model=${MODEL:-Qwen/Qwen3-8B}
    - --max-num-seqs
    - "${SEQS-48}"
    - --max-model-len=${LONG:+32768}8192
    deploy: {replicas: "${COPIES:-3}"}
"""
TASK = """
envs: {MODEL_NAME: Qwen/Qwen3-32B}
resources: {accelerators: {H100:4}}
service: {replicas: 2}
setup: pip install "vllm[audio]==0.22.1"
run: vllm serve $MODEL_NAME -tp $SKYPILOT_NUM_GPUS_PER_NODE -pp $SKYPILOT_NUM_NODES
"""


def flags(line: ServeLine) -> dict[str, Any]:
    return {each.flag.name: each.value for each in line.given}


def values(text: str) -> dict[str, Any]:
    return flags(read_serve_text(dedent(text)))


def test_a_config_map_of_the_same_file() -> None:
    line = read_serve_text(CONFIG_MAP + BY_ARGUMENTS)
    assert flags(line) == {"model": "Qwen/Qwen3-32B-FP8", "max-num-seqs": 96}
    assert not line.notes


def test_a_config_map_of_another_file_is_named() -> None:
    _, deployment = (CONFIG_MAP + BY_ARGUMENTS.replace("--max-num-seqs, $(SEQS)", "--port=1")).split("---")
    assert [each.name for each in read_serve_text(deployment).notes] == ["envFrom"]


def test_a_script_in_a_config_map_keeps_what_stands_around_it() -> None:
    line = read_serve_text(CONFIG_MAP + BY_SCRIPT)
    assert flags(line) == {"model": "Qwen/Qwen3-32B-FP8", "max-num-seqs": 48}
    assert (line.version and line.version.value, line.gpu and line.gpu.value) == ("0.22.1", "l40s")
    assert line.replicas is not None
    assert line.replicas.value == "5"
    assert [each.name for each in line.notes] == ["envFrom"]


def test_a_script_that_no_container_names() -> None:
    line = read_serve_text(CONFIG_MAP + "        command: [/bin/bash, /opt/other.sh]\n        args: []\n")
    assert [each.name for each in line.notes] == ["manifest"]


def test_config_maps_that_are_referred_to_too_often() -> None:
    data = ", ".join(f"a{i}: x" for i in range(300))
    config = f"kind: ConfigMap\nmetadata: {{name: m}}\ndata: {{{data}}}\n---\n"
    containers = "- {image: vllm, envFrom: [{configMapRef: {name: m}}]}\n" * 100
    with pytest.raises(ConfigError, match="referred to"):
        read_serve_text(f"{config}containers:\n{containers}")


def test_defaults_in_compose() -> None:
    line = read_serve_text(COMPOSE)
    assert flags(line) == {"model": "Qwen/Qwen3-8B", "max-num-seqs": 48, "max-model-len": 8192}
    assert line.version is not None
    assert line.replicas is not None
    assert (line.version.value, line.replicas.value) == ("0.22.1", "3")
    assert [(each.name, each.value) for each in line.notes] == [
        ("variables of Compose", "TAG, MODEL, SEQS, LONG, COPIES")
    ]


def test_a_variable_of_compose_without_a_value() -> None:
    with pytest.raises(ConfigError, match="nothing here sets"):
        values(COMPOSE.replace("${SEQS-48}", "${SEQS}"))


def test_a_task_of_skypilot() -> None:
    line = read_serve_text(TASK)
    assert flags(line) == {"model": "Qwen/Qwen3-32B", "tensor-parallel-size": 4, "pipeline-parallel-size": 1}
    assert [each and each.value for each in (line.gpu, line.version, line.replicas)] == ["h100", "0.22.1", "2"]


@pytest.mark.parametrize(
    ("resources", "gpu"),
    [
        ("{accelerators: 'A100:4'}", "a100-40gb"),
        ("{accelerators: [L40S:4, 'H100:4']}", "l40s or h100"),
        ("{any_of: [{accelerators: 'L4:4'}, {accelerators: 'B7000:4'}]}", "l4 or B7000"),
    ],
)
def test_accelerators(resources: str, gpu: str) -> None:
    line = read_serve_text(TASK.replace("{accelerators: {H100:4}}", resources))
    assert flags(line)["tensor-parallel-size"] == 4
    assert line.gpu is not None
    assert line.gpu.value == gpu


def test_accelerators_in_different_numbers() -> None:
    task = TASK.replace("{H100:4}", "['L4:8', 'H100:4']")
    with pytest.raises(ConfigError, match="these are several kinds: --gpu says which"):
        read_serve_text(task)
    assert flags(read_serve_text(task, gpu="l4"))["tensor-parallel-size"] == 8


def test_values_of_a_chart_with_an_image() -> None:
    line = read_serve_text(
        "replicaCount: 3\nimage:\n  repository: vllm/vllm-openai\n  tag: v0.22.1\n"
        "  command: [vllm, serve, Qwen/Qwen3-8B]\nnodeSelector: {nvidia.com/gpu.product: NVIDIA-L40S}\n"
    )
    assert [each and each.value for each in (line.gpu, line.version, line.replicas)] == ["l40s", "0.22.1", "3"]


@pytest.mark.parametrize("order", [("Image={}", "Exec={}"), ("Exec={1}", "Image={0}")])
def test_a_quadlet(order: tuple[str, str]) -> None:
    image, words = "docker.io/vllm/vllm-openai:v0.22.1", "--model Qwen/Qwen3-8B --max-num-seqs 32"
    lines = [order[0].format(image, words), order[1].format(image if "{0}" in order[1] else words, words)]
    line = read_serve_text("\n".join(["[Container]", *lines, "Environment=A=1"]))
    assert flags(line) == {"model": "Qwen/Qwen3-8B", "max-num-seqs": 32}
    assert line.version is not None
    assert line.version.value == "0.22.1"


@pytest.mark.parametrize(
    ("script", "seqs"),
    [
        ("ARGS=(--max-num-seqs 8)\nvllm serve m ${ARGS[@]}", 8),
        ('ARGS=(\n  # few\n  --max-num-seqs "8"\n)\nvllm serve m "${ARGS[@]}"', 8),
        ('N=4\nARGS=(--max-num-seqs 2)\nARGS+=(--max-num-seqs "$N")\nvllm serve m "${ARGS[@]}"', 4),
        ('ARGS="--port 1"\nARGS+=" --max-num-seqs 8"\nvllm serve m $ARGS', 8),
        ("f() { local n=8; vllm serve m --max-num-seqs $n; }\nf", 8),
        ("readonly N=8\nvllm serve m --max-num-seqs $N", 8),
        ("declare -r N=8\nvllm serve m --max-num-seqs $N", 8),
        ("vllm serve m --max-num-seqs ${1:-8}", 8),
        ('echo "vllm serve other --max-num-seqs 3"\nvllm serve m --max-num-seqs 8', 8),
        ('pkill -f "vllm serve" || true\nvllm serve m --max-num-seqs 8', 8),
        ("docker run --entrypoint vllm vllm/vllm-openai:v0.22.1 serve m --max-num-seqs 8", 8),
    ],
)
def test_scripts(script: str, seqs: int) -> None:
    said = values(script)
    assert said.pop("max-num-seqs") == seqs
    said.pop("port", None)
    assert said == {"model": "m"}


@pytest.mark.parametrize(
    "script",
    [
        "vllm serve a --port 1 &\nvllm serve b --port 2 &\nwait",
        "if [ $BIG ]; then\n  vllm serve a -tp 2\nelse\n  vllm serve b\nfi",
        "case $SIZE in\n  big) vllm serve a ;;\n  *) vllm serve b ;;\nesac",
        "cat > start.sh <<EOF\nvllm serve a\nEOF\nvllm serve b",
    ],
)
def test_several_starts_are_refused(script: str) -> None:
    with pytest.raises(ConfigError, match="2 commands start vLLM: paste the one that is meant"):
        read_serve_text(script)


@pytest.mark.parametrize("comment", ["  # --max-num-seqs 64 \\\n", "  # --max-num-seqs 64\n", "--port 1 # few \\\n"])
def test_a_comment_ends_a_command_that_a_backslash_continues(comment: str) -> None:
    line = read_serve_text(
        f"set -eu\nvllm serve m \\\n{comment}  --gpu-memory-utilization 0.5 \\\n  --dtype=auto\nwait"
    )
    assert not {"gpu-memory-utilization", "dtype", "max-num-seqs"} & flags(line).keys()
    assert [each[:2] for each in line.notes] == [("comment", "line 3")]
    assert line.notes[0].why.endswith("not read: --gpu-memory-utilization, --dtype")


def test_the_same_start_twice() -> None:
    assert values("if [ $X ]; then\n  vllm serve a -tp 2\nelse\n  vllm serve a -tp 2\nfi")["tensor-parallel-size"] == 2


@pytest.mark.parametrize(
    ("condition", "seqs", "why"),
    [
        ('if [ "$X" ]; then\n  ARGS+=" --max-num-seqs 9"\nfi', 4, "that change is not read"),
        ('if [ "$X" ]; then\n  ARGS="--max-num-seqs 9"\nfi', 4, "that change is not read"),
        ('[[ $X ]] && ARGS+=" --max-num-seqs 9"', 4, "that change is not read"),
        ('if [ "$X" ]; then\n  OTHER=1\nfi', 4, None),
    ],
)
def test_what_a_condition_changes_is_named(condition: str, seqs: int, why: str | None) -> None:
    line = read_serve_text(f'ARGS="--max-num-seqs 4"\n{condition}\nvllm serve m $ARGS')
    assert flags(line)["max-num-seqs"] == seqs
    assert [each.name for each in line.notes] == (["ARGS"] if why else [])
    assert all(why is not None and why in each.why for each in line.notes)


def test_what_a_condition_alone_sets_is_taken_and_named() -> None:
    line = read_serve_text("if [ -z $M ]; then M=mine; fi\nvllm serve $M")
    assert flags(line) == {"model": "mine"}
    assert [each.name for each in line.notes] == ["M"]


def test_what_several_conditions_set_is_the_first_of_them() -> None:
    line = read_serve_text("case $H in\n  h100*) SEQS=512 ;;\n  *) SEQS=64 ;;\nesac\nvllm serve m --max-num-seqs $SEQS")
    assert flags(line)["max-num-seqs"] == 512
    assert [(each.name, each.why) for each in line.notes] == [
        ("SEQS", "is set under several conditions: the first is taken")
    ]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("docker run -e VLLM_ARGS='--port 1' --entrypoint bash vllm/vllm-openai -c 'vllm serve m $VLLM_ARGS'", []),
        ("export VLLM_A=1\nvllm serve m --port $VLLM_A", []),
        ("VLLM_A=1\ndocker run -e VLLM_A=$VLLM_A vllm/vllm-openai m", ["VLLM_A"]),
        ("image: vllm/vllm-openai\nargs: [m, --port=$(VLLM_A)]\nenv: [{name: VLLM_A, value: '1'}]", []),
        ("export VLLM_A=1\nvllm serve m", ["VLLM_A"]),
    ],
)
def test_variables_of_the_command_alone_are_not_the_servers(text: str, left: list[str]) -> None:
    assert list(read_serve_text(text).environment) == left


def test_the_module_of_the_command_line() -> None:
    text = "numactl --membind=0 nohup python3 -m vllm.entrypoints.cli.main serve m --max-num-seqs 8"
    assert values(text) == {"model": "m", "max-num-seqs": 8}


@pytest.mark.parametrize("script", ["A=('' '')\n" + 'A+=("${A[@]}")\n' * 40, "A=aa\n" + "A+=$A\n" * 40])
def test_variables_that_double(script: str) -> None:
    with pytest.raises(ConfigError, match="stands for more than"):
        read_serve_text(f"{script}vllm serve m")
