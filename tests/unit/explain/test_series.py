"""Figures of numbers gathered one by one."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenyard.explain.figures import Series, latency_figures


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=50))
def test_percentiles_are_those_of_numpy_to_the_last_bit(values: list[float]) -> None:
    series = Series()
    for value in values:
        series.add(value)
    assert [series.spread().p50, series.spread().p95] == np.percentile(values, (50, 95)).tolist()
    p50, p90, p99, p95, most = (np.percentile(values, (50, 90, 99, 95, 100)) * 1e3).tolist()
    found = latency_figures(np.array(values))
    assert (found.p50, found.p90, found.p99, found.p95, found.max) == (p50, p90, p99, p95, most)


MANY = """
import numpy as np
from tokenyard.explain.figures import latency_figures
random = np.random.default_rng(5)
print(latency_figures(random.random(300_000), weights=random.integers(1, 9, 300_000)))
"""


@pytest.mark.slow
def test_a_mean_is_the_same_on_a_machine_with_more_processors() -> None:
    """NumPy's product of two columns adds up in as many parts as there are threads."""
    said = {
        subprocess.run(
            [sys.executable, "-c", MANY],
            env={**os.environ, "OPENBLAS_NUM_THREADS": threads},
            capture_output=True,
            check=True,
        ).stdout
        for threads in ("1", "2")
    }
    assert len(said) == 1
