"""The calibrated step times: physics that any constants must obey, factors, and what is said of the error."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tokenyard.errors import ConfigError
from tokenyard.models.additions import draft_head
from tokenyard.models.gpus import named_gpu
from tokenyard.models.named import named_model
from tokenyard.models.spec import ModelSpec
from tokenyard.questions.accuracy.deployments import measured_model
from tokenyard.steptime.calibrated import CalibratedLatency, Drafting, columns_of
from tokenyard.steptime.constants import Constants, model_key, shipped_constants
from tokenyard.steptime.formula import Parallelism, StepFormula, work_counts
from tokenyard.steptime.load import load_latency
from tokenyard.steptime.model import StepShape, StepWork

LLAMA = named_model("llama-3.1-8b")
H100 = named_gpu("h100")


def step(decodes: int = 0, context: int = 1000, prompt: int = 0, before: int = 0) -> StepShape:
    prompts = [prompt] if prompt else []
    new = np.array([1] * decodes + prompts, np.int64)
    computed = np.array([context] * decodes + [before] * len(prompts), np.int64)
    return StepShape(new, computed, len(new), int(new.sum()))


def seconds(spec: ModelSpec, shape: StepShape, *, gpu: str = "h100", **split: object) -> float:
    """Seconds of a step, with the constants common to all, so that factors do not blur what is compared."""
    plain = Constants({**shipped_constants().data, "gpus": {}, "models": {}, "versions": {}})
    parallel = Parallelism(**split)  # type: ignore[arg-type]
    return CalibratedLatency(spec, named_gpu(gpu), parallel=parallel, constants=plain).step_seconds(shape)


def test_numbers_and_arrays_give_the_same() -> None:
    formula = StepFormula(work_counts(LLAMA, Parallelism()), H100, Parallelism(), shipped_constants().of(LLAMA, H100))
    works = [
        StepWork.of(shape) for shape in (step(8), step(300, 70), step(5, prompt=600), step(prompt=3000, before=50))
    ]
    columns = columns_of(np.array(works, np.float64))
    one_by_one = [formula.seconds(work, work.num_tokens) for work in works]
    assert formula.seconds(columns, columns.num_tokens) == pytest.approx(one_by_one)


def test_more_work_takes_longer() -> None:
    base = seconds(LLAMA, step(32))
    assert base < seconds(LLAMA, step(64))
    assert base < seconds(LLAMA, step(32, context=8000))
    assert base < seconds(LLAMA, step(32, prompt=512))
    assert seconds(LLAMA, step(prompt=4000)) < seconds(LLAMA, step(prompt=4000, before=20_000))


def test_matrices_that_every_gpu_holds_whole_are_read_as_well() -> None:
    """As ``tokenyard describe`` finds them in models that vLLM runs by the code of transformers."""
    matrices = 3 * LLAMA.hidden_size * 14_336
    layers = tuple(replace(layer, mlp=None, norm_parameters=matrices) for layer in LLAMA.layers)
    whole = replace(LLAMA, layers=layers)
    assert seconds(whole, step(8)) == pytest.approx(seconds(LLAMA, step(8)), rel=0.05)  # its MLP's kernels are not told
    assert seconds(whole, step(8), tensor=2) > 1.2 * seconds(LLAMA, step(8), tensor=2)


def test_memory_bound_decodes_read_all_weights_once() -> None:
    """8 decodes of a dense model: the weights over the memory's bandwidth, with something on top."""
    least = LLAMA.weight_bytes() / H100.memory_bandwidth
    assert least < seconds(LLAMA, step(8)) < 2 * least


def test_fewer_bits_are_read_faster() -> None:
    sixteen, eight, four = (measured_model("Llama-3.1-70B", precision) for precision in ("", "fp8", "fp4"))
    times = [seconds(spec, step(8), gpu="b200") for spec in (sixteen, eight, four)]
    assert times[0] > times[1] > times[2]
    assert seconds(eight, step(prompt=8000), gpu="b200") < 0.75 * seconds(sixteen, step(prompt=8000), gpu="b200")


def test_a_gpu_without_units_for_a_format_gains_no_arithmetic() -> None:
    fp8, plain = measured_model("Llama-3.1-70B", "fp8"), measured_model("Llama-3.1-70B", "")
    a100 = [seconds(spec, step(prompt=8000), gpu="a100-80gb") for spec in (fp8, plain)]
    assert a100[0] == pytest.approx(a100[1], rel=0.1)


def test_few_tokens_touch_few_experts() -> None:
    """One token of Qwen3-30B-A3B reads 8 of 128 experts, many tokens read all."""
    spec = named_model("qwen3-30b-a3b")
    one, many = (seconds(spec, step(n, context=1)) for n in (1, 256))
    experts = 48 * 128 * 3 * 2048 * 768 * 2 / H100.memory_bandwidth
    assert many - one > 0.8 * experts
    assert one < 0.5 * many


