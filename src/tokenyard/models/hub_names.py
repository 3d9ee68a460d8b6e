"""Names of the Hugging Face hub: what models known by name are called there, and which known model a name stands for.

:func:`model_called` reads whatever a model may be called: everything that takes a model takes it so.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from tokenyard.models.named import MODELS, cached_folder, config_of, model_spec
from tokenyard.models.reading.read import model_from_config
from tokenyard.models.spec import ModelSpec

# ---------------------------------------------------------------------------------------------------------------------
# What a model known by name is called on the Hugging Face hub: what ``vllm serve`` is given to start it.
#
# Where a model comes in several tunings it is the one that answers in turns; they have the same shape, so the same
# settings hold for all of them. Of quantised weights it is one publication of several; ``llama-3.1-70b-fp8-kv`` has
# none that is known. Sizes in ``configs/`` are facts of the ``config.json`` on that page; parameters of each were
# compared with the published number, and ``models/sources.toml`` says what a public copy confirmed and what none did.

HUB_IDS = {
    "aya-expanse-8b": "CohereLabs/aya-expanse-8b",
    "bamba-9b": "ibm-ai-platform/Bamba-9B-v1",
    "codellama-13b": "codellama/CodeLlama-13b-hf",
    "codellama-34b": "codellama/CodeLlama-34b-Instruct-hf",
    "codellama-7b": "codellama/CodeLlama-7b-hf",
    "codestral-22b": "mistralai/Codestral-22B-v0.1",
    "command-a": "CohereLabs/c4ai-command-a-03-2025",
    "command-r": "CohereLabs/c4ai-command-r-v01",
    "command-r-plus": "CohereLabs/c4ai-command-r-plus-08-2024",
    "command-r7b": "CohereLabs/c4ai-command-r7b-12-2024",
    "dbrx": "databricks/dbrx-instruct",
    "deepseek-coder-33b": "deepseek-ai/deepseek-coder-33b-instruct",
    "deepseek-coder-6.7b": "deepseek-ai/deepseek-coder-6.7b-instruct",
    "deepseek-r1": "deepseek-ai/DeepSeek-R1",
    "deepseek-r1-distill-qwen-1.5b": "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B",
    "deepseek-v2": "deepseek-ai/DeepSeek-V2-Chat",
    "deepseek-v2-lite": "deepseek-ai/DeepSeek-V2-Lite-Chat",
    "deepseek-v3": "deepseek-ai/DeepSeek-V3",
    "deepseek-v3.2": "deepseek-ai/DeepSeek-V3.2",
    "deepseek-v4-flash": "deepseek-ai/DeepSeek-V4-Flash",
    "deepseek-v4-pro": "deepseek-ai/DeepSeek-V4-Pro",
    "ernie-4.5-0.3b": "baidu/ERNIE-4.5-0.3B-PT",
    "ernie-4.5-21b-a3b": "baidu/ERNIE-4.5-21B-A3B-PT",
    "ernie-4.5-300b-a47b": "baidu/ERNIE-4.5-300B-A47B-PT",
    "exaone-4.0-1.2b": "LGAI-EXAONE/EXAONE-4.0-1.2B",
    "exaone-4.0-32b": "LGAI-EXAONE/EXAONE-4.0-32B",
    "falcon-7b": "tiiuae/falcon-7b-instruct",
    "falcon-h1-34b": "tiiuae/Falcon-H1-34B-Instruct",
    "falcon-h1-7b": "tiiuae/Falcon-H1-7B-Instruct",
    "falcon3-7b": "tiiuae/Falcon3-7B-Instruct",
    "gemma-2-27b": "google/gemma-2-27b-it",
    "gemma-2-2b": "google/gemma-2-2b-it",
    "gemma-2-9b": "google/gemma-2-9b-it",
    "gemma-2b": "google/gemma-2b-it",
    "gemma-3-12b": "google/gemma-3-12b-it",
    "gemma-3-1b": "google/gemma-3-1b-it",
    "gemma-3-270m": "google/gemma-3-270m-it",
    "gemma-3-27b": "google/gemma-3-27b-it",
    "gemma-3-4b": "google/gemma-3-4b-it",
    "gemma-4-26b-a4b": "google/gemma-4-26B-A4B-it",
    "gemma-4-31b": "google/gemma-4-31B-it",
    "gemma-7b": "google/gemma-7b-it",
    "glm-4-32b": "zai-org/GLM-4-32B-0414",
    "glm-4-9b": "zai-org/GLM-4-9B-0414",
    "glm-4.5": "zai-org/GLM-4.5",
    "glm-4.5-air": "zai-org/GLM-4.5-Air",
    "glm-4.5-air-fp8": "zai-org/GLM-4.5-Air-FP8",
    "glm-4.6": "zai-org/GLM-4.6",
    "glm-4.7-flash": "zai-org/GLM-4.7-Flash",
    "glm-5": "zai-org/GLM-5",
    "glm-5.2": "zai-org/GLM-5.2",
    "gpt-oss-120b": "openai/gpt-oss-120b",
    "gpt-oss-20b": "openai/gpt-oss-20b",
    "gpt2": "openai-community/gpt2",
    "granite-3.3-2b": "ibm-granite/granite-3.3-2b-instruct",
    "granite-3.3-8b": "ibm-granite/granite-3.3-8b-instruct",
    "granite-4.0-h-small": "ibm-granite/granite-4.0-h-small",
    "granite-4.0-h-tiny": "ibm-granite/granite-4.0-h-tiny",
    "internlm2.5-7b": "internlm/internlm2_5-7b-chat",
    "jamba-1.5-large": "ai21labs/AI21-Jamba-1.5-Large",
    "jamba-1.5-mini": "ai21labs/AI21-Jamba-1.5-Mini",
    "kimi-k2": "moonshotai/Kimi-K2-Instruct",
    "kimi-k2-thinking": "moonshotai/Kimi-K2-Thinking",
    "kimi-k2.5": "moonshotai/Kimi-K2.5",
    "kimi-k3": "moonshotai/Kimi-K3",
    "lfm2-1.2b": "LiquidAI/LFM2-1.2B",
    "llama-2-13b": "meta-llama/Llama-2-13b-chat-hf",
    "llama-2-70b": "meta-llama/Llama-2-70b-chat-hf",
    "llama-2-7b": "meta-llama/Llama-2-7b-chat-hf",
    "llama-3-8b": "meta-llama/Meta-Llama-3-8B-Instruct",
    "llama-3.1-405b": "meta-llama/Llama-3.1-405B-Instruct",
    "llama-3.1-405b-fp8": "meta-llama/Llama-3.1-405B-Instruct-FP8",
    "llama-3.1-70b": "meta-llama/Llama-3.1-70B-Instruct",
    "llama-3.1-70b-awq": "hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4",
    "llama-3.1-70b-fp8": "RedHatAI/Meta-Llama-3.1-70B-Instruct-FP8",
    "llama-3.1-8b": "meta-llama/Llama-3.1-8B-Instruct",
    "llama-3.1-8b-bnb-4bit": "unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit",
    "llama-3.1-8b-fp8": "RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8",
    "llama-3.1-8b-gptq": "hugging-quants/Meta-Llama-3.1-8B-Instruct-GPTQ-INT4",
    "llama-3.1-8b-w4a16": "RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16",
    "llama-3.1-8b-w8a8": "RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a8",
    "llama-3.2-1b": "meta-llama/Llama-3.2-1B-Instruct",
    "llama-3.2-3b": "meta-llama/Llama-3.2-3B-Instruct",
    "llama-3.3-70b-nvfp4": "nvidia/Llama-3.3-70B-Instruct-FP4",
    "llama-4-maverick": "meta-llama/Llama-4-Maverick-17B-128E-Instruct",
    "llama-4-maverick-fp8": "meta-llama/Llama-4-Maverick-17B-128E-Instruct-FP8",
    "llama-4-scout": "meta-llama/Llama-4-Scout-17B-16E-Instruct",
    "llava-1.5-7b": "llava-hf/llava-1.5-7b-hf",
    "mamba-2.8b": "state-spaces/mamba-2.8b-hf",
    "mimo-7b": "XiaomiMiMo/MiMo-7B-RL",
    "mimo-v2-flash": "XiaomiMiMo/MiMo-V2-Flash",
    "minimax-m2": "MiniMaxAI/MiniMax-M2",
    "minimax-m2.5": "MiniMaxAI/MiniMax-M2.5",
    "ministral-8b": "mistralai/Ministral-8B-Instruct-2410",
    "mistral-7b": "mistralai/Mistral-7B-Instruct-v0.3",
    "mistral-7b-v0.1": "mistralai/Mistral-7B-Instruct-v0.1",
    "mistral-large": "mistralai/Mistral-Large-Instruct-2411",
    "mistral-nemo": "mistralai/Mistral-Nemo-Instruct-2407",
    "mistral-small-24b": "mistralai/Mistral-Small-24B-Instruct-2501",
    "mistral-small-3.1-24b": "mistralai/Mistral-Small-3.1-24B-Instruct-2503",
    "mixtral-8x22b": "mistralai/Mixtral-8x22B-Instruct-v0.1",
    "mixtral-8x7b": "mistralai/Mixtral-8x7B-Instruct-v0.1",
    "moonlight-16b-a3b": "moonshotai/Moonlight-16B-A3B-Instruct",
    "nemotron-3-nano-30b-a3b": "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
    "nemotron-3-super-120b-a12b": "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16",
    "nemotron-3-ultra-550b-a55b": "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16",
    "nemotron-h-8b": "nvidia/Nemotron-H-8B-Base-8K",
    "nemotron-nano-9b-v2": "nvidia/NVIDIA-Nemotron-Nano-9B-v2",
    "nemotron-super-49b": "nvidia/Llama-3_3-Nemotron-Super-49B-v1",
    "olmo-2-7b": "allenai/OLMo-2-1124-7B-Instruct",
    "olmo-3-7b": "allenai/Olmo-3-7B-Instruct",
    "olmoe-1b-7b": "allenai/OLMoE-1B-7B-0924-Instruct",
    "opt-1.3b": "facebook/opt-1.3b",
    "opt-125m": "facebook/opt-125m",
    "opt-13b": "facebook/opt-13b",
    "opt-6.7b": "facebook/opt-6.7b",
    "opt-66b": "facebook/opt-66b",
    "phi-1.5": "microsoft/phi-1_5",
    "phi-2": "microsoft/phi-2",
    "phi-3-medium-4k": "microsoft/Phi-3-medium-4k-instruct",
    "phi-3-mini-4k": "microsoft/Phi-3-mini-4k-instruct",
    "phi-3.5-mini": "microsoft/Phi-3.5-mini-instruct",
    "phi-3.5-moe": "microsoft/Phi-3.5-MoE-instruct",
    "phi-4": "microsoft/phi-4",
    "phi-4-mini": "microsoft/Phi-4-mini-instruct",
    "pythia-1.4b": "EleutherAI/pythia-1.4b",
    "qwen2-57b-a14b": "Qwen/Qwen2-57B-A14B-Instruct",
    "qwen2-7b": "Qwen/Qwen2-7B-Instruct",
    "qwen2-vl-2b": "Qwen/Qwen2-VL-2B-Instruct",
    "qwen2-vl-7b": "Qwen/Qwen2-VL-7B-Instruct",
    "qwen2.5-0.5b": "Qwen/Qwen2.5-0.5B-Instruct",
    "qwen2.5-1.5b": "Qwen/Qwen2.5-1.5B-Instruct",
    "qwen2.5-14b": "Qwen/Qwen2.5-14B-Instruct",
    "qwen2.5-32b": "Qwen/Qwen2.5-32B-Instruct",
    "qwen2.5-3b": "Qwen/Qwen2.5-3B-Instruct",
    "qwen2.5-72b": "Qwen/Qwen2.5-72B-Instruct",
    "qwen2.5-72b-awq": "Qwen/Qwen2.5-72B-Instruct-AWQ",
    "qwen2.5-7b": "Qwen/Qwen2.5-7B-Instruct",
    "qwen2.5-vl-32b": "Qwen/Qwen2.5-VL-32B-Instruct",
    "qwen2.5-vl-3b": "Qwen/Qwen2.5-VL-3B-Instruct",
    "qwen2.5-vl-72b": "Qwen/Qwen2.5-VL-72B-Instruct",
    "qwen2.5-vl-7b": "Qwen/Qwen2.5-VL-7B-Instruct",
    "qwen3-0.6b": "Qwen/Qwen3-0.6B",
    "qwen3-1.7b": "Qwen/Qwen3-1.7B",
    "qwen3-14b": "Qwen/Qwen3-14B",
    "qwen3-235b-a22b": "Qwen/Qwen3-235B-A22B",
    "qwen3-235b-a22b-fp8": "Qwen/Qwen3-235B-A22B-FP8",
    "qwen3-30b-a3b": "Qwen/Qwen3-30B-A3B",
    "qwen3-30b-a3b-fp8": "Qwen/Qwen3-30B-A3B-FP8",
    "qwen3-32b": "Qwen/Qwen3-32B",
    "qwen3-32b-awq": "Qwen/Qwen3-32B-AWQ",
    "qwen3-32b-fp8": "Qwen/Qwen3-32B-FP8",
    "qwen3-4b": "Qwen/Qwen3-4B",
    "qwen3-8b": "Qwen/Qwen3-8B",
    "qwen3-8b-fp8": "Qwen/Qwen3-8B-FP8",
    "qwen3-coder-480b-a35b": "Qwen/Qwen3-Coder-480B-A35B-Instruct",
    "qwen3-coder-480b-a35b-fp8": "Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8",
    "qwen3-next-80b-a3b": "Qwen/Qwen3-Next-80B-A3B-Instruct",
    "qwen3-next-80b-a3b-fp8": "Qwen/Qwen3-Next-80B-A3B-Instruct-FP8",
    "qwen3-vl-235b-a22b": "Qwen/Qwen3-VL-235B-A22B-Instruct",
    "qwen3-vl-2b": "Qwen/Qwen3-VL-2B-Instruct",
    "qwen3-vl-30b-a3b": "Qwen/Qwen3-VL-30B-A3B-Instruct",
    "qwen3-vl-32b": "Qwen/Qwen3-VL-32B-Instruct",
    "qwen3-vl-4b": "Qwen/Qwen3-VL-4B-Instruct",
    "qwen3-vl-8b": "Qwen/Qwen3-VL-8B-Instruct",
    "qwen3.5-122b-a10b": "Qwen/Qwen3.5-122B-A10B",
    "qwen3.5-27b": "Qwen/Qwen3.5-27B",
    "qwen3.5-35b-a3b": "Qwen/Qwen3.5-35B-A3B",
    "qwen3.5-397b-a17b": "Qwen/Qwen3.5-397B-A17B",
    "seed-oss-36b": "ByteDance-Seed/Seed-OSS-36B-Instruct",
    "smollm2-1.7b": "HuggingFaceTB/SmolLM2-1.7B-Instruct",
    "smollm2-135m": "HuggingFaceTB/SmolLM2-135M-Instruct",
    "smollm2-360m": "HuggingFaceTB/SmolLM2-360M-Instruct",
    "smollm3-3b": "HuggingFaceTB/SmolLM3-3B",
    "solar-10.7b": "upstage/SOLAR-10.7B-Instruct-v1.0",
    "stablelm-2-1.6b": "stabilityai/stablelm-2-1_6b",
    "starcoder2-15b": "bigcode/starcoder2-15b",
    "starcoder2-3b": "bigcode/starcoder2-3b",
    "starcoder2-7b": "bigcode/starcoder2-7b",
    "tinyllama-1.1b": "TinyLlama/TinyLlama-1.1B-Chat-v1.0",
    "whisper-large-v3": "openai/whisper-large-v3",
    "whisper-large-v3-turbo": "openai/whisper-large-v3-turbo",
    "yi-1.5-34b": "01-ai/Yi-1.5-34B-Chat",
    "yi-1.5-9b": "01-ai/Yi-1.5-9B-Chat",
}
"""Our name -> theirs."""


def hub_id(model: str) -> str | None:
    """The name by which the hub knows a model of ours; None for a path, and for names of others."""
    return HUB_IDS.get(model.lower())


# ---------------------------------------------------------------------------------------------------------------------
# Names of the Hugging Face hub, and which of the models known by name they are.


class KnownModel(NamedTuple):
    """What a name of the hub stands for."""

    name: str
    """Name of the model whose shape it has."""
    max_model_len: int | None = None
    """Its own, in tokens, where that is another than the known model's."""
    quantised_as: str | None = None
    """Name of a model whose quantisation its weights are taken to have; None: they are as the known model's."""


