"""The scenarios that are recorded: small engines, so that limits are met often, and seeds of their own.

``scenarios.json`` has them, a line each. An array that begins with the name of a maker of ``workloads`` is a call of
it, its arguments by name in an object at the end; every other array is a tuple.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from recorder import workloads
from recorder.plan import Engine, Group, Scenario

__all__ = ["LATER", "RINGS", "SCENARIOS"]

_LISTED = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))


def _made(said: Any) -> Any:
    if not isinstance(said, list):
        return said
    if not said or said[0] not in workloads.__all__:
        return tuple(map(_made, said))
    maker, *arguments = said
    if maker == "mostly_rising":
        return workloads.mostly_rising
    named = arguments.pop() if isinstance(arguments[-1], dict) else {}
    return getattr(workloads, maker)(*map(_made, arguments), **{name: _made(each) for name, each in named.items()})


def _scenario(engine: dict[str, Any], build: Any, shows: Any = (), **others: Any) -> Scenario:
    groups = engine.get("groups")
    whole = {**engine, "groups": groups and tuple(Group(**group) for group in groups)}
    return Scenario(engine=Engine(**whole), build=_made(build), shows=tuple(shows), **others)


def _scenarios(name: str) -> tuple[Scenario, ...]:
    return tuple(_scenario(**each) for group in _LISTED[name].values() for each in group)


SCENARIOS = _scenarios("all")
LATER = _scenarios("later")
"""What came after 0.22: recorded from later versions only."""
RINGS = _scenarios("rings")
"""What only versions with circular buffers have."""
