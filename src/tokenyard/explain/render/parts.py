"""What printed answers are made of: tables, units, and the parts of a report."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from rich.console import Console
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from tokenyard.explain.advice.rules import Advice, Effect, Relief
from tokenyard.explain.answer.remedies import SETTING, Remedy
from tokenyard.explain.recorded_reasons import RecordedReason
from tokenyard.explain.report.report import ClientFigures, RankShare, ReplicaFigures, Report
from tokenyard.explain.slo import OPEN_FOR, Goodput, Objective
from tokenyard.explain.steady import rate_in_words
from tokenyard.redaction import plain
from tokenyard.trace.start import DeploymentHeader
from tokenyard.units import count, duration, figure_label, milliseconds, percent, shorten
from tokenyard.vocabulary import is_in_flight, reason_meaning

# ---------------------------------------------------------------------------------------------------------------------
# What the printed answers are laid out with: sections with a title, and tables without lines.

_Rows_contra = TypeVar("_Rows_contra", contravariant=True)
_INDENT = 2
_UNBOUNDED = 1000
"""Columns that no table needs."""


def print_section(console: Console, title: str, *parts: Table | Text | None) -> None:
    """A blank line, the title, and its parts indented; an empty text is a blank line."""
    console.print()
    console.print(Text(title, "bold"))
    for part in parts:
        if part is not None:
            console.print(Padding(part, (0, 0, 0, _INDENT), expand=False) if part else part)


def table_of(*columns: Column, header: bool = True) -> Table:
    """A table without lines."""
    return Table(*columns, box=None, pad_edge=False, padding=(0, 1), show_header=header, header_style="bright_black")


class _Layout(Protocol[_Rows_contra]):
    def __call__(self, rows: _Rows_contra, /, *, narrow: bool) -> Table: ...


def table_that_fits(console: Console, layout: _Layout[_Rows_contra], rows: _Rows_contra) -> Table:
    """The table in its wide layout where a section of the console has room for it, else in its narrow one."""
    wide = layout(rows, narrow=False)
    needed = console.measure(wide, options=console.options.update(max_width=_UNBOUNDED)).maximum
    return wide if needed + _INDENT <= console.width else layout(rows, narrow=True)


# ---------------------------------------------------------------------------------------------------------------------
# What a replay was, in a terminal: sizes, limits, and what was assumed or ignored.


def deployment_table(deployment: DeploymentHeader) -> Table | None:
    """The deployment; None where the trace does not record one."""
    if deployment.num_gpu_blocks is None:
        return None
    table = table_of(Column(style="bright_black", no_wrap=True), Column(), header=False)
    for name, said in (
        ("vLLM", f"{plain(deployment.vllm_version or 'unknown')}: its decisions, and its defaults for what is unset"),
        ("weights", _weights(deployment)),
        ("KV", _kv(deployment)),
        ("limits", _limits_in_words(deployment) or None),
        ("step times", _step_times(deployment)),
    ):
        if said is not None:
            table.add_row(name, Text(said))
    for name, style, lines in (
        ("assumed", "", [str(each) for each in deployment.assumed]),
        ("used", "", [" ".join(deployment.used)] if deployment.used else []),
        ("no effect", "", deployment.without_effect),
        ("ignored", "yellow", deployment.ignored),
    ):
        if lines:
            table.add_row(name, _lines(lines, style))
    return table


def _lines(lines: Iterable[str], style: str) -> Text:
    return Text("\n".join(plain(line) for line in lines), style)


def _step_times(deployment: DeploymentHeader) -> str | None:
    """Where they come from; None if the steps were really taken."""
    if deployment.step_time is None:
        return None
    return f"{plain(deployment.step_time)}; error: {deployment.step_time_error or 'unknown'}"


def _weights(deployment: DeploymentHeader) -> str | None:
    """None where the header does not say; that of a real server's trace does not."""
    if deployment.weight_gib is None:
        return None
    engines = deployment.data_parallel_size or 1
    stages = deployment.pipeline_parallel_size or 1
    gpus = (deployment.tensor_parallel_size or 1) * engines * stages
    each = " on each of them" if gpus > 1 else ""
    if stages > 1:
        each = " on those that have the most"
    many = f" in {engines:,} engines" if engines > 1 else ""
    many += f" of {stages:,} stages" if engines > 1 and stages > 1 else f" in {stages:,} stages" * (stages > 1)
    weights = f"{deployment.weight_gib:,.1f} GiB"
    if deployment.weight_dtype is not None:
        weights += f" of {plain(deployment.weight_dtype)}"
    return f"{weights}{each}, {gpus} GPU{'s' * (gpus > 1)}{many}"


