"""The records that every step writes, as templates.

A template is the encoding of a schema record with gaps where values will stand: names and order of the fields come
from the schema alone. Filling in the templates of many steps together costs a fraction of making and encoding their
records.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tokenyard.record.recordable import RecordableState
from tokenyard.trace.schema import StepCompleted, StepDecision, StepSnapshot

_GAP = b"\0"
_NUMBER = b"\1"
NUMBER: Any = msgspec.Raw(_NUMBER)
"""Marks the place of a number in a record's field."""
GAP: Any = msgspec.Raw(_GAP)
"""A piece of JSON goes here."""


def template_of(record: msgspec.Struct) -> bytes:
    """The encoding of ``record`` without its closing brace, as ``Lines`` wants it."""
    return msgspec.json.encode(record)[:-1].replace(b"%", b"%%").replace(_NUMBER, b"%b")


def merge_gaps(template: bytes, count: int) -> tuple[bytes, list[bytes]]:
    """``template`` with one gap in place of its first ``count``, and what stood between these: names of fields."""
    first, *rest = template.split(_GAP)
    return _GAP.join((first, *rest[count - 1 :])), rest[: count - 1]


def more_fields(**fields: int | msgspec.Raw | None) -> bytes:
    """What to put behind a template: the fields that are not None, the closing brace and the line's end."""
    given = {name: value for name, value in fields.items() if value is not None}
    return b"," + msgspec.json.encode(given)[1:] + b"\n" if given else b"}\n"


def snapshot_template(policy: str, state: RecordableState, *, whole: bool) -> bytes:
    """The template of a snapshot: the scheduler's limits, which do not change, are filled in.

    ``whole`` has gaps for what is pinned; without it nothing is. Its last gap is for further fields and the line's end.
    """
    cpu = None if state.cpu_blocks is None else NUMBER
    return (
        template_of(
            StepSnapshot(
                step=NUMBER,
                ts=NUMBER,
                policy=policy,
                free_blocks=NUMBER,
                total_blocks=state.num_total_blocks,
                num_running=NUMBER,
                num_waiting=NUMBER,
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
        + _GAP
    )


def decision_template(policy: str) -> tuple[bytes, list[bytes], bytes]:
    """The template of a decision, with a gap from its first list on; what stands between the lists, and behind them."""
    begin, *between, end = template_of(
        StepDecision(
            step=NUMBER,
            ts=NUMBER,
            policy=policy,
            scheduled_new_req_ids=GAP,
            scheduled_resumed_req_ids=GAP,
            scheduled_running_req_ids=GAP,
            preempted_req_ids=GAP,
            num_scheduled_tokens=GAP,
            total_scheduled_tokens=NUMBER,
        )
    ).split(_GAP)
    return begin + _GAP, between, end


def completion_template(policy: str, **drafts: Any) -> bytes:
    """The line, with a last gap for further fields and its end; ``drafts``: fields of steps that verified any."""
    record = StepCompleted(
        step=NUMBER, ts=NUMBER, policy=policy, step_seconds=NUMBER, num_sampled_tokens=NUMBER, **drafts
    )
    return template_of(record) + _GAP
