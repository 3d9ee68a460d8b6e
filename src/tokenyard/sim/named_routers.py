"""A router by what a user types: a name, or ``FILE.py:CLASS``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tokenyard.errors import ConfigError
from tokenyard.keywords import suggests_keywords
from tokenyard.policies.named import class_from_file
from tokenyard.sim.kv_routers import LLMD, CacheAware, DynamoKV, PrefixAware, RayServe, SessionAffinity
from tokenyard.sim.routers import Fleet, LeastLoaded, PrefixAffinity, RoundRobin, Router, VLLMBalancing
from tokenyard.vocabulary import file_and_class

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

RouterMaker = Callable[[Fleet], Router]
"""Makes a router that has seen nothing yet: every replay needs one of its own."""

ROUTERS: dict[str, RouterMaker] = {
    "vllm": VLLMBalancing,
    "round-robin": lambda _: RoundRobin(),
    "least-loaded": lambda _: LeastLoaded(),
    "prefix-affinity": lambda _: PrefixAffinity(),
}
"""Name -> what makes the router, of those that need no KV cache of an engine."""
KV_ROUTERS: dict[str, RouterMaker] = {
    "llm-d": lambda _: LLMD(),
    "dynamo": lambda _: DynamoKV(),
    "cache-aware": lambda _: CacheAware(),
    "ray-serve": lambda _: RayServe(),
    "prefixaware": lambda _: PrefixAware(),
    "session-affinity": lambda _: SessionAffinity(),
}
"""Name -> what makes the router, of those that ask an engine what it has cached."""
ENTRY_POINTS = "tokenyard.routers"
"""Group under which other packages register routers: classes, or functions that make one without arguments."""


def router_names() -> list[str]:
    """Names of the routers that are shipped and installed."""
    return [*ROUTERS, *KV_ROUTERS, *(point.name for point in _installed())]


def _installed() -> Sequence[EntryPoint]:
    from importlib.metadata import entry_points  # noqa: PLC0415 - it loads zip files and e-mail, and is rarely needed

    return list(entry_points(group=ENTRY_POINTS))


@suggests_keywords()
def router_maker(spec: str) -> RouterMaker:
    """Makes the router that ``spec`` names; a file is run now, and one router made to see that it can be.

    Raises ConfigError if the name is not known, or what it names makes no router.
    """
    file, _ = file_and_class(spec)
    if file:
        of_file = class_from_file(spec, Router, "router", "tokenyard.sim.Router")
        return lambda _: of_file()
    if shipped := ROUTERS.get(spec) or KV_ROUTERS.get(spec):
        return shipped
    for point in _installed():
        if point.name == spec:
            return _of_entry_point(point)
    known = ", ".join(router_names())
    raise ConfigError("router", spec, f"use one of: {known}; or FILE.py:CLASS for one of your own")


def _of_entry_point(point: EntryPoint) -> RouterMaker:
    """What another package registered: whatever is wrong with it is its author's to mend."""
    try:
        make = point.load()
        made = make()
    except Exception as error:
        problem = f"its entry point {point.value} cannot be used: {type(error).__name__}: {error}"
        raise ConfigError("router", point.name, problem) from error
    if not isinstance(made, Router):
        problem = f"its entry point {point.value} makes a {type(made).__name__}: derive it from tokenyard.sim.Router"
        raise ConfigError("router", point.name, problem)
    return lambda _: make()
