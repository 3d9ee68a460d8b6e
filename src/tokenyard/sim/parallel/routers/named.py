"""A router by what a user types: a name, or ``FILE.py:CLASS``."""

from __future__ import annotations

from collections.abc import Callable

from tokenyard.errors import ConfigError
from tokenyard.policies.plugin_file import class_from_file
from tokenyard.sim.parallel.routers.router import Router
from tokenyard.sim.parallel.routers.simple import LeastLoaded, PrefixAffinity, RoundRobin
from tokenyard.sim.parallel.routers.vllm import Fleet, VLLMBalancing
from tokenyard.vocabulary.policy_names import file_and_class

__all__ = ["ROUTERS", "RouterMaker", "router_maker"]

RouterMaker = Callable[[Fleet], Router]
"""Makes a router that has seen nothing yet: every replay needs one of its own."""

ROUTERS: dict[str, RouterMaker] = {
    "vllm": VLLMBalancing,
    "round-robin": lambda _: RoundRobin(),
    "least-loaded": lambda _: LeastLoaded(),
    "prefix-affinity": lambda _: PrefixAffinity(),
}
"""Those that are shipped, by name."""


def router_maker(spec: str) -> RouterMaker:
    """Makes the router that ``spec`` names; a file is run now, and one router made to see that it can be.

    Raises ConfigError if nobody knows the name or the file does not hold such a router.
    """
    file, _ = file_and_class(spec)
    if not file:
        if spec not in ROUTERS:
            raise ConfigError("router", spec, f"use one of: {', '.join(ROUTERS)}; or FILE.py:CLASS for one of your own")
        return ROUTERS[spec]
    make = class_from_file(spec, Router, "router", "tokenyard.sim.Router")
    return lambda _: make()
