"""Policies: the two built-in ones, those that others register, and names that are not known."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from tests.support.toy_engine import ToyEngine, make_request

from tokenyard.core.config import SchedulerConfig
from tokenyard.core.request import Request
from tokenyard.core.sched.connector import KVConnector
from tokenyard.core.sched.observer import StepObserver
from tokenyard.core.sched.policy import FCFS, Policy, PolicyGate, Priority, make_policy
from tokenyard.core.sched.queues import PriorityQueue, WaitingQueues
from tokenyard.errors import ConfigError
from tokenyard.policies.named import policy_maker
from tokenyard.policies.simple import KeyedPolicy, ShortestRemaining
from tokenyard.vocabulary import ENTRY_POINT_GROUP, known_policies


class ShortestFirst(FCFS):
    """A policy of another package: the shortest prompt first, the longest running request is the victim."""

    def new_queue(self) -> PriorityQueue:
        return PriorityQueue(key=lambda request: (request.num_prompt_tokens, request.request_id))

    def victim(self, running: Sequence[Request]) -> int:
        return max(range(len(running)), key=lambda i: running[i].num_tokens)


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """``ShortestFirst`` as if an installed package had registered it under the name ``shortest``."""
    point = EntryPoint("shortest", f"{__name__}:ShortestFirst", ENTRY_POINT_GROUP)
    monkeypatch.setattr(EntryPoint, "load", lambda self: ShortestFirst)

    def entry_points(*, group: str) -> Sequence[EntryPoint]:
        return [point] if group == ENTRY_POINT_GROUP else []

    monkeypatch.setattr("importlib.metadata.entry_points", entry_points)


def test_built_in_policies_are_found_by_name() -> None:
    assert isinstance(make_policy("fcfs"), FCFS)
    assert isinstance(make_policy("priority"), Priority)
    assert {"fcfs", "priority"} <= set(known_policies())


@pytest.mark.parametrize("name", ["lifo", "FCFS", "fcfs "])
def test_an_unknown_name_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(ConfigError, match=r"use one of: .*fcfs.*priority") as refusal:
        make_policy(name)
    assert (refusal.value.field, refusal.value.value) == ("policy", name)
    with pytest.raises(ConfigError, match=r"use one of: .*fcfs.*priority"):
        SchedulerConfig(policy=name)


@pytest.mark.parametrize(
    ("written", "meant"),
    [("srtp", "shortest-remaining"), ("fair_share", "fair-share"), ("FCFS", "fcfs"), ("fifo", "fcfs")],
)
def test_the_nearest_name_is_said(written: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"policy = '{written}': did you mean {meant}[?] use one of: "):
        SchedulerConfig(policy=written)


def test_a_file_is_looked_at_when_it_is_needed() -> None:
    config = SchedulerConfig(policy="nowhere.py:Mine")
    with pytest.raises(ConfigError, match=r"load it with tokenyard\.policy_maker"):
        make_policy(config.policy)


# ---- misspelt hooks


def test_a_misspelt_hook_is_refused_when_the_class_is_made() -> None:
    with pytest.raises(ConfigError, match=r"policy = 'Mine\.victm': is no hook, .* did you mean victim[?]"):
        type("Mine", (Policy,), {"victm": lambda self, running: 0})
    with pytest.raises(ConfigError, match="did you mean reads_tokens"):
        type("Mine", (Policy,), {"read_tokens": False})
    with pytest.raises(ConfigError, match="did you mean step_decided"):
        type("Mine", (StepObserver,), {"step_decide": lambda self: None})
    with pytest.raises(ConfigError, match="did you mean key"):
        type("Mine", (KeyedPolicy,), {"keys": lambda self, request: (0,)})


@pytest.mark.parametrize(
    ("kind", "written", "meant"),
    [
        *((Policy, "skps", "skips"), (Policy, "admit", "admits"), (Policy, "victims", "victim")),
        *((KeyedPolicy, "kee", "key"), (KeyedPolicy, "kye", "key"), (ShortestRemaining, "keys", "key")),
        *((StepObserver, "step_complete", "step_completed"), (StepObserver, "step_starts", "step_started")),
        (KVConnector, "get_num_new_matched_token", "get_num_new_matched_tokens"),
    ],
)
def test_a_misspelt_hook_is_told_its_name(kind: type, written: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=rf"'Mine\.{written}': is no hook, .* did you mean {meant}") as caught:
        type("Mine", (kind,), {written: lambda self, *given: None})
    assert caught.value.field in ("policy", "observer", "kv_connector")
    assert caught.value.value == f"Mine.{written}"


def test_a_helper_beside_its_hook_is_legal() -> None:
    def anything(*given: object) -> int:
        return 0

    type("Mine", (Policy,), {"victim": anything, "select_victim": anything, "pick_victim": anything})
    scored = type("Scored", (KeyedPolicy,), {"key": anything, "score": anything, "get_key": anything})
    type("Below", (scored,), {"sort_key": anything})
    type("Far", (Policy,), {"remaining": anything, "by_tenant": anything, "tokens_of": anything, "score": anything})
    type("Engine", (KVConnector,), {"start_load_kv": anything, "save_kv_layer": anything, "wait_for_save": anything})


def test_names_of_ones_own_are_not_hooks() -> None:
    names = ("preferred", "_victm", "remaining", "score", "tau", "pin", "predict", "on_step", "summary")
    kind = type("Mine", (Policy, StepObserver), dict.fromkeys(names, 1))
    helper = type("Helper", (), {"victims": 3})
    type("Both", (helper, kind), {"victims": 4})  # another base of its own knows the name


@pytest.mark.usefixtures("registered")
def test_a_registered_policy_is_known() -> None:
    assert {"fcfs", "priority", "shortest"} <= set(known_policies())
    assert isinstance(make_policy("shortest"), ShortestFirst)
    assert isinstance(make_policy("fcfs"), FCFS), "built-in names stay ours"


BROKEN = """
raise_it = lambda: 1 / 0
a_text = str
def needs(tau): ...
"""


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("absent_package.policies:Mine", "cannot be loaded: ModuleNotFoundError: No module named 'absent_package'"),
        ("broken_plug_in:Mine", "cannot be loaded: AttributeError: .* 'Mine'"),
        ("broken_plug_in:raise_it", "cannot be called without arguments: ZeroDivisionError: division by zero"),
        ("broken_plug_in:needs", "cannot be called without arguments: TypeError: .*'tau'"),
        ("broken_plug_in:a_text", "makes a str: derive it from tokenyard.Policy"),
        ("broken_plug_in", "cannot be called without arguments: TypeError: 'module' object is not callable"),
        ("not an entry point", "cannot be loaded: "),
    ],
)
def test_an_installed_policy_that_does_not_work_is_named(
    value: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Installed for real, as far as the interpreter can tell."""
    metadata = tmp_path / "broken_plug_in-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-plug-in\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[{ENTRY_POINT_GROUP}]\nnice = {value}\n")
    (tmp_path / "broken_plug_in.py").write_text(BROKEN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "broken_plug_in", raising=False)
    message = f"policy = 'nice': its entry point {value} {reason}"
    with pytest.raises(ConfigError, match=message):
        make_policy("nice")
    with pytest.raises(ConfigError, match=message):
        ToyEngine(policy="nice")
    with pytest.raises(ConfigError, match=f"scheduling_{message}"):
        policy_maker("nice", "scheduling_policy")
    assert isinstance(make_policy("fcfs"), FCFS)


