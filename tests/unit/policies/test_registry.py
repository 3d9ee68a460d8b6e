"""Shipped policies are found by name, with or without the installed metadata, and both lists agree."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tokenyard.core.sched.policy import make_policy
from tokenyard.vocabulary import ENTRY_POINT_GROUP, SHIPPED, known_policies

PYPROJECT = Path(__file__).resolve().parents[3] / "pyproject.toml"


@pytest.mark.parametrize("name", SHIPPED)
def test_each_is_made_anew(name: str) -> None:
    assert make_policy(name) is not make_policy(name)
    assert name in known_policies()


def test_the_metadata_say_the_same() -> None:
    with PYPROJECT.open("rb") as file:
        assert tomllib.load(file)["project"]["entry-points"][ENTRY_POINT_GROUP] == SHIPPED
