"""Families of reasons: what was short, in a word. The viewer has one colour for each."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["FAMILIES", "Family"]


class Family(StrEnum):
    """What kind of thing held a request back."""

    TOKENS = "tokens"
    MEMORY = "memory"
    SEQUENCES = "sequences"
    ORDER = "order"
    PREEMPTED = "preempted"
    DEPENDENCY = "dependency"
    HEALTHY = "healthy"
    IDLE = "idle"
    UNKNOWN = "unknown"


FAMILIES = {
    Family.TOKENS: "token budget",
    Family.MEMORY: "KV blocks",
    Family.SEQUENCES: "max_num_seqs",
    Family.ORDER: "refused though blocks are free",
    Family.PREEMPTED: "after a preemption",
    Family.DEPENDENCY: "waits for something outside",
    Family.HEALTHY: "healthy",
    Family.IDLE: "idle",
    Family.UNKNOWN: "not known",
}
"""What was short, in a few words for a legend."""
