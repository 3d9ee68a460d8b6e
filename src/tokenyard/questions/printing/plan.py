"""A plan on a terminal, from 80 columns up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from tokenyard.explain.render.parts import deployment_table, print_section, table_of
from tokenyard.explain.slo import OPEN_FOR
from tokenyard.explain.steady import LoadState, rate_in_words
from tokenyard.questions.planning.answer import PRECISION, LargestLoad, Plan, ServedSplit, Sureness, sentence_of
from tokenyard.questions.planning.goal import Goal, goal_value, pareto_front, reach_most, row_price
from tokenyard.questions.planning.search import is_unsettled
from tokenyard.questions.space import COSTLY
from tokenyard.questions.sweeping.rows import Row, by_problem, first_in_words, row_in_words, settings_in_words
from tokenyard.redaction import plain
from tokenyard.units import count, duration, milliseconds, percent

_HOLDS: dict[Sureness | None, str] = {
    Sureness.PROBABLY_HOLDS: "probably holds every bound",
    Sureness.UNKNOWN: "holds every bound in the replay, whose error is not known,",
}
"""What the first sentence says where it is not sure that every bound holds."""
_MOST_OF_THE_FRONT = 12
_FIRST_PROBLEMS = 2
"""Problems of variants that stand below the verdict."""
_MOST_PROBLEMS = 5
_STATES = {
    LoadState.STEADY: "a steady state",
    LoadState.OVERLOADED: "overloaded, the queue grows",
    LoadState.SHORT: "no steady state was shown",
}


def print_plan(plan: Plan, console: Console, *, header: bool = False) -> None:
    """The verdict, what it reaches, the recommendation, the front, the load, and what all of it rests on.

    The question and the deployment come last, or first with ``header``.
    """
    goal, chosen = Goal(plan.goal), plan.recommended
    assert chosen is not None
    if header:
        _print_asked(plan, goal, console)
        console.print()
    drafts = () if chosen.drafts is None else (str(chosen.drafts),)
    console.print(Text(plain(" ".join((_verdict(plan, chosen, goal), *_not_served(chosen), *drafts))), "bold"))
    problems = by_problem(plan.rows)
    for problem, those in list(problems.items())[:_FIRST_PROBLEMS]:
        console.print(Text(plain(f"Not replayed: {first_in_words(those)}: {problem}"), "yellow"))
    print_section(console, "What it reaches", *_figures(chosen))
    print_section(
        console,
        "Recommended" if plan.holds else "Nearest to the bounds: none holds them all",
        *_chosen(plan, chosen, goal),
    )
    if len(plan.front) > 1:
        print_section(console, "The front: none beats these", _front(plan, goal))
    several = pareto_front(plan.rows)
    if len(several) > 1 and len({row.gpus for row in plan.rows}) + len(plan.space.keys() & COSTLY) > 1:
        print_section(console, "Throughput of a GPU against the time per token: none beats these", _pareto(several))
    if plan.largest_load is not None:
        print_section(console, "The largest load within the bounds", Text(_load(plan.largest_load, chosen)))
    if plan.floors:
        print_section(console, "What the bounds would have to be", *_list([sentence_of(each) for each in plan.floors]))
    if plan.limits is not None:
        print_section(console, "What limits next", Text(plain(plan.limits)))
    print_section(console, "How far it may be off", *_list(plan.uncertainty))
    print_section(console, "What it cannot know", *_list(plan.unknown))
    if len(problems) > _FIRST_PROBLEMS:
        print_section(console, "What else could not be replayed", *_further(problems))
    if not header:
        console.print()
        _print_asked(plan, goal, console)


def _pareto(rows: Sequence[Row]) -> Table:
    """The front of throughput and pace, with the price of a million tokens where that is known."""
    is_priced = any(row.cost_per_hour is not None for row in rows)
    names = ("GPUs", "tokens/s/GPU", "TPOT p90", "TTFT p90", *(("price/1M",) if is_priced else ()))
    table = table_of(Column(""), *(Column(name, justify="right") for name in names))
    for row in rows[:_MOST_OF_THE_FRONT]:
        tokens = row.figures["throughput.output_tokens_per_s"] or 0.0
        cells = [count(row.gpus), f"{tokens / (row.gpus or 1):,.0f}"]
        cells += [milliseconds(row.figures.get(f"{name}_ms.p90")) for name in ("tpot", "ttft")]
        if is_priced:
            cells.append(f"{(row.cost_per_hour or 0.0) / 3600 / tokens * 1e6:,.2f}" if tokens else "-")
        table.add_row(Text(plain(row_in_words(row))), *cells)
    return table


def _print_asked(plan: Plan, goal: Goal, console: Console) -> None:
    """The question, how much was tried, and the recommended deployment with what was assumed."""
    aim = ("least " if goal.is_least else "most ") + goal.value
    bounds = f" with {', '.join(plan.slo)}" if plan.slo else ""
    said = f"  {plain(plan.workload)}: {count(plan.requests)} requests, {aim}{plain(bounds)}"
    console.print(Text.assemble(("plan", "bold"), said))
    if plan.traffic is not None:
        console.print(Text(plain(f"Replayed: {plan.traffic}."), "bright_black"))
    console.print(Text(_tried(plan), "bright_black"))
    if plan.header is not None:  # of step times the section on errors reports
        print_section(console, "Deployment", deployment_table(msgspec.structs.replace(plan.header, step_time=None)))


def _verdict(plan: Plan, chosen: Row, goal: Goal) -> str:
    """Which variant, whether it holds the bounds, and what it reaches."""
    name = row_in_words(chosen)
    if is_unsettled(chosen):
        return (
            f"{name} keeps every bound in {count(chosen.requests)} requests, but no steady state was shown: that it"
            " holds them is not certain."
        )
    if not plan.holds:
        far = "" if chosen.tightness is None else f": {chosen.tightest} is {chosen.tightness:,.3g} times its bound"
        if chosen.state is LoadState.OVERLOADED:
            far += ", and its queue grows as long as requests come"
        far += "".join(f"; {bound} is open: {OPEN_FOR[why]}" for bound, why in chosen.open_for.items())
        none = "Probably no" if plan.sureness is Sureness.PROBABLY_MISSED else "No"
        return f"{none} variant that was tried holds every bound; {name} comes nearest{far}."
    if goal is Goal.LOAD and plan.value is not None and plan.value < 1:
        return (
            f"{name} {_HOLDS.get(plan.sureness, 'holds every bound')} only up to {_reached(plan.value, goal)}; at the"
            " whole load it does not."
        )
    reaches = "" if plan.value is None else _reached(plan.value, goal)
    if plan.slo:
        further = f"{' for ' if goal.is_least else ' and reaches '}{reaches}" if reaches else ""
        once = "" if plan.state is not None else f" for these {count(chosen.requests)} requests"
        return f"{name} {_HOLDS.get(plan.sureness, 'holds every bound')}{once}{further}."
    alike = reach_most(plan.rows, goal)
    if len(alike) < 2:
        return f"{name} does best{': ' * bool(reaches)}{reaches}."
    cheapest = "of the cheapest" if len({row_price(row) for row in alike}) > 1 else "of these"
    many = f"{count(len(alike))} of {count(len(plan.rows))} variants reach as much{': ' * bool(reaches)}{reaches}"
    return f"{many}; {cheapest} {name} answers soonest. Bounds (--slo) say which latencies count."


def _not_served(chosen: Row) -> Iterator[str]:
    """Requests that its figures count and that it did not serve."""
    told = [f"{getattr(chosen, name):,} {name}" for name in ("refused", "cancelled") if getattr(chosen, name)]
    if told:
        yield f"Of its {chosen.requests:,} requests {' and '.join(told)}: they count as not served."


def _further(problems: Mapping[str, Sequence[Row]]) -> Iterator[Text]:
    """The problems that do not stand below the verdict."""
    for problem, those in list(problems.items())[_FIRST_PROBLEMS:_MOST_PROBLEMS]:
        yield Text(plain(f"{first_in_words(those)}: {problem}"))
    if len(problems) > _MOST_PROBLEMS:
        yield Text(f"and {count(len(problems) - _MOST_PROBLEMS)} other problems: --json has them")


def _list(sentences: Sequence[str]) -> Iterator[Text]:
    return (Text(plain(sentence)) for sentence in sentences)


def _tried(plan: Plan) -> str:
    failed = sum(row.problem is not None for row in plan.rows)
    early = sum(row.stopped is not None for row in plan.rows)
    said = [
        f"{count(len(plan.rows))} of {count(plan.size)} variants tried ({plan.method}) in {count(plan.replays)} replays"
    ]
    if early:
        said.append(f"{count(early)} ended early, since they could not win")
    if failed:
        said.append(f"{count(failed)} could not be replayed")
    return "; ".join(said) + ("" if plan.is_whole else ": another may be better") + "."


def _chosen(plan: Plan, chosen: Row, goal: Goal) -> Iterator[Text]:
    yield Text(plain(settings_in_words(chosen.settings)), "bold green" if plan.holds else "bold yellow")
    if plan.serve is not None:
        hardware = "" if chosen.gpus is None else f"on {chosen.gpus} x {chosen.gpu}: "
        if plan.replicas is not None:
            hardware = f"{plan.replicas} replicas, {hardware}" if hardware else f"{plan.replicas} replicas: "
        yield Text(plain(f"{hardware}{plan.serve}"))
    elif plan.serve_split is not None:
        yield from _split(plan.serve_split, chosen)
    elif plan.flags:
        yield Text(plain(f"for vllm serve: {' '.join(plan.flags)}"))
    yield from (Text(plain(note)) for note in plan.notes)
    if plan.value is not None:
        yield Text(f"{'takes' if goal.is_least else 'reaches'} {_reached(plan.value, goal)}{_behind(plan, goal)}")
    if chosen.cost_per_million_tokens is not None and chosen.cost_per_hour is not None:
        price = f"{chosen.cost_per_hour:,.2f} an hour, {chosen.cost_per_million_tokens:,.2f} per million output tokens"
        yield Text(price)


def _split(served: ServedSplit, chosen: Row) -> Iterator[Text]:
    if chosen.gpus is not None:
        yield Text(plain(f"on {chosen.gpus} x {chosen.gpu}"))
    for number, side, line in (
        (served.prefill_engines, "prefill", served.prefill),
        (served.decode_engines, "decode", served.decode),
    ):
        yield Text(plain(f"{side} ({number} engine{'s' * (number > 1)}): {line}"))


def _behind(plan: Plan, goal: Goal) -> str:
    other, value = plan.next_best, plan.next_best_value
    if other is None or value is None or not plan.value:
        return ""
    change = value / plan.value - 1
    how = "as much" if abs(change) < 0.0005 else f"{100 * change:+.1f} %"
    return f"; the next best, {plain(settings_in_words(other.settings))}, {how}"


def _reached(value: float, goal: Goal) -> str:
    """A value of the goal with its unit."""
    unit = goal.unit.removesuffix("s") if goal is Goal.GPUS and value == 1 else goal.unit
    return f"{_number(value)} {unit}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:,.3g}"


def _figures(row: Row) -> Iterator[Table | Text]:
    statistics = ("mean", "p50", "p90", "p99", "max")
    table = table_of(Column(""), *(Column(name, justify="right", no_wrap=True) for name in statistics))
    for name, heading in (("ttft", "TTFT"), ("tpot", "TPOT"), ("itl", "ITL"), ("e2e", "E2E"), ("job", "job")):
        if row.figures.get(f"{name}_ms.mean") is not None:
            table.add_row(heading, *(row.in_words(f"{name}_ms.{statistic}") for statistic in statistics))
    figures = row.figures
    share = figures.get("goodput.share")
    said = f"{_rate(figures.get('throughput.output_tokens_per_s'))} output tokens/s"
    if share is not None:
        said = f"{_rate(figures.get('goodput.requests_per_s'))} requests/s good, {percent(share)} of all; {said}"
    yield table
    for name, value in figures.items():
        if ":" in name and value is not None:
            of, _, figure = name.rpartition(":")
            if figure == "goodput.share":
                yield Text(plain(f"{of}: {percent(value)} within its bounds"))
            else:
                yield Text(plain(f"{name.replace('_ms.', '_')}: {milliseconds(value)}"))
    yield Text(said)
    offered, served = (figures.get(f"load.{name}_requests_per_s") for name in ("offered", "served"))
    if offered is not None and row.state is not None:
        rates = f"{rate_in_words(offered)} requests/s arrive, {rate_in_words(served or 0.0)} are served meanwhile"
        yield Text(f"{rates}: {_STATES[row.state]}")
    busy = [(side, figures.get(f"split.{side}")) for side in ("prefill", "decode", "link")]
    if any(share is not None for _, share in busy):
        yield Text("busy: " + ", ".join(f"{side} {percent(share)}" for side, share in busy))


def _rate(value: float | None) -> str:
    return "-" if value is None else _number(value)


def _front(plan: Plan, goal: Goal) -> Table:
    has_cost = any(row.cost_per_hour is not None for row in plan.front)
    columns = [goal.unit, "cost/h" if has_cost else "GPUs", "of its bound"]
    table = table_of(Column("variant"), *(Column(name, justify="right") for name in columns))
    for row in plan.front[:_MOST_OF_THE_FRONT]:
        value = goal_value(row, goal)
        cost = f"{row.cost_per_hour:,.2f}" if row.cost_per_hour is not None else count(row.gpus)
        tight = "-" if row.tightness is None else f"{row.tightest} {row.tightness:.0%}"
        table.add_row(plain(settings_in_words(row.settings)), _rate(value), cost, tight)
    return table


def _load(found: LargestLoad, chosen: Row) -> str:
    if found.load is None or found.row is None:
        return "no load that was tried is within the bounds in a steady state"
    rate = "-" if found.offered_requests_per_s is None else rate_in_words(found.offered_requests_per_s)
    said = f"{_number(found.load)} times as fast as the workload's own: {rate} requests/s arrive"
    cost = found.row.cost_per_million_tokens
    if cost is not None:
        said += f", {cost:,.2f} per million output tokens"
    if found.is_all:
        said += "; a greater load changes hardly anything, or was not tried"
    if found.row.state is LoadState.STEADY:
        said += f"; steady over {count(found.row.requests)} requests, {duration(found.row.figures.get('duration_s'))}"
    if found.beyond is not None:
        missed = "the queue grows" if found.beyond.only_grows else f"{found.beyond.tightest or 'a bound'} is missed"
        if is_unsettled(found.beyond):
            missed = "no steady state is shown"
        said += f"; at {_number(found.beyond.load)} times {missed}"
    if found.chance is not None and found.chance > PRECISION:
        said += f". With as many other requests, as unlike each other, it may be {percent(found.chance)} less or more"
    return said
