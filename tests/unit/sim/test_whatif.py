"""A recorded run, replayed from its trace alone: the same steps, whatever it used; then with other settings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

from tokenyard.core.config import CacheConfig, GroupKind, KVCacheGroup, SchedulerConfig, SpeculativeConfig
from tokenyard.core.request import MultiModalItem
from tokenyard.errors import ConfigError, TraceError
from tokenyard.policies.named import policy_maker
from tokenyard.questions.recorded.ask import answer, replay_as_it_was
from tokenyard.questions.recorded.recorded_requests import Origin, RecordedBlocks, RecordedRequests
from tokenyard.questions.recorded.recorded_run import RecordedRun, read_run
from tokenyard.questions.recorded.variants import Variant, as_it_was, split_settings, variant_with
from tokenyard.questions.settings import TrafficSettings
from tokenyard.questions.traffic import workload_from
from tokenyard.record.recorder import TraceRecorder, TurnOrder
from tokenyard.record.writer import TraceWriter
from tokenyard.sim.executor import SimulatedSpeculation
from tokenyard.sim.replay import replay
from tokenyard.steptime.carried import stretched
from tokenyard.steptime.model import ConstantLatency
from tokenyard.trace.config import TraceConfig
from tokenyard.trace.schema import PrefixCacheLookup, RequestArrived, RequestFinished
from tokenyard.trace.start import describe_run
from tokenyard.trace.steps import Step
from tokenyard.workload.record import Workload, WorkloadRequest
from tokenyard.workload.tokens import Segment, StreamTokens, seed_of

STEP = 1 / 64
"""Seconds. Nothing arrives or leaves at the very end of a step, where a rounding error of the fit would matter."""

KINDS: dict[str, dict[str, Any]] = {
    "pressure": {"num_gpu_blocks": 24, "max_num_seqs": 6},
    "async": {"async_scheduling": True, "num_gpu_blocks": 26, "scheduler_reserve_full_isl": False},
    "priority": {"policy": "priority", "num_gpu_blocks": 24},
    "continuum": {"policy": "continuum-ttl", "num_gpu_blocks": 30},
    "no caching": {"enable_prefix_caching": False, "num_gpu_blocks": 24},
    "adapters": {"max_loras": 1},
    "images": {"max_num_encoder_input_tokens": 12, "encoder_cache_size": 16},
    "drafts": {"num_gpu_blocks": 30},
    "hybrid": {"groups": (KVCacheGroup(), KVCacheGroup(kind=GroupKind.SLIDING_WINDOW, window=8)), "num_gpu_blocks": 60},
}
_CACHE = ("num_gpu_blocks", "enable_prefix_caching", "groups")


def read_variant(run: RecordedRun, text: str) -> Variant:
    """The run with the settings of a text, as ``--set`` takes them."""
    return variant_with(run, split_settings(text), text)


def drawn_workload(kind: str, seed: int) -> Workload:
    """Sessions of turns whose prompts repeat what was said, single requests with shared beginnings, and aborts."""
    random = Random(seed)
    requests: list[WorkloadRequest] = []
    for session in range(random.randint(2, 6)):
        stream, system, length = seed_of(seed, session), seed_of(seed, "system", session % 2), random.randint(3, 24)
        start = random.random() * 20 * STEP
        parent: str | None = None
        for turn in range(random.randint(1, 4)):
            output = random.randint(1, 14)
            requests.append(
                WorkloadRequest(
                    request_id=f"s{session}t{turn}",
                    prompt=StreamTokens(Segment(system, 0, min(8, length)), Segment(stream, 8, max(8, length))),
                    max_tokens=output,
                    arrival_time=start,
                    after=() if parent is None else (parent,),
                    gap=random.random() * 4 * STEP,
                    job_id=f"job{session}",
                    is_last_step=turn == 3,
                    this_func_call=random.choice((None, "search", "shell")),
                    priority=random.randrange(3),
                    lora_name=random.choice((None, "a", "b")) if kind == "adapters" else None,
                    cache_salt=random.choice((None, "salt")),
                    images=_images(random, length) if kind == "images" else (),
                    patience=random.random() * 40 * STEP if random.random() < 0.15 else None,
                    output_seed=stream,
                )
            )
            parent, length = f"s{session}t{turn}", length + output + random.randint(0, 6)
            if length > 40:
                break
    return Workload("drawn", requests)


def _images(random: Random, length: int) -> tuple[MultiModalItem, ...]:
    size = random.randint(1, 6)
    return (
        (MultiModalItem(mm_hash=f"image{random.randrange(3)}-{size}", offset=0, length=size),) if size < length else ()
    )


def record(kind: str, workload: Workload, directory: Path, **changes: Any) -> None:
    """Replay ``workload`` and leave its trace in ``directory``."""
    given_settings = {"max_num_seqs": 8, "max_num_batched_tokens": 32, "max_model_len": 64} | KINDS[kind] | changes
    cache = CacheConfig(
        **{"num_gpu_blocks": 80, "block_size": 4} | {n: given_settings.pop(n) for n in _CACHE if n in given_settings}
    )
    scheduler = SchedulerConfig(**given_settings)
    speculation, sections = None, {}
    if kind == "drafts":
        speculation = SimulatedSpeculation(config=SpeculativeConfig(num_speculative_tokens=2), acceptance=(1.0, 1.0))
        sections = {"speculation": {"num_speculative_tokens": 2, "speculative_method": "ngram"}}
    turns = {each.request_id: TurnOrder(each.after, each.gap, each.spacing) for each in workload if each.after}
    start = describe_run(scheduler, cache, host="replay", model="tiny", sections=sections)
    with TraceWriter(TraceConfig(path=directory, policy=scheduler.policy, request_records=False)) as writer:
        replay(
            workload,
            scheduler,
            cache,
            ConstantLatency(seconds=STEP),
            observer=TraceRecorder(writer, start=start, turns=turns),
            policy=policy_maker(scheduler.policy)(),
            speculation=speculation,
            skip_refused=True,
        )


EXACT = sorted(KINDS)


@pytest.mark.parametrize("kind", EXACT)
@pytest.mark.parametrize("seed", range(4))
def test_a_replay_from_the_trace_alone_takes_the_same_steps(kind: str, seed: int, tmp_path: Path) -> None:
    record(kind, drawn_workload(kind, seed), tmp_path)
    run = read_run(tmp_path)
    check = replay_as_it_was(run).check
    assert check.parting is None
    assert check.equal_steps == check.recorded_steps > 5
    assert (check.decisions.equal, check.decisions.steps) == (check.recorded_steps, check.recorded_steps)
    assert check.failed == []
    assert [each.name for each in check.checks if each.error not in (None, pytest.approx(0.0, abs=1e-9))] == []


@settings(max_examples=examples(25), deadline=None)
@given(st.sampled_from(EXACT), st.integers(10, 1 << 30))
def test_whatever_was_drawn(tmp_path_factory: pytest.TempPathFactory, kind: str, seed: int) -> None:
    directory = tmp_path_factory.mktemp("trace")
    workload = drawn_workload(kind, seed)
    assume(len(workload) > 4)  # fewer have too few steps for a fit
    record(kind, workload, directory)
    run = read_run(directory)
    assume(not any("they are taken to share nothing" in note for note in run.workload.notes))
    check = replay_as_it_was(run).check
    assert (check.parting, check.equal_steps) == (None, check.recorded_steps)
    assert (check.decisions.first_difference, check.decisions.equal) == (None, check.recorded_steps)


def test_a_request_that_lacks_one_token_of_its_prompt_may_have_drafts_at_once(tmp_path: Path) -> None:
    """In this drawn workload the rest of a prompt is cached: its first step verifies drafts."""
    record("drafts", drawn_workload("drafts", 1000), tmp_path)
    check = replay_as_it_was(read_run(tmp_path)).check
    assert check.decisions.equal == check.decisions.steps == check.equal_steps > 20


def test_who_went_away_before_the_cache_was_asked_is_counted(tmp_path: Path) -> None:
    """In this drawn workload one is aborted in the queue: it is not known which prompts its own began like."""
    record("async", drawn_workload("async", 362), tmp_path)
    (note,) = read_run(tmp_path).workload.notes
    assert note.startswith("1 request went away before the cache was asked for its blocks: it is taken")


def test_a_prompt_shorter_than_a_block_shares_nothing_and_is_no_gap(tmp_path: Path) -> None:
    """The cache is never asked about it."""
    lengths = [3, 43] * 6
    short = [
        WorkloadRequest(request_id=f"r{i}", prompt=StreamTokens.unique(i, length), max_tokens=6, arrival_time=float(i))
        for i, length in enumerate(lengths)
    ]
    record("async", Workload("short", short), tmp_path)
    assert read_run(tmp_path).workload.notes == ()


def busy_request(i: int) -> WorkloadRequest:
    """One of many at once that share a beginning and have other priorities."""
    return WorkloadRequest(
        request_id=f"r{i}",
        prompt=StreamTokens(Segment(seed_of("system"), 0, 8), Segment(seed_of(i), 8, 12 + i)),
        max_tokens=6 + i % 5,
        arrival_time=i * 0.37 * STEP,
        priority=-i,
        output_seed=seed_of(i),
    )


@pytest.mark.parametrize(
    ("asked", "field", "changes"),
    [
        ("max_num_seqs=1", "max_num_seqs", {"max_num_seqs": 1}),
        ("num_gpu_blocks_override=60", "num_gpu_blocks", {"num_gpu_blocks": 60}),
        ("enable_prefix_caching=false", "enable_prefix_caching", {"enable_prefix_caching": False}),
        ("scheduling-policy=priority", "policy", {"policy": "priority"}),
    ],
)
def test_an_answer_is_what_a_run_with_that_setting_reports(
    asked: str, field: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    """The same workload is recorded with the changed setting: the answer from the first trace equals that run."""
    workload = Workload("busy", [busy_request(i) for i in range(14)])
    record("pressure", workload, tmp_path / "a")
    record("pressure", workload, tmp_path / "b", **changes)
    run, other = read_run(tmp_path / "a"), read_run(tmp_path / "b")
    (told,) = answer(run, replay_as_it_was(run), [read_variant(run, asked)]).variants
    happened = {check.name: check.recorded for check in replay_as_it_was(other).check.checks}
    assert {each.name: each.variant for each in told.figures} == {
        name: pytest.approx(value) for name, value in happened.items()
    }
    assert told.faster + told.slower > 0, f"{field} makes a difference here"
    assert told.serve_flags[0].startswith("--")


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("max_loras=0", ()),
        ("max_loras=2", ("--max-loras", "2")),
        ("enable_prefix_caching=false", ("--no-enable-prefix-caching",)),
    ],
)
def test_flags_of_a_variant_are_ones_that_vllm_takes(text: str, flags: tuple[str, ...], tmp_path: Path) -> None:
    record("pressure", Workload("busy", [busy_request(i) for i in range(4)]), tmp_path)
    assert read_variant(read_run(tmp_path), text).flags == flags


def test_modelled_step_times_have_the_range_of_replays_that_are_as_far_off(tmp_path: Path) -> None:
    """One request alone: nothing queues, so every figure is as far off as its steps; prompts apart from answers."""
    lone = WorkloadRequest(request_id="r", prompt=StreamTokens.unique(1, 12), max_tokens=9)
    record("pressure", Workload("alone", [lone]), tmp_path)
    run = read_run(tmp_path)
    extremes = stretched(run.latency, prefill=0.5, decode=0.25), stretched(run.latency, prefill=3.0, decode=2.0)
    asked = replace(as_it_was(run), name="modelled", keeps_time=False, extremes=extremes)
    baseline = replay_as_it_was(run)
    (told,) = answer(run, baseline, [asked]).variants
    found = {each.name: each for each in told.figures}
    for name, low, high in (("ttft_ms.mean", 0.5, 3.0), ("tpot_ms.mean", 0.25, 2.0)):
        each = found[name]
        assert each.variant is not None
        assert each.low == pytest.approx(low * each.variant, rel=1e-3), name
        assert each.high == pytest.approx(high * each.variant, rel=1e-3), name
    tokens = found["throughput.output_tokens_per_s"]
    assert tokens.low is not None
    assert tokens.high is not None
    assert tokens.variant is not None
    assert tokens.low < tokens.variant / 1.9
    assert tokens.high > tokens.variant * 1.9
    (own,) = answer(run, baseline, [read_variant(run, "max_num_seqs=4")]).variants
    assert {(each.low, each.high) for each in own.figures} == {(None, None)}


def test_drafts_are_right_as_often_as_they_were(tmp_path: Path) -> None:
    requests = [
        WorkloadRequest(request_id=f"r{i}", prompt=StreamTokens.unique(seed_of(i), 8), max_tokens=50, output_seed=i)
        for i in range(20)
    ]
    record("drafts", Workload("drafted", requests), tmp_path)
    run = read_run(tmp_path)
    assert run.speculation is not None
    assert run.speculation.config.num_speculative_tokens == 2
    assert run.speculation.acceptance == pytest.approx((1.0, 1.0), abs=0.1)
    assert replay_as_it_was(run).check.failed == []


def test_aborts_are_repeated(tmp_path: Path) -> None:
    requests = [
        WorkloadRequest(
            request_id=name,
            prompt=StreamTokens.unique(seed_of(name), 8),
            max_tokens=40,
            patience=patience,
        )
        for name, patience in (("stays", None), ("leaves", 10 * STEP))
    ]
    record("pressure", Workload("two", requests), tmp_path)
    run = read_run(tmp_path)
    leaves = next(each for each in run.workload if each.request_id == "leaves")
    assert leaves.patience == pytest.approx(10 * STEP, abs=1e-5)
    assert leaves.max_tokens == 40
    baseline = replay_as_it_was(run)
    assert baseline.report.finish_reasons == {"abort": 1, "length": 1}


def test_turns_of_a_host_that_does_not_know_them_are_found_by_what_they_repeat(tmp_path: Path) -> None:
    stream = seed_of("talk")
    first = WorkloadRequest(
        request_id="first", prompt=StreamTokens(Segment(stream, 0, 9)), max_tokens=9, output_seed=stream
    )
    again = WorkloadRequest(
        request_id="again",
        prompt=StreamTokens(Segment(stream, 0, 21)),
        max_tokens=3,
        after=("first",),
        gap=4 * STEP,
    )
    record("pressure", Workload("talk", [first, again]), tmp_path)
    (path,) = tmp_path.glob("*.steps.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        line.pop("after", None), line.pop("gap", None)
        if line["event"] == "trace_start":
            line["host"] = "engine"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    turn = read_run(tmp_path).workload.requests[1]
    assert (turn.after, turn.gap) == (("first",), 4 * STEP)


WAYS = [0.003, 0.009, 0.005, 0.004, 0.008, 0.006, 0.007, 0.003]
"""Seconds from a client to the scheduler."""


def as_of_a_server(directory: Path) -> Path:
    """The trace in ``directory`` as a host writes it that knows neither turns nor when a request reached its queue."""
    (path,) = directory.glob("*.steps.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if line["event"] == "trace_start":
            line["host"] = "vllm"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_the_way_to_the_scheduler_is_taken_from_a_servers_trace_and_part_of_every_answer(tmp_path: Path) -> None:
    """Lone requests to an idle engine: TTFT is the way and a step, in the trace, in its replay, in a variant."""
    alone = [
        WorkloadRequest(
            request_id=f"r{i}",
            prompt=StreamTokens.unique(seed_of(i), 8),
            max_tokens=4,
            arrival_time=2.0 * i + 0.1,
            output_seed=i,
        )
        for i in range(len(WAYS))
    ]
    record("pressure", Workload("alone", alone).with_delays(WAYS), tmp_path)
    run = read_run(as_of_a_server(tmp_path))
    assert [each.delay for each in run.workload] == pytest.approx(WAYS, abs=1e-5)
    baseline = replay_as_it_was(run)
    ttft = 1e3 * (sum(WAYS) / len(WAYS) + STEP)
    figures = {each.name: each for each in baseline.check.checks}
    assert figures["ttft_ms.mean"].recorded == pytest.approx(ttft, abs=0.01)
    assert figures["ttft_ms.mean"].replayed == pytest.approx(ttft, abs=0.01)
    (told,) = answer(run, baseline, [read_variant(run, "max_num_seqs=1")]).variants
    then = {each.name: each.variant for each in told.figures}
    assert then["ttft_ms.mean"] == pytest.approx(ttft, abs=0.01)
    assert then["tpot_ms.mean"] == pytest.approx(1e3 * STEP, abs=0.01)


def test_the_ways_of_a_servers_trace_are_those_of_another_workload(tmp_path: Path) -> None:
    """``--front-end-delay TRACE``: each request of the workload has one of them, and waits that much longer."""
    alone = [replace(busy_request(i), arrival_time=2.0 * i + 0.1) for i in range(len(WAYS))]
    record("pressure", Workload("alone", alone).with_delays(WAYS), tmp_path)
    path = as_of_a_server(tmp_path)
    with_ways = workload_from("chat", TrafficSettings(limit=4, front_end_delay=str(path)))
    drawn = [each.delay for each in with_ways]
    assert len(set(drawn)) > 1
    assert all(min(abs(each - way) for way in WAYS) < 1e-5 for each in drawn)
    assert any("drawn from 8" in note for note in with_ways.notes)
    record("pressure", Workload("alone", alone), tmp_path / "replay")
    with pytest.raises(ConfigError, match="front_end_delay"):
        workload_from("chat", TrafficSettings(limit=4, front_end_delay=str(tmp_path / "replay")))


# ---- what cannot be answered


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ("max_num_seqs", "give NAME=VALUE"),
        ("max_num_seqs=", "give NAME=VALUE"),
        ("no_such_thing=1", "use one of: async_scheduling, block_size"),
        ("max_num_seqs=many", "give a whole number"),
        ("max_num_seqs=0", "max_num_seqs = 0"),
        ("max_num_seqs=1,max-num-seqs=2", "is given twice"),
        ("scheduling_policy=none-such", "use one of: "),
        ("rate_scale=0", "give a number above 0"),
    ],
)
def test_a_change_that_cannot_be_made_is_one_error(asked: str, problem: str, tmp_path: Path) -> None:
    record("pressure", drawn_workload("pressure", 1), tmp_path)
    with pytest.raises(ConfigError, match=problem):
        read_variant(read_run(tmp_path), asked)


def test_a_block_size_holds_for_the_groups_as_well(tmp_path: Path) -> None:
    """Also where the trace names that of each group, as vLLM's do."""
    group = {"kind": "full", "block_size": 4, "window": 0, "is_eagle": False}
    cache = {"num_gpu_blocks": 24, "block_size": 4, "groups": [group]}
    variant = read_variant(read_run(edited(tmp_path / "a", {"config": {"cache": cache}})), "block_size=8")
    assert (variant.cache.group_block_sizes, variant.cache.num_gpu_blocks) == ((8,), 12)
    cache["groups"] = [group, {**group, "kind": "sliding_window", "block_size": 8, "window": 16}]
    with pytest.raises(ConfigError, match="blocks of 4, 8 tokens: leave it as it is"):
        read_variant(read_run(edited(tmp_path / "b", {"config": {"cache": cache}})), "block_size=8")