def test_windows_bound_what_decodes_read() -> None:
    spec = measured_model("gpt-oss-120b", "fp4")
    full = replace(spec, layers=tuple(layer for layer in spec.layers if not layer.mixers[0].window) * 2)  # type: ignore[union-attr]

    def growth(which: ModelSpec) -> float:
        return seconds(which, step(64, context=16_000)) - seconds(which, step(64, context=1000))

    assert growth(spec) == pytest.approx(growth(full) / 2, rel=0.02)


def test_latent_attention_reads_one_vector_for_all_heads() -> None:
    kimi = measured_model("Kimi-K2.5", "int4")
    one, eight = (work_counts(kimi, Parallelism(tensor=tp)).attention[0] for tp in (1, 8))
    assert one.kv_bytes == eight.kv_bytes == 576 * 2
    assert eight.decode_flops == one.decode_flops, "kernels compute a tile of 64 heads"
    assert eight.pair_flops == one.pair_flops / 8
    assert work_counts(kimi, Parallelism(), "fp8").attention[0].kv_bytes == 576


@pytest.mark.parametrize("name", ["deepseek-v3.2", "glm-5.2", "deepseek-v4-flash"])
def test_indexers_read_every_key_on_every_gpu(name: str) -> None:
    """They pick a few tokens out of all: what they read grows with the context, and no GPU has less of it."""
    for tp in (1, 8):
        parts = work_counts(named_model(name), Parallelism(tensor=tp)).attention
        indexing = [each for each in parts if each.indexes]
        assert [(each.kv_bytes, each.pair_flops, each.window) for each in indexing] == [
            (each.kv_bytes, each.pair_flops, 0)
            for each in work_counts(named_model(name), Parallelism()).attention
            if each.indexes
        ]
        assert indexing
        assert all(each.window or each.indexes or each.kv_bytes < 16 for each in parts)


def test_a_layer_without_an_indexer_attends_to_what_an_earlier_one_picked() -> None:
    counted = work_counts(named_model("glm-5.2"), Parallelism(tensor=8)).attention
    assert {each.window for each in counted if not each.indexes} == {2048}
    assert sum(each.layers for each in counted if each.indexes) < named_model("glm-5.2").num_layers


def test_long_contexts_of_sparse_attention_cost_their_indexers() -> None:
    """Timings of vLLM 0.24 on an H200 (aiconfigurator-core, Apache-2.0): from 8,192 to 131,072 tokens before each of 64
    requests a layer of DeepSeek V3.2 takes 305 us longer; a prompt of 32,768 tokens takes a layer 34 ms, however many
    GPUs share its heads.
    """
    spec = named_model("deepseek-v3.2")
    short, long = (seconds(spec, step(64, context=each), gpu="h200", tensor=8) for each in (8192, 131_072))
    assert (long - short) / spec.num_layers == pytest.approx(305e-6, rel=0.2)
    latency = CalibratedLatency(spec, named_gpu("h200"), parallel=Parallelism(tensor=16, gpus_per_machine=16))
    attention = latency.terms(latency.work_of(step(prompt=32_768)))["attention"]
    assert attention / spec.num_layers == pytest.approx(33e-3, rel=0.25)


def test_what_every_gpu_holds_whole_is_read_by_every_gpu() -> None:
    """Compressors of DeepSeek V4, and what joins token and hidden state before a head that drafts."""
    flash = named_model("deepseek-v4-flash")
    whole = sum(mixer.extra_parameters for layer in flash.layers for mixer in layer.mixers)
    plain = [
        sum(each.parameters for each in work_counts(flash, Parallelism(tensor=tp)).linear if each.weights.bits == 16)
        for tp in (1, 8)
    ]
    assert min(plain) > 0.9 * whole
    head = draft_head(LLAMA)
    one, four = (sum(each.parameters for each in work_counts(head, Parallelism(tensor=tp)).linear) for tp in (1, 4))
    joins = head.layers[0].norm_parameters
    assert joins > 2 * LLAMA.hidden_size**2
    assert four - joins == (one - joins) / 4


def test_tensor_parallelism_pays_for_its_link() -> None:
    one = seconds(LLAMA, step(64))
    nvlink, pcie = (seconds(LLAMA, step(64), gpu=gpu, tensor=2) for gpu in ("h100", "rtxpro6000"))
    assert nvlink < one
    assert pcie - nvlink > 2 * 32 * 30e-6, "two all-reduces per layer, each with PCIe's latency"
    slow = seconds(LLAMA, step(prompt=4000), gpu="rtxpro6000", tensor=2)
    moved = 2 * 32 * 4000 * 4096 * 2 / named_gpu("rtxpro6000").link_bandwidth
    assert slow > seconds(LLAMA, step(prompt=4000), gpu="rtxpro6000") / 2 + moved


def test_pipeline_stages_have_their_share() -> None:
    whole = seconds(LLAMA, step(64))
    assert whole < seconds(LLAMA, step(64), pipeline=2) < 1.1 * whole, "of all stages together, with what they send"
    with pytest.raises(ConfigError, match="pipeline_parallel_size"):
        seconds(LLAMA, step(64), pipeline=33)