@pytest.mark.usefixtures("registered")
def test_a_registered_policy_decides_who_is_tried_first() -> None:
    toy = ToyEngine(policy="shortest", max_num_seqs=2)
    for name, length in (("long", 12), ("short", 3), ("middle", 7)):
        toy.add(name, length)
    toy.step()
    assert (toy.running, toy.waiting) == (["short", "middle"], ["long"])


def test_a_policy_object_may_be_handed_in_and_chooses_the_victim() -> None:
    toy = ToyEngine(policy_object=ShortestFirst(), num_gpu_blocks=6)
    for name, length in (("a", 4), ("b", 12)):
        toy.add(name, length, max_tokens=6)
    toy.step()
    assert (toy.running, toy.free) == (["a", "b"], 1)
    toy.step()
    assert toy.running == ["a"]
    assert [victim.request_id for victim in toy.outcomes.preemptions] == ["b"]


def _running(*orders: tuple[int, float]) -> list[Request]:
    return [make_request(f"r{i}", priority=p, arrival_time=at) for i, (p, at) in enumerate(orders)]


def test_fcfs_preempts_the_tail() -> None:
    assert FCFS().victim(_running((0, 9.0), (9, 0.0), (0, 0.0))) == 2


@pytest.mark.parametrize(
    ("orders", "victim"),
    [
        ([(0, 0.0)], 0),
        ([(0, 5.0), (2, 1.0), (1, 9.0)], 1),
        ([(1, 5.0), (1, 7.0), (1, 6.0)], 1),
        ([(1, 5.0), (1, 5.0), (0, 9.0)], 0),  # equals: the first of them, the id is no tie-breaker
    ],
)
def test_priority_preempts_the_worst(orders: list[tuple[int, float]], victim: int) -> None:
    assert Priority().victim(_running(*orders)) == victim


def _waiting_queues(policy: Any, waiting: list[Request], skipped: list[Request]) -> WaitingQueues:
    queues = WaitingQueues(PolicyGate(policy).new_queue, 4)
    for each in waiting:
        queues.waiting.add(each)
    for each in skipped:
        queues.skipped.add(each)
    return queues


def test_fcfs_tries_skipped_requests_first() -> None:
    a, b = make_request("a"), make_request("b")
    policy = FCFS()
    queues = _waiting_queues(policy, [a], [b])
    assert policy.next_queue(queues) is queues.skipped
    queues.skipped.pop()
    assert policy.next_queue(queues) is queues.waiting


@pytest.mark.parametrize(
    ("waiting", "skipped", "first"), [(1, 2, "waiting"), (2, 1, "skipped"), (1, None, "waiting"), (None, 1, "skipped")]
)
def test_priority_tries_the_better_head(waiting: int | None, skipped: int | None, first: str) -> None:
    policy = Priority()
    queues = _waiting_queues(
        policy,
        [] if waiting is None else [make_request("w", priority=waiting)],
        [] if skipped is None else [make_request("s", priority=skipped)],
    )
    assert policy.next_queue(queues) is getattr(queues, first)
