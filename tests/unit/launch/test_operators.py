"""Resources of operators and platforms, as people write them: flags, GPU, replicas, and how many GPUs there are."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tokenyard.deploy.given import given_by, settings_of_line
from tokenyard.deploy.serve_line import read_serve_text
from tokenyard.deploy.setting_values import names_of
from tokenyard.deploy.settings import DeploymentSettings
from tokenyard.deploy.texts.kinds import started_by
from tokenyard.errors import ConfigError

KUBEAI = """
apiVersion: kubeai.org/v1
kind: Model
metadata: {name: llama}
spec:
  url: hf://meta-llama/Llama-3.1-8B-Instruct
  engine: VLLM
  args: [--max-model-len=16384, --max-num-seqs=32]
  env: {VLLM_ATTENTION_BACKEND: FLASHINFER}
  minReplicas: 1
  maxReplicas: 3
  resourceProfile: nvidia-gpu-l4:2
"""
RAY = """
applications:
- name: a
  import_path: ray.serve.llm:build_openai_app
  args:
    llm_configs:
    - model_loading_config: {model_id: mine, model_source: Qwen/Qwen3-32B}
      accelerator_type: A100-80G
      deployment_config: {autoscaling_config: {min_replicas: 2, max_replicas: 4}}
      engine_kwargs: {tensor_parallel_size: 2, enable_chunked_prefill: true, enable_prefix_caching: false}
"""
RAY_SERVICE = "kind: RayService\nspec:\n  serveConfigV2: |\n" + "".join(f"    {line}\n" for line in RAY.splitlines())
LLM_D = """
modelArtifacts: {uri: "hf://Qwen/Qwen3-32B", name: Qwen/Qwen3-32B}
decode:
  replicas: 4
  parallelism: {tensor: 2}
  acceleratorTypes: {labelKey: nvidia.com/gpu.product, labelValues: [NVIDIA-H100-80GB-HBM3]}
  containers:
  - image: ghcr.io/llm-d/llm-d-cuda:v0.3.0
    modelCommand: vllmServe
    args: [--max-model-len, "32000"]
prefill: {create: false}
"""
VALUES = """
        servingEngineSpec:
          modelSpec:
          - {repository: vllm/vllm-openai, tag: v0.22.1, modelURL: Qwen/Qwen3-8B, replicaCount: 2}
"""
FLUX = f"kind: HelmRelease\nspec:\n  values:{VALUES}"
ARGO = f"kind: Application\nspec:\n  source:\n   helm:\n     valuesObject:{VALUES}"
ARGO_TEXT = f"kind: Application\nspec:\n  source:\n   helm:\n     values: |{VALUES}"
INSPECTED = json.dumps(
    [
        {
            "Path": "vllm",
            "Args": ["serve", "Qwen/Qwen3-8B", "--max-num-seqs", "9"],
            "Config": {"Image": "vllm/vllm-openai:v0.22.1", "Env": ["HF_TOKEN=hf_planted", "NVIDIA_VISIBLE_DEVICES=0"]},
        }
    ],
    indent=1,
)
SUPERVISED = """
[program:vllm]
command=/opt/bin/vllm serve Qwen/Qwen3-8B --max-num-seqs 9
environment=VLLM_USE_V1="1",CUDA_VISIBLE_DEVICES="0,1"
"""
DYNAMO = """
kind: DynamoGraphDeployment
spec:
  services:
    Frontend: {replicas: 1, extraPodSpec: {mainContainer: {image: "nvcr.io/nvidia/ai-dynamo/vllm-runtime:x"}}}
    Worker:
      replicas: 2
      extraPodSpec:
        mainContainer:
          image: nvcr.io/nvidia/ai-dynamo/vllm-runtime:x
          command: [python3, -m, dynamo.vllm]
          args: [--model, Qwen/Qwen3-8B, --is-decode-worker, --migration-limit, "3", --max-num-seqs, "9"]
"""
LLM_SERVICE = """
kind: LLMInferenceService
spec:
  replicas: 2
  model: {uri: "hf://Qwen/Qwen3-8B", name: q}
  parallelism: {tensor: 2}
  template:
    nodeSelector: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}
    containers:
    - name: main
      image: vllm/vllm-openai:v0.29.1
      env: [{name: VLLM_ADDITIONAL_ARGS, value: "--max-num-seqs 9"}]
"""
SERVICE = """
services:
  a:
    image: vllm/vllm-openai
    command: x
    deploy: {resources: {reservations: {devices: [{driver: nvidia, device_ids: ['0', '3']}]}}}
