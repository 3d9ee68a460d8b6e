"""The viewer's own figures of a trace, computed by its sources in one node process that stays alive."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import pytest

__all__ = ["HeadlessViewer", "TraceLines"]

VIEWER = Path(__file__).resolve().parents[2] / "viewer"


class TraceLines(NamedTuple):
    """A trace as text: the lines of its two files."""

    steps: list[str]
    requests: list[str]

    @classmethod
    def of(cls, path: Path) -> TraceLines:
        """The one trace in a folder."""
        steps, requests = (sorted(path.glob(f"*.{kind}.jsonl")) for kind in ("steps", "requests"))
        return cls(*([*_lines(files[0])] if files else [] for files in (steps, requests)))

    def write(self, path: Path) -> Path:
        """Write it into a folder."""
        path.mkdir(parents=True, exist_ok=True)
        for kind, lines in self._asdict().items():
            if lines:
                (path / f"a.{kind}.jsonl").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        return path


def _lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines()


class HeadlessViewer:
    """Answers with what the page would show."""

    def __init__(self, folder: Path) -> None:
        esbuild = VIEWER / "node_modules" / ".bin" / "esbuild"
        if shutil.which("node") is None:
            pytest.skip("node is missing: the viewer's figures cannot be compared")
        if not esbuild.exists():
            pytest.skip("the viewer's tools are not installed: run `make viewer-check`")
        bundle = folder / "headless.mjs"
        options = ["--bundle", "--platform=node", "--format=esm", "--log-level=warning", f"--outfile={bundle}"]
        subprocess.run([str(esbuild), str(VIEWER / "src" / "headless.ts"), *options], check=True)
        self._node = subprocess.Popen(
            ["node", bundle], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    def ask(
        self, trace: TraceLines, other: TraceLines | None = None, bounds: Mapping[str, float | None] | None = None
    ) -> dict[str, Any]:
        """Everything the viewer says of a trace, and of the comparison with another.

        ``bounds`` are those of the goodput: ``ttft``, ``tpot`` and ``e2e`` in milliseconds, None for none.
        """
        question: dict[str, Any] = {"trace": trace._asdict(), "bounds": bounds}
        if other is not None:
            question["other"] = other._asdict()
        assert self._node.stdin is not None
        assert self._node.stdout is not None
        self._node.stdin.write(json.dumps(question) + "\n")
        self._node.stdin.flush()
        answer: dict[str, Any] = json.loads(self._node.stdout.readline())
        assert "failed" not in answer, answer["failed"]
        return answer

    def __enter__(self) -> HeadlessViewer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._node.communicate(timeout=20)
