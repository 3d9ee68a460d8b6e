"""Values, services, units and labels: what they say of flags, version, GPU and replicas."""

from __future__ import annotations

from typing import Any

import pytest

from tokenyard.deploy.serve_line import ServeLine, read_serve_line, read_serve_text
from tokenyard.deploy.texts.commands import version_of_image
from tokenyard.deploy.texts.manifests import gpu_named, gpu_of_labels
from tokenyard.errors import ConfigError

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
spec:
  replicas: 4
  template:
    spec:
      nodeSelector: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}
      containers:
      - image: registry.example:5000/mirror/vllm-openai:v0.22.1-cu130
        args: [openai/gpt-oss-20b, --max-num-seqs=7]
        envFrom: [{secretRef: {name: x}}]
"""
COMPOSE = """
services:
  llm:
    image: vllm/vllm-openai:latest
    command: --model openai/gpt-oss-20b
    deploy: {replicas: 3}
"""
VALUES = """
servingEngineSpec:
  modelSpec:
  - name: llama
    repository: vllm/vllm-openai
    tag: v0.33.0
    modelURL: meta-llama/Llama-3.1-8B-Instruct
    replicaCount: 2
    requestGPU: 1
    nodeSelectorTerms:
    - matchExpressions:
      - {key: node.kubernetes.io/instance-type, operator: In, values: [p5en.48xlarge]}
    vllmConfig:
      maxModelLen: 16384
      tensorParallelSize: 2
      gpuMemoryUtilization: 0.9
      enableChunkedPrefill: false
      extraArgs: ["--max-num-seqs", "12"]
    env:
    - {name: VLLM_USE_FLASHINFER_SAMPLER, value: "1"}
"""
KSERVE = """
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: x}
spec:
  predictor:
    minReplicas: 1
    maxReplicas: 3
    nodeSelector: {cloud.google.com/gke-accelerator: nvidia-l4}
    model:
      modelFormat: {name: huggingface}
      args:
      - --model_name=llama3
      - --model_id=meta-llama/Llama-3.1-8B-Instruct
      - --backend=vllm
      - --max-model-len=8192
      - --dtype
      - bfloat16
"""
UNIT = """
[Unit]
Description=vLLM

[Service]
Environment=VLLM_USE_V1=1 "VLLM_A=b c"
Environment=SEQS=9
EnvironmentFile=-/etc/vllm.env
ExecStartPre=/bin/true
ExecStart=-/opt/vllm/bin/vllm serve openai/gpt-oss-20b \\
  # a comment
  --max-num-seqs ${SEQS} \\
  --port 80
Restart=always
"""
SCRIPT_OF_A_GROUP = """
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
spec:
  replicas: 1
  leaderWorkerTemplate:
    size: 2
    workerTemplate:
      spec:
        containers:
        - image: ghcr.io/llm-d/llm-d:v0.2.0
          command: [/bin/sh, -c]
          args:
          - |-
            START_RANK=$(( ${LWS_WORKER_INDEX:-0} * 8 ))
            exec vllm serve openai/gpt-oss-20b \\
              --max-num-seqs $((2 * 8)) \\
              --data-parallel-size 16
