"""Two traces side by side in a terminal: figures, and where they part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from tokenyard.explain.classifier import meaning_of
from tokenyard.explain.compare.comparison import Figure, SettingDifference, TraceComparison
from tokenyard.explain.compare.first_difference import (
    DecidedStep,
    Fate,
    FateKind,
    FirstDifference,
    JobPair,
    JobSpan,
    Moment,
    MomentPair,
    PartedRequest,
    StateDifference,
)
from tokenyard.explain.render.parts import goodput_rows, print_section, table_of, table_that_fits
from tokenyard.explain.report.report import Header
from tokenyard.redaction import plain
from tokenyard.trace.held_back import held_by_reason
from tokenyard.trace.start import ACCEPTANCE
from tokenyard.units import (
    CLIENT_FIGURES,
    changes_for_clients,
    count,
    duration,
    milliseconds,
    percent,
    shorten,
)
from tokenyard.vocabulary import PLACES, Place

# ---------------------------------------------------------------------------------------------------------------------
# Where two traces part, in a terminal: the first different decision, and what either trace knew when it was taken.

_WORDS = {
    FateKind.ADMITTED: "admitted",
    FateKind.RESUMED: "resumed after a preemption",
    FateKind.PREEMPTED: "preempted",
    FateKind.SCHEDULED: "runs",
    FateKind.STALLED: "runs, without tokens in this step",
    FateKind.WAITING: "waits",
    FateKind.NOT_ARRIVED: "has not arrived yet",
    FateKind.ENDED: "has ended",
    FateKind.UNKNOWN: "not told",
}
_QUANTITIES = (
    ("running before it", "num_running", "max_num_running"),
    ("waiting before it", "num_waiting", None),
    ("free blocks before it", "free_blocks", None),
    ("tokens scheduled", "tokens", "token_budget"),
)
"""What a step found and used: name, field, field of the most there can be."""


def print_parting(comparison: TraceComparison, console: Console) -> None:
    """The first different decision, its requests and numbers, and what differed before it."""
    parting = comparison.parting
    states = [each for each in comparison.states if parting is None or not _is_told(each, parting)]
    print_section(console, "Where they part", *_decision(parting), *_states(states, parting))


def _decision(parting: FirstDifference | None) -> Iterator[Table | Text]:
    if parting is None:
        yield Text("Nowhere: every step decides the same.")
        return
    step = parting.a or parting.b
    if step is None:
        yield Text(f"From the beginning: {parting.what}: {plain(parting.detail)}.")
        return
    number = f"{step.step:,}" if parting.rank is None else f"{step.step:,} of rank {parting.rank}"
    equal = f"after {parting.equal_steps:,} with the same decisions" if parting.equal_steps else "the first"
    yield Text(f"In step {number}, {equal}: {parting.what}: {plain(parting.detail)}.")
    yield Text()
    for request in parting.requests:
        yield from _request(request)
    if parting.requests:
        yield Text()
    yield _numbers(parting.a, parting.b)
    meanings = _meanings(parting.requests)
    if meanings is not None:
        yield Text()
        yield meanings


def _request(request: PartedRequest) -> Iterator[Table | Text]:
    yield Text(plain(request.request_id), "bold")
    table = table_of(Column("", style="bright_black"), Column(""), header=False)
    for name, fate in (("A", request.a), ("B", request.b)):
        table.add_row(f"  {name}", Text(_fate(fate)))
    yield table


def _fate(fate: Fate) -> str:
    text = _WORDS[fate.kind]
    if fate.tokens:
        text += f", {fate.tokens:,} token{'s' * (fate.tokens != 1)}"
    if fate.position is not None:
        text += f", number {fate.position:,} in the queue"
    if fate.reason is not None:
        place = f" ({PLACES[fate.place].word})" if fate.place in (Place.BEHIND, Place.GUESS) else ""
        text += f": {plain(fate.reason)}{place}"
    if fate.kv is not None and fate.kv.needed is not None:
        text += f", needed {count(fate.kv.needed)} blocks, {count(fate.kv.free)} free"
    return text


def _numbers(a: DecidedStep | None, b: DecidedStep | None) -> Table:
    """What the step found and used, a row per quantity."""
    table = table_of(Column("", overflow="fold"), *(Column(name, justify="right", no_wrap=True) for name in "AB"))
    sides = (a, b)
    for name, field, most in _QUANTITIES:
        table.add_row(name, *(_number(side, field, most) for side in sides))
    table.add_row("time since the first step", *("ended" if side is None else duration(side.seconds) for side in sides))
    held = [_held(side) for side in sides]
    for reason in dict.fromkeys([*held[0], *held[1]]):
        table.add_row(Text(f"held back by {plain(reason)}"), *(count(each.get(reason)) for each in held))
    return table


def _number(side: DecidedStep | None, field: str, most: str | None) -> str:
    if side is None:
        return "ended"
    value, limit = getattr(side, field), getattr(side, most) if most is not None else None
    return count(value) if value is None or limit is None else f"{value:,} of {limit:,}"


def _held(side: DecidedStep | None) -> dict[str, int]:
    return held_by_reason(side.outcome) if side is not None and side.outcome is not None else {}


def _meanings(requests: Sequence[PartedRequest]) -> Table | None:
    """Each reason once, in a sentence."""
    reasons = {fate.reason: fate.place for each in requests for fate in (each.a, each.b) if fate.reason is not None}
    if not reasons:
        return None
    table = table_of(Column(no_wrap=True), Column(style="bright_black"), header=False)
    for reason, place in reasons.items():
        table.add_row(Text(plain(reason), "bold"), meaning_of(reason, place or Place.OWN))
    return table


def _states(states: Sequence[StateDifference], parting: FirstDifference | None) -> Iterator[Text]:
    for each in states:
        yield Text()
        since = f"Since step {each.step:,} they find other states"
        if parting is not None:
            since = f"Before that, since step {each.step:,}"
        yield Text(f"{since}: {each.what}: {plain(each.detail)}.")


def _is_told(state: StateDifference, parting: FirstDifference) -> bool:
    """Whether the states first differ in the step of the parting, whose numbers are printed anyway."""
    return parting.a is not None and state.step == parting.a.step


# ---------------------------------------------------------------------------------------------------------------------
# Two traces side by side in a terminal. Nothing that comes from a trace is read as markup.

_SHARES = ("prefix_hit_rate", "token_budget_use", "peak_kv_use", "kv_free")
_JOBS_SHOWN = 15
_ID_WIDTH = 32
_NARROW_NAME = 24


def print_comparison(comparison: TraceComparison, console: Console) -> None:
    """Print the verdict, what the two are, where they part, what differs, and both beside each other."""
    if comparison.workloads:
        differ = "; ".join(each.sentence for each in comparison.workloads)
        console.print(Text(f"The workloads differ: {differ}. So figures do not tell what the settings did.", "bold"))
    console.print(Text(_verdict(comparison), "" if comparison.workloads else "bold"))
    console.print()
    for name, header in (("A", comparison.a), ("B", comparison.b)):
        console.print(_header(name, header, console.width))
        if header.partial is not None:
            console.print(Padding(Text(str(header.partial), "yellow"), (0, 0, 0, 3)))
    print_parting(comparison, console)
    if comparison.settings is not None:
        print_section(console, *_settings(comparison.settings, console))
    differing = [figure for figure in comparison.figures if figure.differs]
    same = len(comparison.figures) - len(differing)
    title = (
        f"What differs ({len(differing):,} of {len(comparison.figures):,} figures)"
        if differing
        else "No figure differs"
    )
    print_section(console, title, *([table_that_fits(console, _figures, differing)] if differing else []))
    if differing and same:
        console.print(Text(f"  {same:,} figures are equal.", "bright_black"))
    for name, goodput in zip("AB", comparison.goodput or (), strict=False):
        print_section(console, f"Service levels of {name}", *goodput_rows(goodput))
    if comparison.rows:
        at = "step" if comparison.align == "step" else "seconds"
        print_section(
            console,
            f"Side by side, by {comparison.align}",
            table_that_fits(console, partial(_rows, at=at), comparison.rows),
        )
    if comparison.jobs:
        print_section(console, "Jobs that differ most", _jobs(comparison.jobs))


def _verdict(comparison: TraceComparison) -> str:
    """What B changes for clients, and from which step on they decide differently."""
    both = {each.name: (each.a, each.b) for each in comparison.figures if each.name in CLIENT_FIGURES}
    said = changes_for_clients({name: b / a - 1 for name, (a, b) in both.items() if a and b is not None})
    parting = comparison.parting
    step = None if parting is None else parting.a or parting.b
    where = "from the beginning on" if step is None else f"from step {step.step:,} on"
    decide = "they decide alike in every step" if parting is None else f"they decide differently {where}"
    assumed = "".join(
        f" The acceptance of drafts in {name} is assumed ({each.value})."
        for name, header in (("A", comparison.a), ("B", comparison.b))
        for each in header.assumed
        if each.name == ACCEPTANCE
    )
    return f"B against A: {said}; {decide}.{plain(assumed)}" if said else f"{decide[:1].upper()}{decide[1:]}."


def _header(name: str, header: Header, width: int) -> Text:
    text = Text(f"{name}  ", "bold")
    seconds = f", {header.seconds:,.1f} s" if header.seconds is not None else ""
    text.append(f"{plain(header.policy)}, {plain(header.gpu)}, {header.steps:,} steps{seconds}", "not bold cyan")
    source = shorten(plain(header.source or ""), max(width - len(text) - 2, 16))
    return text.append(f"  {source}", "not bold bright_black")


def _settings(settings: Sequence[SettingDifference], console: Console) -> Iterator[Any]:
    if not settings:
        yield "No setting differs"
        return
    yield f"Settings that differ ({len(settings):,})"
    yield table_that_fits(console, _settings_table, settings)


def _settings_table(settings: Sequence[SettingDifference], *, narrow: bool) -> Table:
    table = table_of(
        Column("setting", no_wrap=not narrow, overflow="fold"), *(Column(name, overflow="fold") for name in "AB")
    )
    for each in settings:
        table.add_row(_name(each.name, narrow), *(Text(_value(value)) for value in (each.a, each.b)))
    return table


def _value(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else plain(str(value))


def _name(name: str, narrow: bool) -> Text:
    """A name with dots in it, on two lines where one has no room for it."""
    text = plain(name)
    head, dot, tail = text.rpartition(".")
    return Text(f"{head}.\n  {tail}" if narrow and dot and len(text) > _NARROW_NAME else text)


def _figures(figures: Iterable[Figure], *, narrow: bool) -> Table:
    table = table_of(
        Column("figure", no_wrap=not narrow, overflow="fold"),
        *(Column(name, justify="right", no_wrap=True) for name in ("A", "B", "change")),
    )
    for figure in figures:
        better = None
        if figure.a is not None and figure.b is not None and figure.less_is_better is not None:
            better = (figure.b < figure.a) == figure.less_is_better
        style = "" if better is None else "green" if better else "red"
        table.add_row(
            _name(figure.name, narrow),
            _comparison_number(figure.name, figure.a, at_least=figure.censored[0]),
            _comparison_number(figure.name, figure.b, at_least=figure.censored[1]),
            Text(_change(figure), style),
        )
    return table


def _comparison_number(name: str, value: float | None, *, at_least: bool) -> str:
    if value is None:
        return "never" if at_least else "-"
    top, last = name.partition(".")[0], name.rpartition(".")[2]
    if top.endswith("_ms"):
        return milliseconds(value, at_least=at_least)
    if top in _SHARES or last in _SHARES:
        return percent(value)
    if last in {"seconds", "duration_s"}:
        return duration(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def _change(figure: Figure) -> str:
    a, b = figure.a, figure.b
    if a is None or b is None or any(figure.censored):
        return ""
    if not a:
        return "new"
    return f"{100 * (b - a) / abs(a):+,.1f} %"


def _rows(rows: Sequence[MomentPair], at: str, *, narrow: bool) -> Table:
    """Both traces beside each other, or one below the other where that has no room."""
    with_rank = any(row.rank is not None for row in rows)
    rank = [Column("rank", style="bright_black", no_wrap=True)] * with_rank
    numbers = [Column(name, justify="right", no_wrap=True) for name in ("running", "waiting", "free")]
    place = Column(at, justify="right", no_wrap=True)
    if narrow:
        table = table_of(*rank, place, Column(""), *numbers, Column("held back by", overflow="fold"))
    else:
        a, b = ([replace(numbers[0], header=f"{side}: running"), *numbers[1:]] for side in "AB")
        table = table_of(*rank, place, *a, *b, *(Column(f"{side} held back by", no_wrap=True) for side in "AB"))
    for row in rows:
        lead = ["" if row.rank is None else str(row.rank)] * with_rank
        where = f"{row.at:,.0f}" if at == "step" else f"{row.at:,.2f}"
        if narrow:
            table.add_row(*lead, where, "A", *_moment(row.a), _reason(row.a))
            table.add_row(*[""] * with_rank, "", "B", *_moment(row.b), _reason(row.b))
        else:
            table.add_row(*lead, where, *_moment(row.a), *_moment(row.b), _reason(row.a), _reason(row.b))
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
