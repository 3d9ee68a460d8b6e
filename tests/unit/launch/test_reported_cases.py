"""Texts and flags of public reports and deployments that once came out wrong, each with the right value."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tokenyard as ty
from tokenyard.deploy.serve_line import ServeLine, read_serve_text
from tokenyard.errors import ConfigError, NoStartError
from tokenyard.models.gpus import named_gpu

TEXTS = Path(__file__).parents[2] / "samples" / "texts"
HYBRID = "vllm serve Qwen/Qwen3.6-27B-FP8 --max-model-len 32768"
DRAFTS = '{"method": "ernie_mtp", "model": "baidu/ERNIE-4.5-21B-A3B-PT", "num_speculative_tokens": 1}'


def flags(line: ServeLine) -> dict[str, object]:
    return {each.flag.name: each.value for each in line.given}


@pytest.mark.parametrize(
    "flag",
    [
        "--mamba-cache-mode align --enable-prefix-caching",
        "--mamba-ssm-cache-dtype float32",
        "--attention-backend FLASH_ATTN",
    ],
)
def test_a_flag_that_says_what_is_so_anyway(flag: str) -> None:
    said, plain = (ty.Deployment(line, gpu="h100").resolve().plan for line in (f"{HYBRID} {flag}", HYBRID))
    assert said == plain


def test_states_in_float32_have_the_blocks_of_vllms_planner() -> None:
    line = "vllm serve nvidia/Nemotron-H-8B-Base-8K --mamba-ssm-cache-dtype float32 --max-num-seqs 64"
    assert ty.Deployment(line, gpu="a100-80gb", kv_cache_memory_bytes=30 << 30).resolve().plan.num_blocks == 1890


def test_a_step_smaller_than_a_block_of_states_starts_where_vllm_starts_it() -> None:
    line = "vllm serve Qwen/Qwen3.5-4B --enable-prefix-caching --max-model-len 4096 --max-num-seqs 8"
    small = f"{line} --max-num-batched-tokens 256"
    builder = ty.WorkloadBuilder("w")
    builder.request(at=0, prompt=900, output=3)
    workload = builder.build()
    result = ty.run(workload, ty.Deployment(small, gpu="h100", vllm_version="0.33"))
    assert len(result.requests["request_id"]) == 1
    with pytest.raises(ConfigError, match="must hold a block"):
        ty.run(workload, ty.Deployment(small, gpu="h100", vllm_version="0.22"))


LOG = """\
(APIServer pid=1) INFO 09-17 16:44:16 [api_utils.py:286] non-default args: {'model_tag': './q36-27b-awq', 'model': \
'./Qwen3.6-27B-AWQ', 'dtype': 'bfloat16', 'max_model_len': 262144, 'attention_backend': 'FLASH_ATTN', \
'tensor_parallel_size': 2, 'gpu_memory_utilization': 0.9, 'kv_cache_dtype': 'fp8_e4m3', 'enable_prefix_caching': True, \
'max_num_batched_tokens': 8192, 'max_num_seqs': 1, 'speculative_config': {'method': 'dflash', 'model': '/models/d', \
'num_speculative_tokens': 7}}
(EngineCore pid=179) INFO 09-17 16:44:50 [core.py:123] Initializing a V1 LLM engine (v0.29.0) with config: model='x'
(Worker_TP0 pid=169) INFO 09-17 16:45:24 [gpu_worker.py:563] Available KV cache memory: 9.60 GiB
(EngineCore pid=150) INFO 09-17 16:45:24 [kv_cache_utils.py:2235] GPU KV cache size: 500,000 tokens
(EngineCore pid=150) INFO 09-17 16:45:24 [kv.py:2240] Maximum concurrency for 262,144 tokens per request: 1.91x
"""


def test_a_start_up_log_with_block_drafts_is_read() -> None:
    header = ty.Deployment(LOG, gpu="h100").resolve().header
    said = {each.name: each for each in header.assumed}
    assert said["KV cache size"].value == "500,000 tokens"
    assert said["maximum concurrency"].value == "1.91x"
    assert "9.60 GiB" in said["kv-cache-memory-bytes"].why
    assert any("dflash" in each for each in header.ignored)


def test_an_old_log_counts_blocks() -> None:
    old = read_serve_text(LOG.replace("v0.29.0", "v0.11.0"))
    assert old.kv.by_blocks
    assert not read_serve_text(LOG).kv.by_blocks
    assert old.kv.concurrency == 1.91


def test_drafts_of_ernie_by_its_own_layers() -> None:
    line = f"vllm serve baidu/ERNIE-4.5-21B-A3B-PT --speculative-config '{DRAFTS}'"
    assert ty.Deployment(line, gpu="h100").resolve().plan.num_blocks == 31_778


def test_what_only_a_shape_known_by_name_lacks_is_not_said_in_vllms_name() -> None:
    config = json.dumps({"method": "mtp", "num_speculative_tokens": 1})
    with pytest.raises(ConfigError, match=r"known of .* by name .* give its config.json"):
        ty.Deployment(f"vllm serve mistral-large-3-675b -tp 16 --speculative-config '{config}'", gpu="h200").resolve()
    with pytest.raises(NoStartError, match="no layers that predict"):
        ty.Deployment(f"vllm serve llama-3.1-8b --speculative-config '{config}'", gpu="h200").resolve()


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("gb10", "gb10"), ("DGX Spark", "gb10"), ("RTX 3080 20GB", "rtx3080-20gb"), ("RTX 2080 Ti", "rtx2080ti"),
        ("RTX PRO 4500", "rtxpro4500"), ("MI250X", "mi250x"), ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtxpro6000"), ("NVIDIA H100 80GB HBM3", "h100"),
    ],
)  # fmt: skip
def test_cards(name: str, known: str) -> None:
    assert named_gpu(name).name == known


@pytest.mark.parametrize("name", ["RTX 4090 48GB", "RTX 3080 12GB", "NVIDIA A100-SXM4-64GB", "gb12"])
def test_a_card_of_another_size_is_no_card_that_is_known(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        named_gpu(name)
    assert "may be meant" not in str(caught.value)


def test_services_of_kserve() -> None:
    scaled = read_serve_text((TEXTS / "12-scaling.yaml").read_text())
    assert scaled.replicas is not None
    assert scaled.replicas.value == "2..5"
    by_name = read_serve_text((TEXTS / "12-oci.yaml").read_text())
    assert flags(by_name)["model"] == "Qwen/Qwen3-8B"


MODAL = """\
import os, subprocess, modal
app = modal.App("chat", image=modal.Image.from_registry("vllm/vllm-openai:v0.26.0", add_python="3.12"))
WEIGHTS = "Qwen/Qwen3-VL-4B-Instruct"
@app.function(gpu="L4", timeout=1800, max_containers=2)
def serve():
    subprocess.Popen(["vllm", "serve", WEIGHTS, "--port", "8000", "--limit-mm-per-prompt", '{"image":1,"video":0}',
        "--max-model-len", "4096", "--api-key", os.environ["KEY"]])
