"""Replicas that come and go: how many there were when, and what that took."""

from __future__ import annotations

import msgspec

__all__ = ["ReplicaChange", "ReplicaFigures"]


class ReplicaChange(msgspec.Struct, frozen=True):
    """From this moment on."""

    at_s: float
    held: int
    """Replicas that have their GPUs: those that start, serve, or end what they have."""
    ready: int
    """Of them, those that take requests."""


class ReplicaFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Of a replay with ``--replicas``."""

    least: int
    most: int
    startup_s: float
    target: float
    """Requests that wait, per replica, by which their number is decided."""
    changes: list[ReplicaChange]
    """In order; the first is at 0."""
    started: int
    """Replicas that were started after the beginning."""
    mean_held: float
    max_held: int
    held_s: float
    """Replica-seconds, from each decision to start one until its last request had ended."""
    gpus: int | None = None
    """Of each replica."""