def test_prefix_caching_cannot_be_turned_on_afterwards(tmp_path: Path) -> None:
    record("no caching", drawn_workload("no caching", 1), tmp_path)
    with pytest.raises(ConfigError, match="it is not known which prompts begin alike"):
        read_variant(read_run(tmp_path), "enable_prefix_caching=true")


def edited(tmp_path: Path, change: dict[str, Any]) -> Path:
    """A trace whose ``trace_start`` says something else."""
    record("pressure", drawn_workload("pressure", 1), tmp_path)
    (path,) = tmp_path.glob("*.steps.jsonl")
    start, *rest = path.read_text().splitlines()
    fields = json.loads(start)
    config = change.pop("config", None)
    fields |= change
    fields["config"] |= config or {}
    path.write_text("\n".join((json.dumps(fields), *rest)) + "\n")
    return tmp_path


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"every_n": 2}, "holds only one step in 2"),
        ({"config": {"scheduler": [["max_num_seqs", 1]]}}, "scheduler = .* is no section"),
        ({"config": {"parallel": 2}}, "parallel = 2 is no section"),
        ({"config": {"scheduler": {"max_num_seqs": "lots"}}}, "its configuration cannot be used"),
        ({"config": {"kv_transfer": {"kv_connector": "NixlConnector"}}}, "kept KV elsewhere"),
        ({"config": {"parallel": {"data_parallel_size": 4}}}, "one of 4 data-parallel engines"),
        (
            {"host": "vllm", "config": {"cache": {"num_gpu_blocks": 24, "block_size": 4}}},
            "does not say enough of its KV-cache groups",
        ),
    ],
)
def test_a_trace_that_does_not_tell_enough_is_one_error(change: dict[str, Any], problem: str, tmp_path: Path) -> None:
    path = edited(tmp_path, change)
    with pytest.raises(TraceError, match=problem):
        read_run(path)


