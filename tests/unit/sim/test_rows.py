"""A replay's rows: they agree with the report, with the trace, and with each other."""

from __future__ import annotations

import pickle
import random
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tokenyard import (
    CacheConfig,
    ConfigError,
    Deployment,
    Report,
    ReportBuilder,
    SchedulerConfig,
    TokenyardError,
    TraceConfig,
    TraceRecorder,
    TraceWriter,
    Workload,
    WorkloadBuilder,
    describe_run,
    replay,
    replay_split,
    why,
)
from tokenyard.explain.table import column_of
from tokenyard.sim import Clients, ConstantLatency, KVLink, Progress, ReplayRows, RowTable, replay_parallel

LATENCY = ConstantLatency(seconds=0.02)


def built(seed: int = 0, *, sessions: int = 12, rate: float = 8.0) -> Workload:
    w = WorkloadBuilder("mine", seed=seed)
    system = w.text(64)
    for at in w.poisson(rate=rate, n=sessions):
        session = w.session(at=at, prefix=system, meta={"user": "ann"})
        for k in range(3):
            user, output = w.lognormal(4.5, 0.8), w.lognormal(3.2, 0.6)
            session.turn(user=user, output=output, think=w.exponential(0.5), meta={"k": k})
    return w.build()


def _configs(blocks: int, **limits: Any) -> tuple[SchedulerConfig, CacheConfig]:
    limits = {"max_model_len": 2048, "max_num_seqs": 8, "max_num_batched_tokens": 512} | limits
    return SchedulerConfig(**limits), CacheConfig(num_gpu_blocks=blocks)


def _rows(workload: Workload, config: SchedulerConfig, cache: CacheConfig, **said: Any) -> ReplayRows:
    rows = replay(workload, config, cache, LATENCY, rows=True, **said).rows
    assert rows is not None
    return rows


CASES = {
    "plenty": _configs(2000),
    "tight": _configs(110),
    "ahead": _configs(110, async_scheduling=True),
    "few": _configs(400, max_num_seqs=2, policy="shortest-remaining"),
    "stages": _configs(150, pipeline_parallel_size=2, async_scheduling=True),
}


@pytest.mark.parametrize("case", CASES)
def test_waits_are_those_that_why_tells_of_the_trace(case: str, tmp_path: Path) -> None:
    config, cache = CASES[case]
    workload = built()
    path = tmp_path / "trace"
    with TraceWriter(TraceConfig(path=path, policy="t", request_records=False, max_ids_per_step=None)) as writer:
        recorder = TraceRecorder(writer, start=describe_run(config, cache, host="replay"))
        rows = _rows(workload, config, cache, observer=recorder)
    spent: dict[str, dict[tuple[str, str], float]] = {}
    for row in rows.waits:
        parts = spent.setdefault(row["request_id"], {})
        cause = row["reason"], row["place"]
        parts[cause] = parts.get(cause, 0.0) + row["seconds"]
    assert len(spent) > 10
    for request in workload:
        told, ours = why(path, request.request_id), rows.why(request.request_id)
        parts = spent.get(request.request_id, {})
        assert {(each.reason, each.place): each.us for each in told.reasons} == {
            cause: round(seconds * 1e6) for cause, seconds in parts.items()
        }
        assert (ours.reasons, ours.phases, ours.preemptions) == (told.reasons, told.phases, told.preemptions)
        assert (ours.arrived_us, ours.first_token_us, ours.finished_us) == (
            *(told.arrived_us, told.first_token_us, told.finished_us),
        )
        assert (ours.local_hit_tokens, ours.first_scheduled_step) == (told.local_hit_tokens, told.first_scheduled_step)
        assert sum(span.us for span in ours.spans) == ours.waited_us


def _mean(column: Any) -> float:
    return float(np.nanmean(column))


def _same_gaps(gaps: Any, report: Report) -> None:
    if report.itl_ms.mean is None:  # in a pipeline no request gets a token in every step
        assert len(gaps) == 0
    else:
        assert _mean(gaps) == pytest.approx(report.itl_ms.mean)
        assert np.max(gaps) == pytest.approx(report.itl_ms.max)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("leaps", [True, False])
