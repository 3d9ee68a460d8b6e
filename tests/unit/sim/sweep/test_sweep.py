"""Many replays: which variants, one row each, ended early only where that is certain, and nothing measured twice."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.unit.sim.sweep.sources import Steady, workload

from tokenyard.errors import ConfigError
from tokenyard.explain.slo import read_slos
from tokenyard.questions.experiment import measured
from tokenyard.questions.sweeping import variants as running
from tokenyard.questions.sweeping.measuring import Incumbent, VariantWorker, folder_of
from tokenyard.questions.sweeping.page import MEASURES, front_of_measures, page
from tokenyard.questions.sweeping.rows import (
    Journal,
    Row,
    key_of,
    quoted,
    read_finished,
    read_values,
    settings_in_words,
)
from tokenyard.questions.sweeping.variants import read_grid, read_variants

SEATS = [{"max_num_seqs": number} for number in (1, 2, 3, 4, 5)]


def plain(name: str, value: Any) -> tuple[str, Any]:
    """Names and values as they are; numbers from texts."""
    return name, int(value) if str(value).isdigit() else value


# ---- which variants


def test_a_grid_is_every_combination_in_order() -> None:
    grid = read_grid(["a=1,2,2", "b=x,y"], plain)
    assert len(grid) == 4
    assert grid.all() == [{"a": 1, "b": "x"}, {"a": 1, "b": "y"}, {"a": 2, "b": "x"}, {"a": 2, "b": "y"}]


@pytest.mark.parametrize("text", ["a", "a=", "a=1,,2", "1,a=1", 'a={"b":1', 'a="b'])
def test_what_is_no_grid_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_grid([text], plain)
    assert (refused.value.field, refused.value.value) == ("--set", text)


def test_a_setting_is_given_once() -> None:
    for texts in (["a=1", "a=2"], ["a=1,2,b=3,a=4"]):
        with pytest.raises(ConfigError, match="a is given twice"):
            read_grid(texts, plain)


def test_several_settings_of_a_text_are_a_grid_as_well() -> None:
    assert read_grid(["a=1,2,b=3", "c=4"], plain).all() == read_grid(["a=1,2", "b=3", "c=4"], plain).all()


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ('a={"m":"x","n":[1,2]},none', ['{"m":"x","n":[1,2]}', "none"]),
        ('a="0.8,0.6","0.5"', ["0.8,0.6", "0.5"]),
        ('a="{,"', ["{,"]),
        ("a=p/x=1.py:C,fcfs", ["p/x=1.py:C", "fcfs"]),
        ("--max-num-seqs = 1 , 2", ["1", "2"]),
    ],
)
def test_values_may_hold_commas(text: str, values: list[str]) -> None:
    ((_, found),) = read_values(text).items()
    assert found == values


@given(st.dictionaries(st.from_regex(r"[a-z][a-z_]{0,5}", fullmatch=True), st.lists(st.text(min_size=1), min_size=1)))
def test_what_is_written_is_read(named: dict[str, list[str]]) -> None:
    """Any text can be a value."""
    text = ",".join(f"{name}={','.join(map(quoted, values))}" for name, values in named.items())
    if named:
        assert read_values(text) == named


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("v.json", '[{"a": 1, "b": "x"}, {"a": 2}, {"b": "x", "a": 1}]'),
        ("v.toml", '[[variant]]\na = 1\nb = "x"\n[[variant]]\na = 2\n'),
        ("v.csv", "a, b\n1, x\n2,\n"),
    ],
)
def test_files_of_variants(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert read_variants(tmp_path / name, plain) == [{"a": 1, "b": "x"}, {"a": 2}]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("v.json", "[1]"),
        ("v.json", "[]"),
        ("v.json", "{"),
        ("v.toml", "a=1"),
        ("v.toml", "="),
        ("v.txt", "a"),
        ("v.csv", ""),
    ],
)
def test_files_that_hold_none(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError) as refused:
        read_variants(tmp_path / name, plain)
    assert refused.value.field == "variants"


def numbers(name: str, value: Any) -> tuple[str, Any]:
    """Settings are whole numbers, and called a or b."""
    if name not in ("a", "b"):
        raise ConfigError("--set", name, "there is no such setting")
    if not str(value).isdigit():
        raise ConfigError(name, value, "give a whole number")
    return name, int(value)


def test_all_that_is_wrong_with_a_grid_is_said_at_once() -> None:
    with pytest.raises(ConfigError) as refused:
        read_grid(["a=1,x,y", "c=1", "b=2,z"], numbers)
    said = str(refused.value)
    for problem in ("4 problems", "a = 'x': give a whole", "a = 'y': give", "--set = 'c': there is", "b = 'z': give"):
        assert problem in said


def test_all_that_is_wrong_with_a_file_is_said_with_its_variant(tmp_path: Path) -> None:
    (tmp_path / "v.csv").write_text("a,b\n1,2\nx,3\n4,y\n")
    with pytest.raises(ConfigError) as refused:
        read_variants(tmp_path / "v.csv", numbers)
    assert "2 problems" in str(refused.value)
    assert "variant 2: a = 'x'" in str(refused.value)
    assert "variant 3: b = 'y'" in str(refused.value)
    (tmp_path / "v.csv").write_text("a\n" + "x\n" * 50)
    with pytest.raises(ConfigError, match="50 problems"):
        read_variants(tmp_path / "v.csv", numbers)


@pytest.mark.parametrize(("text", "line"), [("a,b\n1,2\n\n3\n", 4), ("a,b\n1,2,3\n", 2), ('a,b\n"1\n",2\n1\n', 4)])
def test_a_ragged_table_is_refused_with_its_line(tmp_path: Path, text: str, line: int) -> None:
    (tmp_path / "v.csv").write_text(text)
    with pytest.raises(ConfigError, match=f"line {line} has [13] field"):
        read_variants(tmp_path / "v.csv", plain)


def test_a_variant_is_known_by_its_settings_in_any_order() -> None:
    assert key_of({"a": 1, "b": None}) == key_of({"b": None, "a": 1})
    assert settings_in_words({"max_num_seqs": 4, "x": True, "y": 0.1}) == "max_num_seqs=4 x=true y=0.1"
    assert settings_in_words({}) == "as it is"


# ---- a row


def test_a_row_has_the_figures_of_its_report_and_their_price() -> None:
    job = VariantWorker(source=Steady(workload()), slos=read_slos([["ttft_max=400ms"]]), prices={"h100": 3.6})
    row = job({"max_num_seqs": 4})
    assert (row.problem, row.stopped, row.requests, row.refused) == (None, None, 40, 0)
    tokens, seconds = row.figures["output_tokens"], row.figures["duration_s"]
    assert tokens == sum(10 + i % 3 for i in range(40))
    assert seconds is not None
    assert row.cost_per_hour == 7.2  # two GPUs
    assert row.cost_per_million_tokens == pytest.approx(0.002 * seconds / tokens * 1e6)
    assert row.tightness is not None
    assert row.met == (row.tightness <= 1)
    assert row.tightest == "ttft_max"
    assert job({"max_num_seqs": 1}).held_by == "max_num_seqs"


def test_what_cannot_be_replayed_is_a_row_with_its_problem() -> None:
    row = VariantWorker(source=Steady(workload()))({"max_num_seqs": 0})
    assert row.problem == "max_num_seqs = 0: give more"
    assert not row.is_measured


def test_traces_of_a_variant_have_a_folder_that_people_can_read() -> None:
    one = {"max_num_seqs": 4, "split": None, "scheduling_policy": "a/b.py:Mine"}
    assert folder_of(one).startswith("max_num_seqs=4_scheduling_policy=a_b.py_Mine_split=none-")
    assert folder_of(dict(reversed(one.items()))) == folder_of(one)
    longer = {**one, "speculative_config": "x" * 500}
    assert len({folder_of(longer), folder_of({**longer, "z": 1})}) == 2
    assert len(folder_of(longer)) < 100
    assert folder_of({}).startswith("as_it_is-")


def test_requests_arrive_as_much_faster_as_asked() -> None:
    job = VariantWorker(source=Steady(workload()))
    once, twice = (job({"max_num_seqs": 60}, load=load) for load in (1.0, 2.0))
    assert once.figures["duration_s"] > 1.8 * (twice.figures["duration_s"] or 0)  # type: ignore[operator]


# ---- ended early


BELOW = {"max": "max", "p99": "p95", "p95": "p90", "p90": "p50"}
"""A statistic, and one whose neighbours among 24 requests (between two of them a percentile is interpolated) lie no
higher: where that one is beyond a bound, so many requests are that the end is certain before it is there."""


@pytest.mark.slow
@given(
    seats=st.integers(1, 6),
    every=st.sampled_from([0.05, 0.2, 0.4]),
    tokens=st.integers(1, 12),
    patience=st.sampled_from([None, None, 2.0]),
    figure=st.sampled_from(["ttft", "tpot", "e2e", "queue"]),
    statistic=st.sampled_from(["p50", "p90", "p95", "p99", "max"]),
    bound=st.sampled_from([50, 100, 400, 1500, 5000]),
    apart=st.booleans(),
)
@settings(deadline=None, max_examples=examples(90))
def test_a_replay_is_ended_early_where_a_bound_is_missed_for_certain_and_nowhere_else(
    *,
    seats: int,
    every: float,
    tokens: int,
    patience: float | None,
    figure: str,
    statistic: str,
    bound: int,
    apart: bool,
) -> None:
    """Also of a split, whose clients do not go away."""
    patience = None if apart else patience
    source = Steady(workload(24, tokens=tokens, every=every, patience=patience), apart=apart)
    job = VariantWorker(source=source, slos=read_slos([[f"{figure}_{statistic}={bound}ms"]]))
    early, whole = job({"max_num_seqs": seats}, stops=True), job({"max_num_seqs": seats})
    if early.stopped is not None:
        assert early.met is False
        assert whole.met is False
    else:
        assert early == whole
        all_count = patience is None and (figure != "tpot" or tokens > 1)  # none goes away, each has the figure
        lower = whole.figures[f"{figure}_ms.{BELOW[statistic]}"] if statistic in BELOW and all_count else None
        assert lower is None or lower <= bound * 1.001, "missed for certain, and replayed to the end"


def test_a_hopeless_replay_is_ended_early() -> None:
    job = VariantWorker(source=Steady(workload(900, every=0.1)), slos=read_slos([["ttft_p90=1s"]]))
    row = job({"max_num_seqs": 2}, stops=True)
    assert row.stopped is not None
    assert row.stopped.startswith("ttft_p90=1000ms is missed for certain after")
    assert (row.met, row.tightest) == (False, "ttft_p90")


@pytest.mark.slow
def test_a_hopeless_replay_of_a_split_is_ended_early_as_well() -> None:
    """Two seats that decode, for ten requests a second: those that wait there are seen, and no others."""
    source = Steady(workload(900, every=0.1), apart=True)
    row = VariantWorker(source=source, slos=read_slos([["ttft_p90=1s"]]))({"max_num_seqs": 2}, stops=True)
    assert row.stopped is not None
    assert (row.met, row.tightest) == (False, "ttft_p90")


@pytest.mark.slow
@pytest.mark.parametrize(("value", "ended"), [(25.0, True), (19.0, False)])
def test_a_variant_that_cannot_win_is_ended_early(value: float, *, ended: bool) -> None:
    """Two seats give 20 tokens a second at most."""
    job = VariantWorker(source=Steady(workload(300, every=0.1)))
    incumbents = [Incumbent("throughput", value, None, 1)]
    row = job({"max_num_seqs": 2}, stops=True, incumbents=incumbents)
    assert (row.stopped is not None) is ended
    assert row.met is None
    dearer = [Incumbent("throughput", value, None, 8)]
    assert job({"max_num_seqs": 2}, stops=True, incumbents=dearer).stopped is None


# ---- many


def rows_of(jobs: Any) -> list[Row]:
    return sorted(jobs, key=lambda row: key_of(row.settings))


def test_a_subject_travels() -> None:
    job = VariantWorker(source=Steady(workload()), slos=read_slos([["ttft_p90=1s"]]))
    assert pickle.loads(pickle.dumps(job))(SEATS[0]) == job(SEATS[0])


@pytest.mark.slow
def test_processes_give_the_same_rows_and_one_that_dies_loses_none(tmp_path: Path) -> None:
    serial = rows_of(measured(VariantWorker(source=Steady(workload())), SEATS))
    dying = VariantWorker(source=Steady(workload(), dies_once_at=tmp_path / "mark"))
    assert rows_of(measured(dying, SEATS, processes=2)) == serial
    assert (tmp_path / "mark").exists()


def test_processes_that_always_die_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it is like when a process does die: above."""
    pools = []

    class Dying(ThreadPoolExecutor):
        """A pool whose processes are gone before they have done anything."""

        def __init__(self, processes: int, *_: object) -> None:
            super().__init__(processes)
            pools.append(self)

        def submit(self, *_: Any, **__: Any) -> Future[Any]:
            died: Future[Any] = Future()
            died.set_exception(BrokenProcessPool())
            return died

    monkeypatch.setattr(running, "ProcessPoolExecutor", Dying)
    with pytest.raises(ConfigError, match="processes = 2: worker processes died"):
        list(measured(VariantWorker(source=Steady(workload())), SEATS[:2], processes=2))
    assert len(pools) == 4, "three deaths are put up with"


