"""benchmarks/engine_replay.py on a tiny model: whether its figures are told and its decisions equal; no times."""

from __future__ import annotations

from pathlib import Path

import pytest
import tests.engine.needs_torch  # noqa: F401 - before whatever imports torch

from engine_replay import predicted, recorded, traffic
from tokenyard.questions.recorded.decisions import drive
from tokenyard.serve.served_model import make_demo_model


@pytest.mark.smoke
@pytest.mark.parametrize("async_scheduling", [False, True])
def test_two_runs_and_their_replays(tmp_path: Path, async_scheduling: bool) -> None:
    both = [traffic(turns=2, requests=8, rate=20.0, seed=seed) for seed in (1, 2)]
    calls: list[None] = []
    runs = recorded(
        make_demo_model(tmp_path / "model"),
        tmp_path,
        both,
        lambda: calls.append(None),
        max_num_seqs=4,
        max_num_batched_tokens=64,
        max_model_len=512,
        num_gpu_blocks_override=60,
        async_scheduling=async_scheduling,
    )
    assert len(calls) == 4
    for run, parts, other in zip(runs, both, reversed(runs), strict=True):
        asked = [each for part in parts for each in part]
        lengths = [(len(request.prompt), request.max_tokens) for request in run.workload]
        assert sorted(lengths) == sorted((len(each.prompt), each.max_tokens) for each in asked)
        driven = drive(run)
        assert driven.first_difference is None
        assert driven.equal == driven.steps > 50
        for figure in predicted(run, other):
            assert figure.measured > 0
            assert figure.replayed > 0