_TUNED = (
    r"instruct|it|pt|chat|hf|base|preview|thinking|text|\d{4}|[45]-?bit|bf16|main|original|exp|terminus"
    r"|dynamic|\d+k"
)
_TUNING_WORDS = re.compile(rf"(?:-(?:{_TUNED}))+$")
_TUNING = re.compile(rf"(?:-(?:{_TUNED}|v\d+(?:\.\d+)*))+$")
"""What says how a model was tuned or packed, not what shape it has."""
_TUNING_BEFORE_VERSION = re.compile(rf"(?:-(?:{_TUNED}))+(-v\d+(?:\.\d+)*)$")
_EXPERTS = re.compile(r"-17b-\d+e(?=-|$)")
"""Llama 4's sizes, which its short names leave out."""
_MAKERS = ("meta-", "ai21-", "c4ai-", "nvidia-", "mistral-ai-", "rhai-")
_QUANTISED = (
    "fp8",
    "awq",
    "gptq",
    "nvfp4",
    "w8a8",
    "w4a16",
    "int4",
    "int8",
    "bnb",
    "fp4",
    "mxfp4",
    "quantized",
    "gguf",
)
_PRECISION = re.compile(r"[-_.](?:quantized\.)?(awq|fp8|gptq|w4a16|w8a8)(?:[-_](?:int4|dynamic))?$", re.IGNORECASE)
"""How the name of a quantised model ends that says its method plainly, and nothing else."""
_LIKE = {
    "awq": "qwen3-32b-awq",
    "fp8": "llama-3.1-8b-fp8",
    "gptq": "llama-3.1-8b-gptq",
    "w4a16": "llama-3.1-8b-w4a16",
    "w8a8": "llama-3.1-8b-w8a8",
}
"""Method -> a model that is known with it: its format is the one in which most are published."""
_IN_BLOCKS = ("qwen/", "deepseek-ai/")
"""Owners whose FP8 weights have scales by blocks of 128 x 128, as those of qwen3-32b-fp8."""
_BITS_OF = {"awq", "gptq"}
"""Methods whose names are followed by their bits, which are four where a name says nothing."""
_SAME_SHAPE = {
    "llama-3.3-70b": KnownModel("llama-3.1-70b"),
    "llama-3-70b": KnownModel("llama-3.1-70b", 8192),
    "deepseek-r1-distill-llama-8b": KnownModel("llama-3.1-8b"),
    "deepseek-r1-distill-llama-70b": KnownModel("llama-3.1-70b"),
    "deepseek-r1-distill-qwen-7b": KnownModel("qwen2.5-7b", 131_072),
    "deepseek-r1-distill-qwen-32b": KnownModel("qwen2.5-32b", 131_072),
    "deepseek-v3.1": KnownModel("deepseek-v3"),
    "qwen2.5-coder-7b": KnownModel("qwen2.5-7b"),
    "qwen2.5-coder-32b": KnownModel("qwen2.5-32b"),
    "qwq-32b": KnownModel("qwen2.5-32b", 40_960),
    "qwen2-0.5b": KnownModel("qwen2.5-0.5b"),
    "qwen2-1.5b": KnownModel("qwen2.5-1.5b"),
    "qwen2.5-coder-0.5b": KnownModel("qwen2.5-0.5b"),
    "qwen2.5-coder-1.5b": KnownModel("qwen2.5-1.5b"),
    "qwen2.5-coder-3b": KnownModel("qwen2.5-3b"),
    "llama-3.1-nemotron-70b": KnownModel("llama-3.1-70b"),
    "qwen3-coder-30b-a3b": KnownModel("qwen3-30b-a3b", 262_144),
    "mistral-small-3.2-24b": KnownModel("mistral-small-3.1-24b"),
    "minimax-m2.1": KnownModel("minimax-m2"),
    "minimax-m2.7": KnownModel("minimax-m2.5", 204_800),
    "glm-5.1": KnownModel("glm-5"),
    "glm-4.7": KnownModel("glm-4.6"),
    "phi-3-medium-4k-instruct": KnownModel("phi-3-medium-4k"),
    "phi-3-mini-4k-instruct": KnownModel("phi-3-mini-4k"),
    "command-a-03-2025": KnownModel("command-a"),
    "command-r-plus-08-2024": KnownModel("command-r-plus"),
    "command-r7b-12-2024": KnownModel("command-r7b"),
    "llama-guard-3-8b": KnownModel("llama-3.1-8b"),
    "llama-3.1-nemotron-nano-8b": KnownModel("llama-3.1-8b"),
    "hermes-3-llama-3.1-8b": KnownModel("llama-3.1-8b"),
    "hermes-3-llama-3.1-70b": KnownModel("llama-3.1-70b"),
    "hermes-4-70b": KnownModel("llama-3.1-70b"),
    "vicuna-7b": KnownModel("llama-2-7b"),
    "vicuna-13b": KnownModel("llama-2-13b"),
    "zephyr-7b-beta": KnownModel("mistral-7b-v0.1"),
    "mathstral-7b": KnownModel("mistral-7b"),
    "devstral-small-2505": KnownModel("mistral-small-24b", 131_072),
    "devstral-small-2507": KnownModel("mistral-small-24b", 131_072),
    "magistral-small-2506": KnownModel("mistral-small-24b", 40_960),
    "mistral-large-2407": KnownModel("mistral-large"),
    "deepseek-r1-distill-qwen-14b": KnownModel("qwen2.5-14b", 131_072),
    "deepseek-r1-0528-qwen3-8b": KnownModel("qwen3-8b", 131_072),
    "deepseek-coder-v2-lite": KnownModel("deepseek-v2-lite"),
    "qwen2-72b": KnownModel("qwen2.5-72b"),
    "qwen2.5-coder-14b": KnownModel("qwen2.5-14b"),
    "qwen2.5-math-7b": KnownModel("qwen2.5-7b", 4096),
    "qwen2.5-math-72b": KnownModel("qwen2.5-72b", 4096),
    "qwenlong-l1-32b": KnownModel("qwen2.5-32b", 131_072),
    "qwen3-coder-next": KnownModel("qwen3-next-80b-a3b"),
    "qwen3.6-27b": KnownModel("qwen3.5-27b"),
    "qwen3.6-35b-a3b": KnownModel("qwen3.5-35b-a3b"),
    "kimi-k2.6": KnownModel("kimi-k2.5"),
    "kimi-k2.7-code": KnownModel("kimi-k2.5"),
    "gpt-oss-safeguard-20b": KnownModel("gpt-oss-20b"),
    "gpt-oss-safeguard-120b": KnownModel("gpt-oss-120b"),
    "phi-4-reasoning": KnownModel("phi-4", 32_768),
    "phi-4-reasoning-plus": KnownModel("phi-4", 32_768),
    "phi-4-mini-reasoning": KnownModel("phi-4-mini"),
    "phi-3-mini-128k": KnownModel("phi-3.5-mini"),
    "phi-3-mini-128k-instruct": KnownModel("phi-3.5-mini"),
    "medgemma-4b": KnownModel("gemma-3-4b"),
    "llama-3-3-nemotron-super-49b": KnownModel("nemotron-super-49b"),
    "llama-3-3-nemotron-super-49b-v1-5": KnownModel("nemotron-super-49b"),
    "olmo-2-1124-7b": KnownModel("olmo-2-7b"),
    "olmoe-1b-7b-0924": KnownModel("olmoe-1b-7b"),
    "mimo-7b-rl": KnownModel("mimo-7b"),
    "mimo-7b-sft": KnownModel("mimo-7b"),
    "olmo-3-7b-think": KnownModel("olmo-3-7b"),
    "internlm2-5-7b": KnownModel("internlm2.5-7b"),
    "phi-1-5": KnownModel("phi-1.5"),
    "stablelm-2-1-6b": KnownModel("stablelm-2-1.6b"),
    "llava-1.5-7b-hf": KnownModel("llava-1.5-7b"),
    "mamba-2.8b-hf": KnownModel("mamba-2.8b"),
}
"""Models that differ in weights alone, and some in length."""
_OTHER_LENGTHS = (
    (re.compile(r"(.*/)?qwen3-.*-2507(-fp8)?$"), 262_144),
    (re.compile(r"(.*/)?kimi-k2-instruct-0905$"), 262_144),
    (re.compile(r"(.*/)?qwen3-.*-base$"), 32_768),
    # Without an owner these are our names for the tuned ones.
    (re.compile(r".*/qwen2\.5-(7b|32b|72b)$"), 131_072),
    (re.compile(r"(.*/)?glm-4-9b-chat-hf$"), 131_072),
)
"""Versions that were made for other contexts than the known model of their shape."""
_LENGTH_IN_NAME = re.compile(r"-(\d+)k(?=-|$)")


