"""Numbers and foreign text, made readable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from tokenyard.explain.figures import LatencyFigures, Series, StepFigures, latency_figures
from tokenyard.explain.report.report import infer_gpu, kv_bytes
from tokenyard.redaction import plain
from tokenyard.trace.schema import TraceStart
from tokenyard.units import (
    changes_for_clients,
    count,
    count_of,
    duration,
    gigabytes,
    milliseconds,
    percent,
    short_count,
    shorten,
)


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        (count, None, "-"),
        (count, 12_031, "12,031"),
        (short_count, 950, "950"),
        (short_count, 999, "999"),
        (short_count, 1_500, "1.5K"),
        (short_count, 2_000, "2K"),
        (short_count, 342_000, "342K"),
        (short_count, 999_700, "1M"),
        (short_count, 1_450_000, "1.4M"),
        (short_count, 5_000_000_000_000, "5,000G"),
        (percent, None, "-"),
        (percent, 0.4127, "41.3 %"),
        (duration, None, "-"),
        (duration, 0.417, "0.42 s"),
        (duration, 17.26, "17.3 s"),
        (duration, 485.4, "8 min 05 s"),
        (duration, 8_040, "2 h 14 min"),
        (duration, 3_599.9, "1 h 00 min"),
        (milliseconds, None, "-"),
        (milliseconds, 0.417, "0.42 ms"),
        (milliseconds, 17.26, "17.3 ms"),
        (milliseconds, 1_254.0, "1.25 s"),
        (milliseconds, 717_260.0, "717.3 s"),
        (milliseconds, 86_400_000.0, "86,400 s"),
        (milliseconds, -5_000.0, "-5.00 s"),
        (gigabytes, 10_318 * 2 * 2**20, "20GB"),
        (gigabytes, 2**29, "0.5GB"),
        (plain, "a\x1b[31m\u202eb\n", "a\ufffd[31m\ufffdb\ufffd"),
    ],
)
def test_texts(function: Callable[[Any], str], value: Any, text: str) -> None:
    assert function(value) == text


@pytest.mark.parametrize(("number", "text"), [(0, "0 steps"), (1, "1 step"), (12_031, "12,031 steps")])
def test_one_is_not_many(number: int, text: str) -> None:
    assert count_of(number, "step") == text


def test_the_end_of_a_path_is_kept() -> None:
    assert shorten("/a/b/c", 10) == "/a/b/c"
    assert shorten("/long/path/to/file", 6) == "…/file"
    assert len(shorten("x" * 50, 1)) == 1


@pytest.mark.parametrize(
    ("blocks", "gpu"),
    [
        (None, "unknown"),
        (7_999, "5090"),
        (8_000, "A100-40GB"),
        (10_318, "A100-40GB"),
        (15_000, "H100/A100-80GB"),
        (35_000, "H200-141GB"),
        (60_000, "unknown"),
    ],
)
def test_gpu_from_the_number_of_blocks(blocks: int | None, gpu: str) -> None:
    assert infer_gpu(blocks) == gpu


def test_bytes_of_blocks() -> None:
    assert kv_bytes(None, None) is None
    assert kv_bytes(65_536, None) == 128 * 2**30
    assert kv_bytes(10, TraceStart(block_size=32)) == 10 * 4 * 2**20
    assert kv_bytes(10, TraceStart(block_size=32, bytes_per_block=7)) == 70


def test_percentiles_lie_between_neighbours() -> None:
    series = Series()
    for value in (4.0, 1.0, 3.0, 2.0):
        series.add(value)
    assert len(series) == 4
    assert series.max == 4.0
    assert series.spread() == StepFigures(mean=2.5, p50=2.5, p95=3.8499999999999996)
    latency = msgspec.to_builtins(latency_figures(np.array([4.0, 1.0, 3.0, 2.0])))
    expected = {"mean": 2500.0, "p50": 2500.0, "p90": 3700.0, "p99": 3970.0, "p95": 3850.0, "max": 4000.0}
    assert {name: latency[name] for name in expected} == pytest.approx(expected)


def test_nothing_measured_is_none() -> None:
    assert Series().spread() == StepFigures()
    assert latency_figures(np.empty(0)) == LatencyFigures()
    assert Series().max is None


@pytest.mark.parametrize(
    ("ttft", "tpot", "e2e", "said"),
    [
        (-0.6, -0.1, -0.2, "TTFT p90 -60.0 %, TPOT p90 -10.0 % and E2E p90 -20.0 %"),
        (-0.6, -0.1, 0.21, "TTFT p90 -60.0 % and TPOT p90 -10.0 %, but answers end later (E2E p90 +21.0 %)"),
        (
            -0.6,
            1.1,
            0.004,
            "TTFT p90 -60.0 % and E2E p90 +0.4 %, but further tokens come more slowly (TPOT p90 +110.0 %)",
        ),
        (
            *(85.0, -0.9, 10.0),
            (
                "TPOT p90 -90.0 %, but first tokens come later (TTFT p90 86 times as long) and "
                "answers end later (E2E p90 11 times as long)"
            ),
        ),
        (0.2, 0.0, 0.1, "TTFT p90 +20.0 %, TPOT p90 +0.0 % and E2E p90 +10.0 %"),
        (None, None, -0.5, "E2E p90 -50.0 %"),
        (None, None, None, ""),
    ],
)
def test_what_gets_worse_is_said_where_something_else_gets_better(
    ttft: float | None, tpot: float | None, e2e: float | None, said: str
) -> None:
    assert (
        changes_for_clients({"ttft_ms.p90": ttft, "tpot_ms.p90": tpot, "e2e_ms.p90": e2e, "preemptions": 3.0}) == said
    )


def test_of_what_is_not_sure_it_says_may() -> None:
    changes = {"ttft_ms.p90": -0.5, "tpot_ms.p90": 0.2, "e2e_ms.p90": 0.001}
    assert changes_for_clients(changes, ["ttft_ms.p90", "tpot_ms.p90", "e2e_ms.p90"]) == (
        "TTFT p90 may be -50.0 % and E2E p90 +0.1 %, but further tokens may come more slowly (TPOT p90 +20.0 %)"
    )
    assert changes_for_clients(changes, ["tpot_ms.p90"]).startswith("TTFT p90 -50.0 % and")