def _kv(deployment: DeploymentHeader) -> str:
    alike = Counter(map(plain, deployment.kv_groups))
    named = "; ".join(f"{count} x {group}" if count > 1 else group for group, count in alike.items())
    groups = f": {named}" if len(deployment.kv_groups) > 1 else ""
    each = "in each engine, " if (deployment.data_parallel_size or 1) > 1 else ""
    size = "" if deployment.kv_gib is None else f", {deployment.kv_gib:,.1f} GiB"
    if size and deployment.kv_dtype is not None:
        size += f" of {plain(deployment.kv_dtype)}"
    tokens = "" if deployment.kv_tokens is None else f"{deployment.kv_tokens:,} tokens in "
    of_tokens = "" if deployment.block_size is None else f" of {deployment.block_size}"
    return f"{each}{tokens}{deployment.num_gpu_blocks:,} blocks{of_tokens}{size}{groups}"


def _limits_in_words(deployment: DeploymentHeader) -> str:
    """Empty where the header has none."""
    limits = (
        (deployment.max_num_batched_tokens, "tokens a step"),
        (deployment.max_num_seqs, "sequences"),
        (deployment.max_model_len, "tokens each"),
    )
    said = [f"{most:,} {what}" for most, what in limits if most is not None]
    if deployment.async_scheduling is not None:
        said.append("a step ahead" if deployment.async_scheduling else "one step at a time")
    return ", ".join(said)


# ---------------------------------------------------------------------------------------------------------------------
# The heart of the printed report: what held requests back, and what to change.

_REASONS_EXPLAINED = 5
_WORDS_SHOWN = 8
_FIRST = 3
"""Reasons, and advice, on the one screen of a short report."""


def reasons_of(report: Report) -> Iterable[Table | Text]:
    """What held requests back: a table, then each reason in words, with its numbers."""
    if not report.recorded_reasons:
        blocked = sum(report.reasons.values())
        if blocked:
            yield Text(f"{blocked:,} steps left requests waiting; this trace records no reasons.")
        elif report.progress.waited_s:
            yield Text("Not known: requests waited, and this trace records neither reasons nor decisions.")
        else:
            yield Text("Nothing: no request was held back in any step.")
        yield from _unseen(report)
        return
    yield _reasons_table(report, len(report.recorded_reasons), words=_WORDS_SHOWN)
    yield Text()
    words = table_of(Column(no_wrap=True), Column(), header=False)
    for name, reason in list(report.recorded_reasons.items())[:_REASONS_EXPLAINED]:
        text = Text(reason_meaning(name))
        text.append(_kv_numbers(reason), "bright_black")
        if is_in_flight(name):
            text.append(" They are served: a step of theirs is computed. The verdict does not count them.")
        words.add_row(Text(plain(name), "bold"), text)
    yield words
    yield from _unseen(report)


