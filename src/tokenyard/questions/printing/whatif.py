"""A what-if on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from tokenyard.explain.render.parts import print_section, table_of
from tokenyard.explain.slo import Objective
from tokenyard.questions.recorded.answer import (
    OF_CLASSES,
    DecisionCheck,
    FigureAnswer,
    FitQuality,
    Mover,
    SelfCheck,
    StalledStep,
    TracePrediction,
    VariantAnswer,
    WhatIf,
    change_of,
)
from tokenyard.redaction import plain
from tokenyard.units import (
    changes_for_clients,
    count,
    count_of,
    duration,
    milliseconds,
    percent,
    signed,
)

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
    ("outcomes.served", "requests served"),
    ("throughput.output_tokens_per_s", "output tokens/s"),
)
"""Figures of the table; JSON has all of them."""

_OF_CLASSES = dict(zip(OF_CLASSES, ("TTFT p50", "TTFT p95", "TPOT p95", "E2E p95"), strict=True))
_MOST_CLASSES = 8
_OWN_TIMES = ("replayed as it was", "then", "change", "check's error")
"""Columns of an answer that rests on the trace's own step times."""
_MODELLED_TIMES = ("as it was", "then", "change", "range")
"""Columns of one that rests on modelled ones."""
_MOST_STALLS = 3

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
    if told.prediction is not None and told.variants:
        console.print(_of_a_prediction(told.prediction))
    for variant in told.variants:
        _print_variant(variant, told.requests, console, is_measured=told.prediction is None)
    if told.variants:
        console.print()
    print_check(told, console)


def _of_a_prediction(trace: TracePrediction) -> str:
    """How far a trace is known that is itself a prediction."""
    said = "This trace is itself a prediction"
    if trace.step_time is not None:
        said += f" (step times: {plain(trace.step_time)})"
    if None in (trace.tpot_low, trace.tpot_high, trace.ttft_low, trace.ttft_high):
        return f"{said}, and so is every figure; error of a step: {plain(trace.error or 'not known')}."
    tpot, ttft = f"{trace.tpot_low:.2f} to {trace.tpot_high:.2f}", f"{trace.ttft_low:.2f} to {trace.ttft_high:.2f}"
    return (
        f"{said}: nine measurements of ten lay within {tpot} times what is said of TPOT, and {ttft} times of TTFT."
        " range: the least and the most of three replays, in two of which steps are as far off; of change: the same of"
        " the change, where the run as it was is as far off."
    )


def _verdict(variant: VariantAnswer, told: WhatIf) -> str:
    """What changes most for clients, in one sentence."""
    by_name = {each.name: each.change for each in variant.figures if not any(each.censored)}
    served = next((each for each in variant.figures if each.name == "outcomes.served"), None)
    known = [share for share in by_name.values() if share is not None]
    unsure = [each.name for each in variant.figures if not each.is_sure]
    said = changes_for_clients(by_name, unsure)
    changes = "nothing changes" if known and not any(known) else said or "nothing that is known"
    doubt = "" if told.self_check.holds else ", but the replay of the run as it was is a poor fit"
    rests = "" if variant.drafts is None else f" {variant.drafts}"
    people = ""
    if served is not None and served.baseline != served.variant:
        people = f"{count(served.variant)} of {count(told.requests)} served instead of {count(served.baseline)}; "
    return f"With {plain(variant.name)}: {people}{changes}{doubt}.{rests}"


def print_check(told: WhatIf, console: Console) -> None:
    """The run as it was beside its replay."""
    title = Text.assemble(("what if", "bold"), f"  {plain(told.source)}: {count_of(told.requests, 'request')}")
    console.print(title)
    lines = [*_fitted(told.fit), *_stalls(told.stalls), *_repeated(told.self_check), *map(plain, told.notes)]
    if told.prediction is not None:
        lines.append("the trace is itself a prediction: the errors say how well it is repeated, not how true it is")
    if not told.self_check.holds:
        lines.append("This is a poor fit: what follows can be as far off.")
    table = table_of(Column(""), *(Column(name, justify="right") for name in ("trace", "replay", "error")))
    for each in told.self_check.checks:
        label = dict(_SHOWN).get(each.name)
        if label is not None and not _all_served(each.name, told.requests, each.recorded, each.replayed):
            was, now = (
                _value(each.name, value, at_least=at_least)
                for value, at_least in zip((each.recorded, each.replayed), each.censored, strict=True)
            )
            table.add_row(label, was, now, _share(each.error))
    print_section(console, "The run as it was, replayed", table, Text(""), Text("\n".join(lines)))


def _fitted(fit: FitQuality) -> Iterator[str]:
    """What step times rest on, and how well they are predicted."""
    said = f"step times fitted to {count_of(fit.steps, 'step')} of the trace"
    if fit.held_out and fit.median_error is not None and fit.total_error is not None:
        said += (
            f"; of {count(fit.held_out)} others half are predicted within {percent(fit.median_error)},"
            f" all together {signed(fit.total_error)}"
        )
    yield said
    if fit.terms_of is not None:
        yield f"what is fitted: the terms of the model of {plain(fit.terms_of)}, {_scales(fit.scales)}"
    if fit.leans_on is not None and fit.leans_on_error is not None:
        yield (
            f"larger steps than the trace has take what the model of {plain(fit.leans_on)} says, scaled to the trace's:"
            f" half of these are within {percent(fit.leans_on_error)} of it"
        )
    if fit.slowest is not None and fit.fastest is not None:
        yield (
            f"the machine was uneven: stretches of steps took {fit.fastest:.2f} to {fit.slowest:.2f} of what is fitted,"
            " which every replay repeats at the same moments"
        )


