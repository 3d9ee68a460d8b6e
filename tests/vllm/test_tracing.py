"""TracingScheduler without a model: which class an engine gets, what switches it on, and what does no harm."""

from __future__ import annotations

import logging
import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm", reason="needs vLLM: make test-vllm")

from vllm.v1.core.sched.async_scheduler import AsyncScheduler

from recorder import host
from recorder.drive import Recording
from recorder.plan import Engine, Scenario
from recorder.scenarios import SCENARIOS
from tokenyard.trace.reader import TraceReader
from tokenyard.vllm import AsyncTracingScheduler, FastScheduler, TracingScheduler, versions

pytestmark = pytest.mark.smoke

SCENARIO: Scenario = next(each for each in SCENARIOS if each.name == "fcfs")


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Builds a scenario's engine with a class of ours in place of vLLM's; one for both kinds of engine."""

    def made(engine: Engine, cls: type[Any] = TracingScheduler) -> host.Host:
        monkeypatch.setattr(host, "Scheduler", cls)
        monkeypatch.setattr(host, "AsyncScheduler", cls)
        return host.build_host(engine)

    return made


def record(built: host.Host, scenario: Scenario = SCENARIO) -> list[dict[str, Any]]:
    return Recording(built, scenario.plan(), scenario).run()


@pytest.mark.parametrize("named", [TracingScheduler, AsyncTracingScheduler])
@pytest.mark.parametrize("is_async", [False, True])
def test_engine_gets_its_twin(build: Any, named: type[Any], is_async: bool) -> None:
    scheduler = build(replace(SCENARIO.engine, async_scheduling=is_async), named).scheduler
    assert type(scheduler) is (AsyncTracingScheduler if is_async else TracingScheduler)
    assert isinstance(scheduler, AsyncScheduler) == is_async
    assert scheduler.requests == {}


def test_nothing_is_traced_unless_asked(build: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    built = build(SCENARIO.engine)
    assert built.scheduler.tracer is None
    record(built)
    assert list(tmp_path.iterdir()) == []


def test_error_in_tracing_ends_tracing_only(
    build: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    own = record(host.build_host(SCENARIO.engine))
    monkeypatch.setenv("SCHED_TRACE_PATH", str(tmp_path))
    built = build(SCENARIO.engine)
    tracer = built.scheduler.tracer
    of, calls = tracer.reasons.of, []

    def failing(output: Any) -> Any:
        calls.append(output)
        if len(calls) == 5:
            raise RuntimeError("made to fail")
        return of(output)

    monkeypatch.setattr(tracer.reasons, "of", failing)
    with caplog.at_level(logging.WARNING, "tokenyard.vllm"):
        assert record(built) == own
    assert [each.message for each in caplog.records if each.name == "tokenyard.vllm"] == [
        "tracing ends here, vLLM goes on: RuntimeError: made to fail"
    ]
    assert len(calls) == 5
    assert [step.number for step in TraceReader(tmp_path).steps()] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("where", ["peek_request", "get_computed_blocks", "allocate_slots"])
def test_error_while_the_loop_runs_does_not_reach_it(
    build: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    scenario = next(each for each in SCENARIOS if "pressure" in each.name and not each.engine.async_scheduling)
    own = record(host.build_host(scenario.engine), scenario)
    monkeypatch.setenv("SCHED_TRACE_PATH", str(tmp_path))
    built = build(scenario.engine)
    watch = built.scheduler.tracer.watch
    note = {"peek_request": "_looked_at", "get_computed_blocks": "_note_lookup", "allocate_slots": "_note_refusal"}

    def failing(*args: Any) -> None:
        raise RuntimeError("made to fail")

    monkeypatch.setattr(watch, note[where], failing)
    assert record(built, scenario) == own
    assert "made to fail" in caplog.text
    assert not built.scheduler.tracer.is_open


def test_error_of_vllms_own_passes_through(build: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHED_TRACE_PATH", str(tmp_path))
    scheduler = (built := build(SCENARIO.engine)).scheduler
    begins, calls = scheduler.kv_cache_manager.new_step_starts, []

    def failing() -> None:
        calls.append(1)
        if len(calls) == 11:
            raise RuntimeError("vLLM's own")
        begins()

    monkeypatch.setattr(scheduler.kv_cache_manager, "new_step_starts", failing)
    with pytest.raises(RuntimeError, match="vLLM's own"):
        record(built)
    scheduler.shutdown()
    steps = list(TraceReader(tmp_path).steps())
    assert [step.number for step in steps if step.completed is not None] == list(range(10))


def test_worker_that_dies_leaves_a_whole_trace(build: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine ends with a step in flight: what has been decided is written, and what was taken in."""
    monkeypatch.setenv("SCHED_TRACE_PATH", str(tmp_path))
    scheduler = (built := build(SCENARIO.engine)).scheduler
    update, calls = scheduler.update_from_output, []

    def dying(*args: Any) -> Any:
        calls.append(1)
        if len(calls) == 21:
            raise RuntimeError("the worker is gone")
        return update(*args)

    monkeypatch.setattr(scheduler, "update_from_output", dying)
    with pytest.raises(RuntimeError, match="the worker is gone"):
        record(built)
    scheduler.shutdown()
    steps = list(TraceReader(tmp_path).steps())
    assert [step.number for step in steps if step.decision is not None] == list(range(21))
    assert [step.number for step in steps if step.completed is not None] == list(range(20))


