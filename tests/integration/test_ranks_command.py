"""A run of several engines, read as one: ``report``, ``why``, ``compare`` and ``export`` on the directory of all."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.integration.command import Outcome, call

FEW = ("random", "--num-prompts", "30", "--input-len", "64", "--output-len", "8", "--request-rate", "400")
DENSE = ("--model", "llama-3.2-1b", "--gpu", "l4", "--max-num-seqs", "2")
SPARSE = ("--model", "qwen3-30b-a3b", "--gpu", "h100", "--enable-expert-parallel")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``three`` and ``two`` engines of a dense model, ``sparse`` ones that step together, and their ``*.json``."""
    folder = tmp_path_factory.mktemp("ranks")
    for name, flags in (
        ("three", (*DENSE, "-dp", "3")),
        ("two", (*DENSE, "-dp", "2")),
        ("sparse", (*SPARSE, "-dp", "2")),
        ("lonely", (*DENSE, "-dp", "2", "--router", "prefix-affinity", "--random-prefix-len", "64")),
    ):
        done = call("run", *FEW, *flags, "--advice", "none", "--json", "--trace", name, cwd=folder)
        assert done.code == 0, done.stderr
        (folder / f"{name}.json").write_text(done.stdout)
    return folder


def answer(outcome: Outcome) -> Any:
    assert outcome.code == 0, outcome.stderr
    return json.loads(outcome.stdout)


def without(report: dict[str, Any]) -> dict[str, Any]:
    """What a replay knows and its traces do not, and what differs by design."""
    for name in ("advice", "tried", "tried_on"):
        report.pop(name)
    report["answer"].pop("remedies")
    report["header"].pop("source")
    for each in report["ranks"]:
        each.pop("dummy_batches")
        each["busy_share"] = pytest.approx(each["busy_share"])
    return report


@pytest.mark.parametrize("name", ["three", "two", "sparse", "lonely"])
def test_the_report_on_the_traces_is_the_report_of_the_replay(folder: Path, name: str) -> None:
    live = json.loads((folder / f"{name}.json").read_text())
    assert without(live) == without(answer(call("report", name, "--json", cwd=folder)))


def test_the_report_in_words(folder: Path) -> None:
    text = call("report", "three", "--full", cwd=folder).stdout
    assert "Engines" in text
    assert "src three" in text
    assert [line.split()[0] for line in text.partition("Engines")[2].splitlines()[2:5]] == ["0", "1", "2"]


def test_an_engine_is_missing(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "three", tmp_path / "three")
    shutil.rmtree(tmp_path / "three" / "rank-1")
    text = " ".join(call("report", "three", "--full", cwd=tmp_path).stdout.split())
    assert "Of 3 engines, the traces of these ranks are not there: 1." in text


def test_why_finds_a_request_whichever_engine_served_it(folder: Path) -> None:
    everybody = answer(call("why", "three", "--json", cwd=folder))
    parts = [answer(call("why", f"three/rank-{rank}", "--json", cwd=folder)) for rank in range(3)]
    for field in ("requests", "requests_that_waited", "waited_us"):
        assert everybody[field] == sum(part[field] for part in parts)
        assert [rank[field] for rank in everybody["ranks"]] == [part[field] for part in parts]
    assert everybody["requests"] == 30
    longest = [max(part["longest"], key=lambda each: each["waited_us"]) for part in parts]
    assert everybody["longest"][0]["waited_us"] == max(each["waited_us"] for each in longest)
    for rank, one in enumerate(longest):
        alone = answer(call("why", f"three/rank-{rank}", one["request_id"], "--json", cwd=folder))
        joined = answer(call("why", "three", one["request_id"], "--json", cwd=folder))
        assert joined == alone | {"rank": rank}
        assert f"rank {rank}" in call("why", "three", one["request_id"], cwd=folder).stdout
    call("why", "three", "nobody", cwd=folder).refused("three: no request 'nobody'", "it has")
    assert "mostly for" in call("why", "three", cwd=folder).stdout.partition("Engines")[2]


