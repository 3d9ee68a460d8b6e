"""Flags that are not modelled, and change nothing in a deployment that has nothing for them to change."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.planner_answers import recorded

from tokenyard import Deployment
from tokenyard.deploy.idle import attention_backend
from tokenyard.deploy.vllm_serve.flags import flag_table
from tokenyard.errors import NotModelledError, TokenyardError
from tokenyard.models.gpus import GPUS
from tokenyard.models.named import MODELS

PLANS = sorted((Path(__file__).parents[1] / "models").glob("kv_plans*.json.gz"))
OF_ATTENTION = ("FLASH", "TRITON")


@pytest.mark.parametrize("file", PLANS, ids=lambda file: file.name)
def test_the_kernels_of_attention_are_those_that_vllm_chose(file: Path) -> None:
    around = recorded(file)
    gpu = GPUS[around.get("gpu", "h100")]
    wrong = {}
    for case in around["plans"]:
        model = MODELS[case["model"]]
        theirs = [name for name in case["backends"] if name.startswith(OF_ATTENTION)]
        dtype = case["options"].get("kv_cache_dtype", "auto")
        ours = attention_backend(model, gpu, (model.kv_cache_dtype or model.dtype) if dtype == "auto" else dtype)
        if ours is not None and theirs != [ours]:
            wrong[case["model"]] = (ours, theirs)
    assert not wrong


@pytest.mark.parametrize(
    ("line", "gpu", "idle"),
    [
        ("Qwen/Qwen3-8B --attention-backend FLASH_ATTN", "h100", "vLLM's own choice on h100"),
        ("Qwen/Qwen3-8B --attention-backend FLASHINFER", "b200", "vLLM's own choice on b200"),
        ("deepseek-r1 -tp 8 --attention-backend FLASHMLA --kv-cache-dtype fp8", "h200", "own choice on h200"),
        ("qwen3.5-27b --mamba-block-size 1024", "h200", "states are kept where blocks of KV end"),
        ("Qwen/Qwen3-8B --disable-custom-all-reduce", "l40s", "one GPU has each layer"),
        ("Qwen/Qwen3-8B --moe-backend triton", "h100", "the model has no experts"),
        ("Qwen/Qwen3-8B --disable-hybrid-kv-cache-manager", "h100", "all layers share their blocks"),
        ("Qwen/Qwen3-8B --calculate-kv-scales", "h100", "KV is not quantised"),
        ("Qwen/Qwen3-30B-A3B --all2all-backend pplx", "h200", "there is one engine"),
    ],
)
def test_a_flag_that_says_what_is_so_changes_nothing(line: str, gpu: str, idle: str) -> None:
    model, _, flag = line.partition(" --")
    said = Deployment(f"vllm serve {line}", gpu=gpu).resolve()
    plain = Deployment(f"vllm serve {model}", gpu=gpu, kv_cache_dtype="fp8" if "fp8" in line else "auto").resolve()
    assert any(idle in each for each in said.header.without_effect), said.header.without_effect
    assert said.plan == plain.plan
    assert flag


@pytest.mark.parametrize(
    ("line", "gpu"),
    [
        ("Qwen/Qwen3-8B --attention-backend FLASHINFER", "h100"),
        ("Qwen/Qwen3-8B -tp 2 --disable-custom-all-reduce", "h100"),
        ("Qwen/Qwen3-30B-A3B --moe-backend triton", "h200"),
        ("gpt-oss-20b --disable-hybrid-kv-cache-manager", "h100"),
        ("Qwen/Qwen3-8B --kv-cache-dtype fp8 --calculate-kv-scales", "h100"),
    ],
)
def test_one_that_changes_something_is_refused(line: str, gpu: str) -> None:
    with pytest.raises(NotModelledError):
        Deployment(f"vllm serve {line}", gpu=gpu).resolve()


def test_every_reason_can_be_met() -> None:
    """A word of ``flags.toml`` that nothing yields would never let a flag through."""
    lines = ("qwen3-8b", "qwen3.5-27b")
    named = {where for flag in flag_table() for where in flag.idle_where} - {"vLLM's own choice"}
    met = set()
    for flag in flag_table():
        for where in flag.idle_where:
            value = (
                [] if not flag.kind.has_value else ["1" if flag.kind not in ("json", "json_or_text") else '{"a": 1}']
            )
            for line in lines:
                try:
                    words = " ".join([line, flag.flag, *value])
                    said = Deployment(f"vllm serve {words}", gpu="h200").resolve().header.without_effect
                except TokenyardError:
                    continue
                met |= {where for each in said if each.endswith(f", as {where}")}
    assert met == named


def test_states_have_the_dtype_that_is_given() -> None:
    line = "vllm serve nvidia/NVIDIA-Nemotron-Nano-9B-v2 --max-model-len 65536"
    usual, half = (
        Deployment(f"{line} --mamba-ssm-cache-dtype {dtype}", gpu="a10g").resolve() for dtype in ("float32", "float16")
    )
    assert usual.plan == Deployment(line, gpu="a10g").resolve().plan
    assert half.plan.bytes_per_block < usual.plan.bytes_per_block