def top_reasons(report: Report) -> Iterable[Table | Text]:
    """What cost most: a table of the first reasons."""
    if not report.recorded_reasons:
        yield from reasons_of(report)
        return
    yield _reasons_table(report, _FIRST, words=_FIRST)
    others = len(report.recorded_reasons) - _FIRST
    if others > 0:
        seconds = sum(each.seconds for each in list(report.recorded_reasons.values())[_FIRST:])
        yield Text(f"and {others} more, {duration(seconds)} in all", "bright_black")
    in_flight = [name for name in report.recorded_reasons if is_in_flight(name)]
    if in_flight:
        yield Text(f"{', '.join(in_flight)}: they are served, a step of theirs is computed.", "bright_black")


def _reasons_table(report: Report, most: int, *, words: int) -> Table:
    table = table_of(
        Column("recorded reason", no_wrap=True),
        Column("steps", justify="right"),
        Column("requests held, by step", justify="right"),
        Column("time lost, added up", justify="right"),
    )
    for name, reason in list(report.recorded_reasons.items())[:most]:
        table.add_row(Text(plain(name)), count(reason.steps), count(reason.requests), duration(reason.seconds))
        for word, seconds in list((reason.words or {}).items())[:words]:
            table.add_row(Text(f"  {shorten(plain(word), 40)}", "bright_black"), "", "", duration(seconds))
    return table


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


_EFFECTS = {
    "ttft_ms.p90": "TTFT p90",
    "tpot_ms.p90": "TPOT p90",
    "tpot_ms.p99": "TPOT p99",
    "e2e_ms.mean": "E2E mean",
    "throughput.output_tokens_per_s": "output tokens/s",
}
_TOO_SMALL = 0.005


def remedies_of(report: Report, remedies: Sequence[Remedy], *, brief: bool = False) -> Iterable[Table | Text]:
    """What serves an overload, then each remedy: of a setting, what a replay did, why, what shows it and its price.

    ``brief``: the first of them, and of a setting what a replay did and its price.
    """
    if report.relief is not None:
        yield Text(plain(_relief(report.relief)), "bold")
    if remedies:
        table = table_of(Column(no_wrap=True), Column(), header=False)
        advice = list(report.advice)
        said: set[str] = set()
        for each in remedies[:_FIRST] if brief else remedies:
            found = next((one for one in advice if one.rule == each.rule and _is_meant(one, each)), None)
            if found is None:
                text = Text(f"{plain(each.title)}. ", "bold")
                text.append(f"The price: {plain(each.price)}." if each.price else "", "not bold bright_black")
            elif brief and found.trial is None:
                text = Text(f"{_what(found)}, not replayed", "bold")
            else:
                text = _setting(found, is_first=not brief and found.rule not in said)
                said.add(found.rule)
            table.add_row(Text("\N{BULLET}"), text)
        yield table
        if brief:
            return
        if report.tried_on is not None:
            words = f"Replayed on {plain(report.tried_on)}, and compared there; --advice all replays the whole run."
            yield Text(words, "bright_black")
        elif any(each.code == SETTING and not each.is_tried for each in remedies):
            words = (
                "Not replayed: `tokenyard whatif TRACE --set ...` replays a trace; a run that is long, --advice all."
            )
            yield Text(words, "bright_black")
    if report.tried:
        tried = "; ".join(each.title + (f" ({plain(each.problem)})" if each.problem else "") for each in report.tried)
        yield Text(f"Tried, and no better: {tried}.", "bright_black")


def _is_meant(advice: Advice, remedy: Remedy) -> bool:
    return remedy.title == (advice.title if not remedy.is_tried or advice.trial is None else advice.trial.title)


def _setting(advice: Advice, *, is_first: bool) -> Text:
    """A setting, with its evidence where its rule speaks for the first time."""
    text = Text(f"{_what(advice)}: ", "bold")
    diagnosis = advice.diagnosis
    if advice.trial is not None:
        text.append(f"{_effects(advice.trial.effects)} ", "green")
        diagnosis = diagnosis[:1].upper() + diagnosis[1:]
    if is_first:
        text.append(f"{diagnosis}. ", "not bold")
        text.append(f"{plain(advice.evidence)} ", "not bold")
    text.append(f"The price: {advice.price}.", "not bold bright_black")
    return text


