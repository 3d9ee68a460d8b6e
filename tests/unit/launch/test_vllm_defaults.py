"""What vLLM does where no flag says, and what it refuses: facts found by `make differential-config`."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from tokenyard.cli.support.asking import scenario_of
from tokenyard.cli.support.flags.replays import RunCommand
from tokenyard.cli.support.parsing import parse
from tokenyard.deploy.spec import ReplaySpec
from tokenyard.deploy.vllm_serve.given import read_words, spelled_out
from tokenyard.errors import ConfigError, NoStartError, NotModelledError
from tokenyard.models.named import config_called
from tokenyard.questions.scenario import replay_spec

NGRAM = """--speculative-config '{"method": "ngram", "num_speculative_tokens": 2}'"""
DRAFT = """--speculative-config '{"method": "draft_model", "model": "m", "num_speculative_tokens": 4}'"""
FITS = "--kv-cache-memory-bytes 64G"


def setup(line: str, *words: str, version: str = "0.33", gpu: str = "h100") -> ReplaySpec:
    before, serve, after = line.partition("vllm serve")
    text = f"{before}{serve}{after} {FITS}"
    command = parse(["run", "random", "--limit", "1", "--serve", text, "--gpu", gpu, "--vllm-version", version, *words])
    assert isinstance(command, RunCommand)
    return replay_spec(scenario_of(command))


@pytest.mark.parametrize(
    ("line", "version", "ahead"),
    [
        ("vllm serve llama-3.1-8b --distributed-executor-backend ray", "0.33", True),
        ("vllm serve llama-3.1-8b --distributed-executor-backend ray", "0.22", True),
        (
            "VLLM_USE_RAY_V2_EXECUTOR_BACKEND=0 vllm serve llama-3.1-8b --distributed-executor-backend ray",
            "0.22",
            False,
        ),
        (f"vllm serve llama-3.1-8b {NGRAM}", "0.33", True),
        (f"vllm serve llama-3.1-8b {NGRAM}", "0.22", False),
        (f"VLLM_USE_V2_MODEL_RUNNER=0 vllm serve llama-3.1-8b {NGRAM}", "0.33", False),
        (f"vllm serve llama-3.1-8b {DRAFT}", "0.33", True),
        (f"vllm serve llama-3.1-8b {DRAFT}", "0.22", False),
        ("VLLM_USE_V2_MODEL_RUNNER=0 vllm serve llama-3.1-8b -pp 2", "0.33", False),
        ("vllm serve llama-3.1-8b -pp 2 --distributed-executor-backend external_launcher", "0.33", False),
    ],
)
def test_steps_are_scheduled_ahead_as_vllm_does(line: str, version: str, ahead: bool) -> None:
    assert setup(line, version=version).scheduler.async_scheduling is ahead


def test_ahead_where_vllm_cannot() -> None:
    with pytest.raises(NoStartError, match="async_scheduling does not go with drafts of method ngram"):
        setup(f"vllm serve llama-3.1-8b --async-scheduling {NGRAM}", version="0.22")


@pytest.mark.parametrize(
    ("line", "gpu", "version", "most"),
    [
        ("vllm serve llama-3.1-8b", "h100", "0.33", 512),
        ("vllm serve llama-3.1-8b", "b200", "0.33", 1024),
        ("vllm serve llama-3.1-8b", "b300", "0.33", 1024),
        ("vllm serve llama-3.1-8b", "b200", "0.22", 512),
        ("vllm serve llama-3.1-8b", "rtx5090", "0.33", 512),
        ("vllm serve gpt-oss-20b", "h100", "0.22", 1024),
        ("vllm serve gpt-oss-20b --max-num-seqs 4", "h100", "0.33", 1024),
        ("vllm serve llama-3.1-8b --max-num-seqs 13", "h100", "0.33", 26),
        ("vllm serve llama-3.1-8b --max-cudagraph-capture-size 100", "h100", "0.33", 96),
        ("vllm serve llama-3.1-8b --enforce-eager", "h100", "0.33", 0),
        ("vllm serve llama-3.1-8b --enforce-eager --cudagraph-capture-sizes 8", "h100", "0.33", 0),
    ],
)
def test_cuda_graphs_go_as_far_as_vllms(line: str, gpu: str, version: str, most: int) -> None:
    sizes = setup(line, gpu=gpu, version=version).settled.cudagraph_capture_sizes
    # With 13 sequences 24 is the last multiple of 8 below 26.
    assert max(sizes, default=0) == (24 if most == 26 else most)
    assert list(sizes) == sorted(set(sizes))


def test_steps_of_decodes_are_captured_whatever_their_size() -> None:
    assert 13 in setup("vllm serve llama-3.1-8b --max-num-seqs 13").settled.cudagraph_capture_sizes
    assert 13 not in setup("vllm serve llama-3.1-8b --max-num-seqs 13", version="0.22").settled.cudagraph_capture_sizes


@pytest.mark.parametrize(("version", "budget"), [("0.22", 8192 - 1024), ("0.33", 8192)])
def test_a_draft_model_takes_of_the_budget_of_0_22(version: str, budget: int) -> None:
    made = setup(f"vllm serve llama-3.1-8b {DRAFT}", version=version)
    assert made.scheduler.max_num_batched_tokens == budget
    assert made.settled.scheduling.max_num_batched_tokens == 8192


@pytest.mark.parametrize(
    ("stored", "refusing"),
    [
        ({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128}, {"0.24", "0.33"}),
        (
            {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]},
            {"0.22", "0.24", "0.33"},
        ),
        ({"num_bits": 4, "type": "int", "strategy": "channel"}, set()),
    ],
)
def test_groups_of_experts_are_not_cut(stored: dict[str, Any], refusing: set[str], tmp_path: Path) -> None:
    groups = {"group_0": {"weights": stored, "targets": ["Linear"]}}
    section = {"quant_method": "compressed-tensors", "config_groups": groups, "ignore": ["lm_head"]}
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**config_called("qwen3-30b-a3b").raw, "quantization_config": section}))
    for version in ("0.22", "0.24", "0.33"):
        line = f"vllm serve {file} -tp 4"
        setup(f"{line} --enable-expert-parallel", version=version)
        if version not in refusing:
            setup(line, version=version)
            continue
        with pytest.raises(NoStartError, match="192 columns of each expert on each of 4 GPUs"):
            setup(line, version=version)


def test_batched_experts_lower_the_limits() -> None:
    line = "vllm serve qwen3-30b-a3b -dp 4 --enable-expert-parallel --all2all-backend deepep_low_latency"
    made = setup(line, "--ignore-unmodelled")
    assert (made.settled.scheduling.max_num_batched_tokens, made.settled.scheduling.max_num_seqs) == (256, 256)
    given = setup(f"{line} --max-num-batched-tokens 4096", "--ignore-unmodelled").settled.scheduling
    assert (given.max_num_batched_tokens, given.max_num_seqs) == (4096, 1024)


@pytest.mark.parametrize(
    ("line", "version", "problem"),
    [
        ("vllm serve qwen3-235b-a22b-fp8 -tp 8", "0.22", "192 columns of each expert on each of 8 GPUs"),
        ("vllm serve llama-3.1-8b --enable-expert-parallel", "0.33", "has no experts"),
        ("vllm serve llama-3.1-8b -pp 2 --distributed-executor-backend uni", "0.33", "runs no pipeline"),
        ("vllm serve llama-3.1-8b --kv-cache-dtype float16", "0.33", "does not go with dtype = 'bfloat16'"),
        ("vllm serve deepseek-v3 -tp 8 --kv-cache-dtype nvfp4", "0.33", "not for latent attention"),
        ("vllm serve gemma-2-9b --dtype half", "0.33", "dtype = 'float16' is not for gemma-2-9b"),
        ("vllm serve llama-3.1-8b-bnb-4bit", "0.33", "has no quantization bitsandbytes"),
        (
            "vllm serve jamba-1.5-mini --no-enable-chunked-prefill",
            "0.33",
            "needs chunked prefill",
        ),
        ("vllm serve llama-3.1-8b --enable-lora --max-loras 4 --max-cpu-loras 1", "0.33", "max_cpu_loras = 1 is less"),
        (
            f"vllm serve llama-3.1-8b --enable-lora --max-num-seqs 1024 --max-num-batched-tokens 3071 {NGRAM}",
            "0.33",
            "is less than the 3072 that max_num_seqs = 1024 requests may verify",
        ),
        (
            f"vllm serve llama-3.1-8b --enable-lora --max-num-seqs 1024 --max-num-batched-tokens 3071 {NGRAM}",
            "0.22",
            "is less than the 3072 that max_num_seqs = 1024 requests may verify",
        ),
        ("vllm serve llama-3.1-8b -dp 2 -dpl 4", "0.33", "data_parallel_size_local = 4 is more"),
        ("vllm serve llama-3.1-8b --ray-workers-use-nsight", "0.33", "needs one of: --distributed-executor-backend"),
        (
            """vllm serve llama-3.1-8b --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'""",
            "0.33",
            "has no layers that predict further",
        ),
        ("vllm serve llama-3.1-8b --spec-tokens 4", "0.22", "4 drafts are requested, and no draft model is named"),
        ("vllm serve llama-3.1-8b --spec-method eagle3 --spec-tokens 2", "0.33", "give speculative_config.model"),
        (
            "vllm serve llama-3.1-8b --max-cudagraph-capture-size 512 --cudagraph-capture-sizes 8 32",
            "0.33",
            "is not the largest of cudagraph_capture_sizes",
        ),
        (
            "vllm serve qwen2.5-vl-7b --mm-shm-cache-max-object-size-mb 2 --language-model-only",
            "0.33",
            "mm_shm_cache_max_object_size_mb = 2 is a limit of the cache in shared memory",
        ),
        (
            "vllm serve gemma-3-4b --mm-shm-cache-max-object-size-mb 2 --mm-processor-cache-type lru",
            "0.22",
            "give --mm-processor-cache-type shm",
        ),
    ],
)
def test_what_vllm_refuses(line: str, version: str, problem: str) -> None:
    with pytest.raises(NoStartError, match=problem):
        setup(line, version=version)


