"""Questions are functions: a workload, or a recording, and a deployment in; one answer out."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import tokenyard
from tokenyard import (
    ConfigError,
    Deployment,
    KeyedPolicy,
    KVTransferConfig,
    Policy,
    Recording,
    Request,
    StepObserver,
    Workload,
    load_workload,
)
from tokenyard.cli.main import main
from tokenyard.errors import OverwrittenTraceWarning, TraceError
from tokenyard.explain.report.summary import summarize
from tokenyard.sim.routers import EngineState, Router
from tokenyard.sim.traffic import Progress
from tokenyard.sim.transfers import KVTransfer

SMALL = Deployment(model="llama-3.2-1b", gpu="l4", max_num_seqs=4, max_model_len=4096)
WORDS = ["--model", "llama-3.2-1b", "--gpu", "l4", "--max-num-seqs", "4", "--max-model-len", "4096"]
FEW: dict[str, Any] = {"num_prompts": 12, "input_len": 300, "output_len": 12, "request_rate": 200.0}
FEW_WORDS = ["--num-prompts", "12", "--input-len", "300", "--output-len", "12", "--request-rate", "200.0"]


@pytest.fixture(autouse=True)
def no_trace_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SCHED_TRACE_PATH", raising=False)
    monkeypatch.delenv("VLLM_SCHED_TRACE_PATH", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """What a command prints."""
    assert main([*words, "--json"]) in (0, 1)
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def plain(value: dict[str, Any]) -> Any:
    return json.loads(json.dumps(value))


def test_run_is_the_command_with_its_bounds_trace_and_advice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[Progress] = []
    found = tokenyard.run(
        "random",
        SMALL,
        **FEW,
        slo={"ttft_p90": "500ms", "tpot": 40},
        trace=tmp_path / "a",
        advice=True,
        progress=seen.append,
    )
    told = printed(
        capsys,
        "run",
        "random",
        *FEW_WORDS,
        *WORDS,
        "--slo",
        "ttft_p90=500ms",
        "tpot:40",
        "--trace",
        f"{tmp_path / 'b'}",
    )
    own = plain(found.to_dict())
    assert own["header"].pop("source") != told["header"].pop("source")
    assert own == told
    assert found.trace == tmp_path / "a"
    assert found.problem is None
    assert summarize(tmp_path / "a").requests_finished == found.result.num_finished == 12
    assert seen
    assert "12 of 12 requests finished" in repr(found)
    assert found.deployment.max_num_seqs == 4


class Shortest(KeyedPolicy):
    """The shortest prompt first."""

    made = 0

    def __init__(self) -> None:
        super().__init__()
        Shortest.made += 1

    def key(self, request: Request) -> tuple[float, ...]:
        return (float(request.num_prompt_tokens),)


def test_a_policy_by_name_class_or_instance() -> None:
    few = {**FEW, "random_range_ratio": 0.9}
    fcfs = tokenyard.run("random", SMALL, **few)
    by_class = tokenyard.run("random", SMALL, policy=Shortest, **few)
    assert (
        plain(tokenyard.run("random", SMALL, policy="fcfs", **few).to_dict())["ttft_ms"]
        == plain(fcfs.to_dict())["ttft_ms"]
    )
    assert by_class.report.ttft_ms != fcfs.report.ttft_ms
    assert tokenyard.run("random", SMALL, policy=Shortest(), **few).report.ttft_ms == by_class.report.ttft_ms
    named = SMALL.replay("random", policy="shortest-remaining", **few)
    assert named.report.header.without_effect == [] or named.report.ttft_ms != fcfs.report.ttft_ms
    with pytest.raises(ConfigError, match="give the class"):
        tokenyard.run("random", SMALL.with_(data_parallel_size=2), policy=Shortest(), **few)
    with pytest.raises(ConfigError, match="policy"):
        tokenyard.run("random", SMALL, policy=3, **few)  # type: ignore[arg-type]
    several = tokenyard.run("random", SMALL.with_(data_parallel_size=2), policy=Shortest, **few)
    assert several.report.requests_finished == 12


@pytest.mark.parametrize("engines", [{}, {"data_parallel_size": 2}, {"replicas": "2"}], ids=str)
def test_a_run_has_rows(engines: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """The same that a replay of the same configuration has; of several engines with the engine of each."""
    deployment = SMALL.with_(**engines)
    few = {**FEW, "request_rate": 20.0}
    found = deployment.replay("random", policy=Shortest, warmup=0.1, until=0.5, progress=True, **few)
    assert "8 of 12 requests, 0.5 s" in capsys.readouterr().err
    assert set(found.requests["engine"].tolist()) == ({0, 1} if engines else {0})
    assert (found.requests["arrival_s"] >= 0.1).all()
    assert found.steps["start_s"].max() < 0.5
    assert len(found.requests) == found.report.requests
    assert len(found.result.unfinished) > 0
    assert found.report.header.policy == "Shortest"
    assert "under way" in repr(found)
    assert "partial" not in str(found), "a run that was to end is whole"
    assert "<table>" in found._repr_html_()
    request_id = found.requests["request_id"][0]
    assert found.why(request_id).request_id == request_id
    assert len(found.token_gaps(request_id)) == found.requests["output_tokens"][0] - 1
    spec = SMALL.resolve()
    if not engines:
        rows = tokenyard.replay(
            found.workload, spec.scheduler, spec.cache, spec.latency, policy=Shortest, warmup=0.1, until=0.5, rows=True
        ).rows
        assert rows is not None
        for mine, theirs in ((found.requests, rows.requests), (found.steps, rows.steps), (found.waits, rows.waits)):
            assert mine.to_arrow().equals(theirs.to_arrow())
    with pytest.raises(ConfigError, match="run it with rows=True"):
        _ = deployment.replay("random", rows=False, **FEW).requests


class Last(Router):
    """Everything to the last engine."""

    def choose(self, now: float, request: Request, engines: Sequence[EngineState]) -> int:
        return len(engines) - 1


class Arrivals(StepObserver):
    """Counts who comes."""

    reads_tokens = False
    count = 0

    def request_arrived(self, ts: float, request: Request) -> None:
        self.count += 1


def test_a_run_takes_routers_observers_and_connectors() -> None:
    several, seen = SMALL.with_(data_parallel_size=2), Arrivals()
    found = several.replay("random", router=Last, observer=[seen], **FEW)
    assert set(found.requests["engine"].tolist()) == {1}
    assert seen.count == 12
    again = several.replay("random", router="round-robin", **FEW)
    assert set(again.requests["engine"].tolist()) == {0, 1}
    config = KVTransferConfig(kv_connector="OffloadingConnector", kv_connector_extra_config={"cpu_bytes_to_use": 2**30})
    size = SMALL.resolve().plan.bytes_per_block
    moved = SMALL.replay("random", kv_transfer=KVTransfer(config=config, bytes_per_block=size), **FEW)
    assert moved.report.steps > SMALL.replay("random", **FEW).report.steps, "it stores what it has computed"
    stopped = SMALL.replay("random", progress=lambda _: "stop", **FEW)
    assert stopped.result.ended_by == "on_progress"
    for wrong in ({"warmup": 1}, {"router": Last()}):
        with pytest.raises(ConfigError, match=r"advice|proposals"):
            SMALL.replay("random", advice=True, **wrong, **FEW)
    with pytest.raises(ConfigError, match="until"):
        SMALL.replay("random", until=0, **FEW)


def test_proposals_are_tried_with_the_policy_that_ran() -> None:
    Shortest.made = 0
    found = tokenyard.run("random", SMALL, policy=Shortest, advice=True, **FEW)
    assert Shortest.made > 1, "one for the run, one for each trial"
    assert found.report.advice is not None
    with pytest.raises(ConfigError, match="give the class"):
        tokenyard.run("random", SMALL, policy=Policy(), advice=True, **FEW)


def test_a_workload_that_was_made() -> None:
    long = SMALL.with_(max_model_len=32768)
    made: Workload = load_workload("chat", limit=5)
    found = long.replay(made)
    assert plain(found.to_dict())["ttft_ms"] == plain(long.replay("chat", limit=5).to_dict())["ttft_ms"]
    assert found.workload is made or len(found.workload) == len(made)
    faster = long.replay(made, rate_scale=50)
    assert faster.result.seconds < found.result.seconds
    with pytest.raises(ConfigError, match="limit = 3: says how a workload is read"):
        long.replay(made, limit=3)
    with pytest.raises(ConfigError, match="did you mean rate_scale"):
        long.replay(made, rate_scal=2)


@pytest.mark.slow
def test_what_if(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    SMALL.replay("random", trace=tmp_path, **FEW)
    told = printed(
        capsys, "whatif", str(tmp_path), "--set", "max_num_seqs=2,8", "tensor_parallel_size=2,max_num_seqs=8", "--yes"
    )
    found = tokenyard.whatif(
        tmp_path, ["max_num_seqs=2,8", {"tensor_parallel_size": 2, "max_num_seqs": 8}, SMALL.with_(gpu="h100")]
    )
    own = json.loads(json.dumps(tokenyard_builtins(found)))
    *first, last = own["variants"]
    assert first == told["variants"]
    assert own["self_check"] == told["self_check"]
    assert last["name"].startswith("Deployment(model='llama-3.2-1b', gpu='h100'")
    (one,) = tokenyard.whatif(tmp_path, {"max_num_seqs": 2}).variants
    assert one == found.variants[0]
    assert tokenyard.whatif(tmp_path).variants == []
    again = tokenyard.whatif(tmp_path, {"gpu": "h100"}, recorded=SMALL)
    assert again.variants
    with pytest.raises(ConfigError, match="changes"):
        tokenyard.whatif(tmp_path, [3])  # type: ignore[list-item]
    with pytest.raises(ConfigError) as caught:
        tokenyard.whatif(tmp_path, {"max_num_seq": 3})
    assert caught.value.code == "unknown_setting"


def tokenyard_builtins(value: Any) -> Any:
    import msgspec  # noqa: PLC0415

    return msgspec.to_builtins(value)


@pytest.mark.slow
def test_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--set", "max_num_seqs=2,8", "gpu=l4,h100", "--slo", "ttft_p90=300ms", "--minimize", "cost")
    told = printed(
        capsys, "plan", "random", *FEW_WORDS, *WORDS, *words, "--price", "h100=2.5", "l4=1", "--no-largest-load"
    )
    seen: list[tuple[int, int]] = []
    found = SMALL.plan(
        "random",
        **FEW,
        space={"max_num_seqs": [2, 8], "gpu": ["l4", "h100"]},
        slo={"ttft_p90": "300ms"},
        minimize="cost",
        price={"h100": 2.5, "l4": 1},
        largest_load=False,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert json.loads(json.dumps(tokenyard_builtins(found))) == told
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    SMALL.replay("random", trace=tmp_path, **FEW)
    of_a_trace = tokenyard.plan(str(tmp_path), space={"max_num_seqs": [2, 8]}, slo="ttft_p90=300ms", largest_load=False)
    assert of_a_trace.size == 2
    with pytest.raises(ConfigError, match="space = 'max_num_seq': there is no such setting"):
        SMALL.plan("random", **FEW, space={"max_num_seq": [2]})
    with pytest.raises(ConfigError, match="give one of the two"):
        SMALL.plan("random", **FEW, minimize="cost", maximize="load")


def test_sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--set", "max_num_seqs=2,8", "--output", f"{tmp_path / 'a'}")
    told = printed(capsys, "sweep", "random", *FEW_WORDS, *WORDS, *words)
    found = SMALL.sweep("random", {"max_num_seqs": [2, 8]}, **FEW)
    assert json.loads(json.dumps(found.to_dict()))["rows"] == told["rows"]
    assert found.table == ""
    kept = SMALL.sweep("random", variants=[{"tp": 1}, {"max_num_seqs": 2}], output=tmp_path / "b", **FEW)
    assert [row.settings for row in kept.rows] == [{"tensor_parallel_size": 1}, {"max_num_seqs": 2}]
    assert Path(kept.table).is_file()
    again = SMALL.sweep("random", variants=[{"tp": 1}, {"max_num_seqs": 2}], output=tmp_path / "b", **FEW)
    assert again.measured_before == 2
    with pytest.raises(ConfigError, match="say what to vary"):
        SMALL.sweep("random", **FEW)


def test_a_line_that_is_recommended_has_every_flag_that_was_typed(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--no-async-scheduling", "--set", "max_num_seqs=4", "--no-largest-load")
    told = printed(capsys, "plan", "random", *FEW_WORDS, *WORDS, *words)
    assert "--no-async-scheduling" in told["serve"]


@pytest.mark.slow
def test_policies_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--policies", "fcfs,bypass", "--loads", "1,2", "--seeds", "2", "--slo", "ttft:200")
    told = printed(capsys, "compare", "random", *FEW_WORDS, *WORDS, *words)
    seen: list[tuple[str, float, int]] = []
    found = tokenyard.compare(
        "random",
        SMALL,
        ["fcfs", "bypass"],
        loads=[1, 2],
        seeds=[0, 1],
        slo="ttft:200",
        progress=lambda policy, load, seed, _: seen.append((policy, load, seed)),
        **FEW,
    )
    assert plain(found.to_dict()) == told
    assert len(set(seen)) == 8
    assert found.as_table()["policy"].tolist() == ["fcfs", "bypass"] * 2
    assert "speedup" in str(found)
    assert found._repr_html_().startswith("<svg")
    workload, long = load_workload("chat", limit=5), SMALL.with_(max_model_len=32768)
    by_class = tokenyard.compare(lambda _: workload, long, {"mine": Shortest, "fcfs": "fcfs"})
    assert by_class.policies == ("mine", "fcfs")
    with pytest.raises(ConfigError, match="client_timeout"):
        tokenyard.compare("random", SMALL, ["fcfs"], client_timeout="1s", **FEW)
    with pytest.raises(ConfigError, match="ttft:500"):
        tokenyard.compare("random", SMALL, ["fcfs"], slo={"ttft_mean": "1s"}, **FEW)


def test_prefill_and_decode_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = printed(capsys, "split", "random", *FEW_WORDS, *WORDS, "--split", "2+1")
    found = tokenyard.split("random", SMALL, "2+1", trace=tmp_path, **FEW)
    own = plain(found.to_dict())
    for side in (own["prefill"], own["decode"]):
        side["header"]["source"] = None
        for rank in side["ranks"]:
            rank["source"] = None
    assert own == told
    assert (tmp_path / "prefill").is_dir()
    assert "2 prefill engines" in str(found)
    assert "2 + 1 engines" in repr(found)


def test_a_workload_is_loaded_by_the_names_that_run_takes() -> None:
    given: Any = {
        "limit": 6,
        "seed": 3,
        "input_len": 20,
        "request_rate": 2.0,
        "max_concurrency": 2,
        "client_timeout": "9s",
    }
    loaded, run = load_workload("random", **given), SMALL.replay("random", **given).workload
    assert [(each.arrival_time, list(each.prompt.tokens())) for each in loaded] == [
        (each.arrival_time, list(each.prompt.tokens())) for each in run
    ]
    assert (loaded.max_concurrency, loaded.clients) == (run.max_concurrency, run.clients) != (None, None)
    with pytest.raises(ConfigError, match="did you mean limit"):
        load_workload("random", limt=5)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="skip_refused"):
        load_workload("random", skip_refused=True)
    with pytest.raises(ConfigError, match="input_len"):
        load_workload("chat", input_len=5)


@pytest.mark.slow
def test_a_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It answers what the functions and the commands do."""
    run = SMALL.replay("random", trace=tmp_path / "a", **FEW)
    SMALL.with_(max_num_seqs=2).replay("random", trace=tmp_path / "b", **FEW)
    a = Recording(tmp_path / "a")
    assert plain(a.report().to_dict()) == printed(capsys, "report", str(tmp_path / "a"))
    assert plain(a.report(slo="ttft_p90=1s").to_dict())["goodput"]["met"] is True
    request_id = run.requests["request_id"][5]
    told = plain(a.why(request_id).to_dict())
    assert told == printed(capsys, "why", str(tmp_path / "a"), request_id)
    assert told["reasons"] == plain(run.why(request_id).to_dict())["reasons"]
    everybody = a.waiting()
    assert plain(everybody.to_dict()) == printed(capsys, "why", str(tmp_path / "a"))
    assert everybody.as_table()["seconds"].sum() == pytest.approx(run.waits["seconds"].sum())
    assert a.requests["ttft_ms"].tolist() == pytest.approx(run.requests["ttft_ms"].tolist(), abs=2e-3)
    assert plain(a.compare(Recording(tmp_path / "b")).to_dict()) == printed(
        capsys, "compare", str(tmp_path / "a"), str(tmp_path / "b")
    )
    assert a.standstills().places == []
    named = a.whatif({"few": {"max_num_seqs": 2}, "h100": SMALL.with_(gpu="h100")})
    assert [each.name for each in named.variants] == ["few", "h100"]
    table = named.as_table()
    assert table["low"].dtype == table["then"].dtype == float, "whether any is missing or all"
    (mean,) = table["then"][(table["variant"] == "few") & (table["figure"] == "ttft_ms.mean")]
    assert mean == tokenyard.whatif(tmp_path / "a", {"max_num_seqs": 2}).variants[0].figures[0].variant
    for answer in (a, a.report(), everybody, a.why(request_id), named, a.compare(tmp_path / "b"), a.standstills()):
        assert len(repr(answer).splitlines()) == 1
        assert str(answer) != repr(answer)
        assert answer._repr_html_().startswith(("<pre>", "<div>"))
    with pytest.raises(TraceError):
        Recording(tmp_path / "none")


