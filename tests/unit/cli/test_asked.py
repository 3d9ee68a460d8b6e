"""What rows of a sweep depend on."""

from __future__ import annotations

from pathlib import Path

from tokenyard.questions.kept import contents_of


def test_the_files_of_a_pattern_are_told_by_their_contents(tmp_path: Path) -> None:
    """Else a sweep would go on with rows of yesterday's logs."""
    assert contents_of(str(tmp_path / "*.jsonl")) is None
    (tmp_path / "a.jsonl").write_text("1")
    one = contents_of(str(tmp_path / "*.jsonl"))
    assert one == contents_of(str(tmp_path / "a.jsonl"))
    (tmp_path / "b.jsonl").write_text("2")
    assert contents_of(str(tmp_path / "*.jsonl")) not in (one, None)
