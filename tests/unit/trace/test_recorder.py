"""The recorder: what it writes is what the schema's records say, made the slow and plain way beside it."""

from __future__ import annotations

import random
from array import array
from math import inf
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.profiles import VLLM_0_33
from tests.support.toy_engine import ToyEngine
from tests.unit.trace.recorded import RecordedYard, lines_of, records_of

from tokenyard.core.config import PauseState
from tokenyard.core.params import MultiModalItem
from tokenyard.core.request import FinishReason, Request, RequestStatus
from tokenyard.core.sched.observer import Observers, SchedulerState, StepObserver
from tokenyard.core.sched.outcomes import Outcome, StepOutcomes
from tokenyard.core.sched.outputs import EngineOutputs
from tokenyard.core.sched.policy import FCFS
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.errors import EngineDeadError
from tokenyard.record.recorder import TraceRecorder, TurnOrder
from tokenyard.trace.facts import STEADY, Drafts, RepeatedFacts, StepFacts, Streams, running_consumed
from tokenyard.trace.reader import TraceReader
from tokenyard.trace.schema import (
    AdmissionOutcome,
    PinEnded,
    PrefixCacheLookup,
    RequestArrived,
    RequestFinished,
    StepCompleted,
    StepDecision,
    StepEvent,
    StepSnapshot,
    TraceStart,
)

Record = StepSnapshot | StepDecision | StepCompleted


