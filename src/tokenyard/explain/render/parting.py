"""Where two traces part, in a terminal: the first different decision, and what either trace knew when it was taken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from tokenyard.explain.compare.comparison import TraceComparison
from tokenyard.explain.compare.decided_step import DecidedStep, Fate, FateKind
from tokenyard.explain.compare.first_difference import FirstDifference, PartedRequest, StateDifference
from tokenyard.explain.render.tables import print_section, table_of
from tokenyard.explain.render.units import count, duration
from tokenyard.printable import plain
from tokenyard.trace.format.held_back import held_by_reason
from tokenyard.vocabulary.waits import PLACES, Place
from tokenyard.vocabulary.wording import meaning_of

__all__ = ["print_parting"]

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
    """It differs in the step itself, whose numbers are printed."""
    return parting.a is not None and state.step == parting.a.step
