"""The templates of the records that every step writes."""

from __future__ import annotations

from typing import Any

from tokenyard.sched.observer import SchedulerState
from tokenyard.trace.emit.templates import GAP, LATER, NUMBER, template_of
from tokenyard.trace.format.schema import StepCompleted, StepDecision, StepSnapshot

__all__ = ["completion_template", "decision_template", "snapshot_template"]


def snapshot_template(policy: str, state: SchedulerState, *, whole: bool) -> bytes:
    """With the limits of the scheduler, which do not change, filled in, and the lengths of the queues LATER.

    ``whole`` has gaps for what is pinned; without it nothing is.
    """
    cpu = None if state.cpu_blocks is None else NUMBER
    return template_of(
        StepSnapshot(
            step=NUMBER,
            ts=NUMBER,
            policy=policy,
            free_blocks=NUMBER,
            total_blocks=state.num_total_blocks,
            num_running=LATER,
            num_waiting=LATER,
            num_pinned=NUMBER if whole else 0,
            running_req_ids=GAP,
            waiting_req_ids=GAP,
            running_job_ids=GAP,
            waiting_job_ids=GAP,
            cpu_free_blocks=cpu,
            cpu_total_blocks=cpu,
            pinned_blocks=NUMBER if whole else 0,
            pinned_job_ids=GAP if whole else [],
            max_num_scheduled_tokens=state.max_num_scheduled_tokens,
            max_num_running_reqs=state.max_num_running_reqs,
            gpu_cached_blocks=NUMBER,
            num_skipped_waiting=NUMBER,
        )
    )


def decision_template(policy: str, total: Any) -> bytes:
    """With ``total`` for the tokens scheduled: LATER or NUMBER."""
    return template_of(
        StepDecision(
            step=NUMBER,
            ts=NUMBER,
            policy=policy,
            scheduled_new_req_ids=GAP,
            scheduled_resumed_req_ids=GAP,
            scheduled_running_req_ids=GAP,
            preempted_req_ids=GAP,
            num_scheduled_tokens=GAP,
            total_scheduled_tokens=total,
        )
    )


def completion_template(policy: str, **drafts: Any) -> bytes:
    """The whole line; ``drafts``: further fields, for steps that verified any."""
    record = StepCompleted(
        step=NUMBER, ts=NUMBER, policy=policy, step_seconds=NUMBER, num_sampled_tokens=NUMBER, **drafts
    )
    return template_of(record) + b"}\n"
