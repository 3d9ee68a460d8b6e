"""Policies beyond vLLM's two, each behind the plug-in interface of :mod:`tokenyard.core.sched.policy`.

What this package offers beyond ``Policy`` and ``KeyedPolicy``: what a policy of your own is given, and CONTINUUM's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenyard.lazy import lazy_names

__all__ = [
    "Continuum",
    "FCFSQueue",
    "FinishedTurn",
    "Observations",
    "PinBoard",
    "PolicyContext",
    "PrefillReload",
    "PriorityQueue",
    "RequestQueue",
    "ToolReader",
    "TtlRule",
    "WaitingQueues",
    "continuum_fixed",
    "continuum_share",
    "continuum_ttl",
    "known_policies",
]

OFFERED = {
    "tokenyard.core.sched.policy": ("PolicyContext",),
    "tokenyard.vocabulary": ("known_policies",),
    "tokenyard.core.sched.queues": ("WaitingQueues", "RequestQueue", "FCFSQueue", "PriorityQueue"),
    "tokenyard.core.sched.features.sessions": ("PinBoard",),
    "tokenyard.policies.continuum.policy": ("Continuum", "continuum_fixed", "continuum_ttl", "continuum_share"),
    "tokenyard.policies.continuum.ttl": ("TtlRule", "FinishedTurn", "Observations", "PrefillReload"),
    "tokenyard.policies.continuum.tools": ("ToolReader",),
}

if TYPE_CHECKING:
    from tokenyard.core.sched.features.sessions import PinBoard
    from tokenyard.core.sched.policy import PolicyContext
    from tokenyard.core.sched.queues import FCFSQueue, PriorityQueue, RequestQueue, WaitingQueues
    from tokenyard.policies.continuum.policy import Continuum, continuum_fixed, continuum_share, continuum_ttl
    from tokenyard.policies.continuum.tools import ToolReader
    from tokenyard.policies.continuum.ttl import FinishedTurn, Observations, PrefillReload, TtlRule
    from tokenyard.vocabulary import known_policies
else:
    __getattr__, __dir__ = lazy_names(__name__, OFFERED)
