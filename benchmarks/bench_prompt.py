"""What a prompt of 32k tokens (2,048 blocks) costs before it runs: hashing and a lookup that finds all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from our_side import OurEngine
from workload import LongPrompt

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

SCENARIO = LongPrompt("prompt")

pytestmark = pytest.mark.benchmark(group="prompt of 32k tokens")


@pytest.fixture
def engine() -> OurEngine:
    """An engine that has the prompt in its cache."""
    made = OurEngine(SCENARIO.engine)
    made.add(made.make(SCENARIO.request(0)))
    output = made.schedule()
    made.update(output, made.answer(output))
    return made


def bench_hashing(benchmark: BenchmarkFixture, engine: OurEngine) -> None:
    """All blocks of the prompt, sha256."""
    benchmark(engine.hash, engine.make(SCENARIO.request(1)))


def bench_hashing_of_a_known_prompt(benchmark: BenchmarkFixture, engine: OurEngine) -> None:
    """The prompt again: compared with the one that was served, whose hashes it takes over."""
    request, hasher = engine.make(SCENARIO.request(1)), engine.scheduler.kv.hasher

    def again() -> None:
        hasher.forget_beyond(request, 0)
        hasher.extend(request)

    benchmark(again)


def bench_lookup(benchmark: BenchmarkFixture, engine: OurEngine) -> None:
    """All blocks but the last, hashes known."""
    hit = benchmark(engine.look_up, engine.make(SCENARIO.request(1)))
    assert hit == SCENARIO.tokens - SCENARIO.engine.block_size


def bench_admission(benchmark: BenchmarkFixture, engine: OurEngine) -> None:
    """From the token ids to the end of the one step the cached prompt takes."""
    spec, numbers = SCENARIO.request(0), iter(range(1, 1000))

    def serve() -> None:
        engine.add(engine.make(spec._replace(id=f"request-{next(numbers)}")))
        output = engine.schedule()
        engine.update(output, engine.answer(output))

    benchmark.pedantic(serve, rounds=20)
    assert engine.num_running == 0