def test_rows_agree_with_the_report(case: str, leaps: bool) -> None:
    config, cache = CASES[case]
    workload = built(1)
    rows = _rows(workload, config, cache, leaps=leaps)
    report, requests, steps = rows.report, rows.requests, rows.steps
    assert report.requests == report.requests_finished == len(requests) == len(workload)
    for name, figures in (
        ("queue_ms", report.queue_ms),
        ("ttft_ms", report.ttft_ms),
        ("tpot_ms", report.tpot_ms),
        ("e2e_ms", report.e2e_ms),
    ):
        assert _mean(requests[name]) == pytest.approx(figures.mean)
    _same_gaps(rows.token_gaps(), report)
    assert len(steps) == report.steps
    assert steps["sampled_tokens"].sum() == report.output_tokens == requests["output_tokens"].sum()
    assert requests["preemptions"].sum() == report.preemptions == steps["preempted"].sum()
    assert _mean(steps["running"]) == pytest.approx(report.running.mean)
    assert _mean(steps["waiting"]) == pytest.approx(report.waiting.mean)
    waited = rows.waits["seconds"].sum()
    lost = sum(each.seconds for each in report.recorded_reasons.values()) + (report.unseen_s or 0.0)
    assert waited == pytest.approx(lost)
    assert steps["step"].tolist() == list(range(len(steps)))


def test_a_request_has_its_own_fields_as_columns() -> None:
    requests = _rows(built(), *CASES["plenty"]).requests
    assert set(requests["k"].tolist()) == {0, 1, 2}
    assert set(requests["user"].tolist()) == {"ann"}
    assert requests["request_id"][0] == "s0_t0"
    first = next(iter(requests))
    assert (first["job_id"], first["finish_reason"], first["engine"]) == ("s0", "length", 0)
    assert np.all(np.diff(requests["arrival_s"]) >= 0)


def test_a_name_that_is_taken_gets_a_prefix() -> None:
    w = WorkloadBuilder("mine")
    w.request(at=0, prompt=5, output=2, meta={"engine": "mine"})
    w.request(at=0, prompt=5, output=2)
    requests = _rows(w.build(), *CASES["plenty"]).requests
    assert requests["meta.engine"].tolist() == ["mine", None]


@pytest.mark.parametrize("leaps", [True, False])
def test_rows_change_nothing(leaps: bool) -> None:
    config, cache = CASES["tight"]
    plain = replay(built(), config, cache, LATENCY, leaps=leaps)
    rows = replay(built(), config, cache, LATENCY, leaps=leaps, rows=True)
    assert (plain.steps, plain.seconds, plain.busy_seconds) == (rows.steps, rows.seconds, rows.busy_seconds)
    assert plain.rows is None


# ---- several engines


def test_rows_of_several_engines() -> None:
    config, cache = CASES["tight"]
    workload = built(sessions=20)
    result = replay_parallel(workload, config, cache, LATENCY, "round-robin", data_parallel_size=3, rows=True)
    rows = result.rows
    assert rows is not None
    assert np.bincount(rows.requests["engine"]).tolist() == [use.num_requests for use in result.ranks]
    assert np.bincount(rows.steps["engine"]).tolist() == [use.steps for use in result.ranks]
    assert rows.report.requests_finished == result.num_finished == 60
    assert _mean(rows.requests["ttft_ms"]) == pytest.approx(rows.report.ttft_ms.mean)
    assert rows.why("s1_t0").rank == 1


def test_rows_of_a_split() -> None:
    config, cache = CASES["plenty"]
    workload = built()
    result = replay_split(workload, config, cache, LATENCY, KVLink(1000, 10.0), rows=True)
    rows = result.rows
    assert rows is not None
    assert set(rows.requests["engine"].tolist()) == {1}
    assert rows.requests["output_tokens"].sum() == workload.num_output_tokens == result.output_tokens
    assert set(rows.steps["engine"].tolist()) == {0, 1}
    assert rows.report.requests_finished == len(workload)
    cut = replay_split(workload, config, cache, LATENCY, KVLink(1000, 10.0), rows=True, until=0.05).rows
    assert cut is not None
    assert set(cut.requests["engine"].tolist()) <= {0, 1}


