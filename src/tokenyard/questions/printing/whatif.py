"""A what-if on a terminal."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from tokenyard.explain.render.parts import print_section, table_of
from tokenyard.explain.slo import Objective
from tokenyard.questions.recorded.answer import (
    OF_CLASSES,
    FigureAnswer,
    Mover,
    SelfCheck,
    VariantAnswer,
    WhatIf,
    change_of,
)
from tokenyard.redaction import plain
from tokenyard.units import changes_for_clients, count, count_of, duration, milliseconds, percent, signed

_SHOWN = (
    ("ttft_ms.mean", "TTFT, mean"),
    ("ttft_ms.p90", "TTFT, p90"),
    ("tpot_ms.mean", "TPOT, mean"),
    ("tpot_ms.p90", "TPOT, p90"),
    ("e2e_ms.mean", "E2E, mean"),
    ("e2e_ms.p90", "E2E, p90"),
    ("queue_ms.mean", "queueing, mean"),
    ("prefix_hit_rate.local", "prefix hits"),
    ("preemptions", "preemptions"),
    ("throughput.output_tokens_per_s", "output tokens/s"),
)
"""Figures of the table; JSON has all of them."""

_OF_CLASSES = dict(zip(OF_CLASSES, ("TTFT p50", "TTFT p95", "TPOT p95", "E2E p95"), strict=True))
_MOST_CLASSES = 8
_OWN_TIMES = ("replayed as it was", "then", "change", "check's error")
"""Columns of an answer that rests on the trace's own step times."""

_AS_SAID = 0.005
"""How far a scale has to be from 1 to be shown as anything else."""


def off_by(check: SelfCheck, name: str) -> str:
    """How far the replay of the run is off in one figure, in words."""
    error = check.error_of(name)
    said = dict(_SHOWN).get(name, name)
    return f"{said} {'cannot be compared' if error is None else signed(error)}"


def print_whatif(told: WhatIf, console: Console) -> None:
    """The verdicts, then each variant beside the run as it was; last the replay that all of it rests on."""
    for variant in told.variants:
        console.print(Text(_verdict(variant, told), "bold"))
    for each in told.not_answered:
        console.print(Text(f"With {plain(each.name)}: no answer. {plain(each.problem)}", "yellow"))
    for variant in told.variants:
        _print_variant(variant, console)
    if told.variants:
        console.print()
    print_check(told, console)


def _verdict(variant: VariantAnswer, told: WhatIf) -> str:
    """What changes most for clients, in one sentence."""
    by_name = {each.name: each.change for each in variant.figures}
    known = [share for share in by_name.values() if share is not None]
    unsure = [each.name for each in variant.figures if not each.is_sure]
    said = changes_for_clients(by_name, unsure)
    changes = "nothing changes" if known and not any(known) else said or "nothing that is known"
    doubt = "" if told.self_check.holds else ", but the replay of the run as it was is a poor fit"
    rests = "" if variant.drafts is None else f" {variant.drafts}"
    return f"With {plain(variant.name)}: {changes}{doubt}.{rests}"


def print_check(told: WhatIf, console: Console) -> None:
    """The run as it was beside its replay."""
    title = Text.assemble(("what if", "bold"), f"  {plain(told.source)}: {count_of(told.requests, 'request')}")
    console.print(title)
    fit, check = told.fit, told.self_check
    lines = [f"step times fitted to {count_of(fit.steps, 'step')} of the trace"]
    if fit.held_out and fit.median_error is not None and fit.total_error is not None:
        lines[0] += (
            f"; of {count(fit.held_out)} others half are predicted within {percent(fit.median_error)},"
            f" all together {signed(fit.total_error)}"
        )
    if fit.terms_of is not None:
        lines.append(f"what is fitted: the terms of the model of {plain(fit.terms_of)}, {_scales(fit.scales)}")
    if fit.leans_on is not None and fit.leans_on_error is not None:
        lines.append(
            f"larger steps than the trace has take what the model of {plain(fit.leans_on)} says, scaled to the trace's:"
            f" half of these are within {percent(fit.leans_on_error)} of it"
        )
    if fit.slowest is not None and fit.fastest is not None:
        lines.append(
            f"the machine was uneven: stretches of steps took {fit.fastest:.2f} to {fit.slowest:.2f} of what is fitted,"
            " which every replay repeats at the same moments"
        )
    lines.append(
        f"{count(check.equal_steps)} of {count(check.recorded_steps)} steps are the same before they part"
        if check.parting is not None
        else f"all {count(check.recorded_steps)} steps are the same"
    )
    if check.parting is not None:
        lines.append(f"they part at {plain(check.parting)}")
    lines += [plain(note) for note in told.notes]
    if not check.holds:
        lines.append("This is a poor fit: what follows can be as far off.")
    table = table_of(Column(""), *(Column(name, justify="right") for name in ("trace", "replay", "error")))
    for each in check.checks:
        label = dict(_SHOWN).get(each.name)
        if label is not None:
            table.add_row(label, _value(each.name, each.recorded), _value(each.name, each.replayed), _share(each.error))
    print_section(console, "The run as it was, replayed", table, Text(""), Text("\n".join(lines)))