class PlainRecorder(StepObserver):
    """Builds the step records field by field, with no memory from one step to the next."""

    def __init__(self, policy: str, limit: int | None) -> None:
        self.policy = policy
        self.limit = limit
        self.records: list[Record] = []
        self.began: dict[int, float] = {}
        self.last_end = -inf
        self.lost: dict[str, int] = {}
        self.flows: dict[str, bool] = {}
        """Request that has got a token -> whether it got one in the last step that sampled any."""

    def request_arrived(self, ts: float, request: Request) -> None:
        pass

    def request_finished(self, ts: float, request: Request) -> None:
        self.lost.pop(request.request_id, None)
        if FinishReason.of(request.status) is FinishReason.ABORT:
            self.flows.pop(request.request_id, None)

    def prefix_looked_up(self, ts: float, step: int, request: Request, local: int, external: int) -> None:
        pass

    def omitted(self, count: int) -> int | None:
        return count - self.limit if self.limit is not None and count > self.limit else None

    def jobs(self, requests: list[Request]) -> list[str | None]:
        jobs = [request.job_id for request in requests][: self.limit]
        return jobs if any(jobs) else []

    def ids(self, requests: list[Request]) -> list[str]:
        return [request.request_id for request in requests][: self.limit]

    def step_started(self, ts: float, step: int, state: SchedulerState) -> None:
        self.began[step] = ts
        running, waiting = list(state.running), [*state.skipped_waiting, *state.waiting]
        self.records.append(
            StepSnapshot(
                step=step,
                ts=ts,
                policy=self.policy,
                free_blocks=state.num_free_blocks,
                total_blocks=state.num_total_blocks,
                num_running=len(running),
                num_waiting=len(waiting),
                num_pinned=len(list(state.pinned)),
                running_req_ids=self.ids(running),
                waiting_req_ids=self.ids(waiting),
                running_job_ids=self.jobs(running),
                waiting_job_ids=self.jobs(waiting),
                pinned_blocks=sum(state.num_blocks_of(request) for request in state.pinned),
                pinned_job_ids=[request.job_id for request in state.pinned if request.job_id is not None],
                max_num_scheduled_tokens=state.max_num_scheduled_tokens,
                max_num_running_reqs=state.max_num_running_reqs,
                gpu_cached_blocks=state.num_cached_blocks,
                num_skipped_waiting=len(state.skipped_waiting),
                running_req_ids_omitted=self.omitted(len(running)),
                waiting_req_ids_omitted=self.omitted(len(waiting)),
            )
        )

    def step_decided(self, ts: float, output: SchedulerOutput, outcomes: StepOutcomes, state: SchedulerState) -> None:
        running = output.req_ids[: output.num_running]
        new = [output.req_ids[i] for i in output.admitted_new]
        resumed = [output.req_ids[i] for i in output.admitted_resumed]
        tokens = output.num_scheduled_tokens
        most = sorted(range(len(running)), key=lambda i: -tokens[running[i]])[: self.limit]
        kept = [running[i] for i in sorted(most)]
        named = [*kept, *new[: self.limit], *resumed]
        for victim in outcomes.preemptions:
            self.lost[victim.request_id] = victim.num_computed_tokens
        again = sum(
            max(self.lost.pop(output.req_ids[i], 0) - int(output.num_computed[i]), 0) for i in output.admitted_resumed
        )
        consumed = running_consumed([tokens[request_id] for request_id in running], state.block_size)
        self.records.append(
            StepDecision(
                step=output.step,
                ts=ts,
                policy=self.policy,
                scheduled_new_req_ids=new[: self.limit],
                scheduled_resumed_req_ids=resumed,
                scheduled_running_req_ids=kept,
                preempted_req_ids=list(output.preempted_req_ids),
                num_scheduled_tokens={request_id: tokens[request_id] for request_id in named},
                total_scheduled_tokens=sum(tokens.values()),
                recomputed_tokens=again if resumed else None,
                running_consumed_blocks=consumed if self.omitted(len(running)) else None,
                scheduled_new_req_ids_omitted=self.omitted(len(new)),
                scheduled_running_req_ids_omitted=self.omitted(len(running)),
            )
        )

    def step_completed(self, ts: float, output: SchedulerOutput, outputs: EngineOutputs) -> None:
        self.records.append(
            StepCompleted(
                step=output.step,
                ts=ts,
                policy=self.policy,
                step_seconds=ts - max(self.began.pop(output.step), self.last_end),
                num_sampled_tokens=sum(len(each.new_token_ids) for each in outputs),
                **self.changed_streams({each.request_id: each.finish_reason for each in outputs if each.new_token_ids}),
            )
        )
        self.last_end = ts

    def changed_streams(self, got: dict[str, FinishReason | None]) -> dict[str, Any]:
        """Return the ids of answers that began, paused or went on, by looking at all requests in each step."""
        if not got:
            return {}
        lists: dict[str, list[str]] = {"first_token_req_ids": [], "paused_req_ids": [], "resumed_req_ids": []}
        for request_id in got:
            if request_id not in self.flows:
                lists["first_token_req_ids"].append(request_id)
            elif not self.flows[request_id]:
                lists["resumed_req_ids"].append(request_id)
        lists["paused_req_ids"] += [each for each, flows in self.flows.items() if flows and each not in got]
        others = [each for each in self.flows if each not in got]
        self.flows = {each: each in got for each in (*others, *got) if got.get(each) is None}
        return {name: ids for name, ids in lists.items() if ids}


class Gathered:
    """A sink that keeps everything."""

    def __init__(self) -> None:
        self.start: TraceStart | None = None
        self.arrived: list[RequestArrived] = []
        self.lookups: list[PrefixCacheLookup] = []
        self.facts: list[StepFacts] = []
        self.completed: list[StepCompleted] = []
        self.finished: list[RequestFinished] = []
        self.pins: list[PinEnded] = []

    def trace_started(self, start: TraceStart) -> None:
        self.start = start

    def request_arrived(self, record: RequestArrived) -> None:
        self.arrived.append(record)

    def prefix_looked_up(self, record: PrefixCacheLookup) -> None:
        self.lookups.append(record)

    def step_decided(self, facts: StepFacts) -> None:
        self.facts.append(facts)

    def step_repeated(self, step: int, ts: float, free_blocks: int) -> None:
        self.facts.append(msgspec.structs.replace(self.facts[-1], step=step, ts=ts, free_blocks=free_blocks))

    def steps_repeated(self, steps: RepeatedFacts) -> None:
        for i, moment in enumerate(steps.moments):
            streams = STEADY if i else steps.streams
            self.step_completed(steps.completed + i, moment, steps.seconds[i], steps.sampled, streams)
            self.step_decided(steps.step(i))

    def step_completed(
        self, step: int, ts: float | None, seconds: float | None, sampled: int | None, streams: Streams | None
    ) -> None:
        policy = self.start.policy if self.start is not None else None
        self.completed.append(
            StepCompleted(
                step=step,
                ts=ts,
                policy=policy,
                step_seconds=seconds,
                num_sampled_tokens=sampled,
                first_token_req_ids=list(streams.began) or None if streams else None,
                paused_req_ids=list(streams.paused) or None if streams else None,
                resumed_req_ids=list(streams.resumed) or None if streams else None,
            )
        )

    def drafts_verified(self, drafts: Drafts) -> None:
        last = self.completed.pop()
        self.completed.append(msgspec.structs.replace(last, **drafts._asdict()))

    def request_finished(self, record: RequestFinished) -> None:
        self.finished.append(record)

    def pin_ended(self, record: PinEnded) -> None:
        self.pins.append(record)


