"""``--runner pooling``: what vLLM does otherwise for it, and that a request's result may count as its first token."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.support.planner_answers import recorded
from tests.support.toy_engine import ToyEngine, prompt_of

from tokenyard import Deployment, WorkloadRequest
from tokenyard.core.params import PoolingParams, SamplingParams
from tokenyard.core.profiles import decision_profile
from tokenyard.core.request import Request
from tokenyard.core.sched.outputs import ModelAuxOutput, ModelOutput
from tokenyard.deploy.vllm_serve.start_checks import cuts_prompts
from tokenyard.errors import ConfigError, NoStartError, TokenyardError
from tokenyard.models.reading.read import model_from_config
from tokenyard.models.reading.table import ROWS, only_pools
from tokenyard.workload.record import Workload
from tokenyard.workload.tokens import StreamTokens

POOLING = sorted(filter(only_pools, ROWS))
REGISTRY = recorded(Path(__file__).parents[1] / "models" / "registry.json.gz")["architectures"]
BERT = {
    "architectures": ["BertModel"], "model_type": "bert", "hidden_size": 384, "intermediate_size": 1536,
    "num_hidden_layers": 12, "num_attention_heads": 12, "vocab_size": 30_522, "max_position_embeddings": 512,
    "type_vocab_size": 2, "dtype": "float32",
}  # fmt: skip


def _folder(tmp_path: Path, config: dict[str, Any]) -> str:
    (tmp_path / "config.json").write_text(json.dumps(config))
    return str(tmp_path)


# ---- as vLLM has it


def test_names_that_only_pool_are_those_of_vllms_registry() -> None:
    theirs = {entry["architecture"] for entry in REGISTRY if entry["kind"] == "pooling"}
    assert theirs & {*ROWS} == {*POOLING}


@pytest.mark.parametrize("name", POOLING)
def test_prompts_are_cut_and_prefixes_kept_where_vllm_does(name: str) -> None:
    cases = next(entry["cases"] for entry in REGISTRY if entry["architecture"] == name)
    for case in cases:
        model = model_from_config(case["config"], name=name, where=case["variant"])
        for answer in case["tensor_parallel"]:
            if "error" not in answer:
                assert cuts_prompts(model) == answer["enable_prefix_caching"], case["variant"]
                assert not answer["async_scheduling"]


@pytest.mark.parametrize(("config", "cut"), [(None, True), ("LAST", True), ("MEAN", False), ("CLS", False)])
def test_a_pooler_that_needs_every_token_gets_prompts_whole(config: str | None, *, cut: bool) -> None:
    line = "vllm serve qwen3-0.6b --runner pooling"
    if config is not None:
        line += f" --pooler-config '{json.dumps({'pooling_type': config})}'"
    settled = Deployment.from_serve(line, gpu="h100").resolve().settled
    assert (settled.scheduling.enable_chunked_prefill, settled.plan.enable_prefix_caching) == (cut, cut)
    assert not settled.async_scheduling


def test_a_pooler_config_that_is_no_object_is_an_error() -> None:
    with pytest.raises(ConfigError, match="pooler_config"):
        Deployment.from_serve("vllm serve qwen3-8b --runner pooling --pooler-config MEAN", gpu="h100").resolve()


@pytest.mark.parametrize("words", ["--runner pooling", "--convert embed", "--runner pooling --convert classify"])
def test_a_decoder_that_pools_is_loaded_without_its_output_head(words: str) -> None:
    whole = Deployment.from_serve("vllm serve llama-3.1-8b", gpu="h100").resolve().settled
    pooled = Deployment.from_serve(f"vllm serve llama-3.1-8b {words}", gpu="h100").resolve().settled
    assert (whole.pools, pooled.pools) == (False, True)
    assert whole.weight_bytes - pooled.weight_bytes == 128_256 * 4096 * 2
    assert pooled.plan.num_blocks > whole.plan.num_blocks


def test_what_only_pools_does_so_by_itself_and_generates_nothing(tmp_path: Path) -> None:
    folder = _folder(tmp_path, BERT)
    settled = Deployment.from_serve(f"vllm serve {folder}", gpu="a10g").resolve().settled
    assert (settled.pools, settled.plan.groups, settled.scheduling.enable_chunked_prefill) == (True, (), False)
    with pytest.raises(NoStartError, match="only pools"):
        Deployment.from_serve(f"vllm serve {folder} --runner generate", gpu="a10g").resolve()


def test_a_runner_that_is_none_is_an_error() -> None:
    with pytest.raises(TokenyardError, match="runner"):
        Deployment.from_serve("vllm serve llama-3.1-8b --runner draft", gpu="h100").resolve()


# ---- replays


def test_a_replay_of_an_encoder_ends_each_request_in_the_step_of_its_prompt(tmp_path: Path) -> None:
    deployment = Deployment.from_serve(
        f"vllm serve {_folder(tmp_path, BERT)} --max-num-batched-tokens 600 --max-num-seqs 2",
        gpu="a10g",
        latency="constant:0.01",
    )
    requests = [
        WorkloadRequest(request_id=f"r{i}", prompt=StreamTokens.unique(i, length), max_tokens=9)
        for i, length in enumerate((300, 300, 100, 500, 40))
    ]
    result = deployment.replay(Workload("five", requests))
    ends = list(result.requests["finished_s"])
    assert ends[0] == ends[1]  # two in a step, by max_num_seqs and by the tokens of a step
    assert ends[2] == ends[3]
    assert ends[1] < ends[2] < ends[4]
    assert list(result.requests["output_tokens"]) == [1] * 5


# ---- a result and a token: the same decisions


def _engine(version: str, *, chunked: bool, cached: bool) -> ToyEngine:
    return ToyEngine(
        profile=decision_profile(version),
        num_gpu_blocks=40,
        max_num_batched_tokens=48 if chunked else 64,
        max_num_seqs=4,
        enable_chunked_prefill=chunked,
        enable_prefix_caching=cached,
    )


def _steps(toy: ToyEngine, requests: list[Request], rng: Random) -> list[tuple[dict[str, int], int, int]]:
    """What each step computes, and the free blocks before and after it, until all have ended."""
    waiting, seen = list(requests), []
    while waiting or toy.running or toy.waiting:
        for request in [waiting.pop(0) for _ in range(min(len(waiting), rng.randrange(4)))]:
            toy.scheduler.add_request(request)
        before = toy.free
        step = toy.schedule()
        scheduled = dict(step.num_scheduled_tokens)
        chunks = step.is_prefill_chunk
        done = [chunks is None or not chunks[row] for row in range(len(step.req_ids))]
        if requests[0].pooling_params is not None:
            extras = ModelAuxOutput(pooler_output=["vector" if each else None for each in done])
            answer = ModelOutput.from_lists([[] for _ in done], extras=extras)
        else:
            answer = ModelOutput.from_lists([[7] if each else [] for each in done])
        toy.scheduler.update_from_output(step, answer)
        toy.scheduler.check_invariants()
        seen.append((scheduled, before, toy.free))
    return seen


@pytest.mark.parametrize("version", ["0.22", "0.27", "0.33"])
@pytest.mark.parametrize(("chunked", "cached"), [(True, True), (True, False), (False, False)])
def test_a_pooling_request_is_scheduled_as_one_whose_first_token_is_its_last(
    version: str, *, chunked: bool, cached: bool
) -> None:
    for seed in range(20):
        draw = Random(seed)
        prompts = [prompt_of(draw.choice("abcd"), draw.randrange(1, 60)) for _ in range(12)]
        pooling = [Request(f"r{i}", prompt, pooling_params=PoolingParams()) for i, prompt in enumerate(prompts)]
        one = [Request(f"r{i}", prompt, SamplingParams(max_tokens=1)) for i, prompt in enumerate(prompts)]
        ours = _steps(_engine(version, chunked=chunked, cached=cached), pooling, Random(seed))
        assert ours == _steps(_engine(version, chunked=chunked, cached=cached), one, Random(seed))