"""
SERVICE = """\
import subprocess
cmd = ["vllm", "serve", "--uvicorn-log-level=info", "Qwen/Qwen3-8B", "--port", str(8000)]
cmd += ["--tensor-parallel-size", str(2)]
subprocess.Popen(" ".join(cmd), shell=True)
"""
RUNNER = (
    "2026-08-14 14:00:23 - runner - INFO - With image: registry.example/vllm:v0.26.0, command: [vllm serve "
    "/cache/huggingface/Qwen/Qwen3-8B --max-model-len=32768 --max-num-seqs=6 -O3 "
    '--override-generation-config={"temperature": 0.6}]'
)
INSPECTED = """\
- **Image:** `vllm/vllm-openai:v0.29.0`
- **Cmd:**

```
--model Qwen/Qwen3-8B
--tensor-parallel-size 2
--max-num-seqs 1
```
"""


@pytest.mark.parametrize(
    ("text", "expected", "version", "gpu"),
    [
        (MODAL, {"model": "Qwen/Qwen3-VL-4B-Instruct", "max-model-len": 4096}, "0.26.0", "l4"),
        (SERVICE, {"model": "Qwen/Qwen3-8B", "tensor-parallel-size": 2}, None, None),
        (RUNNER, {"model": "/cache/huggingface/Qwen/Qwen3-8B", "max-num-seqs": 6}, "0.26.0", None),
        (INSPECTED, {"model": "Qwen/Qwen3-8B", "tensor-parallel-size": 2, "max-num-seqs": 1}, "0.29.0", None),
    ],
    ids=["Modal", "a service", "a runner's log", "an inspection in Markdown"],
)
def test_forms_of_a_command(text: str, expected: dict[str, object], version: str | None, gpu: str | None) -> None:
    line = read_serve_text(text)
    assert expected.items() <= flags(line).items()
    assert (line.version and line.version.value) == version
    assert (line.gpu and line.gpu.value) == gpu


def test_a_volume_says_what_the_path_in_the_container_is() -> None:
    assert flags(read_serve_text((TEXTS / "14-compose.yaml").read_text()))["model"] == "/data/models/Qwen3-8B"
    docker = "docker run -v /data/Qwen3-8B:/model:ro --gpus all vllm/vllm-openai:v0.26.0 --model /model"
    assert flags(read_serve_text(docker))["model"] == "/data/Qwen3-8B"


MANIFEST = """\
apiVersion: apps/v1
kind: Deployment
spec:
  template:
    spec:
      containers:
      - image: vllm/vllm-openai:v0.22.1
        args: ["--model=Qwen/Qwen3-8B", "--max-num-seqs=7"]
