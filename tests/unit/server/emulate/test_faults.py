"""Faults of the machines below: a rank that lags, KV that a connector reports as corrupt."""

from __future__ import annotations

import asyncio
from statistics import mean
from typing import Any

import pytest

pytest.importorskip("starlette", reason="starlette is not installed (extra: server)")
pytest.importorskip("httpx", reason="httpx is not installed (extra: server)")
pytest.importorskip("prometheus_client", reason="prometheus_client is not installed (extra: server)")

from tests.unit.server.emulate.emulated import LINE, Emulated, InTime, emulated, emulated_servers

from tokenyard.core.sched.observer import StepObserver
from tokenyard.deploy.deployment import Deployment
from tokenyard.errors import ConfigError
from tokenyard.serve.emulate.faults import Fault
from tokenyard.serve.emulate.host import emulate
from tokenyard.serve.emulate.settings import EmulateSettings
from tokenyard.serve.generation import GenerationParams, OutputKind

PROMPT = "a prompt that has enough words to fill more than a block of the cache " * 8
ASKED = {"prompt": PROMPT, "max_tokens": 6, "ignore_eos": True}
OFFLOADING = """ --kv-transfer-config '{"kv_connector": "OffloadingConnector", "kv_role": "kv_both", %s
 "kv_connector_extra_config": {"cpu_bytes_to_use": 1000000000}}'"""


class _Steps(StepObserver):
    """How long steps last."""

    def __init__(self) -> None:
        self.begun: dict[int, float] = {}
        self.lasted: list[float] = []

    def step_decided(self, ts: float, output: Any, outcomes: Any, state: Any) -> None:
        self.begun[output.step] = ts

    def step_completed(self, ts: float, output: Any, outputs: Any) -> None:
        if output.total_num_scheduled_tokens:
            self.lasted.append(ts - self.begun[output.step])


def lasting(line: str, faults: list[Fault]) -> list[float]:
    """Mean emulated seconds of a step of each rank, of a deployment that 16 requests are sent to at one moment."""

    async def run() -> list[float]:
        deployment, watching = Deployment(line, gpu="h100"), [_Steps() for _ in range(2)]
        emulation = emulate(deployment, EmulateSettings(), observers=watching, wall=InTime())
        for each in faults:
            emulation.faults.begin(each)
        llm = emulation.fronts[0].llm
        async with llm:
            params = GenerationParams(max_tokens=12, ignore_eos=True, output_kind=OutputKind.FINAL_ONLY)

            async def one(number: int) -> None:
                async for _ in llm.generate(f"{number} words", params):
                    pass

            await asyncio.gather(*(one(number) for number in range(16)))
        return [mean(each.lasted) for each in watching]

    return asyncio.run(run())


DENSE = LINE + " --data-parallel-size 2 --no-async-scheduling"
EXPERTS = DENSE.replace("Qwen3-0.6B", "Qwen3-30B-A3B") + " -ep"


def test_a_rank_that_lags_is_slow_alone() -> None:
    before, after = lasting(DENSE, []), lasting(DENSE, [Fault(kind="lag", rank=1, factor=3.0)])
    assert after[0] == pytest.approx(before[0])
    assert after[1] == pytest.approx(3 * before[1])


def test_ranks_that_step_together_wait_for_the_one_that_lags() -> None:
    before, after = lasting(EXPERTS, []), lasting(EXPERTS, [Fault(kind="lag", rank=1, factor=3.0)])
    assert after == pytest.approx([3 * each for each in before])


def test_a_rank_that_is_not_there_cannot_lag() -> None:
    emulation = emulate(Deployment(DENSE, gpu="h100"), EmulateSettings())
    with pytest.raises(ConfigError, match="from 0 to 1"):
        emulation.faults.begin(Fault(kind="lag", rank=2))


COMPUTED = "vllm:iteration_tokens_total_sum"


def _told(server: Emulated, name: str) -> float:
    lines = server.client.get("/metrics").text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


@pytest.mark.parametrize(("policy", "code"), [("recompute", 200), ("fail", 500)])
def test_kv_that_is_reported_as_corrupt_is_computed_again_or_fails(policy: str, code: int) -> None:
    line = LINE + OFFLOADING % f'"kv_load_failure_policy": "{policy}",'
    with emulated(line) as server:

        def again() -> tuple[int, float]:
            """The code of an answer whose prompt comes from CPU memory, and the tokens that were computed for it."""
            assert server.client.post("/reset_prefix_cache").status_code == 200
            before = _told(server, COMPUTED)
            answer = server.post("/v1/completions", **ASKED)
            return answer.status_code, _told(server, COMPUTED) - before

        assert server.post("/v1/completions", **ASKED).status_code == 200
        found, loaded = again()
        assert found == 200
        assert _told(server, "vllm:external_prefix_cache_hits_total") > 0, "the prompt came from CPU memory"
        assert server.post("/emulate/fault", kind="kv_corruption").status_code == 200
        found, computed = again()
        assert found == code
        if code == 200:
            assert computed > loaded, "what was corrupt has been computed"
        assert server.client.delete("/emulate/fault").json() == {"faults": []}
        assert server.post("/v1/completions", **ASKED).status_code == 200
        assert server.num_held_blocks == 0


def test_kv_that_came_corrupt_from_prefill_fails_the_request() -> None:
    async def run() -> None:
        async with emulated_servers(split="1+1") as (emulation, (prefill, decode)):
            emulation.faults.begin(Fault(kind="kv_corruption"))
            asked = {"prompt": PROMPT, "max_tokens": 1, "kv_transfer_params": {"do_remote_decode": True}}
            params = (await prefill.post("/v1/completions", json=asked)).json()["kv_transfer_params"]
            answer = await decode.post("/v1/completions", json={**ASKED, "kv_transfer_params": params})
            assert answer.status_code == 500, "vLLM's kv_load_failure_policy is fail"
            emulation.faults.end()
            params = (await prefill.post("/v1/completions", json=asked)).json()["kv_transfer_params"]
            answer = await decode.post("/v1/completions", json={**ASKED, "kv_transfer_params": params})
            assert answer.status_code == 200

    asyncio.run(run())


def test_without_a_connector_no_kv_is_corrupt() -> None:
    with emulated() as server:
        answer = server.post("/emulate/fault", kind="kv_corruption")
        assert answer.status_code == 400
        assert "no connector" in answer.text


@pytest.mark.parametrize(("share", "hit"), [(0.2, [0, 5, 10, 15]), (0.0, []), (1.0, list(range(20))), (0.1, [0, 10])])
def test_a_share_is_spread_evenly_from_the_first_request_on(share: float, hit: list[int]) -> None:
    with emulated() as server:
        server.post("/emulate/fault", kind="status", status=429, share=share)
        codes = [server.post("/v1/completions", prompt="hi", max_tokens=1).status_code for _ in range(20)]
        assert [i for i, code in enumerate(codes) if code == 429] == hit
        server.client.delete("/emulate/fault")
        assert server.post("/v1/completions", prompt="hi", max_tokens=1).status_code == 200
