"""Whatever a user gives, a deployment is the same value in every form, and resolves as the command line does."""

from __future__ import annotations

import pickle
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

from tokenyard import Deployment, TokenyardError
from tokenyard.cli.support.asking import scenario_of
from tokenyard.cli.support.flags.replays import RunCommand
from tokenyard.cli.support.parsing import parse
from tokenyard.deploy.spec import resolve

SETTINGS: dict[str, st.SearchStrategy[Any]] = {
    "model": st.sampled_from(["llama-3.2-1b", "Qwen/Qwen3-8B", "qwen3-30b-a3b", "gemma-3-4b", "no-such-model"]),
    "gpu": st.sampled_from(["h100", "l4", "a100-40gb", "h999"]),
    "tensor_parallel_size": st.sampled_from([1, 2, 3]),
    "data_parallel_size": st.sampled_from([1, 2]),
    "max_num_seqs": st.integers(0, 600),
    "max_num_batched_tokens": st.integers(1, 20_000),
    "max_model_len": st.integers(-1, 50_000),
    "kv_cache_dtype": st.sampled_from(["auto", "fp8", "bfloat16", "fp7"]),
    "gpu_memory_utilization": st.floats(0.1, 1.0),
    "num_gpu_blocks_override": st.integers(0, 5000),
    "block_size": st.sampled_from([16, 32]),
    "enable_prefix_caching": st.booleans(),
    "enable_chunked_prefill": st.booleans(),
    "async_scheduling": st.booleans(),
    "enforce_eager": st.booleans(),
    "performance_mode": st.sampled_from(["balanced", "throughput"]),
    "scheduling_policy": st.sampled_from(["fcfs", "priority", "fair-share"]),
    "speculative_config": st.just({"method": "ngram", "num_speculative_tokens": 2}),
    "cudagraph_capture_sizes": st.just([1, 2, 4]),
    "api_key": st.just("sk-a-secret-of-somebody"),
    "disable_log_stats": st.just(True),
    "enable_dbo": st.just(True),
    "vllm_version": st.sampled_from(["0.22", "0.33"]),
    "latency": st.sampled_from(["calibrated", "roofline", "constant:0.01"]),
    "router": st.sampled_from(["vllm", "round-robin"]),
    "ignore_unmodelled": st.booleans(),
}
GIVEN = st.fixed_dictionaries({}, optional=SETTINGS)


def words_of(given_settings: dict[str, Any]) -> list[str]:
    """The same as a user types it."""
    words: list[str] = []
    for name, value in given_settings.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            if value or name not in ("enforce_eager", "ignore_unmodelled"):
                words.append(f"--{flag}" if value else f"--no-{flag}")
        elif isinstance(value, list):
            words += [f"--{flag}", *map(str, value)]
        else:
            words += [f"--{flag}", str(value).replace("'", '"')]
    return words


def outcome(make: Any) -> Any:
    """What a deployment comes to, or what is said instead."""
    try:
        resolved = make()
    except TokenyardError as error:
        return type(error), str(error)
    return resolved.scheduler, resolved.cache, resolved.header


@given(GIVEN, GIVEN)
@settings(max_examples=examples(100))
def test_every_form_is_the_same_value(first: dict[str, Any], second: dict[str, Any]) -> None:
    deployment = Deployment(**first)
    copies = (pickle.loads(pickle.dumps(deployment)), Deployment.from_json(deployment.to_json()))
    for again in (*copies, eval(repr(deployment))):
        assert again == deployment
        assert hash(again) == hash(deployment)
    assert "a-secret" not in deployment.to_json() + repr(deployment)
    both = Deployment(**{**first, **second})
    assert deployment.with_(**second) == both
    assert both.with_(**dict.fromkeys(second)).with_(**{n: v for n, v in first.items() if n in second}) == deployment


@given(GIVEN)
@settings(max_examples=examples(80))
def test_names_mean_what_flags_mean(given_settings: dict[str, Any]) -> None:
    off = ("enforce_eager", "ignore_unmodelled")
    plain = {name: value for name, value in given_settings.items() if value or name not in off}
    flags = parse(["run", "chat", *words_of(plain)])
    assert isinstance(flags, RunCommand)
    typed = scenario_of(flags).deployment
    assert outcome(Deployment(**plain).resolve) == outcome(lambda: resolve(typed))