"""


def values(line: ServeLine) -> dict[str, Any]:
    return {each.flag.name: each.value for each in line.given}


def test_a_deployment() -> None:
    line = read_serve_text(DEPLOYMENT)
    assert values(line) == {"model": "openai/gpt-oss-20b", "max-num-seqs": 7}
    assert line.version == ("0.22.1", "the tag of the image registry.example:5000/mirror/vllm-openai:v0.22.1-cu130")
    assert line.gpu == ("h100", "nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3")
    assert line.replicas == ("4", "replicas of the manifest")
    assert [each.name for each in line.notes] == ["envFrom"]


def test_a_service_of_compose() -> None:
    line = read_serve_text(COMPOSE)
    assert line.version == ("latest", "the tag of the image vllm/vllm-openai:latest")
    assert line.replicas == ("3", "replicas of the manifest")
    assert line.gpu is None


def test_values_of_the_production_stack() -> None:
    line = read_serve_text(VALUES)
    assert values(line) == {
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "max-model-len": 16384,
        "tensor-parallel-size": 2,
        "gpu-memory-utilization": 0.9,
        "enable-chunked-prefill": False,
        "enable-prefix-caching": False,
        "max-num-seqs": 12,
    }
    assert line.environment == {"VLLM_USE_FLASHINFER_SAMPLER": "1"}
    assert line.version is not None
    assert line.version.value == "0.33.0"
    assert line.gpu == ("h200", "node.kubernetes.io/instance-type=p5en.48xlarge")
    assert line.replicas == ("2", "replicaCount of the values")
    assert [each[:2] for each in line.notes] == [("prefix caching", "off")]


def test_values_with_lmcache() -> None:
    text = VALUES.replace("    env:\n", "    lmcacheConfig: {enabled: true}\n    env:\n")
    assert values(read_serve_text(text))["kv-transfer-config"]["kv_connector"] == "LMCacheConnectorV1"


def test_an_inference_service() -> None:
    line = read_serve_text(KSERVE)
    assert values(line) == {"model": "meta-llama/Llama-3.1-8B-Instruct", "max-model-len": 8192, "dtype": "bfloat16"}
    assert line.gpu == ("l4", "cloud.google.com/gke-accelerator=nvidia-l4")
    assert line.replicas == ("1..3", "minReplicas and maxReplicas of the predictor")
    without_id = KSERVE.replace("      - --model_id=meta-llama/Llama-3.1-8B-Instruct\n", "").replace(
        "modelFormat: {", "storageUri: hf://Qwen/Qwen3-8B\n      modelFormat: {"
    )
    assert values(read_serve_text(without_id))["model"] == "Qwen/Qwen3-8B"


def test_a_unit_of_systemd() -> None:
    line = read_serve_text(UNIT)
    assert values(line) == {"model": "openai/gpt-oss-20b", "max-num-seqs": 9, "port": 80}
    assert line.environment == {"VLLM_USE_V1": "1", "VLLM_A": "b c"}
    assert [each[:2] for each in line.notes] == [("EnvironmentFile", "-/etc/vllm.env")]


def test_a_unit_that_starts_something_else() -> None:
    with pytest.raises(ConfigError, match="systemd unit starts no vLLM"):
        read_serve_text("[Service]\nExecStart=/usr/bin/nginx\n")


def test_what_a_shell_works_out() -> None:
    with pytest.raises(ConfigError, match=r"--max-num-seqs = '\$\(\.\.\.\)': is for a shell to work out"):
        read_serve_text(SCRIPT_OF_A_GROUP)
    with pytest.raises(ConfigError, match="is a variable that nothing here sets"):
        read_serve_text("vllm serve m --max-num-seqs $SEQS")
    assert values(read_serve_text("vllm serve m --port $(free_port)")) == {"model": "m", "port": "$(free_port)"}


def test_docker_with_its_options() -> None:
    text = (
        "docker run -itd --rm --name vllm --gpus all -v ~/.cache:/vllm -p8000:8000 -e VLLM_A=1 --env VLLM_B=2 "
        "-eVLLM_C=3 --env-file x.env my.registry/vllm-openai:v0.22.0 --model m --max-num-seqs 7"
    )
    line = read_serve_text(text)
    assert values(line) == {"model": "m", "max-num-seqs": 7}
    assert line.environment == {"VLLM_A": "1", "VLLM_B": "2", "VLLM_C": "3"}
    assert line.version is not None
    assert line.version.value == "0.22.0"
    assert [each[:2] for each in line.notes] == [("--env-file", "x.env")]


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("cd /x && vllm serve m --max-num-seqs 7", {"max-num-seqs": 7}),
        ("ARGS='--max-num-seqs 7 --port 80'\nvllm serve m $ARGS", {"max-num-seqs": 7, "port": 80}),
        ("bash -lc 'exec vllm serve m --max-num-seqs 7'", {"max-num-seqs": 7}),
        (
            'vllm serve m \\\n  --speculative-config \'{\n "method": "ngram"\n}\'',
            {"speculative-config": {"method": "ngram"}},
        ),
        ("vllm serve m\n\n  # why\n  --max-num-seqs 7", {"max-num-seqs": 7}),
        ("vllm serve m \\\n> --max-num-seqs 7", {"max-num-seqs": 7}),
        ("vllm serve m --served-model-name '$X'", {"served-model-name": ["$X"]}),
        ("vllm serve m --root-path a\\ b --port 80&", {"root-path": "a b", "port": 80}),
        ("N=${M:-${L:-7}}; vllm serve m --max-num-seqs ${N}", {"max-num-seqs": 7}),
    ],
)
def test_words_as_a_shell_takes_them(text: str, given: dict[str, Any]) -> None:
    assert values(read_serve_text(text)) == {"model": "m", **given}


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("vllm/vllm-openai:v0.22.1", "0.22.1"),
        ("host:5000/a/vllm-openai:0.33", "0.33"),
        ("vllm/vllm-openai:v0.17.0-aarch64-cu130", "0.17.0"),
        ("vllm/vllm-openai@sha256:0", None),
        ("vllm/vllm-openai", None),
        ("host:5000/vllm", None),
        ("vllm/vllm-openai:nightly", "nightly"),
        ("nvcr.io/nvidia/vllm:25.11-py3", "25.11-py3"),
        ("ghcr.io/llm-d/llm-d-cuda:v0.4.0", None),
    ],
)
def test_the_version_in_a_tag(image: str, version: str | None) -> None:
    said = version_of_image(image)
    assert (None if said is None else said.value) == version


@pytest.mark.parametrize(
    ("label", "value", "gpu"),
    [
        ("nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3", "h100"),
        ("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-80GB", "a100-80gb"),
        ("nvidia.com/gpu.product", "Tesla-T4", "t4"),
        ("nvidia.com/gpu.product", "NVIDIA-H100-NVL", "h100-nvl"),
        ("nvidia.com/gpu.product", "NVIDIA-H900", "NVIDIA-H900"),
        ("cloud.google.com/gke-accelerator", "nvidia-tesla-a100", "a100-40gb"),
        ("cloud.google.com/gke-accelerator", "nvidia-h200-141gb", "h200"),
        ("gpu.nvidia.com/class", "H100_NVLINK_80GB", "h100"),
        ("node.kubernetes.io/instance-type", "p5.48xlarge", "h100"),
        ("node.kubernetes.io/instance-type", "g6e.12xlarge", "l40s"),
        ("node.kubernetes.io/instance-type", "p4d.24xlarge", "a100-40gb"),
        ("node.kubernetes.io/instance-type", "Standard_ND96isr_H100_v5", "h100"),
        ("node.kubernetes.io/instance-type", "m5.large", None),
        ("karpenter.k8s.aws/instance-gpu-name", "l4", "l4"),
        ("my.company/gpu", "h200", "h200"),
        ("my.company/gpu", "true", None),
        ("zone", "h200", None),
    ],
)
def test_the_gpu_in_a_label(label: str, value: str, gpu: str | None) -> None:
    said = gpu_of_labels([(label, value)])
    assert (None if said is None else said.value) == gpu


def test_gpus_of_several_labels() -> None:
    both = [("gpu.nvidia.com/class", "H100_NVLINK_80GB"), ("nvidia.com/gpu.product", "NVIDIA-H200")]
    said = gpu_of_labels(both)
    assert said is not None
    assert said.value == "h100 or h200"
    assert gpu_named("NVIDIA GB200") == "gb200"


def test_no_such_file() -> None:
    for text in ("nofile.yaml", "dir/serve.sh", "vllm.log"):
        with pytest.raises(ConfigError, match="there is no such file"):
            read_serve_line(text)
