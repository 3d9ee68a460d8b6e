"""A sweep on a local Ray cluster, one of whose two workers is killed, and through the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.integration.command import call

pytest.importorskip("ray", reason="Ray is not installed (extra ray)")
pytest.importorskip("pyarrow")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


def test_a_worker_that_is_killed_loses_no_row(tmp_path: Path) -> None:
    from ray_sweep import grid_of, job_of, on_dying_cluster, table_of  # noqa: PLC0415 - needs Ray
    from tokenyard.questions.experiment import measured  # noqa: PLC0415 - as above

    job, variants = job_of(), grid_of(24)
    serial = table_of(measured(job, variants), variants, tmp_path / "serial")
    mark = tmp_path / "killed"
    assert table_of(on_dying_cluster(job, variants, mark), variants, tmp_path / "ray") == serial
    assert mark.exists()


def test_the_command_on_a_local_cluster(tmp_path: Path) -> None:
    words = ("sweep", "chat", "--limit", "3", "--num-gpu-blocks-override", "900", "--max-model-len", "8192")
    grid = ("--set", "max_num_seqs=1,2,3", "--json")
    alone = json.loads(call(*words, *grid, "--output", "alone", cwd=tmp_path).stdout)
    on_ray = json.loads(call(*words, *grid, "--output", "ray", "--ray", "local", cwd=tmp_path).stdout)
    assert on_ray["rows"] == alone["rows"]
    assert (tmp_path / "ray/sweep.parquet").read_bytes() == (tmp_path / "alone/sweep.parquet").read_bytes()
    nowhere = call(*words, *grid, "--output", "no", "--ray", "127.0.0.1:1", cwd=tmp_path)
    assert nowhere.code == 2
    assert "--ray = '127.0.0.1:1': there is no such cluster" in nowhere.stderr
