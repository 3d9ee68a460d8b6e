"""Tiny random checkpoints, made once per run, and the tokens that transformers generates with them.

Everything here needs torch and transformers (``make test-engine``); without them it is skipped, and says so.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

_MISSING = "needs torch and transformers: run make test-engine"
pytest.importorskip("torch", reason=_MISSING)
pytest.importorskip("transformers", reason=_MISSING)

from tests.engine.tiny_models import FAMILIES, Checkpoint, make_checkpoint  # noqa: E402


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Checkpoint]:
    """A family's checkpoint, made when it is first asked for."""
    made: dict[str, Checkpoint] = {}
    folder: Path = tmp_path_factory.mktemp("models")

    def of(family: str) -> Checkpoint:
        if family not in made:
            made[family] = make_checkpoint(family, folder / family)
        return made[family]

    return of


@pytest.fixture(params=FAMILIES)
def checkpoint(request: pytest.FixtureRequest, checkpoints: Callable[[str], Checkpoint]) -> Checkpoint:
    return checkpoints(request.param)