# ---- the journal


@pytest.mark.slow
def test_a_sweep_goes_on_where_it_was_ended(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    job = VariantWorker(source=Steady(workload()), slos=read_slos([["ttft_p90=1s"]]))
    with Journal(tmp_path / "whole", {"a": 1}) as whole:
        for row in measured(job, SEATS):
            whole.add(row)
        rows = whole.write_table(SEATS)
    with Journal(tmp_path / "cut", {"a": 1}) as cut:
        for row in measured(job, SEATS[:1:-1]):
            cut.add(row)
    path = tmp_path / "cut" / "finished.jsonl"
    path.write_bytes(path.read_bytes()[:-7])  # the machine went down
    with Journal(tmp_path / "cut", {"a": 1}) as cut:
        assert [each in cut for each in SEATS] == [False, False, False, True, True]
        for row in measured(job, [each for each in SEATS if each not in cut]):
            cut.add(row)
        assert cut.write_table(SEATS) == rows
    assert (tmp_path / "cut" / "sweep.parquet").read_bytes() == (tmp_path / "whole" / "sweep.parquet").read_bytes()


def test_another_sweep_does_not_go_on_there(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    with Journal(tmp_path / "one", {"a": 1}):
        pass
    with pytest.raises(ConfigError, match="holds another sweep"):
        Journal(tmp_path / "one", {"a": 2})
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "precious").touch()
    with pytest.raises(ConfigError, match="is not empty"):
        Journal(tmp_path / "other", {"a": 1})


def test_a_directory_has_one_sweep_at_a_time_and_the_second_is_told_whose_it_is(tmp_path: Path) -> None:
    pytest.importorskip("fcntl", reason="locks of this system are not used")
    with Journal(tmp_path, {"a": 1}) as first:
        first.add(Row(settings={"n": 1}))
        with pytest.raises(ConfigError, match=f"is in use by process {os.getpid()} on host .* since 2"):
            Journal(tmp_path, {"a": 1})
        first.add(Row(settings={"n": 2}))
    with Journal(tmp_path, {"a": 1}) as second:
        assert [row.settings["n"] for row in second.rows.values()] == [1, 2]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes of this system share no open files")
def test_a_child_that_lives_on_does_not_keep_the_lock_of_a_folder(tmp_path: Path) -> None:
    """A worker that is forked while the folder is locked has the same open file; it ends when it is told to."""
    read, write = os.pipe()
    with Journal(tmp_path, {"a": 1}):
        child = os.fork()
        if child == 0:
            os.close(write)
            os.read(read, 1)
            os._exit(0)
    os.close(read)
    try:
        with Journal(tmp_path, {"a": 1}) as again:
            assert not again.rows
    finally:
        os.close(write)
        os.waitpid(child, 0)


def test_who_is_killed_leaves_no_lock_behind_and_a_torn_line_costs_that_line_alone(tmp_path: Path) -> None:
    """A process with the folder is killed in the middle of a line; while it lives no other touches what it wrote."""
    pytest.importorskip("fcntl", reason="locks of this system are not used")
    dying = (
        "import sys, time; from pathlib import Path; from tokenyard.questions.sweeping.rows import Journal;"
        "from tokenyard.questions.sweeping.rows import Row; journal = Journal(Path(sys.argv[1]), {});"
        "journal.add(Row(settings={'n': 1})); journal._file.write(b'{\"settings\":{\"n\"'); journal._file.flush();"
        "print('torn', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", dying, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "torn\n"
        before = (tmp_path / "finished.jsonl").read_bytes()
        with pytest.raises(ConfigError, match=f"in use by process {process.pid} "):
            Journal(tmp_path, {})
        assert (tmp_path / "finished.jsonl").read_bytes() == before
        process.kill()
    with Journal(tmp_path, {}) as journal:
        assert [row.settings for row in journal.rows.values()] == [{"n": 1}]
        journal.add(Row(settings={"n": 2}))
    lines = (tmp_path / "finished.jsonl").read_bytes()
    assert [row.settings["n"] for row in read_finished(lines).values()] == [1, 2]


def test_a_journal_that_is_removed_leaves_the_place_as_it_was(tmp_path: Path) -> None:
    with Journal(tmp_path / "new", {}) as journal:
        journal.add(Row(settings={"n": 1}))
        journal.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_line_that_is_no_row_is_said(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    with Journal(tmp_path, {"a": 1}):
        pass
    (tmp_path / "finished.jsonl").write_text('{"settings": 3}\n')
    with pytest.raises(ConfigError, match="holds a line that is no row"):
        Journal(tmp_path, {"a": 1})


def test_the_table_has_a_column_for_each_setting_and_figure(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    job = VariantWorker(source=Steady(workload()))
    with Journal(tmp_path, {}) as journal:
        for row in measured(job, [*SEATS[:2], {"max_num_seqs": 0}]):
            journal.add(row)
        journal.write_table([*SEATS[:2], {"max_num_seqs": 0}])
    table = parquet.read_table(tmp_path / "sweep.parquet").to_pydict()
    assert table["max_num_seqs"] == [1, 2, 0]
    assert table["problem"] == [None, None, "max_num_seqs = 0: give more"]
    assert table["ttft_ms.p90"][0] > table["ttft_ms.p90"][1] > 0
    assert table["ttft_ms.p90"][2] is None
    assert set(msgspec.to_builtins(job(SEATS[0]))["figures"]) <= set(table)


# ---- the page


def front_by_hand(rows: list[Row]) -> set[int]:
    """By the definition, over the two figures that the rows below have."""
    points = [(row.figures["ttft_ms.p90"] or 0, -(row.figures["throughput.output_tokens_per_s"] or 0)) for row in rows]
    return {
        i for i, (a, b) in enumerate(points) if not any((c <= a and d <= b) and (c, d) != (a, b) for c, d in points)
    }


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=30))
def test_the_front_is_whom_nobody_beats(points: list[tuple[int, int]]) -> None:
    rows = [
        Row(
            settings={"n": i},
            figures={"ttft_ms.p90": float(ttft), "throughput.output_tokens_per_s": float(tokens)},
        )
        for i, (ttft, tokens) in enumerate(points)
    ]
    measures = [each for each in MEASURES if each.name in rows[0].figures]
    assert front_of_measures(rows, measures) == front_by_hand(rows)
    failed = Row(settings={"n": -1}, problem="does not start")
    assert front_of_measures([*rows, failed], measures) == front_by_hand(rows)


def test_the_page_is_whole_has_every_row_and_escapes_names() -> None:
    job = VariantWorker(source=Steady(workload()), slos=read_slos([["ttft_p90=300ms"]]))
    rows = [job({"max_num_seqs": 0, "name": "<b>"}), job({"max_num_seqs": 1}), job({"max_num_seqs": 4})]
    text = page("<log> & more", rows)
    parser = _Counting()
    parser.feed(text)
    assert parser.problem is None
    assert (parser.count["polyline"], parser.count["tr"]) == (2, 1 + 3)
    assert parser.count["line"] == 2 + 4  # max_num_seqs, name; TTFT, E2E, tokens, goodput: all have the same TPOT
    assert "&lt;log&gt; &amp; more" in text
    assert "<b>" not in text
    assert "http" not in text.replace("http-equiv", "")


class _Counting(HTMLParser):
    """Counts elements, and notes one that is closed without being open."""

    def __init__(self) -> None:
        super().__init__()
        self.count: Counter[str] = Counter()
        self.problem: str | None = None
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.count[tag] += 1
        if tag not in ("meta", "line", "input"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag != "line" and (not self._open or self._open.pop() != tag):
            self.problem = self.problem or f"</{tag}> closes nothing"
