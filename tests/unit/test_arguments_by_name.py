"""A misspelt keyword argument of the front door is refused with the one that is meant."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

import pytest

import tokenyard
from public_names import public_names
from tokenyard import ConfigError, Deployment, Recording, WorkloadBuilder
from tokenyard.errors import UnknownArgumentError
from tokenyard.sim import ReplayRows, Session

SMALL = Deployment(model="llama-3.2-1b", gpu="l4")
PLACES = {"tokenyard": tokenyard.__all__, **{each: public_names(each) for each in tokenyard.NAMESPACES}}
CLASSES = (Deployment, Recording, WorkloadBuilder, Session, ReplayRows)
MADE = (Recording, WorkloadBuilder)
"""Users make objects of these; a deployment says itself which settings there are."""
OTHERS = {"load_engine", "seed_of"}
"""Further names of the one are settings; the other takes none."""


def _asked() -> Iterator[tuple[str, Callable[..., Any]]]:
    """What a user calls with names: functions outside the core, and methods of what they begin with."""
    for place, names in PLACES.items():
        for name in names:
            offered = getattr(import_module(place), name)
            if inspect.isfunction(offered) and ".core." not in offered.__module__:
                yield name, offered
    for kind in CLASSES:
        for name, method in vars(kind).items():
            if inspect.isfunction(method) and (name[0] != "_" or (name == "__init__" and kind in MADE)):
                yield f"{kind.__name__}.{name}", method


ASKED = {
    name: function
    for name, function in _asked()
    if name not in OTHERS and set(inspect.signature(function).parameters) - {"self"}
}


def _required(function: Callable[..., Any]) -> dict[str, None]:
    return {
        each.name: None
        for each in inspect.signature(function).parameters.values()
        if each.default is each.empty and each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)
    }


@pytest.mark.parametrize("name", ASKED)
def test_whatever_takes_names_suggests_one(name: str) -> None:
    function = ASKED[name]
    with pytest.raises(UnknownArgumentError) as caught:
        function(**_required(function), no_such_argument=17)
    error = caught.value
    assert (error.field, error.value, error.called) == ("no_such_argument", 17, name.removesuffix(".__init__"))
    assert isinstance(error, TypeError)


def test_there_are_many() -> None:
    assert {"run", "whatif", "why", "replay", "Deployment.sweep", "Recording", "Session.turn"} <= {
        name.removesuffix(".__init__") for name in ASKED
    }
    assert len(ASKED) > 40


NEAR: dict[str, tuple[Callable[..., Any], dict[str, Any], str]] = {
    "Deployment.replay": (partial(SMALL.replay, "random"), {"polcy": "fcfs"}, "policy"),
    "Deployment.plan": (partial(SMALL.plan, "random"), {"sloo": {}}, "slo"),
    "Deployment.sweep": (partial(SMALL.sweep, "random", {}), {"vriants": []}, "variants"),
    "run": (partial(tokenyard.run, "random", SMALL), {"num_prompt": 3}, "num_prompts"),
    "whatif": (partial(tokenyard.whatif, "trace"), {"recoded": SMALL}, "recorded"),
    "why": (partial(tokenyard.why, "trace"), {"requestid": "r"}, "request_id"),
    "headroom": (tokenyard.headroom, {"deploymnt": SMALL}, "deployment"),
    "WorkloadBuilder.poisson": (WorkloadBuilder("w").poisson, {"rat": 1}, "rate"),
    "Session.turn": (WorkloadBuilder("w").session().turn, {"usr": 1, "output": 3}, "user"),
    "load_workload": (partial(tokenyard.load_workload, "chat"), {"limt": 3}, "limit"),
}


@pytest.mark.parametrize("name", NEAR)
def test_the_nearest_is_named(name: str) -> None:
    ask, given, meant = NEAR[name]
    wrong, value = next(iter(given.items()))
    with pytest.raises(ConfigError) as caught:
        ask(**given)
    assert str(caught.value) == f"{wrong} = {value!r}: {name}() takes no such argument: did you mean {meant}?"
    assert caught.value.code == "unknown_argument"


def test_all_are_named_where_none_is_near() -> None:
    given: dict[str, Any] = {"zzz": 1}
    with pytest.raises(UnknownArgumentError, match=r"zzz = 1: report\(\) takes no such argument: it takes trace, slo$"):
        tokenyard.report("trace", **given)


def test_a_setting_of_the_deployment_is_said_to_be_one() -> None:
    with pytest.raises(UnknownArgumentError) as caught:
        SMALL.replay("random", max_num_seqs=3)
    assert caught.value.fix.endswith(
        "it is a setting of the deployment, Deployment(..., max_num_seqs=...) or with_(max_num_seqs=...)"
    )


def test_names_that_are_meant_to_be_there_pass() -> None:
    result = SMALL.replay("random", num_prompts=3, input_len=8, output_len=2, warmup=0.0, slo={"ttft": "1s"})
    assert len(result.requests) == 3
    assert inspect.signature(tokenyard.run).parameters["warmup"].default == 0.0