@pytest.mark.parametrize("failing", ["schedule", "update_from_output"])
def test_error_of_our_core_leaves_a_whole_trace(
    build: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """FastScheduler writes what waits before the error passes on: the engine may be killed before its shutdown()."""
    monkeypatch.setenv("SCHED_TRACE_PATH", str(tmp_path))
    built = build(SCENARIO.engine, FastScheduler)
    scheduler = built.scheduler
    works, calls = getattr(scheduler.core, failing), []

    def dying(*args: Any) -> Any:
        calls.append(1)
        if len(calls) == 4:
            raise RuntimeError("our core is broken")
        return works(*args)

    class Breaking:
        """The core, but for one method: those of what is compiled cannot be replaced."""

        def __getattr__(self, name: str) -> Any:
            return dying if name == failing else getattr(core, name)

    core = scheduler.core
    monkeypatch.setattr(scheduler, "core", Breaking())
    scheduler.add_request(host.make_request(SCENARIO.plan().requests[0], built.block_hasher))

    def step() -> None:
        output = scheduler.schedule()
        ids = list(output.num_scheduled_tokens)
        scheduler.update_from_output(output, host.model_output(ids, [[1] for _ in ids]))

    for _ in range(3):
        step()
    with pytest.raises(RuntimeError, match="our core is broken"):
        step()
    steps = list(TraceReader(tmp_path).steps())
    scheduler.shutdown()
    assert [step.number for step in steps if step.completed is not None] == [0, 1, 2]


def test_directory_that_cannot_be_written(
    build: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SCHED_TRACE_PATH", str(tmp_path / "file"))
    built = build(SCENARIO.engine)
    assert "no trace is written" in caplog.text
    record(built)


def test_two_servers_do_not_share_a_file(
    build: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SCHED_TRACE_PATH", str(tmp_path))
    first, second = build(SCENARIO.engine), build(SCENARIO.engine)
    assert first.scheduler.tracer is not None
    assert second.scheduler.tracer is None
    assert "no trace is written" in caplog.text


def test_data_parallel_engines_write_side_by_side(build: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHED_TRACE_PATH", str(tmp_path))
    config = host.engine_config

    def second(engine: Engine) -> Any:
        made = config(engine)
        made.parallel_config.data_parallel_index = 1
        return made

    monkeypatch.setattr(host, "engine_config", second)
    built = build(SCENARIO.engine)
    record(built)
    built.scheduler.tracer.close()
    reader = TraceReader(tmp_path / "rank-1")
    assert sum(1 for _ in reader.steps()) > 100
    assert reader.start is not None
    assert (reader.start.config or {})["data_parallel_rank"] == 1


def test_header_and_requests(build: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHED_TRACE_PATH", str(tmp_path))
    built = build(SCENARIO.engine)
    record(built)
    built.scheduler.tracer.close()
    reader = TraceReader(tmp_path)
    steps = list(reader.steps())
    start, engine = reader.start, SCENARIO.engine
    assert start is not None
    assert (start.host, start.block_size) == ("vllm", engine.block_size)
    config = start.config or {}
    assert config["scheduler"]["max_num_seqs"] == engine.max_num_seqs
    assert config["cache"]["num_gpu_blocks"] == engine.num_blocks
    assert config["engine"]["num_gpu_blocks_override"] == built.scheduler.cache_config.num_gpu_blocks_override
    assert config["deployment"]["vllm_version"] == versions.installed_version()
    lookups = [lookup for step in steps for lookup in step.lookups]
    assert {lookup.req_id for lookup in lookups} == {request.id for request in SCENARIO.plan().requests}
    assert all(
        sum((lookup.prompt_hash_runs or [])[1::2]) == (lookup.total_prompt_tokens or 0) // engine.block_size
        for lookup in lookups
    )
    assert not list(tmp_path.glob("*.requests.jsonl"))
    assert "prompt_prefix" not in (tmp_path / "sched_trace.fcfs.steps.jsonl").read_text()


def test_untried_version_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vllm.__version__", "9.1.0+cpu")
    with pytest.warns(
        versions.UntestedVersionWarning,
        match=rf"vLLM 9\.1\.0 was never tried .* {re.escape(', '.join(versions.TESTED))}",
    ):
        assert versions.check_version() == "9.1.0"


def test_this_version_is_tested() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert versions.check_version() in versions.TESTED
