"""Whether a policy has anything to go by in a workload: it may be asked for what no request says."""

from __future__ import annotations

from tokenyard.policies.user_queue import user_name
from tokenyard.sim.workload.record import Workload

__all__ = ["doubt_of_policy"]


def doubt_of_policy(policy: str, workload: Workload) -> str | None:
    """A sentence if the registered policy of this name finds nothing in ``workload`` to order or keep; else None."""
    if policy == "priority" and len({each.priority for each in workload}) < 2:
        return "all requests have the same priority: only their arrival orders them"
    if policy == "fair-share" and len({user_name(each.job_id) for each in workload}) < 2:
        return "all requests are of one user: only their arrival orders them"
    if policy.startswith("continuum-") and all(each.job_id is None for each in workload):
        return "no request belongs to a job: there is no KV to keep between turns"
    return None
