"""Vectors of prompts: those of transformers' own hidden states, however they are cut, beside others that generate."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tests.engine.needs_torch  # noqa: F401 - before whatever imports torch
from tests.engine.adapters import make_adapter, merged
from tests.engine.drive import GREEDY, load, serve
from tests.engine.needs_torch import torch
from tests.engine.tiny_models import Checkpoint

from tokenyard.core.params import PoolingParams
from tokenyard.core.request import FinishReason, Request, SamplingParams
from tokenyard.errors import RequestError
from tokenyard.serve import LLM, AsyncLLM
from tokenyard.serve.generation import Turn

PREFIX = [7, 3, 9, 1, 4, 4, 8, 2, 6, 5, 50, 12, 33, 21, 17, 2]
PROMPTS = [[*PREFIX, 1, 2, 3], [*PREFIX, 9, 9], [5] * 23, [11], [*PREFIX, 1, 2, 3, 60, 59, 58]]
KINDS = ("LAST", "CLS", "MEAN")


def vector(checkpoint: Checkpoint, prompt: Sequence[int], kind: str, *, normalize: bool = True) -> Any:
    """By transformers alone."""
    with torch.no_grad():
        states = checkpoint.model.base_model(torch.tensor([list(prompt)])).last_hidden_state[0]
    found = {"LAST": states[-1], "CLS": states[0], "MEAN": states.mean(0)}[kind]
    return (found / found.norm() if normalize else found).numpy()


def check(checkpoint: Checkpoint, **options: Any) -> Any:
    """Vectors of all kinds and greedy tokens, of all prompts at once."""
    wanted = SamplingParams(max_tokens=12, **GREEDY)
    core = load(checkpoint, **options)
    pooled = {
        f"{kind}-{i}": Request(f"{kind}-{i}", prompt, pooling_params=PoolingParams(pooling_type=kind))
        for i, prompt in enumerate(PROMPTS)
        for kind in KINDS
    }
    generating = [Request(f"r{i}", prompt, wanted) for i, prompt in enumerate(PROMPTS)]
    try:
        run = serve(core, [*generating, *pooled.values()])
    finally:
        core.shutdown()
    for prompt, tokens in zip(PROMPTS, run.tokens[: len(PROMPTS)], strict=True):
        assert tokens == checkpoint.greedy(prompt, 12)
    for name in pooled:
        kind, _, i = name.partition("-")
        (news,) = run.extras[name]
        assert run.reasons[name] is FinishReason.STOP
        # Norms round to float32 in transformers, in a model of float64 as well.
        assert np.allclose(news.pooling_output, vector(checkpoint, PROMPTS[int(i)], kind), rtol=0, atol=1e-6), name
    return run


@pytest.mark.smoke
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_one_batch(checkpoint: Checkpoint, is_async: bool) -> None:
    check(checkpoint, async_scheduling=is_async)


@pytest.mark.parametrize("budget", [1, 3, 7])
def test_chunked_prompts(checkpoints: Callable[[str], Checkpoint], budget: int) -> None:
    check(checkpoints("llama"), max_num_batched_tokens=budget, max_num_seqs=min(budget, 3))


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_little_memory(checkpoints: Callable[[str], Checkpoint], is_async: bool) -> None:
    target = checkpoints("llama")
    run = check(
        target,
        num_gpu_blocks_override=target.fewest_blocks,
        async_scheduling=is_async,
        max_num_batched_tokens=16,
        max_num_seqs=8,
    )
    assert run.num_preemptions > 0


def test_prefix_hits(checkpoints: Callable[[str], Checkpoint]) -> None:
    """A vector of the last token alone may leave out what is cached."""
    assert check(checkpoints("llama"), max_num_seqs=1).num_cached_tokens > 0


def test_beside_drafts(checkpoints: Callable[[str], Checkpoint]) -> None:
    drafter = {"model": str(checkpoints("draft").folder), "num_speculative_tokens": 3}
    assert check(checkpoints("llama"), speculative_config=drafter).num_drafts > 0


def test_of_an_adapter(checkpoints: Callable[[str], Checkpoint], tmp_path: Any) -> None:
    base = checkpoints("llama")
    folder = make_adapter(base, tmp_path / "a")
    with LLM(load(base, enable_lora=True, lora_modules={"a": folder})) as llm:
        prompts = [{"prompt_token_ids": PROMPTS[0]}] * 2
        mine, plain = llm.embed(prompts, turns=[Turn(lora_name="a"), Turn()])
    assert np.allclose(mine.embedding, vector(merged(base, folder), PROMPTS[0], "LAST"))
    assert np.allclose(plain.embedding, vector(base, PROMPTS[0], "LAST"))
    assert not np.allclose(mine.embedding, plain.embedding)


@pytest.mark.smoke
def test_offline(checkpoints: Callable[[str], Checkpoint]) -> None:
    target = checkpoints("qwen3")
    with LLM(load(target)) as llm:
        params = [PoolingParams(pooling_type=kind, normalize=False) for kind in KINDS]
        outputs = llm.embed([{"prompt_token_ids": PROMPTS[0]}] * 3, params)
        (bare,) = llm.embed([PROMPTS[1]])
    for kind, output in zip(KINDS, outputs, strict=True):
        assert np.allclose(output.embedding, vector(target, PROMPTS[0], kind, normalize=False))
        assert output.prompt_token_ids == PROMPTS[0]
    assert np.allclose(bare.embedding, vector(target, PROMPTS[1], "LAST"))


def test_online(checkpoints: Callable[[str], Checkpoint]) -> None:
    target = checkpoints("qwen3")

    async def work() -> Any:
        async with AsyncLLM(load(target)) as llm:
            return await asyncio.gather(*(llm.embed({"prompt_token_ids": prompt}) for prompt in PROMPTS))

    for prompt, output in zip(PROMPTS, asyncio.run(work()), strict=True):
        assert np.allclose(output.embedding, vector(target, prompt, "LAST"))


def test_half_precision_is_summed_in_floats(checkpoints: Callable[[str], Checkpoint]) -> None:
    with LLM(load(checkpoints("llama"), dtype="bfloat16")) as llm:
        (output,) = llm.embed([PROMPTS[0]], PoolingParams(pooling_type="MEAN"))
    assert output.embedding.dtype == np.float32
    assert np.allclose(output.embedding, vector(checkpoints("llama"), PROMPTS[0], "MEAN"), atol=0.05)


@pytest.mark.parametrize(
    ("given", "field"),
    [({"pooling_type": "SUM"}, "pooling_params.pooling_type"), ({"normalize": 1}, "pooling_params.normalize")],
    ids=str,
)
def test_what_cannot_be_pooled(given: dict[str, Any], field: str) -> None:
    with pytest.raises(RequestError) as error:
        Request("a", [1], pooling_params=PoolingParams(**given))
    assert error.value.field == field
