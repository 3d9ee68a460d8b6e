"""vLLM's scheduler and KV-cache manager as a library: the same decisions, cheaper, each with its reason.

This module is the front door: ``from tokenyard import Scheduler, SchedulerConfig``. Users may rely on the names in its
``__all__``, on those that the packages in ``NAMESPACES`` offer (``from tokenyard.connectors import Match``), and on
what the page ``api`` of the site says of them; everything else is private, whatever its name, and may change without
notice. A name has one public place. ``import tokenyard`` loads none of them: a name is loaded when it is first asked
for, so that reading a trace costs no scheduler and asking for the version costs nothing.
"""

from __future__ import annotations

from os import environ

from tokenyard.lazy import lazy_names

if environ.get("TOKENYARD_INTERPRETED", "0") not in ("", "0"):
    from tokenyard.compiled import prefer_text

    prefer_text(__path__[0])

NAMESPACES = {
    "tokenyard.deploy": "Settings of deployments",
    "tokenyard.questions": "Answers of questions",
    "tokenyard.core": "Steps in full: settings, state, refusals and records",
    "tokenyard.serve": "Pieces of a step loop",
    "tokenyard.policies": "For policies of your own, and CONTINUUM",
    "tokenyard.connectors": "The connectors, and for those of your own",
    "tokenyard.sim": "Settings and results of replays, latency models",
    "tokenyard.errors": "Errors that are seldom caught one by one",
}
"""Packages with names of their own that programs may rely on -> what for."""

OFFERED, __all__, __getattr__, __dir__ = lazy_names(__name__, submodules=NAMESPACES)
