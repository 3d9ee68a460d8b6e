"""Defaults by GPU and version, and what keeps vLLM from starting."""

from __future__ import annotations

from typing import Any

import pytest

from tokenyard.deploy.resolve import served_model
from tokenyard.deploy.settings import HardwareSettings
from tokenyard.deploy.vllm_serve.defaults import batch_limits, known_version
from tokenyard.deploy.vllm_serve.speculation import read_speculation
from tokenyard.deploy.vllm_serve.start_checks import check_length, check_limits, check_room
from tokenyard.errors import ConfigError, NoStartError
from tokenyard.models.gpus import named_gpu
from tokenyard.models.named import known_as


@pytest.mark.parametrize(
    ("gpu", "version", "seqs", "tokens"),
    [
        ("h100", "0.22", 1024, 8192),
        ("h100", "0.33", 1024, 8192),
        ("h200", "0.33", 1024, 8192),
        ("b200", "0.22", 1024, 8192),
        ("b200", "0.33", 1024, 16_384),
        ("rtxpro6000", "0.33", 1024, 8192),
        ("a100-80gb", "0.33", 256, 2048),
        ("a100-40gb", "0.22", 256, 2048),
        ("l4", "0.33", 256, 2048),
        ("l40s", "0.22", 256, 2048),
    ],
)
def test_by_gpu(gpu: str, version: str, seqs: int, tokens: int) -> None:
    limits = batch_limits(named_gpu(gpu), version=version, max_model_len=131_072)
    assert (limits.max_num_seqs, limits.max_num_batched_tokens) == (seqs, tokens)


@pytest.mark.parametrize(
    ("given", "seqs", "tokens"),
    [
        ({"max_num_seqs": 64}, 64, 8192),
        ({"max_num_batched_tokens": 300}, 300, 300),
        ({"max_num_seqs": 2, "max_model_len": 100}, 2, 200),
        ({"for_throughput": True}, 2048, 16_384),
        ({"for_throughput": True, "max_num_seqs": 64}, 64, 16_384),
        ({"enable_chunked_prefill": False}, 1024, 131_072),
        ({"enable_chunked_prefill": False, "max_num_batched_tokens": 4096}, 1024, 4096),
        ({"max_model_len": 4}, 1024, 4096),
    ],
)
def test_what_is_given_moves_the_other(given: dict[str, Any], seqs: int, tokens: int) -> None:
    limits = batch_limits(named_gpu("h100"), version="0.33", **{"max_model_len": 131_072, **given})
    assert (limits.max_num_seqs, limits.max_num_batched_tokens) == (seqs, tokens)


def test_versions() -> None:
    assert [known_version(name) for name in ("0.22", "v0.22.1", "0.33.0")] == ["0.22", "0.22", "0.33"]
    with pytest.raises(ConfigError, match=r"vllm_version = 'x.9': use one of: 0.22, 0.23, "):
        known_version("x.9")


LIMITS: dict[str, Any] = {
    "max_num_seqs": 8,
    "max_num_batched_tokens": 100,
    "max_model_len": 1000,
    "enable_chunked_prefill": True,
    "long_prefill_token_threshold": 0,
}


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"max_num_seqs": 101}, "max_num_batched_tokens = 100 is less than max_num_seqs = 101"),
        ({"enable_chunked_prefill": False}, "less than max_model_len = 1000"),
        ({"long_prefill_token_threshold": 1001}, "more than max_model_len = 1000"),
    ],
)
def test_limits_that_contradict_each_other(changed: dict[str, Any], problem: str) -> None:
    check_limits(**LIMITS)
    with pytest.raises(NoStartError, match=problem):
        check_limits(**LIMITS | changed)


def test_lengths() -> None:
    check_length(100, 100, "m")
    check_room("m", "h100", 10 << 30, 5 << 30, 4 << 30, 1)
    with pytest.raises(NoStartError, match="101 is more than the 100 tokens that m was made for"):
        check_length(101, 100, "m")
    with pytest.raises(NoStartError, match=r"m needs 9\.0 GiB for weights and 1\.0 GiB to run, and 10\.0 GiB of h100"):
        check_room("m", "h100", 10 << 30, 9 << 30, 1 << 30, 1)


@pytest.mark.parametrize(
    ("text", "method", "tokens"),
    [
        ('{"method": "eagle3", "num_speculative_tokens": 3}', "eagle", 3),
        ('{"method": "mtp", "num_speculative_tokens": 1}', "eagle", 1),
        ('{"method": "qwen3_next_mtp", "num_speculative_tokens": 2}', "eagle", 2),
        ('{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}', "ngram", 4),
        ('{"model": "[ngram]", "num_speculative_tokens": 4}', "ngram", 4),
        ('{"model": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", "num_speculative_tokens": 2}', "eagle", 2),
        ('{"model": "Qwen/Qwen3-0.6B", "num_speculative_tokens": 5}', "draft_model", 5),
    ],
)
def test_drafts(text: str, method: str, tokens: int) -> None:
    asked = read_speculation(text, method=None, num_tokens=None)
    assert asked is not None
    assert (asked.config.method.value, asked.config.num_speculative_tokens) == (method, tokens)
    assert bool(asked.ignored) == ("prompt_lookup_max" in text)


