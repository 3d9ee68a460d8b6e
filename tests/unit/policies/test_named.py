"""A policy by name or from a file; whatever is wrong with the file is said in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from tokenyard.core.sched.policy import Policy
from tokenyard.errors import ConfigError
from tokenyard.policies.named import policy_label, policy_maker
from tokenyard.policies.simple import Bypass, KeyedPolicy

MINE = """
from dataclasses import dataclass

from tokenyard.policies.simple import KeyedPolicy


@dataclass
class Deadline(KeyedPolicy):
    slack: float = 2.0

    def key(self, request):
        return (request.arrival_time + self.slack,)


class Needs(KeyedPolicy):
    def __init__(self, tau):
        self.tau = tau

    def key(self, request):
        return (self.tau,)


class NoPolicy:
    pass
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(MINE, encoding="utf-8")
    return path


def test_a_registered_name_makes_a_new_one_each_time() -> None:
    make = policy_maker("bypass")
    assert isinstance(make(), Bypass)
    assert make() is not make()
    assert policy_label("bypass") == "bypass"


def test_a_class_of_a_file(mine: Path) -> None:
    make = policy_maker(f"{mine}:Deadline")
    assert isinstance(make(), Policy)
    assert type(make()).__name__ == "Deadline"
    assert make() is not make()
    assert policy_label(f"{mine}:Deadline") == "Deadline"


@pytest.mark.parametrize(
    ("end", "fragments"),
    [
        (":Deadlin", ("holds no Deadlin", "mine.py:Deadline, ", "mine.py:Needs")),
        ("", ("mine.py:Deadline",)),
        (":Needs", ("without arguments", "tau")),
        (":NoPolicy", ("derive", "Policy")),
    ],
)
def test_mistakes_name_what_to_type(end: str, fragments: tuple[str, ...], mine: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        policy_maker(f"{mine}{end}", "policies")
    assert caught.value.field == "policies"
    assert all(fragment in caught.value.fix for fragment in fragments)


@pytest.mark.parametrize(
    ("text", "fragments"),
    [
        ("x = 1\nimport nowhere_at_all\n", (":2 fails", "nowhere_at_all")),
        ("class A:\n  x = (\n", (":2 fails", "Syntax")),
    ],
)
def test_a_file_that_cannot_be_run_names_its_line(text: str, fragments: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        policy_maker(f"{path}:A")
    assert all(fragment in caught.value.fix for fragment in fragments)


@pytest.mark.parametrize(("spec", "fix"), [("lifo", "FILE.py:CLASS"), ("nowhere.py:A", "no file nowhere.py")])
def test_what_nobody_knows(spec: str, fix: str) -> None:
    with pytest.raises(ConfigError) as caught:
        policy_maker(spec)
    assert fix in caught.value.fix


@pytest.mark.parametrize("body", ["import sys\nsys.exit(0)", "raise SystemExit('done')"])
def test_a_script_that_ends_itself_is_no_policy(body: str, tmp_path: Path) -> None:
    """It would end a replay as if all had been done."""
    (tmp_path / "script.py").write_text(f"{body}\n")
    with pytest.raises(ConfigError, match=r"script\.py:\d fails: SystemExit"):
        policy_maker(f"{tmp_path / 'script.py'}:Any")


def test_an_order_by_key_without_a_key_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"Misspelt\.key.*is missing") as e:
        type("Misspelt", (KeyedPolicy,), {"weight": lambda self, request: (0.0,)})
    assert e.value.field == "policy"