@pytest.mark.parametrize(
    ("config", "model", "is_counted"),
    [
        ({"method": "mtp", "model": "google/gemma-4-26B-A4B-it-assistant"}, "gemma-4-26b-a4b", False),
        ({"method": "mtp", "model": "qwen3-0.6b"}, "llama-3.1-8b", True),
        ({"model": "Qwen/Qwen3-0.6B"}, "llama-3.1-8b", True),
    ],
)
def test_a_model_of_its_own_that_drafts_is_counted_where_it_is_known(
    config: dict[str, str], model: str, is_counted: bool
) -> None:
    """vLLM starts a model that predicts nothing itself with `method: mtp` and the model that does."""
    text = json.dumps(config | {"num_speculative_tokens": 2})
    line = f"vllm serve {model} --speculative-config '{text}'"
    drafted, plain = (setup(each, version="0.29").deployment for each in (line, f"vllm serve {model}"))
    assert ((drafted.weight_gib or 0) > (plain.weight_gib or 0)) == is_counted
    assert any("count as nothing" in each for each in drafted.ignored) == (not is_counted)


def test_nemotron_h_counts_experts_that_it_has_not() -> None:
    assert setup("vllm serve nemotron-h-8b --enable-expert-parallel").settled.parallel.enable_expert_parallel


