"""Policies beyond vLLM's two, each behind the plug-in interface of :mod:`tokenyard.sched.policy`.

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
    "tokenyard.sched.policy": ("PolicyContext",),
    "tokenyard.vocabulary.policy_names": ("known_policies",),
    "tokenyard.sched.queues.waiting": ("WaitingQueues", "RequestQueue", "FCFSQueue", "PriorityQueue"),
    "tokenyard.sched.features.pins": ("PinBoard",),
    "tokenyard.policies.continuum.policy": ("Continuum", "continuum_fixed", "continuum_ttl", "continuum_share"),
    "tokenyard.policies.continuum.ttl": ("TtlRule", "FinishedTurn", "Observations", "PrefillReload"),
    "tokenyard.policies.continuum.tools": ("ToolReader",),
}

if TYPE_CHECKING:
    from tokenyard.policies.continuum.policy import Continuum, continuum_fixed, continuum_share, continuum_ttl
    from tokenyard.policies.continuum.tools import ToolReader
    from tokenyard.policies.continuum.ttl import FinishedTurn, Observations, PrefillReload, TtlRule
    from tokenyard.sched.features.pins import PinBoard
    from tokenyard.sched.policy import PolicyContext
    from tokenyard.sched.queues.waiting import FCFSQueue, PriorityQueue, RequestQueue, WaitingQueues
    from tokenyard.vocabulary.policy_names import known_policies
else:
    __getattr__, __dir__ = lazy_names(__name__, OFFERED)