def test_data_parallel_ranks_of_experts_wait_for_each_other() -> None:
    spec, parallel = named_model("qwen3-30b-a3b"), Parallelism(data=2, expert=True)
    latency = CalibratedLatency(spec, named_gpu("rtxpro6000"), parallel=parallel)
    both = latency.ranks_seconds([step(16), step(16)])
    assert both == pytest.approx(latency.step_seconds(step(16)))
    assert latency.ranks_seconds([step(16), None]) < both < latency.ranks_seconds([step(16), step(16, prompt=1500)])
    rows = np.array([[StepWork.of(step(16)), StepWork.of(step(16))]], np.float64)
    assert latency.rows_seconds(rows)[0] == pytest.approx(both - latency.host_seconds)


def test_a_short_prompt_cannot_be_faster_than_its_launches() -> None:
    latency = CalibratedLatency(LLAMA, H100, capture_size=0)
    graphs = CalibratedLatency(LLAMA, H100, capture_size=2048)
    assert latency.step_seconds(step(prompt=64)) > graphs.step_seconds(step(prompt=64))
    assert latency.step_seconds(step(64)) == graphs.step_seconds(step(64))


def test_drafts_cost_drafting_and_verifying() -> None:
    plain = CalibratedLatency(LLAMA, H100)
    ngram = CalibratedLatency(LLAMA, H100, drafting=Drafting(spec=None, num_speculative_tokens=3))
    small = Drafting(spec=named_model("llama-3.2-1b"), num_speculative_tokens=3)
    drafted = CalibratedLatency(LLAMA, H100, drafting=small)
    new, computed = np.full(16, 4, np.int64), np.full(16, 1000, np.int64)
    verifying = StepShape(new, computed, 16, 64)
    assert plain.step_seconds(step(16)) < ngram.step_seconds(verifying) < 1.5 * plain.step_seconds(step(16))
    weights = named_model("llama-3.2-1b").weight_bytes() / H100.memory_bandwidth
    assert drafted.step_seconds(verifying) > ngram.step_seconds(verifying) + 3 * weights


def test_adapters_cost_launches() -> None:
    plain, lora = (CalibratedLatency(LLAMA, H100, lora=lora).step_seconds(step(8)) for lora in (False, True))
    assert lora - plain == pytest.approx(32 * 8 * 4e-6)


def test_models_of_one_shape_and_format_share_their_factors() -> None:
    assert model_key(measured_model("meta-llama/Llama-3.1-70B", "fp8")) == "80x8192:8q"
    assert model_key(measured_model("moonshotai/Kimi-K2.5", "int4")) == "61x7168x384:4"
    assert model_key(measured_model("openai/gpt-oss-120b", "fp4")) == "36x2880x128:mxfp4"
    assert model_key(LLAMA) == "32x4096:16"


def test_every_factor_has_a_constant_or_a_group() -> None:
    constants = shipped_constants()
    for gpu in ("h100", "b200", "a10", "rtxpro6000"):
        values = constants.of(LLAMA, named_gpu(gpu))
        assert values.pop("network") == named_gpu(gpu).network_bandwidth
        assert values.pop("layer") == 0.0, "what adapters add"
        assert all(0 < value < 1e3 for value in values.values())
    measured = measured_model("MiniMaxAI/MiniMax-M2.5", "fp8")
    old, new = (constants.of(measured, named_gpu("h200"), version) for version in ("0.16.0", None))
    assert old != new


def test_a_model_of_the_catalogue_can_be_a_point() -> None:
    assert measured_model("deepseek-ai/DeepSeek-R1", "fp8").num_experts == 256
    with pytest.raises(ConfigError, match="precision"):
        measured_model("deepseek-ai/DeepSeek-R1", "fp4")
    with pytest.raises(ConfigError, match="model_path"):
        measured_model("/etc", "")


def test_the_command_lines_default_is_by_name() -> None:
    latency = load_latency("calibrated", model="llama-3.1-8b", gpu="h100", tensor_parallel_size=2)
    assert isinstance(latency, CalibratedLatency)
    with pytest.raises(ConfigError, match="gpu"):
        load_latency("calibrated", model="llama-3.1-8b")
    with pytest.raises(ConfigError, match="tensor_parallel_size"):
        load_latency("calibrated", model="llama-3.1-8b", gpu="h100", tensor_parallel_size=5)


def test_a_slow_host_takes_longer_to_launch_and_to_answer() -> None:
    """Steps that decode from graphs wait for nothing but what is not hidden; those with prompts for their launches."""
    usual, slow = (CalibratedLatency(LLAMA, H100, host_speed=speed, capture_size=0) for speed in (1.0, 0.5))
    assert slow.front_end.request == pytest.approx(2 * usual.front_end.request)
    assert slow.step_seconds(step(16)) - usual.step_seconds(step(16)) == pytest.approx(usual.host_seconds)
    assert slow.step_seconds(step(prompt=16)) > 1.5 * usual.step_seconds(step(prompt=16))
    assert any(gap.what == "a host of another speed" for gap in slow.known_error().gaps)
    with pytest.raises(ConfigError, match="host_speed"):
        CalibratedLatency(LLAMA, H100, host_speed=0.0)
