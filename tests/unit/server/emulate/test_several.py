"""Several servers, engines behind a router, prefill and decode apart, clients that leave: nothing is lost or held."""

from __future__ import annotations

import asyncio
import random

import pytest

pytest.importorskip("starlette", reason="starlette is not installed (extra: server)")
pytest.importorskip("httpx", reason="httpx is not installed (extra: server)")
pytest.importorskip("prometheus_client", reason="prometheus_client is not installed (extra: server)")

from tests.unit.server.emulate.emulated import LINE, emulated_servers

from tokenyard.serve.emulate.host import Emulation
from tokenyard.serve.generation import GenerationParams, OutputKind

SHORT = {"max_tokens": 6, "ignore_eos": True}
PROMPT = "a prompt that has enough words to fill more than a block of the cache " * 4


def held(emulation: Emulation) -> int:
    """Blocks that requests hold."""
    schedulers = [rank.scheduler for group in emulation.engines.groups for rank in group.ranks]
    return sum(each.num_total_blocks - 1 - each.num_free_blocks for each in schedulers)


def test_prefill_hands_its_blocks_to_decode() -> None:
    async def run() -> None:
        async with emulated_servers(split="1+1") as (emulation, (prefill, decode)):
            asked = {"prompt": PROMPT, "max_tokens": 1, "kv_transfer_params": {"do_remote_decode": True}}
            first = (await prefill.post("/v1/completions", json=asked)).json()
            params = first["kv_transfer_params"]
            assert params["do_remote_prefill"] is True
            again = {"prompt": PROMPT, **SHORT, "kv_transfer_params": params}
            said = (await decode.post("/v1/completions", json=again)).json()
            assert said["usage"]["completion_tokens"] == 6
            told = (await decode.get("/metrics")).text
            hits = [line for line in told.splitlines() if line.startswith("vllm:external_prefix_cache_hits_total")]
            assert float(hits[0].rpartition(" ")[2]) > 0, "the prompt's KV came from the other engine"
            wrong = {**again, "kv_transfer_params": {**params, "remote_engine_id": "nobody"}}
            assert (await decode.post("/v1/completions", json=wrong)).status_code == 400
            await decode.post("/v1/completions", json={"prompt": "hi", **SHORT})
            await prefill.post("/v1/completions", json={"prompt": "hi", **SHORT})
            assert held(emulation) == 0

    asyncio.run(run())


@pytest.mark.parametrize("line", [LINE + " --data-parallel-size 3", LINE])
def test_servers_are_apart_and_ranks_share_the_load(line: str) -> None:
    async def run() -> None:
        async with emulated_servers(line, servers=2) as (emulation, clients):
            body = {"prompt": PROMPT, **SHORT}
            answers = await asyncio.gather(*(clients[0].post("/v1/completions", json=body) for _ in range(12)))
            assert all(each.status_code == 200 for each in answers)
            steps = [[rank.scheduler.step for rank in group.ranks] for group in emulation.engines.groups]
            assert all(steps[0]), "every rank has worked"
            assert not any(steps[1]), "the other server was not asked"
            assert held(emulation) == 0

    asyncio.run(run())


def test_clients_that_leave_hold_nothing() -> None:
    chance = random.Random(3)

    async def run() -> None:
        async with emulated_servers(speed=20.0) as (emulation, _):
            llm = emulation.fronts[0].llm
            params = GenerationParams(max_tokens=40, ignore_eos=True, output_kind=OutputKind.DELTA)
            ended: list[int] = []

            async def one(i: int) -> None:
                stream = llm.generate(PROMPT + str(i), params)
                tokens, leaves = 0, chance.randint(0, 30) if chance.random() < 0.3 else 99
                async for output in stream:
                    tokens += sum(len(part.token_ids) for part in output.outputs)
                    if tokens >= leaves:
                        break
                await stream.aclose()
                ended.append(tokens)
                assert leaves < 99 or tokens == 40

            await asyncio.gather(*(one(i) for i in range(300)))
            assert len(ended) == 300
            await llm.generate("the last", GenerationParams(max_tokens=2, ignore_eos=True)).__anext__()
            for _ in range(200):
                if not held(emulation):
                    break
                await asyncio.sleep(0.01)
            assert held(emulation) == 0
            assert llm.num_unfinished == 0

    asyncio.run(run())
