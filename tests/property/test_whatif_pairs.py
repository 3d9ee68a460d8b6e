"""Pairs of deployments: what ``whatif`` says of the second, from the first one's trace, is what a run of it reports.

What can be set is drawn from the flags of ``run``, so that no list of what changes step times, or blocks, has to be
right: a setting that the answer passed over would be a difference here.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, assume, given, note, settings
from hypothesis import strategies as st
from tests.integration.command import call
from tests.support.examples import examples

MODELS = {
    "llama-3.1-8b": (1, 2, 4),
    "qwen3-32b-fp8": (1, 2, 4, 8),
    "qwen3-30b-a3b": (1, 2, 4),
    "deepseek-v2-lite": (2, 4),
    "gemma-3-12b": (1, 2),
    "jamba-1.5-mini": (4, 8),
    "granite-4.0-h-tiny": (1, 2),
    "gpt-oss-20b": (1, 2),
}
"""Dense, sparse, with latent attention, windows, states -> the sizes of tensor parallelism that are drawn."""
FREE: dict[str, st.SearchStrategy[Any]] = {
    "gpu": st.sampled_from(("h100", "h200", "a100-80gb", "l40s", "b200", "rtxpro6000")),
    "kv_cache_dtype": st.sampled_from(("auto", "fp8")),
    "enforce_eager": st.booleans(),
    "enable_expert_parallel": st.booleans(),
    "gpu_memory_utilization": st.sampled_from((0.8, 0.9, 0.95)),
    "max_num_seqs": st.sampled_from((4, 16, 64, 300)),
    "max_num_batched_tokens": st.sampled_from((512, 2048, 8192)),
    "max_cudagraph_capture_size": st.sampled_from((32, 256)),
    "decode_context_parallel_size": st.sampled_from((1, 2, 4)),
    "num_gpu_blocks_override": st.sampled_from((900, 4000)),
    "block_size": st.sampled_from((16, 32, 64)),
    "long_prefill_token_threshold": st.sampled_from((256, 1024)),
    "async_scheduling": st.booleans(),
    "enable_chunked_prefill": st.just(True),
}
CHANGED = {**FREE, "pipeline_parallel_size": st.just(2)}
"""A pipeline is asked for and not recorded: of its trace few steps tell how long they took (docs/whatif.md)."""
TRAFFIC = ("random", "--num-prompts", "60", "--input-len", "700", "--output-len", "40", "--random-range-ratio", "0.6")
ASKED = (*TRAFFIC, "--request-rate", "25", "--max-model-len", "4096", "--advice", "none")
FIGURES = ("ttft_ms", "tpot_ms", "e2e_ms", "queue_ms")
ALIKE, NOTHING = 0.01, 0.2
"""As a share; milliseconds. Times of a trace are rounded, and a request that comes at the end of a step may miss it."""


@st.composite
def deployments(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings of a deployment, and what is changed in them."""
    model = draw(st.sampled_from(sorted(MODELS)))
    sizes = st.sampled_from(MODELS[model])
    names = draw(st.lists(st.sampled_from(sorted(FREE)), max_size=4, unique=True))
    first = {"model": model, "tensor_parallel_size": draw(sizes)} | {name: draw(FREE[name]) for name in names}
    changed = draw(
        st.lists(st.sampled_from(["tensor_parallel_size", *sorted(CHANGED)]), min_size=1, max_size=3, unique=True)
    )
    change = {name: draw(sizes if name == "tensor_parallel_size" else CHANGED[name]) for name in changed}
    if draw(st.integers(0, 5)) == 0:
        other = draw(st.sampled_from(sorted(MODELS)))
        change |= {"model": other, "tensor_parallel_size": draw(st.sampled_from(MODELS[other]))}
    return first, change


def words(chosen: dict[str, Any]) -> list[str]:
    """As ``run`` takes them."""
    found = []
    for name, value in chosen.items():
        flag = name.replace("_", "-")
        if not isinstance(value, bool):
            found += [f"--{flag}", str(value)]
        elif value or flag == "async-scheduling":
            found.append(f"--{flag}" if value else f"--no-{flag}")
    return found


def settings_of(change: dict[str, Any]) -> str:
    """As ``whatif --set`` takes them."""
    return ",".join(f"{name}={str(value).lower()}" for name, value in change.items())


@settings(
    max_examples=examples(15),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
@given(deployments())
def test_an_answer_is_what_a_run_of_that_deployment_reports(
    tmp_path_factory: pytest.TempPathFactory, pair: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    first, change = pair
    folder = tmp_path_factory.mktemp("pair")
    assume(call("run", *ASKED, *words(first), "--trace", "trace", cwd=folder).code == 0)
    happened = call("run", *ASKED, *words(first | change), "--json", cwd=folder)
    told = call("whatif", "trace", "--set", settings_of(change), "--json", cwd=folder)
    note(f"{first} -> {change}\n{told.stderr}{happened.stderr}")
    assert told.code == happened.code, "what vLLM would not start with is refused by both"
    if told.code:
        return
    answer, report = json.loads(told.stdout), json.loads(happened.stdout)
    errors = {each["name"]: each["error"] for each in answer["self_check"]["checks"]}
    (variant,) = answer["variants"]
    then = {each["name"]: each["variant"] for each in variant["figures"]}
    for name in FIGURES:
        error, figure = errors[f"{name}.mean"], report[name]["mean"]
        assert error is None or abs(error) <= ALIKE or name == "queue_ms", f"{name}: the trace's own replay is off"
        assert then[f"{name}.mean"] == pytest.approx(figure, rel=2 * ALIKE, abs=NOTHING), name