def test_drafts_of_all_requests_need_room_beside_adapters_alone() -> None:
    line = f"vllm serve llama-3.1-8b --max-num-seqs 1024 --max-num-batched-tokens 3071 {NGRAM}"
    assert setup(line).settled.scheduling.max_num_seqs == 1024
    assert setup(f"{line.replace('3071', '3072')} --enable-lora").settled.scheduling.max_num_seqs == 1024


@pytest.mark.parametrize(
    "line",
    [
        "vllm serve qwen2.5-vl-7b --mm-shm-cache-max-object-size-mb 2 --mm-processor-cache-type shm",
        "vllm serve qwen2.5-vl-7b --mm-shm-cache-max-object-size-mb 128",
        "vllm serve llama-3.1-8b --mm-shm-cache-max-object-size-mb 2",
    ],
)
def test_a_limit_of_shared_memory_goes_with_it_and_with_text_models(line: str) -> None:
    assert setup(line).settled.scheduling.max_num_seqs == 1024


def test_0_33_makes_smaller_blocks_of_experts() -> None:
    assert setup("vllm serve qwen3-235b-a22b-fp8 -tp 8").settled.hardware.tensor_parallel_size == 8
    whole = setup("vllm serve qwen3-235b-a22b-fp8 -tp 8 --enable-expert-parallel", version="0.22")
    assert whole.settled.parallel.enable_expert_parallel