def live(toy: ToyEngine, seed: int, steps: int) -> None:
    """A life with everything in it: arrivals, prefixes, pressure, preemptions, aborts, a reset."""
    rng = random.Random(seed)
    for number in range(steps):
        for _ in range(rng.choice((0, 0, 1, 1, 3))):
            name = f"r{len(toy.requests)}"
            prompt = list(range(rng.randint(1, 40)))
            job = rng.choice((None, "job-a", 'job "b" <b>'))
            toy.add(name, prompt, max_tokens=rng.randint(1, 20), priority=rng.randint(0, 2), job_id=job)
        if rng.random() < 0.1 and toy.scheduler.requests:
            toy.abort(rng.choice(list(toy.scheduler.requests)))
        if number == steps // 2:
            toy.scheduler.reset_prefix_cache(reset_running_requests=True)
        if toy.scheduler.has_requests():
            toy.step()


SCENARIOS: list[dict[str, Any]] = [
    {"num_gpu_blocks": 19, "max_num_seqs": 6},
    {"num_gpu_blocks": 25, "policy": "priority", "max_num_batched_tokens": 24},
    {"num_gpu_blocks": 23, "enable_prefix_caching": False, "long_prefill_token_threshold": 8},
    {"num_gpu_blocks": 19, "max_num_seqs": 4, "policy": "fair-share"},
    {"num_gpu_blocks": 19, "max_num_seqs": 3, "policy": "continuum-share"},
]


class KeepsTurns(FCFS):
    """Keeps the blocks of every finished turn until memory is refused."""

    def keeps_blocks(self, now: float, request: Request) -> bool:
        return request.job_id is not None

    def free_for_waiting(self, refusal: Outcome, num_running: int) -> bool:
        kept = next(iter(self.pins), None)
        return kept is not None and kept.job_id is not None and self.pins.unpin(kept.job_id)


@pytest.mark.slow
@pytest.mark.parametrize("settings", SCENARIOS, ids=["fcfs", "priority", "no-cache", "fair-share", "continuum"])
@pytest.mark.parametrize("limit", [None, 0, 2])
@pytest.mark.parametrize("seed", range(3))
def test_records_are_the_schemas(tmp_path: Path, settings: dict[str, Any], limit: int | None, seed: int) -> None:
    toy = RecordedYard(tmp_path, trace={"max_ids_per_step": limit}, **settings)
    plain = PlainRecorder(toy.writer.config.policy, limit)
    toy.scheduler.attach_observer(Observers(plain, toy.recorder))
    live(toy, seed, 120)
    toy.writer.close()
    decode = msgspec.json.Decoder(StepEvent).decode
    written = [record for record in map(decode, lines_of(tmp_path)) if isinstance(record, Record)]
    assert written == plain.records
    assert any(record.preempted_req_ids for record in written if isinstance(record, StepDecision))
    # Same names in the same order, and no field twice: the line is the record's own encoding.
    kinds = {tag: line for line in lines_of(tmp_path) if (tag := line.split(b",", 1)[0])}
    for line in kinds.values():
        if isinstance(record := decode(line), Record):
            assert line == msgspec.json.encode(record)


