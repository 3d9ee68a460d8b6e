"""Parts of GPUs and other devices are no whole GPU of NVIDIA's: a text that names one is not given an H100."""

from __future__ import annotations

import pytest

from tokenyard.deploy.given import settings_of_line
from tokenyard.deploy.serve_line import read_serve_text
from tokenyard.errors import ConfigError

POD = """
apiVersion: v1
kind: Pod
spec:
  nodeSelector: {labels}
  containers:
  - image: vllm/vllm-openai:v0.22.1
    args: [--model, Qwen/Qwen3-8B]
    resources: {resources}
"""
VALUES = """
servingEngineSpec:
  modelSpec:
  - {modelURL: Qwen/Qwen3-8B, tag: v0.22.1, requestGPU: 1, requestGPUType: nvidia.com/mig-3g.40gb}
"""
PREDICTOR = """
kind: InferenceService
spec:
  predictor:
    nodeSelector: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}
    model:
      storageUri: hf://Qwen/Qwen3-8B
      resources: {limits: {nvidia.com/mig-3g.40gb: 1}}
"""
PRODUCT = "{nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}"


def pod(labels: str, resources: str) -> str:
    return POD.replace("{labels}", labels).replace("{resources}", resources)


@pytest.mark.parametrize(
    ("text", "gpu"),
    [
        (pod(PRODUCT, "{limits: {nvidia.com/mig-3g.40gb: 1}}"), "mig-3g.40gb"),
        (pod("{}", "{requests: {nvidia.com/mig-1g.10gb.me: 1}}"), "mig-1g.10gb.me"),
        (
            pod(
                "{cloud.google.com/gke-accelerator: nvidia-l4, cloud.google.com/gke-gpu-partition-size: 3g.20gb}",
                "{limits: {nvidia.com/gpu: 1}}",
            ),
            "MIG 3g.20gb",
        ),
        (pod("{nvidia.com/mig.config: all-3g.40gb}", "{}"), "MIG all-3g.40gb"),
        (pod("{}", "{limits: {google.com/tpu: 8}}"), "google.com/tpu"),
        (pod("{}", "{limits: {amd.com/gpu: 1}}"), "amd.com/gpu"),
        (VALUES, "mig-3g.40gb"),
        (PREDICTOR, "mig-3g.40gb"),
        ("CUDA_VISIBLE_DEVICES=MIG-1b2c vllm serve Qwen/Qwen3-8B", "MIG"),
        ("docker run public.ecr.aws/q9t5s3a7/vllm-cpu-release-repo:v0.22.1 --model=Qwen/Qwen3-8B", "cpu"),
        ("docker run --net host vllm/vllm-tpu:v0.22.1 vllm serve Qwen/Qwen3-8B", "tpu"),
        ("docker run rocm/vllm:rocm7.0_vllm_0.22.1 vllm serve Qwen/Qwen3-8B", "rocm"),
        ("apptainer exec docker://vllm/vllm-openai-xpu:v0.22.1 vllm serve Qwen/Qwen3-8B", "xpu"),
        (pod("{}", "{}").replace("vllm-openai:v0.22.1", "vllm-openai:v0.22.1-cpu"), "cpu"),
        (VALUES.replace("nvidia.com/mig-3g.40gb", "nvidia.com/gpu, repository: vllm/vllm-cpu"), "cpu"),
    ],
)
def test_what_is_no_whole_gpu_of_nvidia(text: str, gpu: str) -> None:
    line = read_serve_text(text)
    assert line.gpu is not None
    assert line.gpu.value == gpu
    with pytest.raises(ConfigError, match="is not known here: --gpu names one of"):
        settings_of_line(line)
    assert settings_of_line(line, gpu="l40s").hardware.gpu == "l40s"


@pytest.mark.parametrize(
    ("labels", "resources"),
    [
        (PRODUCT, "{limits: {nvidia.com/gpu: 1, nvidia.com/mig-3g.40gb: 0}}"),
        ("{nvidia.com/mig.config: all-disabled, nvidia.com/gpu.product: H100}", "{limits: {nvidia.com/gpu: 1}}"),
    ],
)
def test_whole_gpus(labels: str, resources: str) -> None:
    line = read_serve_text(pod(labels, resources))
    assert line.gpu is not None
    assert line.gpu.value == "h100"
    assert not line.notes


@pytest.mark.parametrize(
    "text",
    [
        pod("{nvidia.com/gpu.product: NVIDIA-L40S-SHARED}", "{limits: {nvidia.com/gpu: 1}}"),
        pod("{nvidia.com/gpu.product: NVIDIA-L40S}", "{limits: {nvidia.com/gpu.shared: 1}}"),
        pod("{nvidia.com/gpu.product: L40S, cloud.google.com/gke-gpu-sharing-strategy: time-sharing}", "{}"),
    ],
)
def test_a_gpu_that_is_shared_in_time_is_named(text: str) -> None:
    line = read_serve_text(text)
    assert line.gpu is not None
    assert line.gpu.value == "l40s"
    assert [each[:2] for each in line.notes] == [("gpu", "shared")]
