"""What the viewer says is what the command line says: the goodput, and where two traces part."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from tests.integration.command import call
from tests.support.figures import differences, figures_of_package, figures_of_viewer
from tests.support.headless import VIEWER, HeadlessViewer, TraceLines
from tests.support.workloads import TracedWorkload

import tokenyard as ty
from tokenyard.explain.compare.first_difference import first_difference
from viewer_sample import crowded

SAMPLE = VIEWER / "src" / "shell"
BOUNDS: dict[str, dict[str, float]] = {
    "one of them": {"ttft": 1000},
    "all of them": {"ttft": 1500, "tpot": 80, "e2e": 2000},
    "what everybody meets": {"e2e": 1e9},
    "what nobody meets": {"ttft": 0.001},
}


def goodput_of_both(trace: Path, viewer: HeadlessViewer, bounds: Mapping[str, float]) -> dict[str, Any]:
    """What the terminal says of a trace, once the page has said the same."""
    slos = [f"{name}:{bound:g}" for name, bound in bounds.items()]
    report = call("report", trace, "--slo", *slos, "--json", cwd=trace.parent)
    assert report.code == 0, report.stderr
    told: dict[str, Any] = json.loads(report.stdout)["goodput"]
    given = {"ttft": None, "tpot": None, "e2e": None} | dict(bounds)
    shown = viewer.ask(TraceLines.of(trace), bounds=given)["goodput"]
    assert shown["requests"] == told["requests"]
    assert shown["share"] == pytest.approx(told["share"], rel=1e-12)
    assert shown["requestsPerSecond"] == pytest.approx(told["requests_per_s"], rel=1e-9)
    return told


@pytest.mark.parametrize("bounds", BOUNDS.values(), ids=BOUNDS)
def test_the_goodput_of_the_sample(bounds: dict[str, float], tmp_path: Path, headless_viewer: HeadlessViewer) -> None:
    lines = [(SAMPLE / f"sample.{kind}.txt").read_text(encoding="utf-8").splitlines() for kind in TraceLines._fields]
    told = goodput_of_both(TraceLines(*lines).write(tmp_path / "sample"), headless_viewer, bounds)
    assert (told["share"] == 1) == (bounds == BOUNDS["what everybody meets"])
    assert (told["share"] == 0) == (bounds == BOUNDS["what nobody meets"])


def test_the_goodput_where_requests_are_aborted_and_answer_with_one_token(
    tmp_path: Path, headless_viewer: HeadlessViewer
) -> None:
    TracedWorkload("pressure", 7, tmp_path / "run").run(60)
    ends = [json.loads(line) for line in TraceLines.of(tmp_path / "run").steps if '"request_finished"' in line]
    aborted = sum(end["finish_reason"] == "abort" for end in ends)
    assert aborted
    assert any(end["num_output_tokens"] == 1 and end["finish_reason"] == "length" for end in ends)
    told = goodput_of_both(tmp_path / "run", headless_viewer, {"e2e": 1e9})
    assert told["requests"] == len(ends) - aborted
    slow = goodput_of_both(tmp_path / "run", headless_viewer, {"tpot": 0.001})
    assert 0 < slow["requests"] < told["requests"]  # those that have no TPOT


@pytest.mark.parametrize("until", [None, 9.0], ids=["to the end", "cut"])
@pytest.mark.parametrize("warmup", [0.0, 3.0])
def test_a_user_is_one_arrival_with_all_attempts(
    tmp_path: Path, headless_viewer: HeadlessViewer, until: float | None, warmup: float
) -> None:
    deployment = ty.Deployment(
        model="llama-3.1-8b", gpu="l4", max_model_len=8192, latency="constant:0.02", max_num_seqs=2
    )
    traffic: dict[str, Any] = {"num_prompts": 80, "request_rate": 8, "input_len": 40, "output_len": 20}
    clients: dict[str, Any] = {"client_timeout": "2s", "retries": 2, "retry_wait": "500ms"}
    ty.run("random", deployment, trace=tmp_path / "trace", until=until, warmup=warmup, **traffic, **clients)
    bounds = {"ttft": 800.0, "tpot": None, "e2e": 4000.0}
    told = figures_of_package(tmp_path / "trace", bounds=bounds)
    shown = figures_of_viewer(headless_viewer, tmp_path / "trace", bounds=bounds)
    shown["spans"] = {name: shown["spans"].get(name) for name in told["spans"]}
    assert list(differences(told, shown)) == []
    ours = told["statistics"]
    assert ours["attempts"]["again"] > 10
    assert ours["outcomes"]["arrived"] + ours["attempts"]["again"] == ours["attempts"]["sent"]
    assert (ours["outcomes"]["arrived"] == 80) == (until is None and not warmup)


SETTINGS: dict[str, tuple[str, ...]] = {
    "as it was": (),
    "max_num_seqs": ("--max-num-seqs", "3"),
    "token budget": ("--max-num-batched-tokens", "300"),
    "policy": ("--scheduling-policy", "shortest-remaining"),
    "blocks": ("--num-gpu-blocks-override", "168"),
}
USUAL = {"--max-num-seqs": "6", "--max-num-batched-tokens": "512", "--num-gpu-blocks-override": "186"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same requests under each of the settings."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "crowded.jsonl").write_text(crowded())
    for name, flags in SETTINGS.items():
        given = USUAL | dict(zip(flags[::2], flags[1::2], strict=True))
        words = [word for pair in given.items() for word in pair]
        trace = ("--advice", "none", "--max-model-len", "2650", "--trace", name)
        run = call("run", "crowded.jsonl", *words, *trace, cwd=folder)
        assert run.code == 0, run.stderr
    return {name: folder / name for name in SETTINGS}


@pytest.mark.parametrize(("a", "b"), [*combinations(SETTINGS, 2)])
def test_the_two_part_at_the_same_decision(
    a: str, b: str, runs: dict[str, Path], headless_viewer: HeadlessViewer
) -> None:
    told = first_difference(runs[a], runs[b]).decision
    assert told is not None, "these settings change nothing: the test shows nothing"
    assert told.what != "one ends"
    shown = headless_viewer.ask(TraceLines.of(runs[a]), TraceLines.of(runs[b]))["comparison"]["decision"]
    assert (shown["what"], shown["detail"], shown["row"]) == (told.what, told.detail, told.equal_steps)


def test_a_run_never_parts_from_itself(runs: dict[str, Path], headless_viewer: HeadlessViewer) -> None:
    same = TraceLines.of(runs["as it was"])
    assert headless_viewer.ask(same, same)["comparison"]["decision"] is None


def test_a_run_that_is_cut_short_decides_nothing_else(
    runs: dict[str, Path], tmp_path: Path, headless_viewer: HeadlessViewer
) -> None:
    whole = TraceLines.of(runs["as it was"])
    part = whole._replace(steps=whole.steps[: len(whole.steps) // 2])
    told = first_difference(runs["as it was"], part.write(tmp_path / "part")).decision
    assert told is not None
    shown = headless_viewer.ask(whole, part)["comparison"]
    if told.what == "one ends":
        assert shown["decision"] is None
    else:  # cut within a step
        assert (shown["decision"]["what"], shown["decision"]["row"]) == (told.what, told.equal_steps)


@pytest.mark.parametrize(
    "part", [{"warmup": 6.0}, {"until": 12.0}, {"warmup": 6.0, "until": 12.0}], ids=["warmup", "until", "both"]
)
def test_a_part_of_a_run(part: dict[str, Any], tmp_path: Path, headless_viewer: HeadlessViewer) -> None:
    """What came in the warm-up does not count, and who is unfinished has waited until the run ended."""
    deployment = ty.Deployment(model="llama-3.1-8b", gpu="l4", max_model_len=4096)
    traffic: dict[str, Any] = {"num_prompts": 80, "request_rate": 6, "input_len": 900, "output_len": 120}
    run = ty.run("random", deployment, trace=tmp_path, advice=False, **traffic, **part)
    people = run.report.outcomes
    assert people is not None
    assert bool(people.unfinished) == ("until" in part)
    bounds = {"ttft": 4000.0, "tpot": None, "e2e": 30_000.0}
    ours, theirs = (
        figures_of_package(tmp_path, bounds=bounds),
        figures_of_viewer(headless_viewer, tmp_path, None, bounds),
    )
    assert ours["partial"] is None
    for name in ("statistics", "partial", "waits"):
        assert list(differences(ours[name], theirs[name])) == []