# ---- a part of the workload


@pytest.mark.parametrize("case", CASES)
def test_the_beginning_is_left_out(case: str) -> None:
    config, cache = CASES[case]
    whole = _rows(built(2), config, cache)
    builder = ReportBuilder()
    late = _rows(built(2), config, cache, warmup=1.0, observer=builder)
    counted = whole.requests["arrival_s"] >= 1.0
    assert 0 < counted.sum() < len(whole.requests)
    for name in late.requests.columns:
        np.testing.assert_array_equal(late.requests[name], whole.requests[name][counted])
    assert len(late.steps) == (whole.steps["start_s"] >= 1.0).sum()
    assert set(late.waits["request_id"].tolist()) <= set(late.requests["request_id"].tolist())
    assert len(late.token_gaps()) <= len(whole.token_gaps())
    for report in (late.report, builder.report()):
        assert report.requests == report.requests_finished == counted.sum()
        assert report.steps == len(late.steps)
        assert report.ttft_ms.mean == pytest.approx(_mean(late.requests["ttft_ms"]))
        _same_gaps(late.token_gaps(), report)
        assert report.output_tokens == late.steps["sampled_tokens"].sum()
    assert late.why("s0_t0") == whole.why("s0_t0")
    with pytest.raises(ConfigError, match="request_id = 's0_t9': no request that came is called so; there is s0_t"):
        late.why("s0_t9")