@pytest.mark.parametrize(
    ("line", "version", "whole"),
    [
        ("vllm serve gemma-3-27b", "0.33", True),
        ("vllm serve llama-3.1-8b", "0.33", False),
        ("vllm serve gemma-3-27b --language-model-only", "0.22", True),
        ("vllm serve gemma-3-27b --language-model-only", "0.33", False),
        ("vllm serve gemma-3-27b --language-model-only --enable-mm-embeds", "0.33", True),
        ("""vllm serve gemma-3-27b --limit-mm-per-prompt '{"image": 0}'""", "0.33", False),
        ("""vllm serve gemma-3-27b --limit-mm-per-prompt '{"image": 0}'""", "0.22", True),
        ("""vllm serve gemma-3-27b --limit-mm-per-prompt '{"video": 0}'""", "0.33", True),
    ],
)
def test_images_of_gemma_are_never_cut(line: str, version: str, whole: bool) -> None:
    assert setup(line, version=version).scheduler.disable_chunked_mm_input is whole


# ---- values in other words


@pytest.mark.parametrize(
    "words",
    [
        ("--compilation-config", "{}"),
        ("--compilation-config", '{"cudagraph_mode": "FULL_AND_PIECEWISE", "mode": 3}'),
        ("-cc.cudagraph_mode", "FULL_AND_PIECEWISE"),
        ("-O3",),
        ("-O2",),
        ("--optimization-level=3",),
    ],
)
def test_defaults_in_words_change_nothing(words: tuple[str, ...]) -> None:
    plain, said = setup("vllm serve llama-3.1-8b"), setup(f"""vllm serve llama-3.1-8b {" ".join(map(repr, words))}""")
    assert (said.scheduler, said.cache, said.settled.cudagraph_capture_sizes) == (
        plain.scheduler,
        plain.cache,
        plain.settled.cudagraph_capture_sizes,
    )
    assert said.deployment.ignored == []
    assert any("as without it" in each for each in said.deployment.without_effect)


def test_fields_of_the_compilation_config_are_the_flags() -> None:
    made = setup("""vllm serve llama-3.1-8b --compilation-config '{"cudagraph_capture_sizes": [64, 8, 8]}'""")
    assert made.settled.cudagraph_capture_sizes == (8, 64)
    made = setup("vllm serve llama-3.1-8b -cc.max_cudagraph_capture_size 128")
    assert made.settled.capture_size == 128
    with pytest.raises(NoStartError, match="exclude each other"):
        setup("vllm serve m --max-cudagraph-capture-size 8 -cc.max_cudagraph_capture_size 128")
    with pytest.raises(ConfigError, match="give a list of whole numbers"):
        setup("""vllm serve m --compilation-config '{"cudagraph_capture_sizes": "8"}'""")
    with pytest.raises(NotModelledError, match="PIECEWISE"):
        setup("""vllm serve llama-3.1-8b --compilation-config '{"cudagraph_mode": "PIECEWISE", "mode": 3}'""")


def test_what_is_left_of_a_compilation_config_is_named_alone() -> None:
    given = read_words(["--compilation-config", '{"mode": 3, "cudagraph_mode": "NONE"}']).given
    assert [str(each) for each in spelled_out(given)] == ['--compilation-config {"cudagraph_mode": "NONE"}']


@pytest.mark.parametrize("dtype", ["int8_per_token_head", "turboquant_k8v4", "fp8_ds_mla", "octave_k3v3"])
def test_kv_dtypes_of_vllms_are_not_said_to_keep_it_from_starting(dtype: str) -> None:
    with pytest.raises(NotModelledError, match=f"--kv-cache-dtype {dtype}"):
        setup(f"vllm serve llama-3.1-8b --kv-cache-dtype {dtype}")
    passed_over = setup(f"vllm serve llama-3.1-8b --kv-cache-dtype {dtype}", "--ignore-unmodelled")
    assert passed_over.settled.plan.kv_cache_dtype == "bfloat16"
    assert any(dtype in each for each in passed_over.deployment.ignored)