def known_as(name: str, known: Collection[str]) -> KnownModel | None:
    """Which of the ``known`` models a name of the hub stands for.

    ``meta-llama/Llama-3.1-8B-Instruct`` is ``llama-3.1-8b``, and ``Qwen3-4B-Instruct-2507`` is ``qwen3-4b`` with more
    context. None if it is none of them. A name that says how weights are quantised, or that they are not, stands for a
    model of which that is true, and for no other; so does a name that says a length (``-32k``). Where no such model is
    known, the ending of a name (``-AWQ``, ``-FP8``) may say how the weights of a known one were quantised.
    """
    name = name.rstrip("/")
    short = name.rsplit("/", 1)[-1].lower().replace("_", "-").replace("quantized.", "")
    for maker in _MAKERS:
        short = short.removeprefix(maker)
    short = _EXPERTS.sub("", short.replace("llama3", "llama-3").replace("llama-3-1", "llama-3.1"))
    other = next((length for pattern, length in _OTHER_LENGTHS if pattern.match(name.lower())), None)
    for candidate in _candidates(short):
        if candidate.name in known and not _contradicts(short, candidate.name):
            return KnownModel(candidate.name, candidate.max_model_len or other)
    return _quantised(name, known)


def _quantised(name: str, known: Collection[str]) -> KnownModel | None:
    """A known model whose weights were quantised later, where the name says how: ``Qwen3-8B-AWQ``.

    None for models that are quantised as they are, and for those with encoders or states: which of their parts are
    left alone no name says.
    """
    found = _PRECISION.search(name)
    plain = None if found is None else known_as(name[: found.start()], known)
    if found is None or plain is None or plain.quantised_as is not None:
        return None
    model = model_spec(plain.name)
    if model.quantization is not None or model.encoders or model.has_states:
        return None
    method = found[1].lower()
    in_blocks = method == "fp8" and name.lower().startswith(_IN_BLOCKS)
    return plain._replace(quantised_as="qwen3-32b-fp8" if in_blocks else _LIKE[method])