def test_pinned_turns_are_recorded(tmp_path: Path) -> None:
    toy = RecordedYard(tmp_path, policy_object=KeepsTurns(), num_gpu_blocks=26)
    plain = PlainRecorder("fcfs", None)
    toy.scheduler.attach_observer(Observers(plain, toy.recorder))
    live(toy, 1, 60)
    toy.writer.close()
    decode = msgspec.json.Decoder(StepEvent).decode
    written = [record for record in map(decode, lines_of(tmp_path)) if isinstance(record, StepSnapshot)]
    assert written == [record for record in plain.records if isinstance(record, StepSnapshot)]
    assert any(record.num_pinned and record.pinned_blocks and record.pinned_job_ids for record in written)


def test_what_happens_to_one_request(tmp_path: Path) -> None:
    sink = Gathered()
    toy = RecordedYard(tmp_path, sink)
    toy.now = 10.0
    toy.add("a", 9, max_tokens=3, job_id="job", arrival_time=9.5, priority=2)
    toy.drain()
    toy.writer.close()
    events = [record["event"] for record in records_of(tmp_path)]
    assert events == [
        "trace_start",
        "request_arrived",
        "step_snapshot",
        "prefix_cache_lookup",
        *["step_decision", "step_completed", "step_snapshot", "step_decision", "step_completed"],
        *["step_snapshot", "step_decision", "request_finished", "step_completed"],
        *["step_snapshot", "step_decision", "step_completed"],
    ]
    assert sink.arrived == [
        RequestArrived(
            step=0,
            ts=10.0,
            policy="fcfs",
            req_id="a",
            job_id="job",
            arrival_time=9.5,
            priority=2,
            num_prompt_tokens=9,
            max_tokens=3,
        )
    ]
    assert sink.finished == [
        RequestFinished(
            step=2,
            ts=11.5,
            policy="fcfs",
            req_id="a",
            job_id="job",
            status="RequestStatus.FINISHED_LENGTH_CAPPED",
            finish_reason="length",
            arrival_time=9.5,
            first_scheduled_time=10.0,
            first_token_time=10.5,
            finished_time=11.5,
            num_prompt_tokens=9,
            num_output_tokens=3,
            num_cached_tokens=0,
            num_external_computed_tokens=0,
            num_preemptions=0,
            recomputed_tokens=0,
        )
    ]
    (finished,) = records_of(tmp_path, "request_finished")
    assert finished.pop("output_hash_runs") == [2, 1]
    assert msgspec.convert(finished, RequestFinished) == sink.finished[0]
    assert [record.num_sampled_tokens for record in sink.completed] == [1, 1, 1, 0]
    assert sink.start is not None
    assert sink.start.config is not None
    assert sink.start.config["scheduler"]["max_num_seqs"] == 8
    assert sink.start.config["cache"]["block_size"] == sink.start.block_size == 4


def test_a_prefix_hit_is_recorded_once(tmp_path: Path) -> None:
    toy = RecordedYard(tmp_path)
    toy.add("a", list(range(12)), max_tokens=1)
    toy.drain()
    toy.add("b", list(range(12)), max_tokens=2)
    toy.drain()
    toy.writer.close()
    lookups = records_of(tmp_path, "prefix_cache_lookup")
    assert [(each["req_id"], each["local_hit_tokens"], each["total_prompt_tokens"]) for each in lookups] == [
        ("a", 0, 12),
        ("b", 8, 12),
    ]
    assert lookups[1] == {
        "event": "prefix_cache_lookup",
        "step": lookups[1]["step"],
        "ts": lookups[1]["ts"],
        "policy": "fcfs",
        "req_id": "b",
        "local_hit_tokens": 8,
        "external_hit_tokens": 0,
        "total_hit_tokens": 8,
        "total_prompt_tokens": 12,
        "num_tokens": 12,
        "load_kv_async": False,
        "prompt_hash_runs": lookups[0]["prompt_hash_runs"],
    }


def block_ids(runs: list[int]) -> list[int]:
    """The ids that runs of them stand for."""
    return [
        number for first, count in zip(runs[::2], runs[1::2], strict=True) for number in range(first, first + count)
    ]