@pytest.mark.slow
def test_plans_in_processes_are_those_of_one() -> None:
    space, slo = {"max_num_seqs": [1, 2, 4], "gpu": ["l4", "h100"]}, {"ttft_p90": "300ms"}
    asked: dict[str, Any] = {"space": space, "slo": slo, "minimize": "cost", "price": {"h100": 2.5, "l4": 1}}
    one = SMALL.plan("random", largest_load=False, jobs=1, **asked, **FEW)
    two = SMALL.plan("random", largest_load=False, jobs=2, **asked, **FEW)
    assert one.recommended is not None
    assert two == one
    assert len(two.as_table()) == len(two.rows) == 6
    with pytest.raises(ConfigError, match="jobs = 0"):
        SMALL.plan("random", jobs=0, **asked, **FEW)


class Ordered(tokenyard.Policy):
    """First come, first served, under another name."""


@pytest.mark.parametrize(
    ("policy", "name"),
    [(Ordered, "Ordered"), (partial(Ordered), "Ordered"), (Ordered(), "Ordered"), ("priority", "priority")],
)
def test_a_trace_is_called_as_what_decides(tmp_path: Path, policy: Any, name: str) -> None:
    tokenyard.run("random", SMALL, policy=policy, trace=tmp_path, **FEW)
    assert [path.name for path in tmp_path.glob("*.steps.jsonl")] == [f"sched_trace.{name}.steps.jsonl"]


