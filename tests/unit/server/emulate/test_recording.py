"""The trace of an emulation tells the time of day: its clock begins at 0, and its header says when that was."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="starlette is not installed (extra: server)")
pytest.importorskip("prometheus_client", reason="prometheus_client is not installed (extra: server)")

from tokenyard.deploy.deployment import Deployment
from tokenyard.explain.why.timeline import offset_us
from tokenyard.serve.emulate.host import emulate
from tokenyard.serve.emulate.listening import recorder_of
from tokenyard.serve.emulate.live import WallClock
from tokenyard.serve.emulate.settings import EmulateSettings
from tokenyard.serve.generation import GenerationParams
from tokenyard.trace.reader import TraceReader, find_ranks, find_trace


@pytest.mark.parametrize("speed", [1.0, 10.0])
def test_the_header_tells_the_time_of_day(speed: float, tmp_path: Path) -> None:
    deployment = Deployment("vllm serve Qwen/Qwen3-0.6B --max-model-len 1024", gpu="h100")
    before, wall = time.time(), WallClock(speed)
    asked: list[float] = []

    async def run() -> None:
        with recorder_of(deployment, tmp_path / "run", wall) as observers:
            emulation = emulate(deployment, EmulateSettings(speed=speed), observers=observers, wall=wall)
            async with emulation.fronts[0].llm as llm:
                # A request that comes late: a wrong speed would be seen.
                await asyncio.sleep(0.3)
                asked.append(time.time())
                async for _ in llm.generate([7] * 30, GenerationParams(max_tokens=3, ignore_eos=True), "one"):
                    pass
                asked.append(time.time())
                emulation.engines.stop()

    asyncio.run(run())
    reader = TraceReader(find_trace(tmp_path / "run"))
    steps = [step.ts for step in reader.steps()]
    start = reader.start
    assert start is not None
    assert start.clock_zero is not None
    assert start.clock_speed == speed
    assert before <= start.clock_zero <= asked[0]
    assert offset_us(find_ranks(tmp_path / "run")) == int(start.clock_zero * 1e6)
    times = [start.clock_zero + ts / speed for ts in steps if ts is not None]
    assert times
    # The two clocks of the machine may differ by a little.
    assert asked[0] - 0.02 <= min(times) <= max(times) <= asked[1] + 0.02