def test_variables_that_are_obeyed_are_named_as_used() -> None:
    made = setup("VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 VLLM_MLA_DISABLE=1 vllm serve llama-3-8b --max-model-len 10000")
    assert made.settled.plan.max_model_len == 10_000
    assert "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1" in made.deployment.used
    assert [each.partition("=")[0] for each in made.deployment.ignored] == ["VLLM_MLA_DISABLE"]


@pytest.mark.parametrize(
    ("model", "limits", "loaded", "noted"),
    [
        ("gemma-3-27b", '{"image": 0}', False, False),
        ("gemma-3-27b", '{"image": 2}', True, False),
        ("gemma-3-27b", '{"image": {"count": 2, "width": 10}}', True, False),
        ("qwen2.5-vl-7b", '{"audio": {"count": 2, "length": 100}}', True, True),
        ("gemma-4-31b", '{"image": 2}', True, False),
        ("qwen2.5-vl-7b", '{"image": 0}', True, False),
        ("qwen2.5-vl-7b", '{"image": 0, "video": 0}', False, False),
        ("qwen2.5-vl-7b", '{"image": {"count": 0, "width": 10}, "video": {"count": 0}}', False, False),
    ],
)
def test_no_images_no_encoder(model: str, limits: str, loaded: bool, noted: bool) -> None:
    made = setup(f"vllm serve {model} --limit-mm-per-prompt '{limits}'")
    assert bool(made.settled.model.encoders) is loaded
    assert any("keeps free for images" in each for each in made.deployment.ignored) is noted


@pytest.mark.parametrize(
    ("version", "overrides", "length"),
    [
        ("0.33", {"max_position_embeddings": 65_536}, 65_536),
        ("0.33", {"rope_theta": 1e6}, 40_960),
        ("0.33", {"rope_parameters": {"rope_type": "linear", "factor": 2.0}}, 81_920),
        (
            "0.22",
            {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768}},
            131_072,
        ),
    ],
)
def test_overrides_of_positions_are_read(version: str, overrides: dict[str, Any], length: int) -> None:
    text = str(overrides).replace("'", '"')
    made = setup(f"vllm serve qwen3-8b --hf-overrides '{text}'", version=version)
    assert made.settled.plan.max_model_len == length


POSITIONS: list[dict[str, Any]] = [
    {"max_position_embeddings": 65_536},
    {"rope_parameters": {"rope_type": "linear", "factor": 2.0}},
    {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768}},
]


@pytest.mark.parametrize("version", ["0.22", "0.33"])
@pytest.mark.parametrize("overrides", POSITIONS)
def test_positions_outside_of_a_decoder_that_is_read_apart_change_nothing(
    overrides: dict[str, Any], version: str
) -> None:
    made = setup(f"vllm serve qwen2.5-vl-7b --hf-overrides '{json.dumps(overrides)}'", version=version)
    assert made.settled.plan.max_model_len == 128_000
    assert not made.deployment.ignored


def test_overrides_that_are_passed_over_are_named_before_a_length_is_refused() -> None:
    line = """vllm serve qwen3-8b --hf-overrides '{"max_seq_len": 99999}' --max-model-len"""
    assert setup(f"{line} 40960", "--ignore-unmodelled").settled.plan.max_model_len == 40_960
    named = '40960 tokens that qwen3-8b was made for, and what is ignored may say otherwise .*"max_seq_len": 99999'
    with pytest.raises(ConfigError, match=named):
        setup(f"{line} 99999", "--ignore-unmodelled")


@pytest.mark.parametrize("model", ["whisper-large-v3", "gpt2", "opt-125m"])
@pytest.mark.parametrize("overrides", POSITIONS)
def test_learned_positions_are_not_overridden(overrides: dict[str, Any], model: str) -> None:
    with pytest.raises(NotModelledError, match="the model is changed"):
        setup(f"vllm serve {model} --hf-overrides '{json.dumps(overrides)}'")


@pytest.mark.parametrize("version", ["0.22", "0.33"])
def test_adapters_of_a_model_that_takes_none(version: str) -> None:
    with pytest.raises(NoStartError, match=f"vLLM {version} takes no adapters for gpt2"):
        setup("vllm serve gpt2 --enable-lora", version=version)