# ---- blocks


def tokens_of(blocks: RecordedBlocks, runs: Sequence[int], length: int, name: str) -> list[int]:
    prompt = blocks.prompt(runs, length, Origin(name, seed_of(name), is_output=False))
    return [int(token) for token in prompt.tokens()]


def test_equal_blocks_have_equal_tokens_and_nothing_else_has() -> None:
    blocks = RecordedBlocks(4)
    a = tokens_of(blocks, [0, 3], 14, "a")
    b = tokens_of(blocks, [0, 2, 3, 1], 13, "b")
    c = tokens_of(blocks, [0, 2, 3, 1, 4, 1], 16, "c")
    assert a[:8] == b[:8] == c[:8]
    assert a[8:12] != b[8:12] == c[8:12]
    assert not set(a[12:]) & set(b[12:])
    assert [len(each) for each in (a, b, c)] == [14, 13, 16]


def test_blocks_that_come_out_of_order_are_not_taken_for_others() -> None:
    blocks = RecordedBlocks(2)
    late = tokens_of(blocks, [10, 2], 4, "late")
    early = tokens_of(blocks, [4, 2], 4, "early")
    across = tokens_of(blocks, [4, 8], 16, "across")
    assert across[:4] == early
    assert across[12:] != late, "blocks 10 and 11 stand elsewhere in this prompt: no prompt of a real trace does that"
    assert tokens_of(blocks, [10, 2], 4, "again") == late


