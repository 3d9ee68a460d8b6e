"""Odd scrapes of metrics: what is no number, no moment or no bound is left out, and what would not fit is refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tokenyard.errors import WorkloadError
from tokenyard.workload import scrapes
from tokenyard.workload.scrapes import Scrapes, read_scrapes


def _scraped(*scraped: tuple[float, list[str]]) -> Scrapes:
    text = "".join(f"# scraped_at {at}\n" + "".join(f"{line}\n" for line in lines) for at, lines in scraped)
    return read_scrapes(text.encode(), "m.prom")


def _answered(*values: Any) -> Scrapes:
    result = [{"metric": {"__name__": "vllm:c"}, "values": list(values)}]
    return read_scrapes(json.dumps({"data": {"result": result}}).encode(), "m.json")


def test_buckets_without_a_bound_are_left_out() -> None:
    lines = [f'vllm:h_bucket{{le="{le}"}} ' for le in ("abc", "nan", "1", "+Inf")] + ["vllm:h_bucket "]
    found = _scraped((1, [f"{line}1" for line in lines]), (2, [f"{line}3" for line in lines])).histogram("vllm:h")
    assert found.bounds.tolist() == [1.0, np.inf]
    assert found.counts.tolist() == [[2.0], [0.0]]


def test_two_spellings_of_a_bound_are_one_bucket() -> None:
    """Prometheus 3 writes 5.0 where it wrote 5: over the upgrade both are there."""
    spellings = ['vllm:h_bucket{le="5",engine="0"} ', 'vllm:h_bucket{le="5.0",engine="1"} ']
    found = _scraped((1, [f"{line}1" for line in spellings]), (2, [f"{line}3" for line in spellings]))
    assert found.histogram("vllm:h").counts.tolist() == [[4.0]]


def test_an_engine_that_has_ended_runs_nothing_any_more() -> None:
    """A rollout: the old pod ends under load, the new one begins idle; a scrape that failed once is no end."""
    old, new = 'vllm:num_requests_running{pod="old"} ', 'vllm:num_requests_running{pod="new"} '
    kv = 'vllm:kv_cache_usage_perc{pod="%s"} '
    found = _scraped(
        (0, [f"{old}18", kv % "old" + "0.75"]),
        (10, [f"{old}20", kv % "old" + "0.5"]),
        (20, [f"{new}0", f"{kv % 'new'}0.25"]),
        (30, [f"{new}2", f"{kv % 'new'}0.25"]),
        (40, [f"{new}2"]),
        (50, [f"{new}2", f"{kv % 'new'}0.5"]),
    )
    assert found.gauge("vllm:num_requests_running").tolist() == [18.0, 20.0, 0.0, 2.0, 2.0, 2.0]
    assert found.gauge("vllm:kv_cache_usage_perc", mean=True).tolist() == [0.75, 0.5, 0.25, 0.25, 0.25, 0.5]
    assert found.num_engines == 1, "never two at once"
    assert found.gauge("vllm:none").tolist() == [0.0] * 6


def test_engines_scraped_in_turns_count_together() -> None:
    """Until its next scrape is due, what an engine said last stands."""
    lines = [f'vllm:num_requests_running{{pod="{pod}"}} 1' for pod in "ab"]
    found = _scraped(*((5.0 * i, [lines[i % 2]]) for i in range(6)))
    assert found.gauge("vllm:num_requests_running").tolist() == [1.0, 2.0, 2.0, 2.0, 2.0, 2.0]
    assert found.num_engines == 2


def test_what_cannot_be_added_up_is_no_sample() -> None:
    found = _scraped((1, ["vllm:c 1", "vllm:g Inf"]), (2, ["vllm:c +Inf"]), (3, ["vllm:c 4", "vllm:g -Inf"]))
    assert found.rise("vllm:c").tolist() == [3.0]
    assert "vllm:g" not in found


@pytest.mark.parametrize("moment", [10**400, -1, None, "1", 1e300])
def test_what_is_no_moment_is_no_sample(moment: object) -> None:
    assert _answered([1, "1"], [moment, "9"], [2, "3"]).rise("vllm:c").tolist() == [2.0]


def test_json_nested_without_end_is_refused() -> None:
    with pytest.raises(WorkloadError, match="is no JSON of Prometheus'"):
        read_scrapes(b"[" * 100_000, "m.json")


def test_series_that_would_not_fit_beside_each_other_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrapes, "MOST_CELLS", 5)
    lines = [f'vllm:c{{x="{i}"}} 1' for i in range(3)]
    with pytest.raises(WorkloadError, match="holds 3 series of vllm:c at 2 moments: ask for one job"):
        _scraped((1, lines), (2, lines))