def test_the_length_that_follows_from_memory_is_checked_as_the_model_s_own() -> None:
    line = "vllm serve deepseek-v3.2 --max-model-len -1 --max-num-batched-tokens 4096 --no-enable-chunked-prefill"
    with pytest.raises(NoStartError, match="less than max_model_len = 163840"):
        setup(f"{line} -tp 8 --num-gpu-blocks-override 40", gpu="b200")


def test_an_earlier_value_that_is_not_modelled_is_named() -> None:
    made = setup("vllm serve qwen3-8b --kv-cache-dtype ultraquant_4bit --max-num-seqs 8 --kv-cache-dtype fp8")
    assert any("--kv-cache-dtype ultraquant_4bit: a later value" in each for each in made.deployment.ignored)


def test_other_overrides_are_not() -> None:
    line = """vllm serve qwen3-8b --hf-overrides '{"num_hidden_layers": 8, "rope_theta": 1e6}'"""
    with pytest.raises(NotModelledError, match="num_hidden_layers"):
        setup(line)
    assert any("num_hidden_layers" in each for each in setup(line, "--ignore-unmodelled").deployment.ignored)


def machines(made: ReplaySpec) -> dict[str, str]:
    return {each.name: each.value for each in made.deployment.assumed if each.name == "machines"}


def test_engines_elsewhere() -> None:
    """If engines share experts, those on other machines are reached over a network; others share nothing."""
    assert machines(setup("vllm serve llama-3.1-8b -dp 4 -dpl 2")) == {}
    assert machines(setup("vllm serve qwen3-30b-a3b -dp 4")) == {}
    spread = setup("vllm serve qwen3-30b-a3b -tp 2 -dp 4 -dpl 2 --enable-expert-parallel")
    assert machines(spread) == {"machines": "2 of 4 GPUs"}
    nodes = setup("vllm serve qwen3-30b-a3b -tp 2 -dp 4 --nnodes 2 --enable-expert-parallel")
    one = setup("vllm serve qwen3-30b-a3b -tp 2 -dp 4 -dpl 4 --enable-expert-parallel")
    assert [made.settled.gpus_per_machine for made in (spread, nodes, one)] == [4, 4, 8]
    roofline = setup("vllm serve qwen3-30b-a3b -dp 4 -dpl 2", "--latency", "roofline").deployment.ignored
    assert any("data_parallel_size_local = 2, and all engines count as on one machine" in each for each in roofline)


def deployed(*words: str) -> ReplaySpec:
    command = parse(list(words))
    assert isinstance(command, RunCommand)
    return replay_spec(scenario_of(command))


def kv_memory(made: ReplaySpec) -> list[str]:
    return [str(each.value) for each in made.deployment.assumed if each.name == "KV memory"]


@pytest.mark.parametrize("gpu", ["l4", "h100", "b300"])
@pytest.mark.parametrize("flag", ["--kv-cache-memory-bytes", "--num-gpu-blocks-override"])
def test_kv_that_the_gpu_cannot_hold_is_named(gpu: str, flag: str) -> None:
    estimated = deployed("run", "random", "--gpu", gpu, "--model", "qwen3-8b", "--max-model-len", "8192")
    own = estimated.settled
    per_block = own.plan.bytes_per_block
    room = own.gpu.memory_bytes - own.weight_bytes
    unit = 1 if flag == "--kv-cache-memory-bytes" else per_block
    for asked, is_named in ((room - per_block, False), (room + 2 * per_block, True)):
        line = f"vllm serve Qwen/Qwen3-8B --max-model-len 8192 {flag} {asked // unit}"
        assert bool(kv_memory(deployed("run", "random", "--gpu", gpu, "--serve", line))) is is_named
    assert not kv_memory(estimated)