@pytest.mark.parametrize("runs", [[0], [-1, 2], [0, 0], [0, 9], [0, 1 << 60]])
def test_runs_that_cannot_be_are_refused(runs: list[int]) -> None:
    with pytest.raises(ValueError, match="blocks"):
        tokens_of(RecordedBlocks(4), runs, 16, "a")


def _asked(
    blocks: RecordedRequests,
    number: int,
    name: str,
    at: float,
    runs: list[int],
    length: int,
    answered: list[int] | None = None,
) -> None:
    """Request ``name`` arrives, with a prompt of ``length`` tokens in blocks ``runs``, answered by 4 tokens in 1 s.

    ``answered``: the blocks of both, if the answer fills one.
    """
    step = Step(number)
    step.arrived = [RequestArrived(step=number, ts=at, req_id=name, arrival_time=at, num_prompt_tokens=length)]
    step.lookups = [PrefixCacheLookup(step=number, ts=at, req_id=name, prompt_hash_runs=runs)]
    step.finished = [
        RequestFinished(
            step=number,
            ts=at + 1,
            req_id=name,
            finish_reason="length",
            finished_time=at + 1,
            num_prompt_tokens=length,
            num_output_tokens=4,
            output_hash_runs=answered,
        )
    ]
    blocks.add(step)