def test_equal_prefixes_have_equal_block_ids(tmp_path: Path) -> None:
    """What a replay needs to make prompts that share what these share, output of earlier turns included."""
    yard = RecordedYard(tmp_path)
    for name, prompt in (("a", [1] * 10), ("b", [1] * 8 + [2] * 5), ("c", [3] * 4)):
        yard.add(name, prompt, max_tokens=8)
        yard.drain()
    said = list(yard.requests["a"].token_slice(0, 18))
    yard.add("d", said, max_tokens=1)
    yard.drain()
    yard.writer.close()
    prompts = {
        each["req_id"]: block_ids(each["prompt_hash_runs"]) for each in records_of(tmp_path, "prefix_cache_lookup")
    }
    outputs = {
        each["req_id"]: block_ids(each.get("output_hash_runs", [])) for each in records_of(tmp_path, "request_finished")
    }
    assert prompts["a"] == [0, 1]
    assert prompts["b"] == [0, 1, prompts["b"][2]]
    assert len({*prompts["a"], *outputs["a"], prompts["b"][2], *prompts["c"]}) == 2 + len(outputs["a"]) + 2
    assert prompts["d"] == [*prompts["a"], *outputs["a"]]
    assert len(outputs["a"]) == 2


def test_what_decides_about_a_request_is_recorded(tmp_path: Path) -> None:
    yard = RecordedYard(tmp_path, max_loras=1, max_num_encoder_input_tokens=8, encoder_cache_size=8)
    yard.recorder = TraceRecorder(yard.writer, turns={"b": TurnOrder(("a",), 2.5)})
    yard.scheduler.observer = Observers(yard.recorder)
    yard.add("a", 4, min_tokens=2, ignore_eos=True, lora_name="poet", cache_salt="pepper")
    yard.add("b", 6, cache_salt="pepper", mm_features=(MultiModalItem(mm_hash="cat", offset=1, length=3),))
    yard.add("c", 6)
    yard.writer.close()
    a, b, c = records_of(tmp_path, "request_arrived")
    assert (a["min_tokens"], a["ignore_eos"], a["lora_name"]) == (2, True, "poet")
    assert a["cache_salt_hash"] == b["cache_salt_hash"] != "pepper"
    assert b["mm_items"] == [{"mm_hash": "cat", "offset": 1, "length": 3}]
    assert (b["after"], b["gap"]) == (["a"], 2.5)
    assert set(c) == {
        *("event", "step", "ts", "policy", "req_id", "arrival_time", "priority", "num_prompt_tokens", "max_tokens")
    }


def test_pauses_resets_and_aborts_are_recorded_where_they_happened(tmp_path: Path) -> None:
    yard = RecordedYard(tmp_path)
    yard.add("a", 9, max_tokens=5)
    yard.step()
    yard.scheduler.set_pause_state(PauseState.PAUSED_NEW)
    assert not yard.scheduler.reset_prefix_cache()
    yard.step()
    yard.scheduler.finish_requests("a", RequestStatus.FINISHED_ABORTED)
    yard.scheduler.set_pause_state(PauseState.UNPAUSED)
    assert yard.scheduler.reset_prefix_cache()
    yard.step()
    yard.writer.close()
    events = [
        (each["step"], each.get("state"), each.get("done"))
        for each in records_of(tmp_path)
        if each["event"] in ("pause_changed", "cache_reset")
    ]
    assert events == [(1, "paused_new", None), (1, None, False), (2, "unpaused", None), (2, None, True)]
    (end,) = records_of(tmp_path, "request_finished")
    assert (end["step"], end["finish_reason"]) == (1, "abort")
    steps = list(TraceReader(tmp_path).steps())
    assert [[type(event).__name__ for event in step.host_events] for step in steps] == [
        ["PauseChanged", "CacheReset"],
        ["PauseChanged", "CacheReset"],
        [],
    ]