def test_the_environment_names_a_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHED_TRACE_POLICY", "mine")
    tokenyard.run("random", SMALL, policy=Ordered, trace=tmp_path, **FEW)
    assert (tmp_path / "sched_trace.mine.steps.jsonl").is_file()


def _ask(way: str, path: Path) -> object:
    if way == "split":
        return tokenyard.split("random", SMALL, "1+1", trace=path, **FEW)
    ask = partial(tokenyard.run, "random", SMALL) if way == "run" else partial(SMALL.replay, "random")
    return ask(trace=path, **FEW)


@pytest.mark.parametrize("way", ["run", "Deployment.replay", "split"])
def test_a_trace_that_is_there_is_not_overwritten_in_silence(way: str, tmp_path: Path) -> None:
    path = tmp_path / "trace"
    _ask(way, path)
    kept = {each: each.read_bytes() for each in path.rglob("*.jsonl")}
    assert kept
    with pytest.raises(OverwrittenTraceWarning, match="is overwritten: name another"):  # an error, as in all our tests
        _ask(way, path)
    assert {each: each.read_bytes() for each in path.rglob("*.jsonl")} == kept, "the warning came before it was gone"
    with pytest.warns(OverwrittenTraceWarning, match=re.escape(f"trace = '{path}")) as caught:
        _ask(way, path)
    assert {each.filename for each in caught} == {__file__}, "it names the line that asked"
