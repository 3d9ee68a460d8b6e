"""The tick loop: what an engine does with a scheduler, written down.

A tick is: events, arrivals, ``schedule()``, events, the model, ``update_from_output()``. A tick in which the scheduler
has nothing to do only has the first two. With async scheduling two steps are in flight: the update is that of the
earlier one, and left out while the queue fills.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from typing import Any, NamedTuple, TypeAlias

from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.outputs import DraftTokenIds
from vllm.v1.request import RequestStatus

from recorder.host import Host, compile_grammar, make_request, model_output
from recorder.plan import Event, Plan, Planned, Scenario
from recorder.records import decision, encoder_decision, encoder_room, pairs, queues, step_stats
from recorder.versions import FILLS_QUEUE_FIRST
from recorder.worker import Worker

__all__ = ["MAX_TICKS", "Recording", "Tick"]

Tick: TypeAlias = dict[str, Any]
"""One line of a vector file."""

MAX_TICKS = 5_000
"""A scenario that takes longer is stuck."""


class _Flight(NamedTuple):
    """A step on its way through the model."""

    number: int
    output: SchedulerOutput
    sampled: list[list[int]]
    drafts: list[list[int]]
    pooled: list[str]
    """Pooling requests whose prompt is computed by then."""


class Recording:
    """Drives one scheduler through one plan."""

    def __init__(self, host: Host, plan: Plan, scenario: Scenario) -> None:
        engine = scenario.engine
        self._host = host
        self._scheduler = host.scheduler
        self._plan = plan
        self._engine = engine
        self._depth = engine.depth(one_ahead=FILLS_QUEUE_FIRST)
        self._worker = Worker(
            vocab=scenario.vocab,
            num_drafts=engine.num_speculative_tokens or 0,
            acceptance=scenario.acceptance,
            always_full=engine.async_scheduling or engine.spec_method != "ngram",
        )
        self._by_id = {request.id: request for request in plan.requests}
        self._pending = list(plan.requests)
        self._ended_at: dict[str, int] = {}
        """Request id -> tick in which it finished or was aborted."""
        self._outputs: dict[str, list[int]] = {}
        self._steps = 0
        self._in_flight: deque[_Flight] = deque()
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
        while self._pending or self._in_flight or self._scheduler.requests or self._scheduler.has_requests():
            if len(ticks) == MAX_TICKS:
                raise RuntimeError(f"stuck: {queues(self._scheduler)}")
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
        waits_for_more = False
        if self._scheduler.has_requests():
            output, tick["s"] = self._schedule()
            more = output.total_num_scheduled_tokens > 0 or (FILLS_QUEUE_FIRST and self._scheduler.has_requests())
            waits_for_more = more and len(self._in_flight) < self._depth
        if self._in_flight and not waits_for_more:
            if between := self._strike(t, "mid"):
                tick["ev_mid"] = between
            tick["u"] = self._update(t, self._in_flight.popleft())
        return tick

    # ---- what comes from outside

    def _strike(self, t: int, when: str) -> list[dict[str, Any]]:
        return [self._apply(t, event) for event in self._plan.events if (event.step, event.when) == (t, when)]

    def _apply(self, t: int, event: Event) -> dict[str, Any]:
        if event.op == "abort":
            hit = bool(self._scheduler.finish_requests(event.id, RequestStatus[event.status]))
            if hit:
                self._ended_at[event.id] = t
            other = {} if event.status == "FINISHED_ABORTED" else {"status": event.status}
            return {"op": "abort", "id": event.id, "hit": hit, **other}
        if event.op == "feed":
            return self._feed(t, event)
        if event.op == "reset":
            ok = bool(self._scheduler.reset_prefix_cache(reset_running_requests=event.running))
            return {"op": "reset", "running": event.running, "ok": ok}
        if event.op == "reset_encoder":
            self._scheduler.reset_encoder_cache()
            return {"op": "reset_encoder"}
        if event.op == "grammar":
            compile_grammar(self._scheduler.requests.get(event.id), self._by_id[event.id])
            return {"op": "grammar", "id": event.id}
        self._scheduler.set_pause_state(PauseState(event.state))
        return {"op": "pause", "state": event.state}

    def _feed(self, t: int, event: Event) -> dict[str, Any]:
        """Further input for a session; one that has ended or has not begun takes none."""
        hit = event.id in self._scheduler.requests
        if hit:
            more = dataclasses.replace(
                self._by_id[event.id], prompt=list(event.prompt), resumable=not event.last, arrival_time=float(t)
            )
            self._scheduler.add_request(make_request(more, self._host.block_hasher))
        return {"op": "feed", "id": event.id, "hit": hit, "prompt": list(event.prompt), "last": event.last}

    def _arrivals(self, t: int) -> list[str]:
        due = [request for request in self._pending if self._is_due(request, t)]
        for request in due:
            self._pending.remove(request)
            self._complete(request, t)
            self._worker.set_length(request.id, len(request.prompt))
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
            said = earlier.prompt + self._outputs.get(earlier.id, [])
            request.prompt = said + request.prompt
            request.mm = earlier.mm + tuple(image.moved(len(said)) for image in request.mm)

    # ---- the step

    def _schedule(self) -> tuple[SchedulerOutput, dict[str, Any]]:
        self._granted.clear()
        output = self._scheduler.schedule()
        record = {"n": self._steps, **decision(output), **queues(self._scheduler)}
        if rolled_back := [request_id for request_id in record["preempted"] if request_id in self._granted]:
            record["rolled_back"] = rolled_back
        if self._engine.max_num_encoder_input_tokens:
            record |= {**encoder_decision(output), "enc_room": encoder_room(self._scheduler)}
        if self._engine.drafts_in_output:
            record |= self._make_drafts_known(output)
        self._in_flight.append(self._execute(output))
        self._steps += 1
        return output, record

    def _make_drafts_known(self, output: SchedulerOutput) -> dict[str, Any]:
        """The drafts behind -1, before the step runs."""
        drafts = [(rid, self._worker.drafts(rid)) for rid in output.scheduled_spec_decode_tokens]
        if not drafts:
            return {}
        ids = [rid for rid, _ in drafts]
        self._scheduler.update_draft_token_ids_in_output(DraftTokenIds(ids, [list(each) for _, each in drafts]), output)
        return {
            "known": pairs(drafts),
            "valid": pairs(output.scheduled_spec_decode_tokens.items()),
            "invalid": pairs((output.num_invalid_spec_tokens or {}).items()),
        }

    def _execute(self, output: SchedulerOutput) -> _Flight:
        """Tokens for every scheduled request whose whole prompt is computed by then."""
        cached = output.scheduled_cached_reqs
        for request_id in cached.resumed_req_ids:
            self._worker.set_length(request_id, len(cached.all_token_ids[request_id]))
        for new in output.scheduled_new_reqs:
            self._worker.set_length(new.req_id, len(new.prompt_token_ids or ()))
        sampled: list[list[int]] = []
        drafts: list[list[int]] = []
        pooled: list[str] = []
        for request_id in output.num_scheduled_tokens:
            request = self._scheduler.requests[request_id]
            if request.is_prefill_chunk or request.pooling_params is not None:
                sampled.append([])
                drafts.append([])
                if not request.is_prefill_chunk:
                    pooled.append(request_id)
            else:
                scheduled = output.scheduled_spec_decode_tokens.get(request_id, [])
                known = bool(self._engine.drafts_in_output)
                sampled.append(self._worker.sample(request_id, list(scheduled), known=known))
                drafts.append(self._worker.drafts(request_id))
        return _Flight(self._steps, output, sampled, drafts, pooled)

    def _update(self, t: int, flight: _Flight) -> dict[str, Any]:
        ids = list(flight.output.num_scheduled_tokens)
        # Copies: vLLM cuts the lists where a request stops.
        answer = model_output(ids, [list(tokens) for tokens in flight.sampled], flight.pooled)
        record: dict[str, Any] = {
            "of": flight.number,
            "sampled": pairs(zip(ids, flight.sampled, strict=True)),
            "out": [],
        }
        for outputs in self._scheduler.update_from_output(flight.output, answer).values():
            record["out"] += [self._news(t, each) for each in outputs.outputs]
            if self._engine.record_events:
                told = [[each.request_id, [int(event.type) for event in each.events or ()]] for each in outputs.outputs]
                record["events"] = [each for each in told if each[1]]
            record.update(step_stats(outputs))
        if flight.pooled:
            record["pooled"] = flight.pooled
        if self._engine.num_speculative_tokens and not self._engine.async_scheduling and ids:
            self._scheduler.update_draft_token_ids(DraftTokenIds(ids, [list(drafts) for drafts in flight.drafts]))
            record["drafts"] = pairs((rid, drafts) for rid, drafts in zip(ids, flight.drafts, strict=True) if drafts)
        running = self._scheduler.running
        record["nct"] = [[request.request_id, request.num_computed_tokens] for request in running]
        if self._engine.async_scheduling:
            record["nop"] = [[request.request_id, request.num_output_placeholders] for request in running]
        record.update(queues(self._scheduler))
        if self._engine.max_num_encoder_input_tokens:
            record["enc_room"] = encoder_room(self._scheduler)
        return record

    def _news(self, t: int, output: Any) -> list[Any]:
        tokens = list(output.new_token_ids)
        self._outputs.setdefault(output.request_id, []).extend(tokens)
        if output.finish_reason is None:
            return [output.request_id, tokens, None, output.stop_reason]
        self._ended_at[output.request_id] = t
        return [output.request_id, tokens, str(output.finish_reason), output.stop_reason]