def test_recomputed_tokens_are_those_that_the_cache_lost(tmp_path: Path) -> None:
    toy = RecordedYard(tmp_path, num_gpu_blocks=9, enable_prefix_caching=False, max_num_seqs=2)
    toy.add("a", 12, max_tokens=12)
    toy.add("b", 12, max_tokens=12)
    toy.drain()
    toy.writer.close()
    preempted = [record for record in records_of(tmp_path, "admission_outcome") if "preemptions" in record]
    lost = [each["num_computed_tokens"] for record in preempted for each in record["preemptions"]]
    assert lost
    decisions = records_of(tmp_path, "step_decision")
    assert sum(record.get("recomputed_tokens", 0) for record in decisions) == sum(lost)
    finished = {record["req_id"]: record for record in records_of(tmp_path, "request_finished")}
    assert sum(record["recomputed_tokens"] for record in finished.values()) == sum(lost)
    assert finished["b"]["num_preemptions"] == len(lost)


def test_an_outcome_is_written_only_when_somebody_was_held_back(tmp_path: Path) -> None:
    toy = RecordedYard(tmp_path, max_num_seqs=1)
    toy.add("a", 4, max_tokens=2)
    toy.add("b", 4, max_tokens=2)
    toy.add("c", 4, max_tokens=2)
    toy.drain()
    toy.writer.close()
    outcomes = [msgspec.convert(record, AdmissionOutcome) for record in records_of(tmp_path, "admission_outcome")]
    assert [(each.step, each.kind, each.reason, each.num_requests) for each in outcomes] == [
        (0, "stopped", "max_num_seqs", 2),
        (1, "stopped", "max_num_seqs", 2),
        (2, "stopped", "max_num_seqs", 1),
        (3, "stopped", "max_num_seqs", 1),
    ]
    assert all(each.budget_left is not None for each in outcomes)


def test_a_refused_allocation_carries_its_numbers(tmp_path: Path) -> None:
    toy = RecordedYard(tmp_path, num_gpu_blocks=11)
    toy.add("a", 24, max_tokens=4)
    toy.add("head", 36, max_tokens=2)
    toy.add("small", 5, max_tokens=2)
    toy.step()
    toy.writer.close()
    (outcome,) = records_of(tmp_path, "admission_outcome")
    assert outcome["reason"] == "kv_full_sequence"
    assert outcome["req_id"] == "head"
    assert outcome["num_requests"] == 2
    assert outcome["smallest_need"] == 2
    assert outcome["kv"]["needed"] == 9
    assert outcome["kv"]["free"] == toy.free == 4


def test_skipped_requests_are_listed_up_to_the_bound_and_counted_beyond_it(tmp_path: Path) -> None:
    toy = RecordedYard(
        tmp_path,
        trace={"max_ids_per_step": 2},
        enable_chunked_prefill=False,
        skip_oversized_prefill=True,
        max_num_batched_tokens=64,
        max_model_len=64,
    )
    for name in "abcdef":
        toy.add(name, 40)
    toy.step()
    toy.writer.close()
    (outcome,) = records_of(tmp_path, "admission_outcome")
    assert outcome["reason"] == "queues_empty"
    assert outcome["skipped_counts"] == {"prefill_exceeds_budget": 5}
    assert [each["req_id"] for each in outcome["skipped"]] == ["b", "c"]
    assert outcome["skipped"][0]["wanted_tokens"] == 40
    assert outcome["skipped_omitted"] == 3


def test_sampled_steps_carry_all_their_records(tmp_path: Path) -> None:
    sink = Gathered()
    toy = RecordedYard(tmp_path, sink, trace={"every_n": 3}, max_num_seqs=1)
    for name in "abc":
        toy.add(name, 4, max_tokens=4)
    toy.drain()
    toy.writer.close()
    wanted = [step for step in range(13) if step % 3 == 0]
    for event in ("step_snapshot", "step_decision", "step_completed"):
        assert [record["step"] for record in records_of(tmp_path, event)] == wanted
    assert len(records_of(tmp_path, "request_finished")) == 3
    assert [facts.step for facts in sink.facts] == list(range(13))