def test_a_turn_is_known_by_the_whole_prompt_it_begins_with() -> None:
    """An answer of four tokens fills no block of sixteen: the next turn holds the first one's prompt, and more."""
    blocks = RecordedRequests("vllm", 16, 1024, knows_turns=False)
    _asked(blocks, 0, "first", 0.0, [0, 3], 50)
    _asked(blocks, 1, "turn", 2.0, [0, 5], 90)
    _asked(blocks, 2, "shares only the beginning", 4.0, [0, 2, 9, 2], 70)
    _asked(blocks, 3, "the same prompt again", 6.0, [0, 3], 50)
    after = {request.request_id: (request.after, request.gap) for request in blocks.workload()}
    assert after == {
        "first": ((), 0.0),
        "turn": (("first",), 1.0),
        "shares only the beginning": ((), 0.0),
        "the same prompt again": ((), 0.0),
    }


def test_who_lacks_the_block_that_an_answer_filled_only_begins_alike() -> None:
    """Fourteen tokens of the prompt and four of the answer fill a block of sixteen, which a turn would hold."""
    blocks = RecordedRequests("vllm", 16, 1024, knows_turns=False)
    _asked(blocks, 0, "first", 0.0, [0, 2], 2 * 16 + 14)
    _asked(blocks, 1, "has the same system prompt", 2.0, [0, 2, 7, 2], 70)
    assert all(not request.after for request in blocks.workload())


