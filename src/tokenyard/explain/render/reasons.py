"""The heart of the printed report: what held requests back, and what to change."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Column, Table
from rich.text import Text

from tokenyard.explain.advice.rule import Advice
from tokenyard.explain.advice.trial import Trial
from tokenyard.explain.render.tables import table_of
from tokenyard.explain.render.units import count, duration
from tokenyard.explain.report.recorded_reasons import RecordedReason
from tokenyard.explain.report.report import Report
from tokenyard.printable import plain
from tokenyard.vocabulary.wording import reason_meaning

__all__ = ["advice_of", "reasons_of"]

_REASONS_EXPLAINED = 5


def reasons_of(report: Report) -> Iterable[Table | Text]:
    """What held requests back: a table, then each reason in words, with its numbers."""
    if not report.recorded_reasons:
        blocked = sum(report.reasons.values())
        if blocked:
            yield Text(f"{blocked:,} steps left requests waiting; this trace records no reasons.")
        else:
            yield Text("Nothing: no request was held back in any step.")
        yield from _unseen(report)
        return
    table = table_of(
        Column("recorded reason", no_wrap=True),
        Column("steps", justify="right"),
        Column("requests held, by step", justify="right"),
        Column("time lost, added up", justify="right"),
    )
    for name, reason in report.recorded_reasons.items():
        table.add_row(Text(plain(name)), count(reason.steps), count(reason.requests), duration(reason.seconds))
    yield table
    yield Text()
    words = table_of(Column(no_wrap=True), Column(), header=False)
    for name, reason in list(report.recorded_reasons.items())[:_REASONS_EXPLAINED]:
        text = Text(reason_meaning(name))
        text.append(_kv_numbers(reason), "bright_black")
        words.add_row(Text(plain(name), "bold"), text)
    yield words
    yield from _unseen(report)


def _unseen(report: Report) -> Iterable[Text]:
    """The rest of the waiting time, where there is enough of it to wonder about."""
    if report.unseen_s is not None and report.unseen_s >= 0.0005:
        yield Text(
            f"Before a step could see them, requests waited {duration(report.unseen_s)} in all: on the way to the "
            "scheduler, or for the step that ran.",
            "bright_black",
        )


def _kv_numbers(reason: RecordedReason) -> str:
    kv = reason.kv
    if kv is None:
        return ""
    text = f" On average it needed {kv.needed:,.0f} blocks"
    if kv.cached_hits >= 0.5:
        text += f" ({kv.cached_hits:,.0f} of them its own cached prefix)"
    text += f" and {kv.free:,.0f} were free"
    for name, value in (("reserved", kv.reserved), ("kept by the watermark", kv.watermark)):
        if value >= 0.5:
            text += f", {value:,.0f} of them {name}"
    text += "."
    if kv.smallest_need is not None:
        text += f" The smallest waiting request needed {kv.smallest_need:,.0f}"
        if kv.smaller_would_fit_steps:
            text += f" and would have fitted in {kv.smaller_would_fit_steps:,} of these steps"
        text += "."
    return text


_DIRECTION = {
    "up": "raise",
    "down": "lower",
    "on": "turn on",
    "off": "turn off",
    "set": "set",
    "choose": "choose another",
}


_EFFECTS = {
    "ttft_ms.p90": "TTFT p90",
    "tpot_ms.p90": "TPOT p90",
    "tpot_ms.p99": "TPOT p99",
    "e2e_ms.mean": "E2E mean",
    "throughput.output_tokens_per_s": "output tokens/s",
}
_TOO_SMALL = 0.005


def advice_of(report: Report) -> Iterable[Table | Text]:
    """Each advice: the setting, what a replay with it did, why, what shows it and what it costs."""
    if report.advice:
        table = table_of(Column(no_wrap=True), Column(), header=False)
        said: set[str] = set()
        for advice in report.advice:
            text = Text(f"{_what(advice)}: ", "bold")
            diagnosis = advice.diagnosis
            if advice.trial is not None:
                text.append(f"{_effects(advice.trial)} ", "green")
                diagnosis = diagnosis[:1].upper() + diagnosis[1:]
            if advice.rule not in said:
                text.append(f"{diagnosis}. ", "not bold")
                text.append(f"{plain(advice.evidence)} ", "not bold")
            said.add(advice.rule)
            text.append(f"The price: {advice.price}.", "not bold bright_black")
            table.add_row(Text("\N{BULLET}"), text)
        yield table
        if report.tried_on is not None:
            words = f"Replayed on {plain(report.tried_on)}, and compared there; --advice all replays the whole run."
            yield Text(words, "bright_black")
        elif any(each.trial is None for each in report.advice):
            words = (
                "Not replayed: `tokenyard whatif TRACE --set ...` replays a trace; a run that is long, --advice all."
            )
            yield Text(words, "bright_black")
    if report.tried:
        tried = "; ".join(each.title + (f" ({plain(each.problem)})" if each.problem else "") for each in report.tried)
        yield Text(f"Tried, and no better: {tried}.", "bright_black")


def _what(advice: Advice) -> str:
    trial = advice.trial
    if trial is None:
        now = "" if advice.now is None else f" (now {plain(str(advice.now))})"
        return f"{_DIRECTION.get(advice.direction, advice.direction)} {advice.setting}{now}"
    whose = "" if trial.is_vllm else ", which vLLM has not"
    return f"{plain(trial.title)} ({plain(trial.flag)}{whose})"


def _effects(trial: Trial) -> str:
    """``TTFT p90 -41 %, TPOT p90 +9 %.``"""
    said = [
        f"{_EFFECTS[each.figure]} {100 * each.change:+.0f} %"
        for each in trial.effects
        if each.figure in _EFFECTS and abs(each.change) >= _TOO_SMALL
    ]
    return ", ".join(said) + "."
