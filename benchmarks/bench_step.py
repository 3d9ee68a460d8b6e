"""What a step of ours costs: steady decode and a prefill-heavy mix, plain, with vLLM's records made, and traced."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from measure import measure, reach_steady_decode
from our_side import OurEngine, RecordsEngine, TracedEngine
from workload import PrefillMix, SteadyDecode

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

engines = pytest.mark.parametrize(
    "build",
    [
        pytest.param(OurEngine, id="plain"),
        pytest.param(RecordsEngine, id="records"),
        pytest.param(TracedEngine, id="traced"),
    ],
)


@engines
@pytest.mark.parametrize("running", [32, 256, 1024])
def bench_decode(benchmark: BenchmarkFixture, running: int, build: type[OurEngine]) -> None:
    """``schedule()`` and ``update_from_output()``; the model's answer is the same in every step and made before."""
    benchmark.group = f"decode, {running} running"
    scenario = SteadyDecode("decode", running)
    engine = build(scenario.engine)
    reach_steady_decode(scenario, engine)
    output = engine.schedule()
    answer = engine.answer(output)
    engine.update(output, answer)

    benchmark.pedantic(lambda: engine.update(engine.schedule(), answer), rounds=scenario.steps)
    assert engine.num_running == running
    engine.close()


@engines
def bench_prefill_mix(benchmark: BenchmarkFixture, build: type[OurEngine]) -> None:
    """The whole mix, from making the first request to the end of the last."""
    benchmark.group = "prefill mix, 200 requests"
    scenario = PrefillMix("mix", count=200)
    benchmark.pedantic(measure, args=(scenario, {"mix": build}), rounds=3)