"""
SLURM = """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gres=gpu:a100-80gb:4
#SBATCH -t 01:00:00
srun vllm serve Qwen/Qwen3-32B -tp 4 -pp 2
"""


def flags(text: str) -> dict[str, Any]:
    return {each.flag.name: each.value for each in read_serve_text(text).given}


@pytest.mark.parametrize(
    ("text", "said", "gpu", "replicas"),
    [
        (
            KUBEAI,
            {"model": "meta-llama/Llama-3.1-8B-Instruct", "max-model-len": 16384, "max-num-seqs": 32},
            "l4",
            "1..3",
        ),
        (
            RAY,
            {
                "model": "Qwen/Qwen3-32B",
                "tensor-parallel-size": 2,
                "enable-chunked-prefill": True,
                "enable-prefix-caching": False,
                "distributed-executor-backend": "ray",
            },
            "a100-80gb",
            "2..4",
        ),
        (LLM_D, {"model": "Qwen/Qwen3-32B", "max-model-len": 32000, "tensor-parallel-size": 2}, "h100", "4"),
        (DYNAMO, {"model": "Qwen/Qwen3-8B", "max-num-seqs": 9}, None, "2"),
        (INSPECTED, {"model": "Qwen/Qwen3-8B", "max-num-seqs": 9}, None, None),
        (SUPERVISED, {"model": "Qwen/Qwen3-8B", "max-num-seqs": 9}, None, None),
        (LLM_SERVICE, {"model": "Qwen/Qwen3-8B", "tensor-parallel-size": 2, "max-num-seqs": 9}, "h100", "2"),
    ],
    ids=["kubeai", "ray", "llm-d", "dynamo", "inspect", "supervisord", "llm service"],
)
def test_what_is_read(text: str, said: dict[str, Any], gpu: str | None, replicas: str | None) -> None:
    line = read_serve_text(text)
    assert flags(text) == said
    assert (None if line.gpu is None else line.gpu.value) == gpu
    assert (None if line.replicas is None else line.replicas.value) == replicas


def test_within_others() -> None:
    assert flags(RAY_SERVICE) == flags(RAY)
    for text in (FLUX, ARGO, ARGO_TEXT):
        line = read_serve_text(text)
        assert flags(text)["model"] == "Qwen/Qwen3-8B"
        assert line.version is not None
        assert line.replicas is not None
        assert (line.version.value, line.replicas.value) == ("0.22.1", "2")


def test_another_engine_is_not_vllm() -> None:
    with pytest.raises(ConfigError, match="holds no `vllm serve`"):
        read_serve_text(KUBEAI.replace("VLLM\n", "OLlama\n"))


def test_slurm() -> None:
    settings = settings_of_line(read_serve_text(SLURM))
    assert (settings.hardware.gpu, settings.parallel.nnodes) == ("a100-80gb", 2)
    one = settings_of_line(read_serve_text(SLURM.replace("--nodes=2", "--constraint=h200").replace("a100-80gb:", "")))
    assert (one.hardware.gpu, one.parallel.nnodes) == ("h200", 1)


@pytest.mark.parametrize(
    ("text", "count", "why"),
    [
        ("CUDA_VISIBLE_DEVICES=0 vllm serve Qwen/Qwen3-32B -tp 2", "1", "the flags need 2: vLLM would not start"),
        ("docker run --gpus '\"device=0\"' vllm/vllm-openai Qwen/Qwen3-32B -tp 2", "1", "the flags need 2"),
        ("docker run --gpus=4 vllm/vllm-openai Qwen/Qwen3-32B -tp 2", "4", "the flags use 2 of them"),
        ("docker run --gpus all vllm/vllm-openai Qwen/Qwen3-32B -tp 2", None, ""),
        ("CUDA_VISIBLE_DEVICES=0,1 vllm serve Qwen/Qwen3-32B -tp 2", None, ""),
        ("CUDA_VISIBLE_DEVICES=0 vllm serve x -tp 2 --distributed-executor-backend ray", "1", "of other machines"),
        ("CUDA_VISIBLE_DEVICES=0,1 vllm serve x -dp 4 -dpl 2", None, ""),
        ("CUDA_VISIBLE_DEVICES=$DEVICES vllm serve Qwen/Qwen3-32B -tp 2", None, ""),
        (SUPERVISED, "2", "CUDA_VISIBLE_DEVICES=0,1: the flags use 1 of them"),
        (KUBEAI, "2", "resourceProfile of the Model: the flags use 1 of them"),
        (
            "containers: [{image: vllm/vllm-openai, args: [x, -tp=4], resources: {limits: {nvidia.com/gpu: 2}}}]\nx: 1",
            "2",
            "nvidia.com/gpu of the resources: the flags need 4",
        ),
        (
            SERVICE,
            "2",
            "device_ids of the service: the flags use 1",
        ),
    ],
)
def test_gpus_that_do_not_fit_the_flags_are_named(text: str, count: str | None, why: str) -> None:
    given = given_by(read_serve_text(text), has=names_of(DeploymentSettings))
    found = [each for each in given.asked.found if each.name == "GPUs"]
    assert [each.value for each in found] == ([] if count is None else [count])
    assert all(why in each.why for each in found)


def test_a_loop_starts_several() -> None:
    text = "for i in 0 1; do\n  vllm serve Qwen/Qwen3-8B --port $i &\ndone\n"
    assert [each.name for each in read_serve_text(text).notes] == ["for"]
    assert not read_serve_text(text.replace("for i in 0 1", "while true")).notes


def test_a_text_that_names_no_model_is_refused() -> None:
    line = read_serve_text("vllm serve --max-num-seqs 9")
    with pytest.raises(ConfigError, match="names no model"):
        settings_of_line(line)
    given = given_by(line, typed=["model"], has=names_of(DeploymentSettings))
    assert given.values == {"max_num_seqs": 9}


def test_a_start_that_cannot_be_read_is_not_called_missing() -> None:
    with pytest.raises(ConfigError, match="a `vllm serve` stands in it"):
        read_serve_text("# Serve\nIt is started by `vllm serve Qwen/Qwen3-8B`\nor so.\n")


def test_a_block_between_fences_is_a_command() -> None:
    line = read_serve_text("# Serve\n```bash\nvllm serve Qwen/Qwen3-8B -tp 2\n```\nor so.\n")
    assert {each.flag.name: each.value for each in line.given} == {"model": "Qwen/Qwen3-8B", "tensor-parallel-size": 2}


def test_flags_of_dynamo_are_noted() -> None:
    notes = {each.name: each.value for each in read_serve_text(DYNAMO).notes}
    assert notes["Dynamo's --is-decode-worker"] == "set"
    assert notes["Dynamo's --migration-limit"] == "3"


def test_words_of_a_service_are_obeyed_and_not_ignored() -> None:
    assert read_serve_text(LLM_SERVICE).environment == {}


def test_a_sidecar_that_speaks_of_vllm_starts_none() -> None:
    sidecar = """{name: proxy, image: "ghcr.io/llm-d/llm-d-routing-sidecar:v0.3.0", args: [--vllm-port=8200]}"""
    served = """{name: vllm, image: "ghcr.io/llm-d/llm-d:v0.2.0", command: [vllm, serve], args: [m]}"""
    assert flags(f"spec: {{containers: [{sidecar}, {served}]}}\nkind: Pod") == {"model": "m"}
    router = """{name: r, image: "vllm/vllm-router:v1", args: [--port=80]}"""
    assert flags(f"spec: {{containers: [{router}, {served}]}}\nkind: Pod") == {"model": "m"}


@pytest.mark.parametrize(
    ("text", "gpu"),
    [
        ("srun --gres=gpu:h200:4 --nodes=1 apptainer exec --nv docker://vllm/vllm-openai:v0.31.0 vllm serve m", "h200"),
        ("srun -p gpu --gpus-per-node h200:4 \\\n  vllm serve m", "h200"),
        ("srun -Gh200:2 --exclusive vllm serve m", "h200"),
        ("srun --gres=gpu:4 vllm serve m", None),
        ("#SBATCH --exclusive --gres=gpu:h200:4,nvme:1 # all\nvllm serve m", "h200"),
        ("#SBATCH --gpus=4 -C h200\nvllm serve m", "h200"),
        ("#SBATCH --gres=gpu:4 -C fast\nvllm serve m", None),
        ("#SBATCH --gpus=$N\nvllm serve m", None),
        ("#SBATCH --gres=gpu:a100:4\nvllm serve m", "a100"),
        ("#SBATCH --gres=gpu:p100:4\nvllm serve m", "p100"),
    ],
)
def test_the_gpu_that_slurm_is_asked_for(text: str, gpu: str | None) -> None:
    """One that is not known is an error later, not the default's silence."""
    said = started_by(text).gpu
    assert (None if said is None else said.value) == gpu


def test_gpus_of_a_machine_stand_beside_other_resources() -> None:
    nodes = started_by("#SBATCH -N 2\n#SBATCH --gres=gpu:h100:4,nvme:1\nvllm serve m -tp 4 -pp 2").nodes
    assert nodes is not None
    assert (nodes.machines, nodes.gpus) == (2, 4)


def test_how_a_service_of_kserve_spreads_a_model() -> None:
    said = flags(LLM_SERVICE.replace("{tensor: 2}", "{tensor: 2, data: 4, dataLocal: 2, expert: true}"))
    assert said["data-parallel-size-local"] == 2
    assert said["enable-expert-parallel"] is True