def _contradicts(short: str, known: str) -> bool:
    """Whether a name says of its weights or of its length what is not so of the known model."""
    config = config_of(known)[2]
    if "bf16" in short.split("-") and "quantization_config" in config:
        return True
    length = _LENGTH_IN_NAME.search(short)
    if length is None:
        return False
    tokens = config.get("text_config", config).get("max_position_embeddings", 0)
    return int(length[1]) not in (tokens // 1000, tokens // 1024)


def _candidates(short: str) -> Iterator[KnownModel]:
    """From the name as it is to the shape alone; quantisation stays, at the end."""
    yield KnownModel(short)
    parts = short.split("-")
    ends = [part for part in parts if part in _QUANTISED]
    if _BITS_OF & set(ends):
        ends = [end for end in ends if end != "int4"]
    plain = "-".join(part for part in parts if part not in _QUANTISED)
    with_version = _TUNING_WORDS.sub("", _TUNING_BEFORE_VERSION.sub(r"\1", plain))
    for name in (plain, with_version, _TUNING.sub("", plain)):
        same = _SAME_SHAPE.get(name, KnownModel(name))
        endings = [[name, *ends]] if same.name == name else [[name, *ends], [same.name, *ends]]
        for words in endings:
            yield same._replace(name="-".join(words))
            if words[-1] == "bnb":
                yield same._replace(name="-".join([*words, "4bit"]))
            if words[-1] == "fp4":
                yield same._replace(name="-".join([*words[:-1], "nvfp4"]))


# ---------------------------------------------------------------------------------------------------------------------
# A model by whatever it may be called: our name, a name of the hub, a path, a name of a plug-in.


class Called(NamedTuple):
    """What a name stands for."""

    name: str
    """The model's own."""
    where: str
    """Its file, as errors name it."""
    raw: dict[str, Any]
    """What that holds."""
    max_model_len: int | None = None
    """Its context, where that is another than the file's."""
    notes: tuple[str, ...] = ()
    """What was taken from the name."""


def _is_path(asked: str) -> bool:
    """Whether a model's name can be that of a folder alone, none of the hub."""
    return asked.startswith(("/", ".", "~")) or ("://" not in asked and asked.rstrip("/").count("/") > 1)


def config_called(asked: str) -> Called:
    """The ``config.json`` of a model by any name that it has; a file that is there, in a folder or in the hub's cache,
    counts before its name.

    ConfigError as :func:`tokenyard.models.named.model_spec`.
    """
    known = None if not isinstance(asked, str) or Path(asked).is_dir() else known_as(asked, MODELS)
    if known is None:
        return Called(*config_of(asked))
    if cached_folder(asked) is not None:
        note = f"read from its config.json in the hub's cache, not by its name as {known.quantised_as or known.name}"
        return Called(*config_of(asked), notes=(note,))
    name, where, raw = config_of(known.name)
    absent = (f"there is no {asked} here: taken for what its last part is known for",) if _is_path(asked) else ()
    if known.quantised_as is None:
        return Called(name, where, raw, known.max_model_len, absent)
    raw = {**raw, "quantization_config": config_of(known.quantised_as)[2]["quantization_config"]}
    form = f"the shape of {known.name} with weights quantised as those of {known.quantised_as}"
    note = f"read by its name: {form}; name its config.json to read what they are"
    return Called(asked, where, raw, known.max_model_len, (*absent, note))


def model_called(asked: str) -> ModelSpec:
    """The model of a name, as :func:`config_called` finds it. Errors as :func:`tokenyard.models.named.model_spec`."""
    if asked in MODELS:
        return model_spec(asked)
    found = config_called(asked)
    model = model_from_config(found.raw, name=found.name, where=found.where)
    if found.max_model_len is not None:
        model = replace(model, max_model_len=found.max_model_len)
    return replace(model, notes=(*model.notes, *found.notes)) if found.notes else model
