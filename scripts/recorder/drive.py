"""The tick loop: what an engine does with a scheduler, written down.

A tick is: events, arrivals, ``schedule()``, events, the model, ``update_from_output()``. A tick in which the scheduler
has nothing to do only has the first two.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any, TypeAlias

from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.engine import EngineCoreOutputs
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import RequestStatus

from recorder.host import Host, make_request, model_output
from recorder.plan import Event, Plan, Planned

__all__ = ["MAX_TICKS", "Recording", "Tick"]

Tick: TypeAlias = dict[str, Any]
"""One line of a vector file."""

MAX_TICKS = 5_000
"""A scenario that takes longer is stuck."""


def fake_token(request_id: str, position: int, vocab: int) -> int:
    """The token that the fake model puts at ``position``: the same however the request was scheduled."""
    mixed = (zlib.crc32(request_id.encode()) + position * 0x9E3779B1) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
    return (mixed ^ (mixed >> 16)) % vocab


class Recording:
    """Drives one scheduler through one plan."""

    def __init__(self, host: Host, plan: Plan, vocab: int) -> None:
        self._host = host
        self._scheduler = host.scheduler
        self._plan = plan
        self._vocab = vocab
        self._by_id = {request.id: request for request in plan.requests}
        self._pending = list(plan.requests)
        self._ended_at: dict[str, int] = {}
        """Request id -> tick in which it finished or was aborted."""
        self._outputs: dict[str, list[int]] = {}
        self._steps = 0
        self._granted: set[str] = set()
        """Requests that got blocks in the step now being scheduled."""
        self._watch_grants()

    def _watch_grants(self) -> None:
        """A preempted request that had been granted blocks in the same step was rolled back; no output says so."""
        kv = self._scheduler.kv_cache_manager
        allocate_slots = kv.allocate_slots

        def watched(request: Any, *args: Any, **kwargs: Any) -> Any:
            blocks = allocate_slots(request, *args, **kwargs)
            if blocks is not None:
                self._granted.add(request.request_id)
            return blocks

        kv.allocate_slots = watched

    def run(self) -> list[Tick]:
        """All ticks, until every request has come and gone and no block is held.

        A fully paused scheduler says that it has no requests, and a finished one still has to be announced: both count.
        """
        ticks: list[Tick] = []
        while self._pending or self._scheduler.requests or self._scheduler.has_requests():
            if len(ticks) == MAX_TICKS:
                raise RuntimeError(f"stuck: {self._queues()}")
            ticks.append(self._tick(len(ticks)))
        free = self._scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
        held = self._scheduler.kv_cache_config.num_blocks - 1 - free
        if held or self._scheduler.requests:
            raise RuntimeError(f"left behind: {held} blocks, requests {sorted(self._scheduler.requests)}")
        return ticks

    def _tick(self, t: int) -> Tick:
        tick: Tick = {"t": t}
        if before := self._strike(t, "pre"):
            tick["ev_pre"] = before
        if added := self._arrivals(t):
            tick["add"] = added
        if self._scheduler.has_requests():
            output, tick["s"] = self._schedule()
            answer = self._execute(output)
            if between := self._strike(t, "mid"):
                tick["ev_mid"] = between
            tick["u"] = self._update(t, output, answer)
        return tick

    # ---- what comes from outside

    def _strike(self, t: int, when: str) -> list[dict[str, Any]]:
        return [self._apply(t, event) for event in self._plan.events if (event.step, event.when) == (t, when)]

    def _apply(self, t: int, event: Event) -> dict[str, Any]:
        if event.op == "abort":
            hit = bool(self._scheduler.finish_requests(event.id, RequestStatus.FINISHED_ABORTED))
            if hit:
                self._ended_at[event.id] = t
            return {"op": "abort", "id": event.id, "hit": hit}
        if event.op == "reset":
            ok = bool(self._scheduler.reset_prefix_cache(reset_running_requests=event.running))
            return {"op": "reset", "running": event.running, "ok": ok}
        self._scheduler.set_pause_state(PauseState(event.state))
        return {"op": "pause", "state": event.state}

    def _arrivals(self, t: int) -> list[str]:
        due = [request for request in self._pending if self._is_due(request, t)]
        for request in due:
            self._pending.remove(request)
            self._complete(request, t)
            self._scheduler.add_request(make_request(request, self._host.block_hasher))
        return [request.id for request in due]

    def _is_due(self, request: Planned, t: int) -> bool:
        if request.after is None:
            return request.arrival_step <= t
        earlier, gap = request.after
        return earlier in self._ended_at and self._ended_at[earlier] + gap <= t

    def _complete(self, request: Planned, t: int) -> None:
        """Fill in what is only known at arrival."""
        request.arrival_step = t
        if request.arrival_time is None:
            request.arrival_time = float(t)
        if request.after is not None:
            earlier = self._by_id[request.after[0]]
            request.prompt = earlier.prompt + self._outputs.get(earlier.id, []) + request.prompt

    # ---- the step

    def _schedule(self) -> tuple[SchedulerOutput, dict[str, Any]]:
        self._granted.clear()
        output = self._scheduler.schedule()
        preempted = sorted(output.preempted_req_ids or ())
        record = {
            "n": self._steps,
            "new": [[new.req_id, new.num_computed_tokens, _lists(new.block_ids)] for new in output.scheduled_new_reqs],
            "cached": _cached(output),
            "nst": _pairs(output.num_scheduled_tokens.items()),
            "spec": [],
            "preempted": preempted,
            "finished": sorted(output.finished_req_ids),
            "ncpb": list(output.num_common_prefix_blocks),
            **self._queues(),
        }
        if rolled_back := [request_id for request_id in preempted if request_id in self._granted]:
            record["rolled_back"] = rolled_back
        self._steps += 1
        return output, record

    def _execute(self, output: SchedulerOutput) -> ModelRunnerOutput:
        """One token for every scheduled request whose whole prompt is computed by then."""
        ids = list(output.num_scheduled_tokens)
        requests = [self._scheduler.requests[request_id] for request_id in ids]
        return model_output(
            ids,
            [
                [] if request.is_prefill_chunk else [fake_token(request.request_id, request.num_tokens, self._vocab)]
                for request in requests
            ],
        )

    def _update(self, t: int, output: SchedulerOutput, answer: ModelRunnerOutput) -> dict[str, Any]:
        sampled = _pairs(zip(answer.req_ids, map(list, answer.sampled_token_ids), strict=True))
        record: dict[str, Any] = {"of": self._steps - 1, "sampled": sampled, "out": []}
        for outputs in self._scheduler.update_from_output(output, answer).values():
            record["out"] += [self._news(t, each) for each in outputs.outputs]
            record.update(_prefix_cache_stats(outputs))
        record["nct"] = [[request.request_id, request.num_computed_tokens] for request in self._scheduler.running]
        record.update(self._queues())
        return record

    def _news(self, t: int, output: Any) -> list[Any]:
        tokens = list(output.new_token_ids)
        self._outputs.setdefault(output.request_id, []).extend(tokens)
        if output.finish_reason is None:
            return [output.request_id, tokens, None, output.stop_reason]
        self._ended_at[output.request_id] = t
        return [output.request_id, tokens, str(output.finish_reason), output.stop_reason]

    def _queues(self) -> dict[str, Any]:
        scheduler = self._scheduler
        return {
            "running": [request.request_id for request in scheduler.running],
            "waiting": [request.request_id for request in scheduler.waiting],
            "skipped": [request.request_id for request in scheduler.skipped_waiting],
            "free": scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
        }


def _cached(output: SchedulerOutput) -> list[list[Any]]:
    data = output.scheduled_cached_reqs
    return [
        [
            request_id,
            data.num_computed_tokens[row],
            data.num_output_tokens[row],
            _lists(data.new_block_ids[row]),
            int(request_id in data.resumed_req_ids),
            int(request_id in data.all_token_ids),
        ]
        for row, request_id in enumerate(data.req_ids)
    ]


def _prefix_cache_stats(outputs: EngineCoreOutputs) -> dict[str, list[int]]:
    if outputs.scheduler_stats is None:
        return {}
    stats = outputs.scheduler_stats.prefix_cache_stats
    fresh = [stats.requests, stats.queries, stats.hits]
    return {"pcs": [*fresh, stats.preempted_requests, stats.preempted_queries, stats.preempted_hits]}


def _lists(groups: Iterable[Iterable[int]] | None) -> list[list[int]] | None:
    return None if groups is None else [list(group) for group in groups]


def _pairs(items: Iterable[tuple[str, Any]]) -> list[list[Any]]:
    return [list(item) for item in items]
