"""Shipped policies are found by name, whatever the installed metadata say."""

from __future__ import annotations

import pytest

from tokenyard.core.sched.policy import make_policy
from tokenyard.vocabulary import SHIPPED, known_policies


@pytest.mark.parametrize("name", SHIPPED)
def test_each_is_made_anew(name: str) -> None:
    assert make_policy(name) is not make_policy(name)
    assert name in known_policies()