def test_compare_takes_each_engine_with_its_own(folder: Path, tmp_path: Path) -> None:
    same = answer(call("compare", "three", "three", "--json", cwd=folder))
    assert same["parting"] is None
    assert {row["rank"] for row in same["rows"]} == {0, 1, 2}
    other = shutil.copytree(folder / "three", tmp_path / "other")
    (file,) = (other / "rank-1").glob("*.steps.jsonl")
    lines = file.read_text().splitlines(keepends=True)
    number = next(n for n, line in enumerate(lines) if '"event":"step_decision"' in line and '"step":3,' in line)
    record = json.loads(lines[number])
    request_id = next(iter(record["num_scheduled_tokens"]))
    record["num_scheduled_tokens"][request_id] += 1
    lines[number] = json.dumps(record) + "\n"
    file.write_text("".join(lines))
    parting = answer(call("compare", "three", other, "--json", cwd=folder))["parting"]
    assert (parting["rank"], parting["a"]["step"], parting["what"]) == (1, 3, "tokens per request")
    assert "In step 3 of rank 1, after 3 with the same decisions" in call("compare", "three", other, cwd=folder).stdout
    for align in ("time", "job"):
        assert call("compare", "three", other, "--align", align, cwd=folder).code == 0


def test_compare_more_engines_with_fewer(folder: Path) -> None:
    text = call("compare", "three", "two", cwd=folder).stdout
    assert "From the beginning: engines: 3 (rank 0, rank 1, rank 2) in A, 2 (rank 0, rank 1) in B." in text
    figures = {each["name"]: each for each in answer(call("compare", "three", "two", "--json", cwd=folder))["figures"]}
    assert (figures["requests"]["a"], figures["requests"]["b"]) == (30, 30)
    assert figures["queue_ms.mean"]["a"] < figures["queue_ms.mean"]["b"]


def test_export_draws_every_engine(folder: Path, tmp_path: Path) -> None:
    assert call("export", folder / "three", "--chrome", "a.json", cwd=tmp_path).code == 0
    events = json.loads((tmp_path / "a.json").read_text())["traceEvents"]
    names = {each["args"]["name"]: each["pid"] for each in events if each["name"] == "process_name"}
    engines = [f"tokenyard sched_trace.fcfs rank {rank}" for rank in range(3)]
    assert set(engines) <= set(names)
    pids = [each["pid"] for each in events if each["name"] == "process_name"]
    assert len(pids) == len(set(pids)), "no process is two engines'"
    steps = [sum(each["pid"] == names[name] and each.get("cat") == "step" for each in events) for name in engines]
    report = answer(call("report", folder / "three", "--json", cwd=tmp_path))
    assert steps == [each["steps"] for each in report["ranks"]]


def test_export_for_perfetto(folder: Path, tmp_path: Path) -> None:
    pb = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason="perfetto is absent")
    assert call("export", folder / "three", "--perfetto", "a.pftrace", cwd=tmp_path).code == 0
    trace = pb.Trace()
    trace.ParseFromString((tmp_path / "a.pftrace").read_bytes())
    tracks = [packet.track_descriptor for packet in trace.packet if packet.HasField("track_descriptor")]
    uuids = [track.uuid for track in tracks]
    assert len(uuids) == len(set(uuids)), "no track is two engines'"
    processes = [track for track in tracks if track.HasField("process")]
    assert [track.process.pid for track in processes] == [1, 2, 3]
    known = set(uuids)
    assert all(packet.track_event.track_uuid in known for packet in trace.packet if packet.HasField("track_event"))


def test_what_takes_one_engine_says_so(folder: Path, tmp_path: Path) -> None:
    call("export", folder / "three", "--html", "a.html", cwd=tmp_path).refused("a page holds one engine, here are 3")
    call("query", "three", "select 1", cwd=folder).refused("several engines (3): name one of them", "rank-0")
    call("convert", "three", cwd=folder).refused("several engines (3): name one of them", "rank-0")


def test_two_runs_in_one_directory(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "three", tmp_path / "mixed")
    shutil.rmtree(tmp_path / "mixed" / "rank-1")
    shutil.copytree(folder / "two" / "rank-1", tmp_path / "mixed" / "rank-1")
    for command in (["report"], ["why"], ["export", "--chrome", "a.json"], ["compare", "mixed"]):
        name, *rest = command
        call(name, "mixed", *rest, cwd=tmp_path).refused("of different runs (rank 0 and rank 1)", "data_parallel_size")
