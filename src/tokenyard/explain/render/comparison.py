"""Two traces side by side in a terminal. Nothing that comes from a trace is read as markup."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from tokenyard.explain.compare.alignment import JobPair, JobSpan, Moment, MomentPair
from tokenyard.explain.compare.comparison import TraceComparison
from tokenyard.explain.compare.figures import Figure
from tokenyard.explain.compare.first_difference import DecidedStep, FirstDifference
from tokenyard.explain.render.tables import print_section, table_of
from tokenyard.explain.render.units import count, duration, milliseconds, percent, shorten
from tokenyard.explain.report.header import Header
from tokenyard.printable import plain
from tokenyard.trace.format.held_back import held_by_reason

__all__ = ["print_comparison"]

_SHARES = ("prefix_hit_rate", "token_budget_use", "peak_kv_use", "kv_free")
_JOBS_SHOWN = 15
_ID_WIDTH = 32


def print_comparison(comparison: TraceComparison, console: Console) -> None:
    """Print what the two are, where they part, what differs, and both beside each other."""
    for name, header in (("A", comparison.a), ("B", comparison.b)):
        console.print(_header(name, header, console.width))
    print_section(console, "Where they part", *_first_difference(comparison.parting))
    differing = [figure for figure in comparison.figures if figure.differs]
    same = len(comparison.figures) - len(differing)
    title = (
        f"What differs ({len(differing):,} of {len(comparison.figures):,} figures)"
        if differing
        else "No figure differs"
    )
    print_section(console, title, *([_figures(differing)] if differing else []))
    if differing and same:
        console.print(Text(f"  {same:,} figures are equal.", "bright_black"))
    if comparison.rows:
        at = "step" if comparison.align == "step" else "seconds"
        print_section(console, f"Side by side, by {comparison.align}", _rows(comparison.rows, at))
    if comparison.jobs:
        print_section(console, "Jobs that differ most", _jobs(comparison.jobs))


def _header(name: str, header: Header, width: int) -> Text:
    text = Text(f"{name}  ", "bold")
    seconds = f", {header.seconds:,.1f} s" if header.seconds is not None else ""
    text.append(f"{plain(header.policy)}, {plain(header.gpu)}, {header.steps:,} steps{seconds}", "not bold cyan")
    source = shorten(plain(header.source or ""), max(width - len(text) - 2, 16))
    return text.append(f"  {source}", "not bold bright_black")


def _first_difference(parting: FirstDifference | None) -> Iterable[Table | Text]:
    if parting is None:
        yield Text("Nowhere: every step decides the same.")
        return
    step = parting.a or parting.b
    if step is None:
        yield Text(f"From the beginning: {parting.what}: {plain(parting.detail)}.")
        return
    number = f"{step.step:,}" if parting.rank is None else f"{step.step:,} of rank {parting.rank}"
    yield Text(f"In step {number}, after {parting.equal_steps:,} equal steps: {parting.what}: {plain(parting.detail)}.")
    table = table_of(
        Column(""),
        *(Column(name, justify="right") for name in ("step", "running", "waiting", "free blocks", "tokens")),
        Column("decided"),
    )
    for name, side in (("A", parting.a), ("B", parting.b)):
        if side is None:
            table.add_row(name, "ended")
        else:
            numbers = (side.step, side.num_running, side.num_waiting, side.free_blocks, side.tokens)
            table.add_row(name, *map(count, numbers), Text(_decision(side)))
    yield table


def _decision(side: DecidedStep) -> str:
    parts = []
    decision, outcome = side.decision, side.outcome
    if decision is not None:
        for word, ids in (
            ("admitted", decision.scheduled_new_req_ids),
            ("resumed", decision.scheduled_resumed_req_ids),
            ("preempted", decision.preempted_req_ids),
        ):
            if ids:
                more = f" and {len(ids) - 2:,} more" if len(ids) > 2 else ""
                parts.append(f"{word} {', '.join(map(plain, ids[:2]))}{more}")
    held = held_by_reason(outcome) if outcome is not None else {}
    if held:
        reasons = [f"{plain(reason)} held back {number:,}" for reason, number in held.items()]
        parts.append(f"then {', '.join(reasons)}")
    return "; ".join(parts) or "nobody new"


def _figures(figures: Iterable[Figure]) -> Table:
    table = table_of(
        Column("figure", overflow="fold"),
        *(Column(name, justify="right", no_wrap=True) for name in ("A", "B", "change")),
    )
    for figure in figures:
        better = None
        if figure.a is not None and figure.b is not None and figure.less_is_better is not None:
            better = (figure.b < figure.a) == figure.less_is_better
        style = "" if better is None else "green" if better else "red"
        table.add_row(
            Text(plain(figure.name)),
            _number(figure.name, figure.a),
            _number(figure.name, figure.b),
            Text(_change(figure), style),
        )
    return table


def _number(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    top, last = name.partition(".")[0], name.rpartition(".")[2]
    if top.endswith("_ms"):
        return milliseconds(value)
    if top in _SHARES or last in _SHARES:
        return percent(value)
    if last in {"seconds", "duration_s"}:
        return duration(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def _change(figure: Figure) -> str:
    a, b = figure.a, figure.b
    if a is None or b is None:
        return ""
    if not a:
        return "new"
    return f"{100 * (b - a) / abs(a):+,.1f} %"


def _rows(rows: Iterable[MomentPair], at: str) -> Table:
    numbers = ("running", "waiting", "free")
    rows = list(rows)
    with_rank = any(row.rank is not None for row in rows)
    table = table_of(
        *([Column("rank", style="bright_black")] * with_rank),
        Column(at, justify="right"),
        *(
            Column(f"{side}: {name}" if name == numbers[0] else name, justify="right")
            for side in "AB"
            for name in numbers
        ),
        Column("A held back by", overflow="fold"),
        Column("B held back by", overflow="fold"),
    )
    for row in rows:
        place = f"{row.at:,.0f}" if at == "step" else f"{row.at:,.2f}"
        rank = ["" if row.rank is None else str(row.rank)] * with_rank
        table.add_row(*rank, place, *_moment(row.a), *_moment(row.b), _reason(row.a), _reason(row.b))
    return table


def _moment(moment: Moment | None) -> tuple[str, ...]:
    if moment is None:
        return ("-", "-", "-")
    return tuple(map(count, (moment.num_running, moment.num_waiting, moment.free_blocks)))


def _reason(moment: Moment | None) -> Text:
    return Text("ended" if moment is None else plain(moment.reason or ""))


def _jobs(jobs: Iterable[JobPair]) -> Table:
    table = table_of(
        Column("job", no_wrap=True),
        *(
            Column(name, justify="right", no_wrap=True)
            for name in ("A took", "B took", "change", "A waited", "B waited")
        ),
    )
    for pair in list(jobs)[:_JOBS_SHOWN]:
        a, b = pair.a, pair.b
        change = "" if a is None or b is None else f"{pair.change_us / 1e6:+,.2f} s"
        table.add_row(Text(shorten(plain(pair.job_id), _ID_WIDTH)), _took(a), _took(b), change, _waited(a), _waited(b))
    return table


def _took(span: JobSpan | None) -> str:
    return "not there" if span is None else duration((span.end_us - span.begin_us) / 1e6)


def _waited(span: JobSpan | None) -> str:
    return "-" if span is None else duration(span.waited_us / 1e6)
