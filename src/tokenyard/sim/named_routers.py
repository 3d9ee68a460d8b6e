"""A router by what a user types: a name, or ``FILE.py:CLASS``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tokenyard.arguments import given_text, suggests_keywords
from tokenyard.errors import ConfigError
from tokenyard.plugins import installed, made_of_package
from tokenyard.policies.named import class_from_file
from tokenyard.sim.kv_routers import LLMD, CacheAware, DynamoKV, PrefixAware, RayServe, SessionAffinity
from tokenyard.sim.routers import Fleet, LeastLoaded, PrefixAffinity, RoundRobin, Router, VLLMBalancing
from tokenyard.vocabulary import file_and_class

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


def router_names() -> list[str]:
    """Names of the routers that are shipped and installed."""
    return [*ROUTERS, *KV_ROUTERS, *(point.name for point in installed("router"))]


@suggests_keywords()
def router_maker(spec: str) -> RouterMaker:
    """Makes the router that ``spec`` names; a file is run now, and one router made to see that it can be.

    Raises ConfigError if the name is not known, or what it names makes no router.
    """
    file, _ = file_and_class(given_text("router", spec, "give the name of a router, or FILE.py:CLASS, as a text"))
    if file:
        of_file = class_from_file(spec, Router, "router", "tokenyard.sim.Router")
        return lambda _: of_file()
    if shipped := ROUTERS.get(spec) or KV_ROUTERS.get(spec):
        return shipped
    for point in installed("router"):
        if point.name == spec:
            make = partial(made_of_package, point, "router", Router, "tokenyard.sim.Router")
            make()
            return lambda _: make()
    known = ", ".join(router_names())
    raise ConfigError("router", spec, f"use one of: {known}; or FILE.py:CLASS for one of your own")
