"""Names of policies: those that are shipped, and those that installed packages register; without loading any."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points

__all__ = [
    "BUILT_IN",
    "ENTRY_POINT_GROUP",
    "SHIPPED",
    "file_and_class",
    "is_known_policy",
    "known_policies",
    "policy_hint",
    "registered_policies",
]

ENTRY_POINT_GROUP = "tokenyard.policies"
BUILT_IN = ("fcfs", "priority")
"""vLLM's."""

SHIPPED = {
    "attained-service": "tokenyard.policies.attained_service:AttainedService",
    "bypass": "tokenyard.policies.bypass:Bypass",
    "continuum-fixed": "tokenyard.policies.continuum.policy:continuum_fixed",
    "continuum-share": "tokenyard.policies.continuum.policy:continuum_share",
    "continuum-ttl": "tokenyard.policies.continuum.policy:continuum_ttl",
    "fair-share": "tokenyard.policies.fair_share:FairShare",
    "least-computed": "tokenyard.policies.least_computed:LeastComputed",
    "shortest-remaining": "tokenyard.policies.shortest_remaining:ShortestRemaining",
}
"""Ours that are loaded when named: as in an entry point, and found without the package's metadata."""

_CALLED_ELSEWHERE = {
    "fifo": "fcfs",
    "las": "attained-service",
    "mlfq": "attained-service",
    "sjf": "shortest-remaining",
    "srpt": "shortest-remaining",
    "srtf": "shortest-remaining",
    "vtc": "fair-share",
}
"""What papers call them."""


def registered_policies() -> Sequence[EntryPoint]:
    """What installed packages register."""
    return list(entry_points(group=ENTRY_POINT_GROUP))


def known_policies() -> list[str]:
    """Names that ``make_policy`` accepts."""
    return sorted({*BUILT_IN, *SHIPPED, *(point.name for point in registered_policies())})


def file_and_class(spec: str) -> tuple[str, str]:
    """File and class of ``FILE.py:CLASS``, both empty for a name."""
    file, _, class_name = spec.rpartition(":")
    if file.endswith(".py"):
        return file, class_name
    return (spec, "") if spec.endswith(".py") else ("", "")


def is_known_policy(spec: str) -> bool:
    """Whether ``spec`` is a registered name, or names a file (which is not looked at)."""
    return spec in BUILT_IN or spec in SHIPPED or bool(file_and_class(spec)[0]) or spec in known_policies()


def policy_hint(name: str) -> str:
    """What to use in the place of a name that nobody knows: the nearest one, if one is near, and all."""
    known = known_policies()
    near = get_close_matches(name.lower(), [*known, *_CALLED_ELSEWHERE], 1, 0.6)
    meant = f"did you mean {_CALLED_ELSEWHERE.get(near[0], near[0])}? " if near else ""
    return f"{meant}use one of: {', '.join(known)}; or FILE.py:CLASS for one of your own"
