"""KV that was elsewhere is as good as computed: in CPU memory, on a disk, at another engine."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.engine.drive import GREEDY, load, serve
from tests.engine.sizes import BLOCK_SIZE
from tests.engine.test_token_exact import PREFIX
from tests.engine.tiny_models import Checkpoint

from tokenyard.connectors import OfferExchange
from tokenyard.core.request import Request, SamplingParams
from tokenyard.errors import ConfigError

FAMILIES = ("llama", "qwen3", "mixtral")
"""With one full-attention group: what connectors need."""
TURNS = [[*PREFIX, i, i + 1] for i in range(10, 22)]


@pytest.fixture(params=FAMILIES)
def target(request: pytest.FixtureRequest, checkpoints: Callable[[str], Checkpoint]) -> Checkpoint:
    return checkpoints(request.param)


def _offloading(**settings: Any) -> dict[str, Any]:
    return {
        "kv_connector": "OffloadingConnector",
        "kv_connector_extra_config": {"cpu_bytes_to_use": 1 << 22, **settings},
    }


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize(
    "settings",
    [{}, {"load_async": False}, {"store_on": "eviction"}],
    ids=["beside the steps", "in the step", "when evicted"],
)
def test_offloaded_blocks_come_back_as_they_were(target: Checkpoint, is_async: bool, settings: dict[str, Any]) -> None:
    core = load(
        target,
        num_gpu_blocks_override=target.fewest_blocks,
        async_scheduling=is_async,
        kv_transfer_config=_offloading(**settings),
    )
    # Different prompts in between drive the first one's blocks out.
    prompts = [[n, *range(25)] for n in range(30, 38)]
    external = 0
    try:
        for turn in range(2):
            for n, prompt in enumerate(prompts):
                request = Request(f"{turn}-{n}", prompt, SamplingParams(max_tokens=12, **GREEDY))
                (tokens,) = serve(core, [request]).tokens
                assert tokens == target.greedy(prompt, 12)
                external += request.num_external_computed_tokens
    finally:
        core.shutdown()
    assert external > 0


def test_blocks_of_another_engine_are_read_from_the_disk(target: Checkpoint, tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    config = {
        "kv_connector": "SharedStorageConnector",
        "kv_connector_extra_config": {"shared_storage_path": str(tmp_path), "namespace": target.family},
    }
    found = []
    for name in ("first", "second"):
        core = load(target, kv_transfer_config=config)
        try:
            requests = [
                Request(f"{name}{i}", prompt, SamplingParams(max_tokens=8, **GREEDY)) for i, prompt in enumerate(TURNS)
            ]
            assert serve(core, requests).tokens == [target.greedy(prompt, 8) for prompt in TURNS]
        finally:
            core.shutdown()
        found.append(sum(request.num_external_computed_tokens for request in requests))
    assert found[1] > found[0]


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_prefill_on_one_engine_and_decode_on_another(target: Checkpoint, is_async: bool) -> None:
    exchange = OfferExchange()
    ticks = itertools.count()
    roles = {
        role: load(
            target,
            kv_transfer_config={"kv_connector": "NixlConnector", "kv_role": role, "engine_id": role},
            exchange=exchange,
            async_scheduling=is_async,
            clock=lambda: float(next(ticks)) / 1000,
        )
        for role in ("kv_producer", "kv_consumer")
    }
    prefill, decode = roles["kv_producer"], roles["kv_consumer"]
    try:
        for n, prompt in enumerate(TURNS[:4]):
            first = Request(
                f"r{n}", prompt, SamplingParams(max_tokens=1, **GREEDY), kv_transfer_params={"do_remote_decode": True}
            )
            handed_over = _run_prefill(prefill, first)
            second = Request(f"r{n}", prompt, SamplingParams(max_tokens=10, **GREEDY), kv_transfer_params=handed_over)
            (tokens,) = serve(decode, [second], beside=prefill).tokens
            assert tokens == target.greedy(prompt, 10)
            assert second.num_external_computed_tokens >= len(prompt) - len(prompt) % BLOCK_SIZE - BLOCK_SIZE * 5
    finally:
        prefill.shutdown()
        decode.shutdown()


def _run_prefill(core: Any, request: Request) -> dict[str, Any]:
    """Compute a prompt; what the client hands to the engine that decodes. The blocks stay until they are fetched."""
    core.add_request(request)
    while True:
        for news in core.step() or ():
            if news.finish_reason is not None:
                assert news.kv_transfer_params is not None
                return dict(news.kv_transfer_params)


def test_blocks_of_another_shape_are_refused(checkpoints: Callable[[str], Checkpoint]) -> None:
    core = load(checkpoints("llama"))
    memory = core.executor.memory
    try:
        block = {name: np.array(array) for name, array in memory.read(3).items()}
        with pytest.raises(ValueError, match="other sizes"):
            memory.write(3, {name: array[:-1] for name, array in block.items()})
        with pytest.raises(ValueError, match="other sizes"):
            memory.write(3, {})
        changed = {name: np.full_like(array, 7) for name, array in block.items()}
        memory.write(3, changed)
        assert all(np.array_equal(memory.read(3)[name], changed[name]) for name in changed)
        assert all(np.array_equal(memory.read(2)[name], block[name]) for name in block)
    finally:
        core.shutdown()


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"kv_connector": "OffloadingConnector"}, "cpu_bytes_to_use"),
        (_offloading(cpu_bytes_to_use=8), "cpu_bytes_to_use"),
        ({"kv_connector": "SharedStorageConnector"}, "shared_storage_path"),
        ({"kv_connector": "NixlConnector"}, "kv_connector"),
        ({"kv_connector": "Other"}, "kv_connector"),
        ({"kv_connector": "NixlConnector", "port": 1}, "kv_transfer_config.port"),
        ({"kv_connector": object()}, "kv_transfer_config"),
        ([], "kv_transfer_config"),
    ],
)
def test_what_cannot_be_connected_is_named(checkpoints: Callable[[str], Checkpoint], config: Any, field: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(checkpoints("llama"), kv_transfer_config=config)
    assert error.value.field == field


def test_connectors_need_one_full_group(checkpoints: Callable[[str], Checkpoint]) -> None:
    with pytest.raises(ConfigError, match="one full-attention"):
        load(checkpoints("gemma3"), kv_transfer_config=_offloading())