def _relief(relief: Relief) -> str:
    gpus = "" if relief.gpus is None else f" on {relief.gpus:,} GPU{'s' * (relief.gpus != 1)}"
    many = f"{relief.replays:,} replays" + ("" if relief.tried_on is None else f" of {relief.tried_on}")
    if not relief.flags:
        return f"Nothing that was tried together helps: {many}."
    ttft = next((each for each in relief.effects if each.figure == "ttft_ms.p90"), None)
    waits = "" if ttft is None else f"TTFT p90 {milliseconds(ttft.before)} -> {milliseconds(ttft.after)}, "
    others = _effects([each for each in relief.effects if each is not ttft]).rstrip(".")
    if relief.is_enough:
        return f"The queue does not grow with {relief.flags}{gpus}: {waits}{others} ({many})."
    if relief.serves_these:
        these = f"{relief.flags}{gpus} serves all {relief.arrived:,} requests"
        return f"{these}, in too short a time to tell whether that lasts: {waits}{others} ({many})."
    rates = (relief.served_requests_per_s, relief.offered_requests_per_s)
    served, offered = ("-" if each is None else rate_in_words(each) for each in rates)
    share = f"{served} of {offered} requests/s are served"
    if any(each.figure == "outcomes.served" for each in relief.effects):
        share = f"{relief.served:,} of {relief.arrived:,} requests are served"
    nearest = f"Nearest comes {relief.flags}{gpus}: {share}"
    return f"Nothing that was tried is enough. {nearest}, {waits}{others} ({many})."


def _what(advice: Advice) -> str:
    trial = advice.trial
    if trial is None:
        return advice.title
    whose = "" if trial.is_vllm else ", which vLLM has not"
    return f"{plain(trial.title)} ({plain(trial.flag)}{whose})"


def _effects(effects: Sequence[Effect]) -> str:
    """``TTFT p90 -41 %, TPOT p90 +9 %.``; what is within the error of step times apart: ``may be E2E mean -5 %``."""
    groups: dict[bool, list[str]] = {True: [], False: []}
    for each in effects:
        if abs(each.change) >= _TOO_SMALL:
            name = _EFFECTS.get(each.figure) or plain(figure_label(each.figure))
            groups[each.is_sure].append(f"{name} {100 * each.change:+.0f} %")
    sure, unsure = (", ".join(said) for said in groups.values())
    return "; ".join(text for text in (sure, f"may be {unsure}" if unsure else "") if text) + "."


# ---------------------------------------------------------------------------------------------------------------------
# Service levels: which bounds hold, and the goodput.


def goodput_rows(goodput: Goodput) -> Iterator[Table | Text]:
    """A row for each bound, and a sentence about requests within all of them."""
    names = ("bound", "measured", "", "requests within")
    table = table_of(Column("", no_wrap=True), *(Column(name, justify="right", no_wrap=True) for name in names))
    for each in goodput.objectives:
        within = "-" if each.share is None else percent(each.share)
        measured = milliseconds(each.value_ms, at_least=each.censored)
        table.add_row(each.name, milliseconds(each.bound_ms), measured, _verdict(each), within)
    yield table
    for each in goodput.objectives:
        if each.open_for is not None:
            yield Text(f"{each.name} is open: {OPEN_FOR[each.open_for]}")
    if goodput.requests is not None:
        rate = "" if goodput.requests_per_s is None else f"{goodput.requests_per_s:,.2f} requests/s, "
        yield Text(
            f"goodput: {rate}{count(goodput.requests)} of {count(goodput.arrived)} requests that arrived, "
            f"{percent(goodput.share)}: served whole and within every bound"
            + (f"; {count(goodput.open)} more still may be" if goodput.open else "")
        )