def _scales(scales: Mapping[str, float]) -> str:
    """How far the terms of a model are from what was measured, in words."""
    off = {name: scale for name, scale in scales.items() if abs(scale - 1) >= _AS_SAID}
    if not off:
        return "as it has them"
    return "times " + ", ".join(f"{scale:.2f} ({name})" for name, scale in off.items())


def _print_variant(variant: VariantAnswer, console: Console) -> None:
    is_modelled = any(each.low is not None for each in variant.figures)
    columns = ("as it was", "then", "change", "range") if is_modelled else _OWN_TIMES
    table = table_of(Column(""), *(Column(name, justify="right") for name in columns))
    for each in variant.figures:
        label = dict(_SHOWN).get(each.name)
        if label is not None:
            table.add_row(label, *_answered(each, is_modelled=is_modelled))
    lost = None
    if variant.refused:
        words = f"{count_of(variant.refused, 'request')} cannot be served with this, and in no figure of `then`."
        lost = Text(words, "red")
    ends = "ends" if variant.faster == 1 else "end"
    sooner = count_of(variant.faster, "request")
    lines = [f"{sooner} {ends} sooner by more than 5 %, {count(variant.slower)} later"]
    lines += [_mover("gains most", variant.winners), _mover("loses most", variant.losers)]
    lines += [plain(note) for note in variant.notes]
    if variant.serve_flags:
        lines.append(f"for vllm serve: {plain(' '.join(variant.serve_flags))}")
    text = Text("\n".join(line for line in lines if line))
    parts = (lost, table, *_classes(variant), *_goodput(variant), Text(""), text, *_reasons(variant))
    print_section(console, f"With {plain(variant.name)}", *parts)


def _classes(variant: VariantAnswer) -> list[Table | Text]:
    """A line for each class and figure, both replayed."""
    if not variant.classes:
        return []
    columns = (Column(name, justify="right", no_wrap=True) for name in ("as it was", "then", "change"))
    heading = f"by {plain(variant.by or '')}"
    table = table_of(Column(heading, overflow="fold"), Column(""), *columns, header=True)
    shown = variant.classes[:_MOST_CLASSES]
    for each in shown:
        label = f"{plain(each.name)} ({count_of(each.requests, 'request')})"
        for name, words in _OF_CLASSES.items():
            before, after = each.baseline[name], each.variant[name]
            table.add_row(label, words, milliseconds(before), milliseconds(after), _share(change_of(before, after)))
            label = ""
    left = len(variant.classes) - len(shown)
    return [Text(""), table, *([Text(f"and {left} more classes: --json has them")] * bool(left))]


def _goodput(variant: VariantAnswer) -> list[Table | Text]:
    """Bounds, and the requests within all of them, both replayed."""
    if variant.goodput is None:
        return []
    before, after = variant.goodput.baseline, variant.goodput.variant
    columns = (Column(name, justify="right", no_wrap=True) for name in ("bound", "as it was", "then"))
    table = table_of(Column("service levels", overflow="fold"), *columns, header=True)
    for was, now in zip(before.objectives, after.objectives, strict=False):
        said = [_bounded(each) for each in (was, now)]
        table.add_row(plain(was.name), milliseconds(was.bound_ms), *said)
    for each in variant.classes:
        if each.baseline_good is not None:
            good = [percent(share) for share in (each.baseline_good, each.variant_good)]
            table.add_row(f"{plain(each.name)}: within every bound", "", *good)
    if before.share is not None:
        table.add_row("requests within every bound", "", percent(before.share), percent(after.share))
    return [Text(""), table]


def _bounded(each: Objective) -> str:
    """A figure and whether it holds; of a bound of each request the share within it."""
    if each.met is None:
        return percent(each.share)
    return f"{milliseconds(each.value_ms)} {'holds' if each.met else 'missed'}"


def _reasons(variant: VariantAnswer) -> list[Table | Text]:
    if not variant.reasons:
        return []
    table = table_of(
        Column("time lost to"), *(Column(name, justify="right") for name in ("as it was", "then")), header=True
    )
    for each in variant.reasons:
        table.add_row(plain(each.reason), duration(each.baseline_s), duration(each.variant_s))
    return [Text(""), table]


def _mover(what: str, movers: list[Mover]) -> str:
    if not movers:
        return ""
    first = movers[0]
    return f"{plain(first.request_id)} {what}: {duration(first.baseline_s)}, then {duration(first.variant_s)}"


def _answered(each: FigureAnswer, *, is_modelled: bool) -> tuple[str, str, str, str]:
    return (
        _value(each.name, each.baseline),
        _value(each.name, each.variant),
        _share(each.change),
        _range(each) if is_modelled else _plus_minus(each.uncertainty),
    )


def _plus_minus(error: float | None) -> str:
    return "-" if error is None else f"± {percent(error)}"


def _range(each: FigureAnswer) -> str:
    if each.low is None or each.high is None:
        return "-"
    return f"{_value(each.name, each.low)} .. {_value(each.name, each.high)}"


def _value(name: str, value: float | None) -> str:
    if "_ms." in name:
        return milliseconds(value)
    return percent(value) if name.startswith("prefix_hit_rate") else count(value)


def _share(error: float | None) -> str:
    return "-" if error is None else signed(error)