---
apiVersion: v1
kind: Secret
stringData:
  hf_api_token: {{HF_TOKEN}}
"""


def test_a_template_is_read_around_its_places() -> None:
    line = read_serve_text(MANIFEST)
    assert flags(line)["max-num-seqs"] == 7
    assert any(each.name == "template" and "{{HF_TOKEN}}" in each.value for each in line.passed_over)
    with pytest.raises(ConfigError, match=r"MAX_SEQS.*is a variable that nothing here sets"):
        read_serve_text(MANIFEST.replace("=7", "={{MAX_SEQS}}"))


@pytest.mark.parametrize("broken", ["kind: Deployment\n\tspec: 1\n", "apiVersion: v1\n kind: [\n"])
def test_a_manifest_that_is_no_yaml_is_refused_as_one(broken: str) -> None:
    with pytest.raises(ConfigError, match=r"is not YAML.*a manifest has to be YAML"):
        read_serve_text(broken)


def test_machines_of_skypilot_are_chosen_by_the_gpu() -> None:
    task = (TEXTS / "09-skypilot-any-of-task.yaml").read_text().replace("{H100:1}", "{L4:4, A100-80GB:1, H100:1}")
    with pytest.raises(ConfigError, match="several kinds: --gpu says which"):
        read_serve_text(task)
    assert ty.Deployment(task, gpu="h100").resolve().header.tensor_parallel_size == 1
    assert flags(read_serve_text(task, gpu="l4"))["tensor-parallel-size"] == 4


def test_flags_of_dynamo_and_its_machines() -> None:
    header = ty.Deployment((TEXTS / "03-dynamo-v1beta1-deploy.yaml").read_text()).resolve().header
    said = {each.name: each.value for each in header.assumed}
    assert said["Dynamo's --dyn-reasoning-parser"] == "deepseek_v4"
    assert said["nnodes"] == 2
    assert any("dynamo.frontend" in each for each in header.ignored)


def test_a_field_that_changes_nothing_hides_no_refusal() -> None:
    config = json.dumps({"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_buffer_device": "cuda"})
    with pytest.raises(ConfigError, match="two engines"):
        ty.Deployment(f"vllm serve Qwen/Qwen3-8B --kv-transfer-config '{config}'", gpu="h100").resolve()


def test_two_containers_point_to_split() -> None:
    both = MANIFEST.partition("---")[0]
    with pytest.raises(ConfigError, match=r"2 containers start vLLM.*tokenyard split"):
        read_serve_text(f"{both}---\n{both.replace('=7', '=8')}")


def test_connectors_of_hybrid_models_are_refused_with_the_versions_that_have_them() -> None:
    with pytest.raises(ConfigError, match=r"later versions of vLLM.*not modelled"):
        ty.Deployment(f"{HYBRID} --kv-offloading-size 20 --kv-offloading-backend native", gpu="h100").resolve()


@pytest.mark.parametrize("task", ["embed", "score", "classify", "reward"])
def test_an_older_task_pools(task: str) -> None:
    assert ty.Deployment(f"vllm serve qwen3-0.6b --task {task}", gpu="l4").resolve().settled.pools
    assert not ty.Deployment("vllm serve qwen3-0.6b --task generate", gpu="l4").resolve().settled.pools


def test_an_embedding_model_pools_by_its_name() -> None:
    assert ty.Deployment("vllm serve Qwen/Qwen3-Embedding-0.6B", gpu="l4").resolve().settled.pools


@pytest.mark.parametrize(("version", "nearest"), [("0.14.1", "0.22"), ("0.41", "0.33"), ("0.28.1rc2", "0.28")])
def test_another_version_goes_to_the_nearest_and_says_so(version: str, nearest: str) -> None:
    header = ty.Deployment("vllm serve qwen3-8b", gpu="h100", vllm_version=version).resolve().header
    assert header.vllm_version == nearest
    said = [each.why for each in header.assumed if each.name == "vllm-version"]
    assert all(version in why for why in said)
    assert bool(said) is (version != "0.28.1rc2")


def test_a_local_build_in_a_tag() -> None:
    line = read_serve_text("docker run vllm/vllm-openai:v0.22.1.dev17-g1a2b3c --model qwen3-8b")
    assert line.version is not None
    assert line.version.value == "0.22.1"


def test_headroom_needs_no_times() -> None:
    line = ty.Deployment("vllm serve Qwen/Qwen3-8B --attention-backend TRITON_ATTN", gpu="h100")
    assert ty.headroom(line).kv_likely == ty.headroom(ty.Deployment("vllm serve Qwen/Qwen3-8B", gpu="h100")).kv_likely