@pytest.mark.parametrize("leaps", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_a_replay_ends_when_its_time_is_over(case: str, leaps: bool) -> None:
    config, cache = CASES[case]
    workload = built(3)
    whole = replay(workload, config, cache, LATENCY, rows=True)
    assert whole.rows is not None
    for until in (0.001, 0.5, 1.0, 1.2345, 1.24, whole.seconds, 1e9):
        result = replay(workload, config, cache, LATENCY, rows=True, until=until, leaps=leaps)
        assert result.rows is not None
        assert result.seconds == min(until, whole.seconds)
        assert 0 <= result.busy_seconds <= result.seconds + 1e-9
        arrived, finished = whole.rows.requests["arrival_s"], whole.rows.requests["finished_s"]
        assert result.num_finished == (finished <= until).sum()
        assert result.num_not_arrived == len(workload) - result.num_finished - len(result.unfinished)
        assert len(result.unfinished) == ((arrived < until) & (finished > until)).sum()
        requests = result.rows.requests
        open_ones = requests["finish_reason"] == None  # noqa: E711 - of each element
        assert sorted(requests["request_id"][open_ones].tolist()) == sorted(result.unfinished)
        assert np.isnan(requests["finished_s"][open_ones]).all()
        assert result.ended_by == ("workload" if until >= whole.seconds else "until")
        done = whole.rows.steps["start_s"] + whole.rows.steps["seconds"] <= until
        told = result.rows.steps["sampled_tokens"]
        assert np.nansum(told) == pytest.approx(whole.rows.steps["sampled_tokens"][done].sum(), abs=config.max_num_seqs)


@pytest.mark.parametrize("engines", [1, 2])
def test_several_engines_end_when_their_time_is_over(engines: int) -> None:
    config, cache = CASES["tight"]
    workload = built(4)
    alone = replay(workload, config, cache, LATENCY, until=1.1)
    result = replay_parallel(
        workload, config, cache, LATENCY, "round-robin", data_parallel_size=engines, until=1.1, rows=True
    )
    assert (result.seconds, result.ended_by) == (1.1, "until")
    assert result.num_finished + len(result.unfinished) + result.num_not_arrived == len(workload)
    assert all(0 <= use.busy_seconds <= 1.1 + 1e-9 for use in result.ranks)
    if engines == 1:
        assert (result.num_finished, result.unfinished) == (alone.num_finished, alone.unfinished)
    split = replay_split(workload, config, cache, LATENCY, KVLink(1000, 10.0), until=1.1)
    assert split.num_finished + len(split.unfinished) + split.num_not_arrived == len(workload)
    assert split.ended_by == "until"


def test_who_watches_the_progress_may_end_it() -> None:
    config, cache = CASES["plenty"]
    seen: list[Progress] = []

    def watch(progress: Progress) -> str | None:
        seen.append(progress)
        return "stop" if progress.num_done >= 5 else None

    workload = built(sessions=40)
    result = replay(workload, config, cache, LATENCY, on_progress=watch, rows=True, leaps=False)
    assert result.ended_by == "on_progress"
    assert 5 <= result.num_finished < len(workload)
    assert result.num_finished + len(result.unfinished) + result.num_not_arrived == len(workload)
    other = replay_parallel(workload, config, cache, LATENCY, "vllm", data_parallel_size=2, on_progress=watch)
    assert other.num_finished + len(other.unfinished) + other.num_not_arrived == len(workload)
    at_the_end = replay(workload, config, cache, LATENCY, on_progress=lambda p: "stop" if p.num_done == 120 else None)
    assert (at_the_end.ended_by, at_the_end.num_finished) == ("workload", 120)


def test_progress_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    config, cache = CASES["plenty"]
    replay(built(), config, cache, LATENCY, progress=True)
    told = capsys.readouterr().err
    assert told.endswith("\x1b[K\n")
    assert "36 of 36 requests, " in told


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"warmup": -1}, "warmup = -1: give seconds"),
        ({"warmup": float("nan")}, "warmup = nan: give seconds"),
        ({"until": 0}, r"until = 0: give seconds from the start of the workload, above warmup \(0\)"),
        ({"warmup": 5, "until": 5}, r"until = 5: .* above warmup \(5\)"),
        ({"until": "soon"}, "until = 'soon': give seconds"),
    ],
)
def test_times_that_cannot_be_are_refused(said: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        replay(built(), *CASES["plenty"], LATENCY, **said)


def test_clients_who_hang_up_are_unfinished_until_they_are_answered() -> None:
    config, cache = _configs(200, max_num_seqs=1)
    workload = built(5).with_clients(Clients(timeout=0.6, retries=3, wait=0.3))
    left = list[int]()
    for until in np.random.default_rng(0).uniform(0.1, 6, 8).tolist():
        result = replay(workload, config, cache, LATENCY, until=until, rows=True)
        done = result.num_finished + result.num_aborted + result.num_left_out + len(result.refused)
        assert done + len(result.unfinished) + result.num_not_arrived == len(workload)
        assert result.rows is not None
        assert len(result.rows.waits) > 0
        left.append(len(result.unfinished))
    assert len(set(left)) > 2
    assert max(left) > 0


# ---- tables


def _table() -> RowTable:
    return RowTable(
        "things",
        {
            "n": column_of([1, 2, 3]),
            "x": column_of([1.5, None, 2]),
            "name": column_of(["a", None, "<b>"]),
            "yes": column_of([True, False, True]),
            "mixed": column_of([{"a": 1}, 3, None]),
        },
    )


def test_a_table_is_columns() -> None:
    table = _table()
    assert (len(table), table.columns) == (3, ("n", "x", "name", "yes", "mixed"))
    assert table["n"].dtype == np.int64
    assert table["yes"].dtype == np.bool_
    assert table["mixed"].tolist() == ['{"a":1}', "3", None]
    assert "x" in table
    assert list(table)[2] == {"n": 3, "x": 2.0, "name": "<b>", "yes": True, "mixed": None}
    assert list(table)[1]["x"] is None, "JSON has no NaN"
    with pytest.raises(ValueError, match="read-only"):
        table["n"][0] = 7
    with pytest.raises(ConfigError, match="column = 'y': use one of: n, x, name"):
        table["y"]
    assert repr(table) == "<things: 3 rows of n, x, name, yes, mixed>"
    assert str(table).splitlines()[:2] == ["n    x  name    yes    mixed", '1  1.5     a   True  {"a":1}']
    wide = RowTable("wide", {f"column_{i}": np.arange(12) for i in range(30)})
    assert repr(wide).endswith("column_23 and 6 more>")
    *_, rows, columns = str(wide).splitlines()
    assert (rows, columns[:26]) == ("2 rows more", "further columns: column_11")
    html = table._repr_html_()
    assert "<td>&lt;b&gt;</td>" in html
    assert "things: 3 rows</caption>" in html


def test_a_table_goes_to_arrow() -> None:
    arrow = _table().to_arrow()
    assert arrow.column("x").to_pylist() == [1.5, None, 2.0]
    assert arrow.column("name").to_pylist() == ["a", None, "<b>"]
    empty = RowTable("nothing", {"name": column_of([None, None]), "yes": column_of([True, None])}).to_arrow()
    assert [str(each) for each in empty.schema.types] == ["string", "bool"]
    assert pa.RecordBatchReader.from_stream(_table()).read_all().equals(arrow)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_other_libraries_get_the_columns(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in: the libraries themselves are not among what the tests need."""
    got: list[Any] = []
    monkeypatch.setitem(
        sys.modules, library, SimpleNamespace(DataFrame=lambda columns, **said: got.append((columns, said)), String="s")
    )
    getattr(_table(), f"to_{library}")()
    columns, said = got[0]
    assert list(columns) == ["n", "x", "name", "yes", "mixed"]
    columns["n"][0] = 7  # theirs, and writable
    texts = {"name": "s", "mixed": "s"}
    assert said == ({} if library == "pandas" else {"nan_to_null": True, "schema_overrides": texts})
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(TokenyardError, match=f"{library} is not installed: run  pip install {library}"):
        getattr(_table(), f"to_{library}")()


@pytest.mark.slow
def test_any_cut_is_whole() -> None:
    """Wherever a replay ends, every request is accounted for, and rows can be made."""
    draw = random.Random(0)
    for seed in range(12):
        config, cache = draw.choice(list(CASES.values()))
        workload = built(seed, sessions=8)
        until = draw.uniform(0.01, 4)
        result = replay(workload, config, cache, LATENCY, until=until, warmup=until / 4, rows=True)
        assert result.num_finished + len(result.unfinished) + result.num_not_arrived == len(workload)
        assert result.rows is not None
        for table in (result.rows.requests, result.rows.steps, result.rows.waits):
            assert len(table.to_arrow()) == len(table)
        assert result.rows.report is not None


@pytest.mark.parametrize("case", ["tight", "few"])
def test_a_result_with_rows_can_be_kept_by_pickle(case: str, tmp_path: Path) -> None:
    config, cache = CASES[case]
    workload = built()
    with TraceWriter(TraceConfig(path=tmp_path / "trace", policy="t")) as writer:
        recorder = TraceRecorder(writer, start=describe_run(config, cache, host="replay"))
        result = replay(workload, config, cache, LATENCY, rows=True, observer=recorder, until=6.0)
    again = pickle.loads(pickle.dumps(result))
    assert (again.seconds, again.num_finished) == (result.seconds, result.num_finished)
    rows, read = result.rows, again.rows
    assert rows is not None
    assert result.unfinished
    for table in ("requests", "steps", "waits"):
        assert list(getattr(read, table)) == list(getattr(rows, table))
    assert read.report == rows.report
    assert [read.why(each) for each in rows.requests["request_id"]] == [
        rows.why(each) for each in rows.requests["request_id"]
    ]


def test_the_result_of_a_deployment_that_writes_a_trace_can_be_kept_by_pickle(tmp_path: Path) -> None:
    deployment = Deployment(model="qwen3-8b", gpu="h100", max_num_seqs=2)
    result = deployment.replay(built(), rows=True, trace=tmp_path / "trace")
    again = pickle.loads(pickle.dumps(result))
    assert list(again.rows.waits) == list(result.rows.waits)
    assert again.rows.why("s3_t1") == result.rows.why("s3_t1")