def test_a_step_like_the_last_one_is_told_as_such(tmp_path: Path) -> None:
    """A request that comes, waits or leaves ends the repetition: such a step is reported in full."""
    repeated: list[int] = []

    class Noting(Gathered):
        def step_repeated(self, step: int, ts: float, free_blocks: int) -> None:
            repeated.append(step)
            super().step_repeated(step, ts, free_blocks)

    toy = RecordedYard(tmp_path, Noting(), max_num_seqs=2)
    toy.add("a", 4, max_tokens=12)
    toy.steps(4)
    toy.add("b", 4, max_tokens=3)
    toy.steps(2)
    toy.add("waits", 4, max_tokens=1)
    toy.drain()
    assert repeated == [2, 3, 9, 10, 11]


def test_facts_need_no_writer(tmp_path: Path) -> None:
    with_writer, without = Gathered(), Gathered()
    toy = RecordedYard(tmp_path, with_writer, num_gpu_blocks=31)
    toy.scheduler.attach_observer(Observers(toy.recorder, TraceRecorder(None, without, start=with_writer.start)))
    live(toy, 5, 60)
    toy.writer.close()
    for each, other in zip(with_writer.facts, without.facts, strict=True):
        for facts in (each, other):
            facts.min_need = None  # request records tell it
            if facts.outcome is not None:  # lists are bounded by the writer's settings, counts are not
                facts.outcome.skipped = facts.outcome.not_scheduled = None
                facts.outcome.skipped_omitted = facts.outcome.not_scheduled_omitted = None
    assert with_writer.facts == without.facts
    assert with_writer.finished == without.finished


def test_the_waiting_list_follows_changes_that_keep_its_length(tmp_path: Path) -> None:
    toy = RecordedYard(tmp_path, max_num_seqs=1)
    for name in ("a", "b", "c"):
        toy.add(name, 4, max_tokens=30)
    toy.step()
    toy.step()
    toy.abort("b")
    toy.add("d", 4, max_tokens=30)
    toy.step()
    toy.writer.close()
    waiting = [record["waiting_req_ids"] for record in records_of(tmp_path, "step_snapshot")]
    assert waiting == [["a", "b", "c"], ["b", "c"], ["c", "d"]]


def test_the_waiting_list_follows_requests_that_are_passed_over(tmp_path: Path) -> None:
    toy = RecordedYard(tmp_path, policy="priority", max_loras=1)
    toy.add("running", 4, max_tokens=30, lora_name="a")
    toy.add("late", 4, lora_name="b", priority=5)
    toy.step()
    toy.add("early", 4, lora_name="c", priority=1)
    toy.step()  # both are passed over, in another order than the snapshot's
    toy.step()
    toy.writer.close()
    waiting = [record["waiting_req_ids"] for record in records_of(tmp_path, "step_snapshot")]
    assert waiting == [["running", "late"], ["late", "early"], ["early", "late"]]


def test_a_recorder_attached_late_starts_where_it_is(tmp_path: Path) -> None:
    toy = RecordedYard(tmp_path, max_num_seqs=2)
    recorder = toy.recorder
    toy.scheduler.attach_observer(None)
    for name in ("a", "b", "c"):
        toy.add(name, 4, max_tokens=6)
    output = toy.schedule()
    toy.scheduler.attach_observer(recorder)
    toy.update(output)  # a step that the recorder did not see begin
    toy.drain()
    toy.writer.close()
    assert [record["step"] for record in records_of(tmp_path, "step_completed")] == list(range(1, toy.scheduler.step))
    assert [record["req_id"] for record in records_of(tmp_path, "request_finished")] == ["a", "b", "c"]


def test_equal_runs_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        toy = RecordedYard(tmp_path / name, **SCENARIOS[0])
        live(toy, 7, 80)
        toy.writer.close()
    for kind in ("steps", "requests"):
        assert lines_of(tmp_path / "one", kind) == lines_of(tmp_path / "two", kind)


