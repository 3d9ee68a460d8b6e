"""A scenario through vLLM's scheduler, through the same one traced, and through ours: what each decided, and why.

The scenarios are those that decision vectors are recorded from (``lab/recorder``). Ours replays the recording with
a recorder attached, so its reasons stand beside those that the tracer saw from outside.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from recorder import host, vectors
from recorder.drive import Recording
from recorder.plan import Scenario
from tokenyard.errors import ParityError
from tokenyard.parity.replay import VectorReplay
from tokenyard.parity.vector import GoldenVector, unsupported_features
from tokenyard.record.recorder import TraceRecorder
from tokenyard.record.writer import TraceWriter
from tokenyard.trace.config import TraceConfig
from tokenyard.trace.reader import TraceReader
from tokenyard.trace.schema import AdmissionOutcome
from tokenyard.trace.steps import Step
from tokenyard.vllm import AsyncTracingScheduler, TracingScheduler

__all__ = ["Runs", "difference", "run_all"]


class Runs(NamedTuple):
    """The runs of one scenario."""

    own: list[dict[str, Any]]
    """What vLLM's class decided, tick by tick."""
    traced: list[dict[str, Any]]
    """What ours inside vLLM decided."""
    seen: list[Step]
    """The trace that it wrote."""
    ours: list[Step] | None
    """The trace of our scheduler; None if it does not replay the scenario."""


def run_all(scenario: Scenario, folder: Path, *, with_ours: bool = True) -> Runs:
    """Run ``scenario`` three times; traces go to ``folder``."""
    plan, built = scenario.plan(), host.build_host(scenario.engine)
    own = Recording(built, plan, scenario).run()
    facts = vectors.header(scenario, plan, own, host.vllm_facts(built))
    with _traced(folder / "seen"):
        built = host.build_host(scenario.engine)
    plan = scenario.plan()
    traced = Recording(built, plan, scenario).run()
    built.scheduler.tracer.close()
    seen = list(TraceReader(folder / "seen", requests=False).steps())
    vector = folder / "scenario.jsonl.gz"
    vectors.write(vector, [facts, *own])
    return Runs(own, traced, seen, _replayed(vector, folder / "ours") if with_ours else None)


@contextmanager
def _traced(folder: Path) -> Iterator[None]:
    """Schedulers built meanwhile are the traced ones."""
    with (
        patch.multiple(host, Scheduler=TracingScheduler, AsyncScheduler=AsyncTracingScheduler),
        patch.dict(os.environ, SCHED_TRACE_PATH=str(folder)),
    ):
        yield


def _replayed(path: Path, folder: Path) -> list[Step] | None:
    vector = GoldenVector(path)
    if unsupported_features(vector.header):
        return None
    replay = VectorReplay(vector)
    with TraceWriter(TraceConfig(path=folder, request_records=False, max_ids_per_step=64)) as writer:
        replay.scheduler.attach_observer(TraceRecorder(writer))
        try:
            for tick in vector.ticks():
                replay.tick(tick)
        except ParityError:
            return None
    return list(TraceReader(folder, requests=False).steps())


_KV = ("limit", "needed", "free", "reserved", "watermark")


def _told(outcome: AdmissionOutcome | None) -> dict[str, Any]:
    """What of an outcome both must say alike."""
    if outcome is None:
        return {}
    told: dict[str, Any] = {
        "kind": outcome.kind,
        "reason": outcome.reason,
        "req_id": outcome.req_id,
        "num_requests": outcome.num_requests,
        "skipped": [(each.req_id, each.reason) for each in outcome.skipped or ()],
        "not_scheduled": sorted((each.req_id or "", each.reason) for each in outcome.not_scheduled or ()),
        "preempted": [(each.req_id, each.for_req_id, each.num_computed_tokens) for each in outcome.preemptions or ()],
    }
    if outcome.kv is not None:
        told["kv"] = {name: getattr(outcome.kv, name) for name in _KV}
    return told


def difference(seen: Step, ours: Step) -> dict[str, tuple[Any, Any]]:
    """In what the outcome seen from outside differs from the one that our scheduler recorded."""
    a, b = _told(seen.outcome), _told(ours.outcome)
    return {name: (a.get(name), b.get(name)) for name in {**a, **b} if a.get(name) != b.get(name)}
