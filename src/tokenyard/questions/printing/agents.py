"""The answer to agents in a terminal: what gains most, in words, then one table of cells."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tokenyard.explain.render.parts import deployment_table, print_section
from tokenyard.questions.agents import (
    ADMISSION,
    ALIKE,
    BOTH,
    FCFS,
    JOB,
    JOB_P90,
    ORDER,
    PINS,
    TTFT,
    TTFT_P90,
    Agents,
    AgentsCell,
)
from tokenyard.questions.compare import Interval
from tokenyard.redaction import plain
from tokenyard.units import count_of

_ALIKE_IN = {JOB: ALIKE, TTFT: 0.05}
"""Figures in which policies that share a row hardly differ -> by which share."""


def print_agents(agents: Agents, console: Console, *, full: bool = False, header: bool = False) -> None:
    """The answer, and one table: a row per policy and size of DRAM; unless ``full``, those alike share one."""
    deployment = None if agents.header is None else deployment_table(agents.header)
    if header and deployment is not None:
        print_section(console, "Deployment", deployment)
        console.print()
    console.print(Text(answer_in_words(agents), "bold"))
    console.print()
    console.print(_table(agents, full=full))
    for note in _notes(agents):
        console.print(Text(note, "bright_black"))
    for each in agents.cells:
        if each.problem is not None:
            console.print(Text(f"not replayed: {plain(each.policy)}, {_dram(each)}: {plain(each.problem)}", "yellow"))


# ---------------------------------------------------------------------------------------------------------------------
# The answer: what gains most, what the parts gain alone, and what is left of pins beside DRAM.


def answer_in_words(agents: Agents) -> str:
    """What an operator has to know first."""
    best = agents.best
    if best is None:
        return "No jobs came to their end under every policy: nothing can be said for sure."
    return " ".join([_most(agents, best), *_beside(agents, best), *_without(agents, best), *_sureness(agents, best)])


def _most(agents: Agents, best: AgentsCell) -> str:
    first = plain(agents.policies[0])
    if best.speedup is None or best.speedup.mean < 1 + ALIKE:
        return f"For this load nothing that was tried ends jobs more than {ALIKE:.0%} sooner than {first}."
    if not best.dram_gib:
        return f"For this load {plain(best.policy)} gains most: jobs end {best.speedup} times as fast as under {first}."
    alone = agents.cell(agents.policies[0], best.dram_gib).speedup
    under = f", {best.speedup} under {plain(best.policy)}" if best.policy != agents.policies[0] else ""
    return (
        f"For this load {best.dram_gib:g} GiB of DRAM for KV gains most: jobs end {alone} times as fast as under "
        f"{first} without it{under}."
    )


def _beside(agents: Agents, best: AgentsCell) -> Iterator[str]:
    """What pins and order are left to gain beside the DRAM."""
    if not best.dram_gib:
        return
    gains = {name: agents.gain(policy, best.dram_gib) for name, policy in _BESIDE.items()}
    nothing = [name for name, value in gains.items() if value is not None and abs(value.mean - 1) < ALIKE]
    others = [f"{name} {value}" for name, value in gains.items() if value is not None and name not in nothing]
    said = [f"{' and '.join(nothing)} gain{'s' * (nothing == ['order'])} nothing"] if nothing else []
    yield f"Beside it {', '.join([*said, *others])}."


_BESIDE = {"pins": PINS, "order": ORDER}
_PARTS = {"order": "order alone", "pins": "pins alone", "order_and_pins": "both", "admission": "admission"}


def _without(agents: Agents, best: AgentsCell) -> Iterator[str]:
    """What told order, pins and admission apart, where there is no DRAM."""
    said = [f"{_PARTS[name]} {value}" for name, value in agents.parts.items() if name in _PARTS and value is not None]
    own = agents.best_with(0.0)
    if own is None or not said:
        return
    leads = f"{plain(own.policy)} is best, {own.speedup}: " if best.dram_gib and own.policy != FCFS else ""
    yield f"{'Without DRAM' if best.dram_gib else 'Told apart'}: {leads}{', '.join(said)}."


def _sureness(agents: Agents, best: AgentsCell) -> Iterator[str]:
    if len(agents.seeds) < 2:
        yield "One seed: how sure that is, only --seeds 3 would say."
    elif best.speedup is not None and best.speedup.mean >= 1 + ALIKE and _is_within_chance(best.speedup):
        yield "That is no more than seeds change by chance: more --seeds would say."


def _is_within_chance(speedup: Interval) -> bool:
    return speedup.half is not None and abs(speedup.mean - 1) <= speedup.half


# ---------------------------------------------------------------------------------------------------------------------
# The table.

_HEADINGS = ("speedup", "job s", "p90", "TTFT s", "p90", "hit %", "tok/s")


def _table(agents: Agents, *, full: bool) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    priced = any(each.dram_per_hour is not None for each in agents.cells)
    table.add_column("$/h" if priced else "GiB", justify="right", no_wrap=True)
    table.add_column("policy", style="cyan", overflow="fold")
    for name in _HEADINGS:
        table.add_column(name, justify="right", no_wrap=True)
    best, last = agents.best, 0.0
    for cells in _rows(agents, full=full):
        cell = cells[0]
        if cell.dram_gib != last:
            table.add_section()
            last = cell.dram_gib
        dram = f"{cell.dram_per_hour:.2f}" if cell.dram_per_hour is not None else f"{cell.dram_gib:g}"
        named = plain(cell.policy) + (f" +{len(cells) - 1} alike" if len(cells) > 1 else "")
        style = "bold" if best is not None and best in cells else ""
        table.add_row(dram, Text(named, style), *_values(cell))
    return table


def _rows(agents: Agents, *, full: bool) -> Iterator[list[AgentsCell]]:
    """Cells that share a row: beside the same DRAM, those that come to the same as the first of them."""
    for size in agents.dram_gib:
        rows: list[list[AgentsCell]] = []
        for cell in agents.cells:
            if cell.dram_gib == size and cell.problem is None:
                alike = next((row for row in rows if size and not full and _is_alike(cell, row[0])), None)
                rows.append([cell]) if alike is None else alike.append(cell)
        yield from rows


def _is_alike(cell: AgentsCell, other: AgentsCell) -> bool:
    pairs = [(cell.figures[name], other.figures[name], share) for name, share in _ALIKE_IN.items()]
    return all(a and b and abs(a.mean - b.mean) <= share * b.mean for a, b, share in pairs)


def _values(cell: AgentsCell) -> Iterator[str]:
    yield "open" if cell.is_open else "-" if cell.speedup is None else str(cell.speedup)
    for name in (JOB, JOB_P90, TTFT, TTFT_P90):
        value = cell.figures[name]
        yield "-" if value is None else f"{'≥' * cell.is_open}{Interval(value.mean / 1e3)}"
    hits = [value for name in ("local", "external") if (value := cell.figures[f"prefix_hit_rate.{name}"])]
    yield f"{100 * sum(each.mean for each in hits):.1f}" if hits else "-"
    rate = cell.figures["throughput.output_tokens_per_s"]
    yield "-" if rate is None else str(Interval(rate.mean))


def _notes(agents: Agents) -> Iterator[str]:
    first = plain(agents.policies[0])
    yield f"speedup: mean job time of {first} without DRAM over this one's; hit %: in KV cache or DRAM"
    if len(agents.seeds) > 1:
        yield f"±: 95 % confidence interval over {count_of(len(agents.seeds), 'seed')}, taken seed by seed"
    named = {ADMISSION, ORDER, PINS, BOTH} & {each.policy for each in agents.cells}
    unpinned = [
        each.policy
        for each in agents.cells
        if not each.dram_gib and each.policy.startswith("continuum") and not _made(each)
    ]
    if unpinned and named:
        yield f"{', '.join(unpinned)} made no pin: what they gain, or lose, is the order of the queue alone"


def _made(cell: AgentsCell) -> float:
    made = cell.figures.get("pins.made")
    return 0.0 if made is None else made.mean


def _dram(cell: AgentsCell) -> str:
    return f"{cell.dram_gib:g} GiB of DRAM" if cell.dram_gib else "no DRAM"