def _stalls(stalls: Sequence[StalledStep]) -> Iterator[str]:
    """Steps that are in no step time, the longest first."""
    longest = sorted(stalls, key=lambda each: -each.seconds)
    for each in longest[:_MOST_STALLS]:
        why = "cold, the first of its kind or size" if each.is_cold else "it stalled"
        took, work = milliseconds(1e3 * each.seconds), milliseconds(1e3 * each.expected_s)
        yield f"step {count(each.step)} took {took}, its work {work}: {why}"
    if len(stalls) > _MOST_STALLS:
        yield f"and {count_of(len(stalls) - _MOST_STALLS, 'step')} more stalled: --json has all"
    if stalls:
        yield "what stalled is in no step time, and every replay repeats it at its moment"


def _repeated(check: SelfCheck) -> Iterator[str]:
    """How many steps are the same: decided in the recorded steps, and replayed by step times."""
    yield _decisions(check.decisions)
    if check.parting is None:
        yield f"replayed, all {count(check.recorded_steps)} steps are the same"
    else:
        same, steps = count(check.equal_steps), count(check.recorded_steps)
        yield f"replayed, {same} of {steps} steps are the same before they part"
        yield f"they part at {plain(check.parting)}"


_STOPPED_BY = {
    "most_steps": "of the first {}, later ones are not compared",
    "host": "of the first {}, until the host paused the scheduler or had a cache forgotten",
    "request": "of the first {}, until a request matters of which the trace has no whole record",
    "stuck": "of the first {}, until nothing can be scheduled",
}
"""Why a check of decisions ends before the trace does -> what to say."""


def _decisions(check: DecisionCheck) -> str:
    """How many steps are decided as recorded, with arrivals where the trace has them."""
    if check.stopped_by == "drafts":
        return "decisions: not compared: with async scheduling a trace does not show which drafts were right"
    if not check.steps:
        return "decisions: not compared: requests of its first step arrived before the trace began"
    said = f"decisions: {count(check.equal)} of {count(check.steps)} steps are as recorded"
    if check.stopped_by is not None:
        said += f" ({_STOPPED_BY[check.stopped_by].format(count(check.steps))})"
    if check.first_difference is None:
        return said
    return f"{said}; first difference at step {count(check.first_difference)}: {plain(check.difference or '')}"


def _scales(scales: Mapping[str, float]) -> str:
    """How far the terms of a model are from what was measured, in words."""
    off = {name: scale for name, scale in scales.items() if abs(scale - 1) >= _AS_SAID}
    if not off:
        return "as it has them"
    return "times " + ", ".join(f"{scale:.2f} ({name})" for name, scale in off.items())


def _all_served(name: str, requests: int, *values: float | None) -> bool:
    """Whether a row would say no more than that everybody was served."""
    return name == "outcomes.served" and set(values) == {requests}


def _print_variant(variant: VariantAnswer, requests: int, console: Console, *, is_measured: bool) -> None:
    is_modelled = any(each.low is not None for each in variant.figures)
    columns = _MODELLED_TIMES if is_modelled else _OWN_TIMES if is_measured else _OWN_TIMES[:-1]
    if any(each.change_low is not None for each in variant.figures):
        columns = (*columns, "of change")
    table = table_of(Column(""), *(Column(name, justify="right") for name in columns))
    for each in variant.figures:
        label = dict(_SHOWN).get(each.name)
        if label is not None and not _all_served(each.name, requests, each.baseline, each.variant):
            table.add_row(label, *_answered(each, is_modelled=is_modelled)[: len(columns)])
    lost = None
    if variant.refused:
        words = f"{count_of(variant.refused, 'request')} cannot be served with this: `then` counts them as not served."
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
    if not each.is_of_all:
        return percent(each.share)
    value = milliseconds(each.value_ms, at_least=each.censored)
    return f"{value} {'open' if each.met is None else 'holds' if each.met else 'missed'}"


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


def _answered(each: FigureAnswer, *, is_modelled: bool) -> tuple[str, ...]:
    low, high = each.change_low, each.change_high
    return (
        _value(each.name, each.baseline, at_least=each.censored[0]),
        _value(each.name, each.variant, at_least=each.censored[1]),
        _share(each.change),
        _range(each) if is_modelled else _plus_minus(each.uncertainty),
        "-" if low is None or high is None else f"{100 * low:+,.0f}..{100 * high:+,.0f} %",
    )


def _plus_minus(error: float | None) -> str:
    return "-" if error is None else f"± {percent(error)}"


def _range(each: FigureAnswer) -> str:
    if each.low is None or each.high is None:
        return "-"
    return f"{_value(each.name, each.low)} .. {_value(each.name, each.high)}"


def _value(name: str, value: float | None, *, at_least: bool = False) -> str:
    if "_ms." in name:
        return milliseconds(value, at_least=at_least)
    return percent(value) if name.startswith("prefix_hit_rate") else count(value)


def _share(error: float | None) -> str:
    return "-" if error is None else signed(error)