@pytest.mark.parametrize(
    ("model", "version", "starts"),
    [
        ("qwen3-32b-fp8", "0.33", False),
        ("qwen3-32b-fp8", "0.22", False),
        ("qwen3-30b-a3b --quantization fp8", "0.33", False),
        ("llama-3.1-8b-fp8", "0.22", False),
        ("llama-3.1-8b-fp8", "0.33", True),
        ("llama-3.1-8b-w4a16", "0.33", True),
        ("llama-3.1-70b-fp8-kv -tp 2", "0.33", False),
        ("llama-3.3-70b-nvfp4 -tp 2", "0.33", False),
        ("qwen3-32b-awq", "0.33", True),
        ("qwen3-8b", "0.22", True),
    ],
)
def test_fp8_e5m2_beside_weights_of_fp8(model: str, version: str, starts: bool) -> None:
    line = f"vllm serve {model} --max-model-len 8192 --kv-cache-dtype fp8_e5m2"
    if starts:
        assert setup(line, version=version, gpu="b200").deployment.kv_dtype == "fp8_e5m2"
    else:
        with pytest.raises(NoStartError, match="does not go with weights of"):
            setup(line, version=version, gpu="b200")


def test_a_draft_model_is_said_to_take_nothing() -> None:
    said = [
        each.why for each in setup(f"vllm serve llama-3.1-8b {DRAFT}").deployment.assumed if each.name == "drafting"
    ]
    assert "vLLM has less room for KV, and longer steps" in said[0]
    said = [
        each.why for each in setup(f"vllm serve llama-3.1-8b {NGRAM}").deployment.assumed if each.name == "drafting"
    ]
    assert said == ["drafts take neither time nor memory here"]


@pytest.mark.parametrize(
    ("words", "eager"),
    [
        ("gpt-oss-20b -dp 2 --all2all-backend deepep_high_throughput", True),
        ("gpt-oss-20b --all2all-backend deepep_high_throughput", False),
        ("llama-3.1-8b -dp 2 --all2all-backend deepep_high_throughput", False),
        ("gpt-oss-20b -dp 2 --all2all-backend deepep_low_latency", False),
    ],
)
def test_graphs_are_off_where_experts_are_reached_by_kernels_that_no_graph_takes(words: str, eager: bool) -> None:
    settled = setup(f"vllm serve {words}", "--ignore-unmodelled").settled
    assert (settled.hardware.enforce_eager, not settled.cudagraph_capture_sizes) == (eager, eager)


def test_prefixes_of_an_encoder_decoder_cannot_be_cached() -> None:
    with pytest.raises(ConfigError, match="every request fails"):
        setup("vllm serve whisper-large-v3 --enable-prefix-caching")
    assert not setup("vllm serve whisper-large-v3").settled.scheduling.enable_prefix_caching


SHARED = "vllm serve qwen2.5-vl-7b --mm-tensor-ipc torch_shm"


@pytest.mark.parametrize(
    ("line", "version", "refused"),
    [
        (SHARED, "0.33", "VLLM_WORKER_MULTIPROC_METHOD=spawn"),
        (SHARED, "0.22", None),
        (f"VLLM_WORKER_MULTIPROC_METHOD=spawn {SHARED}", "0.33", None),
        (f"VLLM_WORKER_MULTIPROC_METHOD=spawn {SHARED} -tp 2", "0.33", "is for one GPU, this takes 2"),
        (f"{SHARED} -dp 2", "0.22", "is for one GPU, this takes 2"),
        (SHARED.replace("qwen2.5-vl-7b", "qwen3-8b"), "0.33", None),
    ],
)
def test_images_in_shared_memory(line: str, version: str, refused: str | None) -> None:
    with pytest.raises(NoStartError, match=refused) if refused else contextlib.nullcontext():
        setup(line, "--ignore-unmodelled", version=version)


def test_an_encoder_decoder_runs_in_no_pipeline() -> None:
    with pytest.raises(NoStartError, match="runs in no pipeline"):
        setup("vllm serve whisper-large-v3 -pp 4")


@pytest.mark.parametrize(
    ("words", "version", "is_refused"),
    [
        ("--mm-processor-device cuda", "0.33", True),
        ("""--mm-processor-kwargs '{"device": "cuda:0"}'""", "0.33", True),
        ("--mm-processor-device cpu", "0.33", False),
        ("""--mm-processor-kwargs '{"device": "cuda"}'""", "0.22", False),
    ],
)
def test_images_are_not_read_on_the_gpu_of_the_model(words: str, version: str, is_refused: bool) -> None:
    try:
        setup(f"vllm serve qwen2.5-vl-7b {words}", version=version)
        refused = False
    except NoStartError as error:
        refused = "mm_processor_device" in str(error)
    assert refused == is_refused