def _verdict(objective: Objective) -> Text:
    if objective.met is None:
        return Text("open" if objective.is_open else "", "yellow")
    return Text("holds", "green") if objective.met else Text("missed", "red")


# ---------------------------------------------------------------------------------------------------------------------
# The engines of one deployment side by side, in a terminal.


def ranks_table(ranks: Sequence[RankShare]) -> Table:
    """A line for each engine; what no engine has is left out."""
    together = any(each.dummy_batches for each in ranks)
    names = ["requests", "of tokens", "busy", *(["dummies"] * together), "hits", "KV peak", "TTFT", "TPOT"]
    table = table_of(
        Column("rank", style="bright_black", no_wrap=True),
        *(Column(name, justify="right", no_wrap=True) for name in names),
    )
    for each in ranks:
        table.add_row(
            str(each.rank),
            count(each.requests),
            percent(each.output_tokens_share),
            percent(each.busy_share),
            *([count(each.dummy_batches or 0)] * together),
            percent(each.prefix_hit_rate),
            percent(each.peak_kv_use),
            each.ttft_ms.in_words("mean"),
            each.tpot_ms.in_words("mean"),
        )
    return table


# ---------------------------------------------------------------------------------------------------------------------
# Replicas that come and go, over time.

_ROWS = 12
"""Stretches of the run that are shown, where replicas came or went."""


def replicas_of(replicas: ReplicaFigures, seconds: float | None) -> Iterator[Table | Text]:
    """What they were scaled by, what that took, and how many there were when."""
    if replicas.least == replicas.most:
        yield Text(f"{count(replicas.most)} of them, always.")
        return
    yield Text(
        f"{count(replicas.least)} to {count(replicas.most)}, by Kubernetes' HorizontalPodAutoscaler that aims at "
        f"{replicas.target:g} waiting requests each; {duration(replicas.startup_s)} to start."
    )
    gpus = "" if replicas.gpus is None else f", {replicas.held_s * replicas.gpus / 3600:,.2f} GPU-hours"
    yield Text(
        f"{replicas.mean_held:,.2f} on average, {count(replicas.max_held)} at most; {count(replicas.started)} started; "
        f"{replicas.held_s / 3600:,.2f} replica-hours{gpus}"
    )
    if len(replicas.changes) > 1 and seconds:
        yield _over_time(replicas, seconds)


def _over_time(replicas: ReplicaFigures, seconds: float) -> Table:
    """A row for each twelfth of the run: how many there were at its beginning, and at most."""
    names = ("replicas", "at most", "taking requests")
    table = table_of(Column("from", justify="right"), *(Column(name, justify="right", no_wrap=True) for name in names))
    changes = replicas.changes
    moments = [change.at_s for change in changes]
    for i in range(_ROWS):
        begin, end = seconds * i / _ROWS, seconds * (i + 1) / _ROWS
        at = bisect_right(moments, begin) - 1
        within = changes[at : bisect_right(moments, end)]
        most = max(change.held for change in within)
        table.add_row(duration(begin), count(changes[at].held), count(most), count(changes[at].ready))
    return table


# ---------------------------------------------------------------------------------------------------------------------
# What clients saw that hang up after a time and retry.


def clients_of(clients: ClientFigures) -> Iterator[Text]:
    """Sentences on how long they wait, and what came of it."""
    again = f", and retry {duration(clients.retry_wait_s)} later, {count(clients.retries)} times at most"
    yield Text(f"They hang up after {duration(clients.timeout_s)}{again if clients.retries else ''}.")
    yield Text(
        f"{count(clients.given_up)} attempts given up, {count(clients.retried)} sent again; "
        f"{count(clients.answered_late)} requests answered late, {count(clients.unanswered)} not at all"
    )
    answer = clients.answer_ms
    if answer.mean is not None:
        yield Text(
            f"from the first sending to the end: {answer.in_words('mean')} on average, p90 {answer.in_words('p90')}, "
            f"max {answer.in_words('max')}"
        )
