"""A plan over one split has the figures that ``tokenyard split`` prints for it: one replay, one report."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

from tokenyard.cli.main import main
from tokenyard.explain.report.report import Report
from tokenyard.questions.sweeping.rows import figures_of

FLAGS = ("--limit", "3", "--rate-scale", "40", "--max-model-len", "8192", "--num-gpu-blocks-override", "900")
BOUNDS = ("--slo", "ttft:800", "tpot:25")


def told(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    code = main(list(words))
    shown = capsys.readouterr()
    assert code == 0, shown.err
    found: dict[str, Any] = json.loads(shown.out)
    return found


@pytest.mark.slow
@given(
    prefill=st.integers(1, 3),
    decode=st.integers(1, 3),
    seats=st.sampled_from([1, 2, 16]),
    gb_per_s=st.sampled_from(["0.2", "50"]),
    tp=st.sampled_from([1, 2]),
    router=st.sampled_from(["vllm", "round-robin"]),
    seed=st.integers(0, 3),
)
@settings(deadline=None, max_examples=examples(12), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_plan_of_one_split_is_that_split(
    *,
    capsys: pytest.CaptureFixture[str],
    prefill: int,
    decode: int,
    seats: int,
    gb_per_s: str,
    tp: int,
    router: str,
    seed: int,
) -> None:
    words = (*FLAGS, *BOUNDS, "--tensor-parallel-size", str(tp), "--kv-link-gb-per-s", gb_per_s, "--seed", str(seed))
    shape = ("--router", router, "--split", f"{prefill}+{decode}", "--json")
    split = told(capsys, "split", "chat", *words, *shape, "--max-num-seqs", str(seats))
    space = ("--space", f"max_num_seqs={seats}", "--price", "h100=2")
    plan = told(capsys, "plan", "chat", *words, *shape, *space, "--no-largest-load")
    (row,) = plan["rows"]
    own = {name: row["figures"].pop(name) for name in [*row["figures"]] if name.startswith("split.")}
    assert row["figures"] == {
        name: value
        for name, value in figures_of(msgspec.convert(split["decode"], Report)).items()
        if not name.startswith("split.")
    }
    assert own == {f"split.{name}": split["use"][name] for name in ("prefill", "decode", "link")}
    assert row["requests"] == split["decode"]["requests_finished"] == split["prefill"]["requests_finished"]
    assert (split["prefill_engines"], split["decode_engines"]) == (prefill, decode)
    assert (row["gpus"], row["cost_per_hour"]) == (tp * (prefill + decode), 2 * tp * (prefill + decode))