def test_drafts_by_short_forms() -> None:
    with pytest.raises(NoStartError, match="exclude each other"):
        read_speculation('{"method": "ngram"}', method="eagle", num_tokens=2)
    asked = read_speculation('{"prompt_lookup_max": 4}', method="eagle", num_tokens=2)
    assert asked is not None
    assert (asked.config.method.value, asked.config.num_speculative_tokens) == ("eagle", 2)
    assert read_speculation(None, method=None, num_tokens=None) is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "is not JSON"),
        ("3", "give a JSON object"),
        ('{"method": "ngram"}', "give num_speculative_tokens"),
        ('{"method": "suffix", "num_speculative_tokens": 2}', "'suffix': is not modelled: use one of eagle"),
        ('{"method": "ngram", "num_speculative_tokens": "2"}', "num_speculative_tokens"),
    ],
)
def test_drafts_that_cannot_be_read(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        read_speculation(text, method=None, num_tokens=None)


KNOWN = (
    "llama-3.1-8b",
    "llama-3.1-70b",
    "llama-3.1-70b-fp8",
    "mistral-7b",
    "qwen3-8b",
    "qwen3-30b-a3b",
    "mixtral-8x7b",
    "mistral-7b-v0.1",
    "llama-4-scout",
    "llama-3.3-70b-nvfp4",
    "llama-3.1-8b-w4a16",
    "nemotron-h-8b",
    "llama-3.1-70b-awq",
    "deepseek-v3",
)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("meta-llama/Meta-Llama-3.1-70B-Instruct", "llama-3.1-70b"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", "qwen3-30b-a3b"),
        ("RedHatAI/Llama-3.1-70B-Instruct-FP8", "llama-3.1-70b-fp8"),
        ("qwen3-8b", "qwen3-8b"),
        ("Qwen/Qwen3-8B-AWQ", "qwen3-8b"),
        ("Qwen/Qwen3-4B", None),
        ("/models/config.json", None),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama-3.1-70b"),
        ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "llama-3.1-70b-fp8"),
        ("nvidia/Llama-3.3-70B-Instruct-FP4", "llama-3.3-70b-nvfp4"),
        ("hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4", "llama-3.1-70b-awq"),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16", "llama-3.1-8b-w4a16"),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "llama-4-scout"),
        ("nvidia/Nemotron-H-8B-Base-8K", "nemotron-h-8b"),
        ("mistralai/Mistral-7B-Instruct-v0.1", "mistral-7b-v0.1"),
        ("deepseek-ai/DeepSeek-V3.1-Terminus", "deepseek-v3"),
    ],
)
def test_names_of_the_hub(name: str, known: str | None) -> None:
    found = known_as(name, KNOWN)
    assert (None if found is None else found.name) == known


@pytest.mark.parametrize(
    ("name", "length"),
    [
        ("Qwen/Qwen3-30B-A3B", None),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", 262_144),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", 262_144),
        ("meta-llama/Meta-Llama-3-70B-Instruct", 8192),
    ],
)
def test_later_versions_may_be_longer(name: str, length: int | None) -> None:
    found = known_as(name, KNOWN)
    assert found is not None
    assert found.max_model_len == length


@pytest.mark.parametrize(
    ("asked", "model", "problem"),
    [
        ("fp8", "qwen3-8b-fp8", None),
        ("fp8", "qwen3-8b", None),
        ("awq_marlin", "llama-3.1-70b-awq", None),
        ("auto_awq", "llama-3.1-70b-awq", None),
        ("gptq", "llama-3.1-8b-gptq", None),
        ("moe_wna16", "llama-3.1-70b-awq", None),
        ("compressed-tensors", "llama-3.1-8b-w8a8", None),
        ("gptq_marlin", "llama-3.3-70b-nvfp4", None),
        ("awq", "gpt-oss-20b", None),
        ("awq", "llama-3.1-8b-gptq", NoStartError),
        ("fp8_per_tensor", "qwen3-8b-fp8", NoStartError),
        ("awq", "qwen3-8b", NoStartError),
        ("fp8_per_tensor", "qwen3-8b", ConfigError),
        ("humming", "qwen3-8b-fp8", ConfigError),
        ("humming", "gpt-oss-20b", NoStartError),
    ],
)
def test_methods_of_quantisation(asked: str, model: str, problem: type[Exception] | None) -> None:
    """As vLLM's own configuration takes them: refused, taken, or taken and not modelled."""
    flags = HardwareSettings(model=model, quantization=asked)
    if problem is None:
        assert served_model(flags, "0.33", ignore_unmodelled=False).quantization is not None
        return
    with pytest.raises(problem, match="quantization = "):
        served_model(flags, "0.33", ignore_unmodelled=False)


@pytest.mark.parametrize(
    ("model", "dtype", "starts"),
    [
        ("qwen3-8b-fp8", "float32", False),
        ("llama-3.1-70b-awq", "float32", False),
        ("gpt-oss-20b", "float16", False),
        ("qwen3-8b-fp8", "float16", True),
        ("qwen3-8b", "float32", True),
        ("llama-3.1-8b-w8a8", "float32", True),
    ],
)
def test_dtypes_that_quantised_weights_go_with(model: str, dtype: str, *, starts: bool) -> None:
    flags = HardwareSettings(model=model, dtype=dtype)
    if starts:
        assert served_model(flags, "0.33", ignore_unmodelled=False).dtype == dtype
        return
    with pytest.raises(NoStartError, match=f"dtype = '{dtype}' does not go with"):
        served_model(flags, "0.33", ignore_unmodelled=False)
