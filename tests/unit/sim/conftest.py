"""Helpers of the simulation tests."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

Writer = Callable[..., Path]


@pytest.fixture
def write_lines(tmp_path: Path) -> Writer:
    """Write texts or objects (as JSON) line by line into a file, gzipped if its name ends in .gz."""

    def write(*lines: object, name: str = "workload.jsonl") -> Path:
        text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines).encode()
        path = tmp_path / name
        path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
        return path

    return write