def test_the_last_turn_is_followed_though_an_earlier_one_left_more_of_a_sign() -> None:
    """The first answer fills block 3, the second one ends in the block of its prompt's end."""
    blocks = RecordedRequests("vllm", 16, 1024, knows_turns=False)
    _asked(blocks, 0, "first", 0.0, [0, 3], 3 * 16 + 13, [0, 4])
    _asked(blocks, 1, "second", 2.0, [0, 4, 8, 1], 5 * 16 + 3)
    _asked(blocks, 2, "third", 4.0, [0, 4, 8, 3], 7 * 16 + 5)
    _asked(blocks, 3, "begins like the third", 6.0, [0, 4, 8, 2, 20, 2], 8 * 16 + 5)
    after = {request.request_id: request.after for request in blocks.workload()}
    assert after["second"] == ("first",)
    assert after["third"] == ("second",)
    assert after["begins like the third"] == ("first",), "the second turn goes on once"


def test_turns_within_one_block_are_followed_one_after_the_other() -> None:
    """The second turn ends in the block that the first one's prompt began: the third goes on from the second."""
    blocks = RecordedRequests("vllm", 32, 1024, knows_turns=False)
    _asked(blocks, 0, "first", 0.0, [0, 8], 256)
    _asked(blocks, 1, "second", 2.0, [0, 8], 278)
    _asked(blocks, 2, "third", 4.5, [0, 10], 321)
    _asked(blocks, 3, "begins alike", 6.0, [0, 8, 30, 2], 330)
    after = {request.request_id: (request.after, request.gap) for request in blocks.workload()}
    assert after["second"] == (("first",), 1.0)
    assert after["third"] == (("second",), 1.5)
    assert after["begins alike"] == ((), 0.0), "the second turn goes on once"


def test_who_begins_alike_is_no_turn_where_clients_are_seen_to_say_no_answer_again() -> None:
    """An answer that fills no block may have been said again; those that fill one have not been, and would be seen."""
    blocks = RecordedRequests("vllm", 16, 1024, knows_turns=False)
    _asked(blocks, 0, "filled", 0.0, [0, 2], 2 * 16 + 14, [0, 3])
    _asked(blocks, 1, "about the same document", 2.0, [0, 2, 7, 2], 70)
    _asked(blocks, 2, "not filled", 4.0, [20, 3], 50)
    _asked(blocks, 3, "as if it went on", 6.0, [20, 5], 90)
    assert all(not request.after for request in blocks.workload())
    _asked(blocks, 4, "says the answer again", 8.0, [0, 3, 30, 1], 70)
    after = {request.request_id: request.after for request in blocks.workload()}
    assert after["says the answer again"] == ("filled",)
    assert after["as if it went on"] == ("not filled",), "as many hold an answer as begin alike"
