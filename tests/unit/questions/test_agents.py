"""Agents: order, pins, DRAM and admission told apart, seed by seed, in one answer and one table."""

from __future__ import annotations

from collections import defaultdict
from io import StringIO
from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from tests.support.agents import agents_log

import tokenyard as ty
from tokenyard.errors import ConfigError
from tokenyard.questions import Agents, AgentsCell
from tokenyard.questions.agents import dealt
from tokenyard.questions.compare import Interval
from tokenyard.questions.printing.agents import answer_in_words, print_agents

DEPLOYMENT = ty.Deployment(model="meta-llama/Llama-3.1-8B-Instruct", gpu="a100-40gb", num_gpu_blocks_override=1500)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Agents:
    log = agents_log(tmp_path_factory.mktemp("agents") / "log.jsonl", jobs=8, turns=(3, 5), every=1.0)
    return ty.agents(
        log, DEPLOYMENT, policies=["fcfs", "program-fcfs", "continuum"], dram_gib=[16], seeds=[0, 1], jobs=1
    )


def test_there_is_a_cell_for_every_policy_and_size(found: Agents) -> None:
    assert [(cell.policy, cell.dram_gib) for cell in found.cells] == [
        (policy, size) for size in (0.0, 16.0) for policy in ("fcfs", "program-fcfs", "continuum")
    ]
    assert (found.jobs, len(found.as_table())) == (8, 6)


def test_the_first_cell_is_what_others_are_compared_with(found: Agents) -> None:
    assert found.cells[0].speedup == Interval(1.0, 0.0)
    assert found.cell("fcfs", 16.0).within_tier == Interval(1.0, 0.0)


def test_turns_of_a_log_follow_and_pins_are_made_without_names_of_tools(found: Agents) -> None:
    made = found.cell("continuum").figures["pins.made"]
    assert made is not None
    assert made.mean > 0


def test_dram_gains_where_contexts_do_not_fit(found: Agents) -> None:
    speedup = found.cell("fcfs", 16.0).speedup
    assert speedup is not None
    assert speedup.mean > 1.02
    assert found.parts["dram"] == speedup


def test_the_answer_fits_a_screen(found: Agents) -> None:
    console = Console(width=80, file=StringIO())
    print_agents(found, console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert text.startswith("For this load 16 GiB of DRAM for KV gains most")
    assert max(map(len, text.splitlines())) <= 80
    assert len(text.splitlines()) <= 24


def test_jobs_begin_at_the_same_moments_dealt_out_anew(tmp_path: Path) -> None:
    workload = ty.load_workload(agents_log(tmp_path / "log.jsonl"), turns_follow=True)
    other = dealt(workload, 7)

    def begun(of: ty.Workload) -> dict[str | None, float]:
        moments: dict[str | None, float] = defaultdict(lambda: 1e9)
        for each in of:
            moments[each.job_id] = min(moments[each.job_id], each.arrival_time)
        return moments

    assert sorted(begun(other).values()) == pytest.approx(sorted(begun(workload).values()))
    assert begun(other) != begun(workload)
    assert [each.gap for each in other] == [each.gap for each in workload]


def test_a_log_without_jobs_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("time,prompt_tokens,completion_tokens\n0,10,10\n1,10,10\n")
    with pytest.raises(ConfigError, match="no request of it names its job"):
        ty.agents(path, DEPLOYMENT)


@pytest.mark.parametrize("sizes", [[0], [16, 16], "16", ["a"]])
def test_sizes_that_cannot_be_are_refused(sizes: object, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="dram_gib"):
        ty.agents(agents_log(tmp_path / "log.jsonl", jobs=2), DEPLOYMENT, dram_gib=sizes)  # type: ignore[arg-type]


# ---- the words, of cells that are made up


def cell(policy: str, size: float, speedup: float, within: float, half: float | None = 0.01) -> AgentsCell:
    return AgentsCell(
        policy=policy,
        dram_gib=size,
        speedup=Interval(speedup, half),
        within_tier=Interval(within, half),
        figures={},
    )


def made_up(*cells: AgentsCell) -> Agents:
    return Agents(
        workload="made up",
        jobs=3,
        policies=("fcfs", "program-fcfs", "continuum-share", "continuum", "program-admission"),
        dram_gib=(0.0, 64.0),
        seeds=(0, 1),
        cells=[cell("fcfs", 0.0, 1.0, 1.0, 0.0), *cells],
        parts={"order": Interval(1.2, 0.1), "pins": Interval(1.1, 0.1)},
    )


def test_pins_that_gain_nothing_beside_dram_are_named() -> None:
    beside = [cell(policy, 64.0, 2.5, 1.0) for policy in ("fcfs", "program-fcfs", "continuum-share")]
    said = answer_in_words(made_up(*beside))
    assert said.startswith("For this load 64 GiB of DRAM for KV gains most: jobs end 2.50 ± 0.01 times as fast")
    assert "Beside it pins and order gain nothing." in said


def test_a_policy_that_needs_no_dram_is_best_where_dram_gains_no_more() -> None:
    said = answer_in_words(made_up(cell("continuum", 0.0, 1.8, 1.8), cell("fcfs", 64.0, 1.81, 1.0)))
    assert said.startswith("For this load continuum gains most: jobs end 1.80 ± 0.01 times as fast as under fcfs.")
    assert "Told apart: order alone 1.20 ± 0.10, pins alone 1.10 ± 0.10." in said


def test_nothing_that_gains_is_said() -> None:
    said = answer_in_words(made_up(cell("continuum", 0.0, 1.01, 1.01, 0.2)))
    assert said.startswith("For this load nothing that was tried ends jobs more than 2% sooner than fcfs.")
    assert "chance" not in said


def test_a_gain_within_what_seeds_change_is_said_to_be_by_chance() -> None:
    said = answer_in_words(made_up(cell("continuum", 0.0, 1.5, 1.5, 0.6)))
    assert said.endswith("That is no more than seeds change by chance: more --seeds would say.")


def test_jobs_that_did_not_end_leave_it_open() -> None:
    cells = made_up(msgspec.structs.replace(cell("continuum", 0.0, 3.0, 3.0), is_open=True))
    assert "nothing that was tried" in answer_in_words(cells)
