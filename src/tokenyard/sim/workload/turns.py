"""Which requests of a workload follow which others, for whoever writes its trace."""

from __future__ import annotations

from tokenyard.sim.workload.record import Workload
from tokenyard.trace.emit.recorder import TurnOrder

__all__ = ["turn_orders"]


def turn_orders(workload: Workload) -> dict[str, TurnOrder]:
    """Request id -> what it follows, and how long after it; of requests that follow any."""
    return {each.request_id: TurnOrder(each.after, each.gap, each.spacing) for each in workload if each.after}
