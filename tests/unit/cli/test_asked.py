"""What rows of a sweep depend on."""

from __future__ import annotations

from pathlib import Path

from tokenyard.questions.experiment import contents_of
from tokenyard.workload.record import Clients, Workload, WorkloadRequest
from tokenyard.workload.tokens import ListedTokens


def test_the_files_of_a_pattern_are_told_by_their_contents(tmp_path: Path) -> None:
    """Else a sweep would go on with rows of yesterday's logs."""
    assert contents_of(str(tmp_path / "*.jsonl")) is None
    (tmp_path / "a.jsonl").write_text("1")
    one = contents_of(str(tmp_path / "*.jsonl"))
    assert one == contents_of(str(tmp_path / "a.jsonl"))
    (tmp_path / "b.jsonl").write_text("2")
    assert contents_of(str(tmp_path / "*.jsonl")) not in (one, None)


def test_a_workload_in_python_is_another_with_other_clients() -> None:
    requests = [WorkloadRequest(request_id="a", prompt=ListedTokens([1, 2, 3]), max_tokens=4)]
    made = [Workload("w", requests, max_concurrency=most) for most in (None, 2, 3)]
    made.append(Workload("w", requests, clients=Clients(timeout=9.0)))
    assert len({contents_of(each) for each in made}) == len(made)
    assert contents_of(Workload("w", requests)) == contents_of(made[0])
