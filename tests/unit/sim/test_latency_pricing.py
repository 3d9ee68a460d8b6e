"""What latency models answer: refused, wherever it is asked for, unless it is a duration."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.profiles import VLLM_0_33

import tokenyard
from tokenyard.connectors.config import OFFLOADING, KVTransferConfig
from tokenyard.core.config import CacheConfig, GroupKind, KVCacheGroup, SchedulerConfig
from tokenyard.errors import LatencyError
from tokenyard.sim.replay import replay, replay_parallel
from tokenyard.sim.routers import RoundRobin
from tokenyard.sim.transfers import KVTransfer
from tokenyard.steptime.carried import scaled, stretched
from tokenyard.steptime.model import StepShape, TransferDirection, decode_seconds, step_seconds
from tokenyard.steptime.pace import MachineSpeed
from tokenyard.workload.record import Workload, WorkloadRequest
from tokenyard.workload.tokens import StreamTokens

NO_DURATIONS = (-0.01, math.nan, math.inf, -math.inf, 1e10, None, "0.1", True, np.float64("nan"), 1j)
METHODS = ("step_seconds", "host_seconds", "transfer_seconds", "decode_seconds", "ranks_seconds")


class Learned:
    """A model like one that a user trained: right, but for what ``wrong`` says from the fifth question on."""

    def __init__(self, wrong: str, answer: Any) -> None:
        self._wrong, self._answer = wrong, answer
        self._asked = 0

    def _say(self, method: str, seconds: float) -> Any:
        self._asked += method == self._wrong
        return self._answer if method == self._wrong and self._asked > 4 else seconds

    @property
    def host_seconds(self) -> Any:
        return self._say("host_seconds", 0.001)

    def step_seconds(self, shape: StepShape) -> Any:
        return self._say("step_seconds", 0.01)

    def transfer_seconds(self, num_bytes: int, direction: TransferDirection) -> Any:
        return self._say("transfer_seconds", 0.001)


class AtOnce(Learned):
    """One that prices several steps at once."""

    def decode_seconds(self, num: int, context: int, steps: int) -> list[Any]:
        return [self._say("decode_seconds", 0.01) for _ in range(steps)]


class Together(Learned):
    """One that prices the ranks of a step together."""

    def ranks_seconds(self, shapes: Sequence[StepShape | None]) -> Any:
        return self._say("ranks_seconds", 0.01)


def workload(count: int = 12) -> Workload:
    return Workload(
        "some",
        [
            WorkloadRequest(request_id=f"r{i}", prompt=StreamTokens.unique(i, 70), max_tokens=30, arrival_time=0.02 * i)
            for i in range(count)
        ],
    )


def scheduler(**changes: Any) -> SchedulerConfig:
    given: dict[str, Any] = {"max_num_seqs": 4, "max_num_batched_tokens": 64, "max_model_len": 256}
    return SchedulerConfig(profile=VLLM_0_33, **(given | changes))


CACHE = CacheConfig(num_gpu_blocks=40, block_size=16, groups=(KVCacheGroup(kind=GroupKind.FULL),))


def alone(latency: Any, **changes: Any) -> None:
    replay(workload(), scheduler(**changes), CACHE, latency)


def staged(latency: Any) -> None:
    alone(latency, pipeline_parallel_size=2)


def paced(latency: Any) -> None:
    replay(workload(), scheduler(), CACHE, latency, pace=MachineSpeed(np.array([0.0]), np.array([1.5])))


def carried(latency: Any) -> None:
    alone(stretched(scaled(latency, Learned("", 0), Learned("", 0)), prefill=1.1, decode=0.9))


def offloaded(latency: Any) -> None:
    config = KVTransferConfig(kv_connector=OFFLOADING, kv_connector_extra_config={"cpu_bytes_to_use": 1 << 20})
    transfer = KVTransfer(config=config, bytes_per_block=1 << 10)
    replay(workload(40), scheduler(), CACHE, latency, kv_transfer=transfer)


def ranks(latency: Any, *, together: bool = True) -> None:
    replay_parallel(
        workload(), scheduler(), CACHE, latency, RoundRobin(), data_parallel_size=2, steps_together=together
    )


HOSTS: dict[str, tuple[Callable[[Any], None], Iterable[tuple[type[Learned], str]]]] = {
    "one engine": (alone, [(Learned, "step_seconds"), (Learned, "host_seconds"), (AtOnce, "decode_seconds")]),
    "async": (
        lambda latency: alone(latency, async_scheduling=True),
        [(Learned, "step_seconds"), (Learned, "host_seconds"), (AtOnce, "decode_seconds")],
    ),
    "stages": (staged, [(Learned, "step_seconds"), (Learned, "host_seconds")]),
    "a pace": (paced, [(Learned, "step_seconds"), (Learned, "host_seconds")]),
    "carried over": (carried, [(Learned, "step_seconds"), (Learned, "host_seconds")]),
    "offloading": (offloaded, [(Learned, "step_seconds"), (Learned, "transfer_seconds")]),
    "ranks": (ranks, [(Learned, "step_seconds"), (Learned, "host_seconds"), (Together, "ranks_seconds")]),
    "engines": (lambda latency: ranks(latency, together=False), [(Learned, "step_seconds"), (Learned, "host_seconds")]),
}
ASKED = [(host, kind, method) for host, (_, asked) in HOSTS.items() for kind, method in asked]


class Drifting(Learned):
    """A model whose host takes longer for some steps than for others."""

    def __init__(self) -> None:
        super().__init__("", 0)
        self._steps = 0

    @property
    def host_seconds(self) -> float:
        return 0.001 * (1 + self._steps % 7)

    def step_seconds(self, shape: StepShape) -> float:
        self._steps += 1
        return 0.002


def test_a_step_of_a_leap_has_the_hosts_part_of_its_own_moment() -> None:
    config = scheduler(async_scheduling=True)
    one, other = (replay(workload(), config, CACHE, Drifting(), leaps=leaps) for leaps in (False, True))
    assert one == other


@pytest.mark.parametrize(("host", "kind", "method"), ASKED)
def test_no_host_goes_on_with_what_is_no_duration(host: str, kind: type[Learned], method: str) -> None:
    run, _ = HOSTS[host]
    run(kind(method, 0.01))  # right all the time
    for answer in (-0.01, math.nan, math.inf, "soon"):
        with pytest.raises(LatencyError, match=rf"{kind.__name__}\.{method} = {answer!r} for") as raised:
            run(kind(method, answer))
        assert (raised.value.latency, raised.value.method) == (kind.__name__, method)
        assert raised.value.value is answer


@pytest.mark.parametrize("answer", NO_DURATIONS)
def test_the_error_names_the_step_and_what_it_computes(answer: Any) -> None:
    shape = StepShape(np.array([1, 511]), np.array([1024, 0]), 2, 512)
    latency = Learned("step_seconds", answer)
    for _ in range(4):
        assert step_seconds(latency, shape, 1) == 0.01
    with pytest.raises(LatencyError, match="for step 17, 2 requests that compute 512 tokens behind 1,024: give"):
        step_seconds(latency, shape, 17)


@pytest.mark.parametrize("answer", [0, 0.0, 1, np.float32(0.5), np.float64(0.5), np.int64(2), 1e9])
def test_every_kind_of_number_is_one(answer: Any) -> None:
    class Says(Learned):
        def step_seconds(self, shape: StepShape) -> Any:
            return answer

    found = step_seconds(Says("", 0), StepShape(np.array([1]), np.array([0]), 1, 1))
    assert (found, type(found)) == (float(answer), float)


def test_as_many_durations_are_said_as_were_asked_for() -> None:
    class Short(Learned):
        def decode_seconds(self, num: int, context: int, steps: int) -> list[float]:
            return [0.01] * (steps - 1)

    with pytest.raises(LatencyError, match=r"Short\.decode_seconds = 15 for 16 steps: give as many"):
        list(decode_seconds(Short("", 0), np.array([4, 8]), 40))


def test_nobody_in_sim_asks_a_latency_model_but_through_its_checks() -> None:
    """A call of a model's method elsewhere would be one whose answer is not checked."""
    folder = Path(tokenyard.__file__).parent / "sim"
    allowed = {"latency/pricing.py"}
    found = [
        f"{path.relative_to(folder)}:{node.lineno} {node.func.attr}"
        for path in sorted(folder.rglob("*.py"))
        if str(path.relative_to(folder)) not in allowed
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in METHODS
    ]
    assert found == []