def test_accepted_drafts_are_sampled_tokens(tmp_path: Path) -> None:
    toy = RecordedYard(tmp_path)
    for name in ("a", "b", "c"):
        toy.add(name, 4)
    output = toy.schedule()
    result = toy.scheduler.update_from_output(output, toy.model(output, {}))
    tokens, counts = array("q", [7, 8, -1, 7, -1, -1, 7, 8, 9]), array("q", [2, 1, 3])
    several = EngineOutputs(output.step, result.requests, result.names, tokens, counts, 3, result.scheduler_stats)
    sink = Gathered()
    TraceRecorder(None, sink).step_completed(1.0, output, several)
    assert sink.completed[0].num_sampled_tokens == 6


@pytest.mark.parametrize("tokens", [1, 4])
def test_a_decision_like_the_one_before_names_who_was_preempted_since(tmp_path: Path, tokens: int) -> None:
    toy = RecordedYard(tmp_path, max_num_seqs=2, long_prefill_token_threshold=4, enable_prefix_caching=False)

    class Preempted(StepObserver):
        """Tells of a request that lost its blocks before step 2."""

        def step_started(self, ts: float, step: int, state: SchedulerState) -> None:
            toy.recorder.step_started(ts, step, state)

        def step_decided(
            self, ts: float, output: SchedulerOutput, outcomes: StepOutcomes, state: SchedulerState
        ) -> None:
            lost = ("c",) if output.step == 2 else ()
            named = output.replace(preempted_req_ids=lost)
            toy.recorder.step_decided(ts, named, outcomes, state)

    toy.scheduler.attach_observer(Observers(toy.watcher, Preempted()))
    for name in ("a", "b", "c"):
        toy.add(name, 4 if tokens == 1 else 30, max_tokens=9)
    toy.steps(5)
    toy.writer.close()
    decisions = records_of(tmp_path, "step_decision")[1:]
    assert [each["num_scheduled_tokens"] for each in decisions] == 4 * [{"a": tokens, "b": tokens}]
    assert [each["preempted_req_ids"] for each in decisions] == [[], ["c"], [], []]


def test_who_starts_over_while_none_is_admitted_is_named(tmp_path: Path) -> None:
    toy = RecordedYard(tmp_path, profile=VLLM_0_33)
    toy.add("a", 8, max_tokens=20)
    toy.add("b", 8, max_tokens=20)
    toy.steps(3)
    toy.scheduler.set_pause_state(PauseState.PAUSED_NEW)
    toy.scheduler.reset_prefix_cache(reset_running_requests=True)
    output = toy.step()
    toy.writer.close()
    assert output.preempted_req_ids == ("b", "a")
    assert records_of(tmp_path, "step_decision")[-1]["preempted_req_ids"] == ["b", "a"]


def test_steps_that_never_complete_are_forgotten(tmp_path: Path) -> None:
    """Every completed step drops one of the oldest, as long as there are too many."""
    toy = RecordedYard(tmp_path, max_model_len=200, num_gpu_blocks=101)
    recorder = toy.recorder
    for step in range(-100, 0):
        recorder.step_started(float(step), step, toy.scheduler.state)
    toy.add("a", 4, max_tokens=60)
    toy.steps(59)
    output = toy.schedule()
    result = toy.update(output)
    for step in range(-100, 0):
        recorder.step_completed(99.0, output.replace(step=step), result)
    toy.writer.close()
    late = [record["step"] for record in records_of(tmp_path, "step_completed") if record["step"] < 0]
    assert late == list(range(-64, 0))


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


_Interrupted: Any = type("_Interrupted", (list,), {"append": _interrupt, "__iadd__": _interrupt})
"""A list during whose extension Ctrl-C comes."""


def test_an_interrupt_closes_the_scheduler_and_leaves_a_trace_that_can_be_read(tmp_path: Path) -> None:
    """The interrupt hits a snapshot whose numbers are there already and whose lists are not."""
    toy = RecordedYard(tmp_path)
    toy.add("a", 4, max_tokens=6)
    toy.steps(3)
    lines = toy.writer.waiting()
    lines.pieces = _Interrupted(lines.pieces)
    with pytest.raises(KeyboardInterrupt):
        toy.scheduler.schedule()
    lines.pieces = list(lines.pieces)
    with pytest.raises(EngineDeadError):
        toy.scheduler.schedule()
    toy.writer.close()
    assert lines_of(tmp_path)
