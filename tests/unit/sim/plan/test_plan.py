"""Planning: which row is best, which are tried, how much load is borne, and what is drawn."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.sim.sweep.subjects import Steady, workload

from tokenyard.errors import MissingExtraError
from tokenyard.explain.report.slo import read_slos
from tokenyard.sim.plan import search as searching
from tokenyard.sim.plan.answer import Plan, few_requests, limits_of, next_best
from tokenyard.sim.plan.floor import floors_of, meets_alone, sentence_of
from tokenyard.sim.plan.goal import Goal, best_of, front_of, is_feasible, rival_of
from tokenyard.sim.plan.load import PRECISION, largest_load
from tokenyard.sim.plan.picture import draw, page
from tokenyard.sim.plan.search import search
from tokenyard.sim.sweep.measuring import Measuring
from tokenyard.sim.sweep.row import Row, Settings, key_of
from tokenyard.sim.sweep.variants import Grid


def row(name: str, value: float, *, cost: float | None = None, tight: float = 0.5, **more: Any) -> Row:
    figures: dict[str, float | None] = {"goodput.requests_per_s": value, "throughput.output_tokens_per_s": 10 * value}
    return Row(
        settings={"name": name},
        figures=figures,
        cost_per_hour=cost,
        gpus=1,
        tightness=tight,
        tightest="ttft_p90",
        **{"met": tight <= 1, "requests": 10, **more},
    )


# ---- which is best


def test_the_most_wins_then_the_cheapest_then_the_furthest_from_its_bounds() -> None:
    rows = [
        row("a", 10.0, cost=3.0),
        row("b", 9.97, cost=2.0, tight=0.9),
        row("c", 9.96, cost=2.0),
        row("d", 5.0, cost=1.0),
    ]
    best = best_of(rows, Goal.GOODPUT)
    assert best is rows[2]
    assert next_best(rows, rows[2], Goal.GOODPUT) is rows[0]
    assert best_of(rows, Goal.COST) is rows[3]


def test_who_misses_a_bound_cannot_be_best() -> None:
    rows = [row("a", 10.0, tight=1.1), row("b", 9.0, stopped="early"), row("c", 8.0, problem="does not start")]
    assert best_of(rows, Goal.GOODPUT) is None
    assert not any(map(is_feasible, rows))
    assert best_of([*rows, row("d", 1.0)], Goal.GOODPUT) is not None
    assert rival_of(rows[0], Goal.GOODPUT) is None


def test_the_front_by_cost_and_by_distance() -> None:
    by_cost = [row("a", 10.0, cost=3.0), row("b", 9.0, cost=2.0), row("c", 8.0, cost=2.5), row("d", 5.0, cost=1.0)]
    assert [each.settings["name"] for each in front_of(by_cost, Goal.GOODPUT)] == ["d", "b", "a"]
    alike = [row("a", 10.0, tight=0.9), row("b", 9.0, tight=0.95), row("c", 8.0, tight=0.2)]
    assert [each.settings["name"] for each in front_of(alike, Goal.GOODPUT)] == ["a", "c"]


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 3), st.floats(0.1, 1.5)), max_size=12))
def test_nobody_beats_the_front_and_the_best_is_not_far_from_it(points: list[tuple[int, int, float]]) -> None:
    rows = [row(str(i), value, cost=cost, tight=tight) for i, (value, cost, tight) in enumerate(points)]
    front = front_of(rows, Goal.GOODPUT)
    assert all(is_feasible(each) for each in front)
    best = best_of(rows, Goal.GOODPUT)
    assert (best is None) == (not front)
    if best is not None:
        assert (
            max(each.figures["goodput.requests_per_s"] or 0 for each in front) == best.figures["goodput.requests_per_s"]
        )


# ---- which are tried


GRID = Grid([("a", tuple(range(20))), ("b", tuple(range(20))), ("c", (False, True))])


def hill(settings: Settings) -> Row:
    """Most at a = 13, b = 4, with c."""
    a, b = float(settings["a"] or 0), float(settings["b"] or 0)
    value = 600 - (a - 13) ** 2 - (b - 4) ** 2 - 50 * (not settings["c"])
    return msgspec.structs.replace(row("x", value), settings=dict(settings))


def test_a_small_space_is_tried_whole() -> None:
    tried: list[Settings] = []

    def evaluate(each: Settings) -> Row:
        tried.append(each)
        return row("x", 1.0)

    found = search(Grid([("a", (1, 2)), ("b", (1, 2))]), evaluate, Goal.GOODPUT, replays=4)
    assert found.is_whole
    assert len(tried) == len(found.rows) == 4


@pytest.mark.parametrize("seed", range(3))
def test_a_large_space_is_searched_for_its_best_in_few_replays(seed: int) -> None:
    pytest.importorskip("optuna", reason="Optuna is not installed (extra plan)")
    tried: list[str] = []

    def evaluate(each: Settings) -> Row:
        tried.append(key_of(each))
        return hill(each)

    found = search(GRID, evaluate, Goal.GOODPUT, replays=80, seed=seed)
    assert not found.is_whole
    assert len(tried) == len(set(tried)) == len(found.rows) <= 80  # of 800
    best = best_of(found.rows, Goal.GOODPUT)
    assert best is not None
    assert (best.figures["goodput.requests_per_s"] or 0) >= 0.98 * 600
    again = search(GRID, hill, Goal.GOODPUT, replays=80, seed=seed)
    assert again.rows == found.rows


def test_without_optuna_a_large_space_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(searching, "import_module", absent)
    with pytest.raises(MissingExtraError, match=r"tokenyard\[plan\]"):
        search(GRID, hill, Goal.GOODPUT, replays=80)


# ---- the load


@given(st.floats(0.01, 500))
def test_the_largest_load_is_found(limit: float) -> None:
    def at(load: float) -> Row:
        return row("x", load, tight=0.5 if load <= limit else 2.0, load=load)

    found = largest_load(at)
    assert found.borne is not None
    assert found.missed is not None
    assert found.borne.load <= limit < found.missed.load <= found.borne.load * (1 + PRECISION)
    assert found.replays < 20


def test_who_cannot_bear_what_another_bears_is_given_up_at_once() -> None:
    found = largest_load(lambda load: row("x", load, tight=2.0, load=load), must_bear=3.0)
    assert (found.borne, found.replays) == (None, 1)


def test_a_load_that_changes_nothing_any_more_ends_the_search() -> None:
    found = largest_load(_paced)
    assert found.missed is None
    assert found.borne is not None
    assert found.borne.load == 2.0


def test_requests_that_do_not_come_faster_can_wait_longer_all_the_same() -> None:
    """Long sessions: the rate stays, the first tokens come later, and at last a bound is missed."""

    def at(load: float) -> Row:
        figures: dict[str, float | None] = {"throughput.requests_per_s": 2.0, "ttft_ms.max": 100 * load}
        return msgspec.structs.replace(row("x", 1.0, load=load, tight=load / 9), figures=figures)

    found = largest_load(at)
    assert found.borne is not None
    assert 9 / (1 + PRECISION) <= found.borne.load <= 9


def _paced(load: float) -> Row:
    return msgspec.structs.replace(row("x", 1.0, load=load), figures={"throughput.requests_per_s": 2.0})


def test_the_load_of_replays() -> None:
    """Four seats and a step of 0.1 s: 3.6 requests of 11 tokens a second, and no more."""
    job = Measuring(subject=Steady(workload(200, every=1.0)), slos=read_slos([["queue_p90=1s"]]))
    found = largest_load(lambda load: job({"max_num_seqs": 4}, load=load, stops=True))
    assert found.borne is not None
    assert 3.0 < found.borne.load < 4.2
    assert found.borne.met
    assert limits_of(found.borne, found.missed).startswith("with more load queue_p90 is missed first")
    assert "requests wait for max_num_seqs" in limits_of(found.borne, job({"max_num_seqs": 4}, load=5.0))


def test_percentiles_of_few_requests_are_said() -> None:
    slos = read_slos([["ttft_p99=1s", "ttft_p50=1s", "tpot_p90=1s"]])
    assert [said.partition(" ")[0] for said in few_requests(slos, 40)] == ["ttft_p99", "tpot_p90"]
    assert list(few_requests(slos, 4000)) == []


# ---- where no variant holds a bound


def test_a_floor_says_whether_the_load_is_too_much_or_the_bound_too_low() -> None:
    """Four seats for two requests a second of 11 steps of 0.1 s: they queue; alone nobody does."""
    slos = read_slos([["ttft_p90=150ms,e2e_p90=500ms,tpot:1"]])
    job = Measuring(subject=Steady(workload(40, every=0.1)), slos=slos)
    seats = {"max_num_seqs": 4}
    ttft, e2e = floors_of(slos, job(seats), job(seats, one_at_a_time=True))
    assert ttft.bound == "ttft_p90=150ms"
    assert ttft.alone_ms == pytest.approx(100.0)
    assert ttft.reached_ms > 1000
    assert ttft.parts_ms["prefill"] == pytest.approx(100.0)
    assert ttft.parts_ms["queueing"] > 1000
    assert meets_alone([ttft])
    assert sentence_of(ttft).endswith("one request at a time 100 ms, so it is the load that is too much")
    assert e2e.alone_ms == pytest.approx(1200.0)
    assert sum(e2e.parts_ms.values()) == pytest.approx(job(seats).figures["e2e_ms.mean"])
    assert not meets_alone([ttft, e2e])
    assert "1.2 s, all of it prefill and decode: no load holds this bound here" in sentence_of(e2e)
    assert not meets_alone([])


# ---- the picture


def test_the_drawing_is_whole_and_escapes_names() -> None:
    rows = [row("<a>", 10.0, cost=3.0), row("b", 9.0, cost=2.0), row("c", 8.0, cost=2.5, tight=1.2)]
    plan = Plan(
        workload="<log> & more",
        requests=10,
        goal="goodput",
        slo=["ttft_p90=1ms"],
        space={"name": ["<a>", "b", "c"]},
        size=3,
        replays=3,
        is_whole=True,
        method="every variant",
        recommended=rows[0],
        holds=True,
        value=10.0,
        serve=None,
        flags=[],
        front=front_of(rows, Goal.GOODPUT),
        rows=rows,
    )
    drawing = draw(plan)
    root = ET.fromstring(drawing)
    circles = list(root.iter("{http://www.w3.org/2000/svg}circle"))
    assert len(circles) == 3 + 3 + 1  # the legend, the variants, and a ring
    assert len(list(root.iter("{http://www.w3.org/2000/svg}polyline"))) == 1
    assert "&lt;log&gt; &amp; more" in drawing
    assert "<script" not in page(plan, ["<b>"])
    assert "&lt;b&gt;" in page(plan, ["<b>"])
