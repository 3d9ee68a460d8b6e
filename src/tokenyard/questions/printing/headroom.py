"""Memory that is left, on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Column
from rich.text import Text

from tokenyard.explain.render.parts import print_section, table_of
from tokenyard.questions.headroom import HeadRoom, RiskyStep
from tokenyard.redaction import plain
from tokenyard.units import GIB

_WORDS = {
    "weights": "weights",
    "adapters": "LoRA adapters",
    "activations": "activations of a step",
    "sampler": "sampler",
    "encoder": "encoder of images, beyond that",
    "runtime": "runtime and workspaces",
    "communication": "communication (NVLink)",
    "graphs": "CUDA graphs of experts",
}


def print_headroom(told: HeadRoom, console: Console) -> None:
    """A sentence, what takes memory, what may be too much, how far settings can go."""
    console.print(Text(plain(verdict(told)), "bold"), soft_wrap=False)
    table = table_of(Column(""), Column("likely", justify="right"), Column("at most", justify="right"), header=True)
    for each in told.parts:
        table.add_row(_WORDS[each.name], _gib(each.likely), _gib(each.most) if each.most != each.likely else "")
    table.add_row("KV cache", _gib(told.kv_likely), "" if told.is_measured else f"{_gib(told.kv_least)} at least")
    table.add_row(f"outside the budget ({1 - told.utilization:.0%})", _gib(told.outside), "")
    table.add_row("  of it free", _gib(told.left_likely), f"{_gib(told.left_least)} at least")
    print_section(console, f"{plain(told.model)} on {told.gpu}, {_gib(told.total)} a GPU", table)
    steps = table_of(Column(""), Column("takes more", justify="right", no_wrap=True), Column("", no_wrap=True))
    for step in told.steps:
        steps.add_row(plain(step.name), _range(step), _fits(step))
    instead = [Text(plain(f"{each.name}: {each.instead}")) for each in told.steps if each.fits is not True]
    print_section(console, "Steps that vLLM does not measure when it starts", steps, *instead)
    if told.safe_utilization is not None:
        console.print(f"  --gpu-memory-utilization {told.safe_utilization:g} or less leaves room for all of them")
    elif not told.is_measured and instead:
        console.print("  no --gpu-memory-utilization leaves room for all of them and lets it start")
    limits = table_of(Column(""), *(Column(name, justify="right") for name in ("now", "starts", "safe")), header=True)
    for limit in told.limits:
        limits.add_row(limit.setting, *(_count(each) for each in (limit.now, limit.likely, limit.safe)))
    print_section(console, "The largest that starts, everything else as it is", limits)
    print_section(console, "Assumed", *(Text(plain(each)) for each in told.assumed))


def verdict(told: HeadRoom) -> str:
    """What a tired person has to know."""
    if told.kv_least <= 0 and not told.is_measured:
        return "It may not start: if a step takes all that it may, nothing is left for KV."
    risky = next((each for each in told.steps if each.fits is not True), None)
    room = f"{_gib(max(told.left_least, 0))} to {_gib(told.left_likely)} are free once it runs"
    if told.left_least <= 0:
        return f"{room}: it starts, and may still run out of memory in an ordinary step."
    if risky is None:
        return f"{room}: more than any step that is known takes."
    return f"{room}; {risky.name} {'does not fit' if risky.fits is False else 'may not fit'}."


def _range(step: RiskyStep) -> str:
    return _gib(step.least) if step.least == step.most else f"{_gib(step.least)} .. {_gib(step.most)}"


def _fits(step: RiskyStep) -> Text:
    if step.fits is None:
        return Text("may not fit", "yellow")
    return Text("fits", "green") if step.fits else Text("does not fit", "red")


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"


def _count(value: int | None) -> str:
    return "none" if value is None else f"{value:,}"
