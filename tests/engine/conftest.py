"""Tiny random checkpoints, made once per run; nothing here imports torch before a test asks for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.engine.sizes import FAMILIES

if TYPE_CHECKING:
    from tests.engine.tiny_models import Checkpoint

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Checkpoint]:
    """A family's checkpoint, made when it is first asked for."""
    from tests.engine.tiny_models import make_checkpoint

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
