"""How many blocks fit: against the formula, a measured run, and everything that cannot work."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.decoders import uniform_decoder
from tests.support.kv_size import size_kv_cache

from tokenyard.deploy.vllm_serve.start_checks import cuts_prompts
from tokenyard.errors import ConfigError
from tokenyard.memory.kv_plan import plan_kv_cache
from tokenyard.memory.room import activation_bytes, num_graphs, sizes_up_to, step_memory
from tokenyard.models.gpus import GPUS, named_gpu
from tokenyard.models.named import MODELS, named_model
from tokenyard.models.spec import ModelSpec

LLAMA = named_model("llama-3.1-8b")


def test_bytes_per_block_follow_the_shape() -> None:
    size = size_kv_cache(LLAMA, named_gpu("h100"))
    assert size.bytes_per_block == 2 * 32 * 8 * 128 * 2 * 16 == 2 << 20


def test_blocks_fill_what_weights_and_activations_leave() -> None:
    size = size_kv_cache(LLAMA, named_gpu("a100-80gb"), gpu_memory_utilization=0.85, block_size=32)
    left = size.memory_bytes - size.weight_bytes - size.activation_bytes
    assert size.kv_bytes <= left < size.kv_bytes + size.bytes_per_block
    assert size.bytes_per_block == 4 << 20


def test_a_measured_run_is_met() -> None:
    """Measured with vLLM 0.19: Llama-3.1-8B on an RTX 4090, budget 2,048, 256 sequences: 2,588 blocks of 16."""
    size = size_kv_cache(LLAMA, named_gpu("rtx4090"), max_num_batched_tokens=2048, max_num_seqs=256)
    assert abs(size.num_blocks - 2588) <= 0.06 * 2588, "vLLM 0.19 does not subtract graphs, which are counted here"


def test_a_documented_a100_is_met() -> None:
    """10,318 blocks on an A100-40GB with a budget of 2,048 and 100 sequences."""
    size = size_kv_cache(LLAMA, named_gpu("a100-40gb"), max_num_batched_tokens=2048, max_num_seqs=100)
    assert abs(size.num_blocks - 10_318) <= 0.02 * 10_318


def test_the_highest_moment_of_a_step_counts() -> None:
    """Activations are let go before logits are made: a larger batch costs nothing as long as a prompt needs more."""

    def parts(**limits: int) -> dict[str, int]:
        found = step_memory(LLAMA, named_gpu("h100"), **limits)  # type: ignore[arg-type]
        return {each.name: each.likely for each in found.parts}

    prompts = parts(max_num_batched_tokens=32_768, max_num_seqs=64)
    assert prompts["sampler"] == 0
    batch = parts(max_num_batched_tokens=2048, max_num_seqs=1024)
    logits = 18 * 1024 * LLAMA.vocab_size + 2 * 2048 * LLAMA.hidden_size
    assert batch["activations"] + batch["sampler"] == logits


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("llama-3.1-8b", 8.03),
        ("llama-3.1-70b", 70.55),
        ("llama-3.2-1b", 1.24),
        ("mistral-7b", 7.25),
        ("mixtral-8x7b", 46.7),
        ("qwen2.5-7b", 7.62),
        ("qwen3-32b", 32.8),
        ("qwen3-30b-a3b", 30.5),
    ],
)
def test_parameter_counts_are_the_published_ones(name: str, billions: float) -> None:
    assert named_model(name).num_parameters / 1e9 == pytest.approx(billions, rel=0.005)


def test_active_parameters_of_a_mixture_of_experts() -> None:
    """Qwen3-30B-A3B: 3.3 billion active, of which 2 x 0.31 are embedding and head."""
    model = named_model("qwen3-30b-a3b")
    assert (model.num_active_parameters + 2 * model.head_parameters) / 1e9 == pytest.approx(3.35, rel=0.02)


def test_tensor_parallel_shares_weights_and_heads() -> None:
    model = named_model("llama-3.1-70b")
    one, eight = model.kv_bytes_per_token(1), model.kv_bytes_per_token(8)
    assert one == 8 * eight
    assert model.kv_bytes_per_token(16) == eight
    shared = size_kv_cache(model, named_gpu("h100"), tensor_parallel_size=4).weight_bytes
    norms = (2 * model.num_layers + 1) * model.hidden_size * 2
    assert shared - norms == (model.weight_bytes() - norms) // 4


def test_fp8_cache_doubles_the_blocks() -> None:
    half = size_kv_cache(LLAMA, named_gpu("h200"))
    byte = size_kv_cache(LLAMA, named_gpu("h200"), kv_cache_dtype="fp8")
    assert byte.bytes_per_block * 2 == half.bytes_per_block
    assert byte.num_blocks in (2 * half.num_blocks, 2 * half.num_blocks + 1)


@given(st.sampled_from(sorted(MODELS)), st.sampled_from(sorted(GPUS)), st.floats(0.5, 0.9), st.sampled_from([1, 2]))
def test_more_memory_never_means_fewer_blocks(model: str, gpu: str, share: float, tensor_parallel_size: int) -> None:
    def blocks(utilization: float) -> int:
        try:
            return size_kv_cache(
                named_model(model),
                named_gpu(gpu),
                gpu_memory_utilization=utilization,
                tensor_parallel_size=tensor_parallel_size,
            ).num_blocks
        except ConfigError:
            return 0

    assert blocks(share) <= blocks(share + 0.1)


def test_activations_grow_with_budget_and_sequences() -> None:
    small = activation_bytes(LLAMA, max_num_batched_tokens=2048, max_num_seqs=64)
    assert activation_bytes(LLAMA, max_num_batched_tokens=8192, max_num_seqs=64) > small
    assert activation_bytes(LLAMA, max_num_batched_tokens=2048, max_num_seqs=256) > small
    assert activation_bytes(LLAMA, max_num_batched_tokens=2048, max_num_seqs=64, tensor_parallel_size=2) < small


def test_weights_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"llama-3.1-70b needs 141.1 GB for weights.*tensor_parallel_size"):
        size_kv_cache(named_model("llama-3.1-70b"), named_gpu("h100"))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("gpu_memory_utilization", 0),
        ("gpu_memory_utilization", 1.01),
        ("gpu_memory_utilization", True),
        ("gpu_memory_utilization", "0.9"),
        ("block_size", 0),
        ("max_num_batched_tokens", -1),
        ("max_num_seqs", 2**40),
        ("tensor_parallel_size", 3),
        ("tensor_parallel_size", 0),
        ("kv_cache_dtype", "int3"),
    ],
)
def test_arguments_out_of_range_are_named(field: str, value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        size_kv_cache(LLAMA, named_gpu("h100"), **{field: value})  # type: ignore[arg-type]
    assert caught.value.field == field


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"gpu = 'h1000'.*a100-40gb.*h100"):
        named_gpu("h1000")
    with pytest.raises(ConfigError, match=r"model = 'llama'.*for example .*llama"):
        named_model("llama")
    assert named_gpu("A100_40GB") is named_gpu("a100-40gb")
    assert named_model("Qwen3-32B") is MODELS["qwen3-32b"]


def test_heads_that_cannot_be_grouped_are_refused() -> None:
    with pytest.raises(ConfigError, match="num_kv_heads"):
        uniform_decoder(
            name="x",
            num_layers=1,
            hidden_size=8,
            num_heads=3,
            num_kv_heads=2,
            head_size=4,
            intermediate_size=8,
            vocab_size=8,
            max_model_len=8,
        )


@pytest.mark.slow
def test_every_named_model_has_a_plan_on_some_gpus() -> None:
    """On as few GPUs of 178 GiB as hold its weights; vLLM would start with 448 tokens per request."""
    wrong = []
    for name, model in MODELS.items():
        if not plan_kv_cache(model, num_gpu_blocks=2, must_start=False).groups:
            assert not cuts_prompts(model), "only a model that reads a prompt as a whole keeps nothing of it"
            continue
        sizes = [size for size in (1, 2, 4, 8, 16) if all(heads % size == 0 for heads in _heads(model))]
        fitting = next((size for size in sizes if model.weight_bytes(size) < 150e9), None)
        if fitting is None:
            wrong.append(f"{name} needs more GPUs than its heads can be shared out over")
            continue
        gpu = named_gpu("b200")
        size = size_kv_cache(model, gpu, tensor_parallel_size=fitting, must_start=True, max_model_len=448)
        if size.num_blocks <= 20 or size.kv_bytes > size.memory_bytes - size.weight_bytes - size.activation_bytes:
            wrong.append(f"{name}: {size}")
    assert not wrong, "\n".join(wrong)


def _heads(model: ModelSpec) -> set[int]:
    mixers = (mixer for layer in model.layers for mixer in layer.mixers)
    return {heads for mixer in mixers if (heads := getattr(mixer, "num_heads", None))}


def test_named_gpus_have_sane_figures() -> None:
    for gpu in GPUS.values():
        assert gpu.link_bandwidth >= gpu.pcie_bandwidth or gpu.gpus_per_machine == 1
        assert gpu.memory_bandwidth < gpu.bf16_flops
        assert 9 << 30 < gpu.memory_bytes < 300 << 30
        assert gpu.source


def test_graphs_are_captured_in_steps_of_eight_then_of_sixteen() -> None:
    """As vLLM logs them: PIECEWISE=51 and FULL=35 with 256 sequences, 35 and 19 with 128."""
    assert num_graphs(sizes_up_to(512), 256) == 51 + 35
    assert num_graphs(sizes_up_to(256), 128) == 35 + 19
    assert num_graphs((), 128) == 0


def test_a_step_needs_more_on_several_gpus_and_with_graphs_of_experts() -> None:
    limits: dict[str, Any] = {"max_num_batched_tokens": 2048, "max_num_seqs": 256}
    experts = named_model("qwen3-30b-a3b")
    one = step_memory(experts, named_gpu("h100"), **limits)
    graphs = step_memory(experts, named_gpu("h100"), cudagraph_capture_sizes=sizes_up_to(512), **limits)
    assert graphs.likely - one.likely == 600_000 * 86 * 48
    assert one.most > one.likely
    nvlink, pcie = (step_memory(LLAMA, named_gpu(gpu), tensor_parallel_size=2, **limits) for gpu in ("h100", "l40s"))
    assert nvlink.likely - pcie.likely == 1_300_000_000
