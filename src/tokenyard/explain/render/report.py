"""The report in a terminal: from 80 columns up, in colour where the terminal has it.

Nothing that comes from a trace is ever read as markup.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import msgspec
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.table import Column, Table
from rich.text import Text

from tokenyard.arguments import given_kind, suggests_keywords
from tokenyard.explain.answer.answer import Answer
from tokenyard.explain.classifier import BUCKETS, Bucket
from tokenyard.explain.figures import LatencyFigures
from tokenyard.explain.measured import NAMES, MeasuredBeside, MeasuredPair
from tokenyard.explain.render.parts import (
    clients_of,
    deployment_table,
    goodput_rows,
    print_section,
    ranks_table,
    reasons_of,
    remedies_of,
    replicas_of,
    table_of,
    table_that_fits,
    top_reasons,
)
from tokenyard.explain.report.classes import Classes, ClassFigures
from tokenyard.explain.report.report import Header, Report
from tokenyard.redaction import plain
from tokenyard.units import count, duration, gigabytes, milliseconds, percent, short_count, shorten

# ---------------------------------------------------------------------------------------------------------------------
# Figures per class, on a terminal.

_FIGURES = ("requests", "TTFT p50", "p95", "TPOT p95", "E2E p95")
_NAME = 12
"""Columns at least for the name of a class."""
_NARROW = ("requests", "TTFT p95", "TPOT p95", "E2E p95")


def print_classes(classes: Classes, console: Console) -> None:
    """A line per class, and what came of its bounds."""
    print_section(console, f"By {classes.by}", table_that_fits(console, _table, classes.classes))
    for each in classes.classes:
        if each.goodput is not None:
            print_section(console, f"Service levels: {plain(each.name)}", *goodput_rows(each.goodput))


def _table(classes: Iterable[ClassFigures], *, narrow: bool) -> Table:
    table = table_of(
        Column("", overflow="fold", min_width=_NAME if narrow else None),
        *(Column(name, justify="right", no_wrap=True) for name in (_NARROW if narrow else _FIGURES)),
        *([] if narrow else [Column("waited", justify="right", no_wrap=True)]),
        *([] if narrow else [Column("mostly for", overflow="fold")]),
    )
    for each in classes:
        times = (each.ttft_ms.p50, each.ttft_ms.p95, each.tpot_ms.p95, each.e2e_ms.p95)[narrow:]
        row = [plain(each.name), f"{each.requests:,}", *map(milliseconds, times)]
        if not narrow:
            row += [percent(_share_waited(each)), plain(each.waited_for or "-")]
        table.add_row(*map(Text, row))
    return table


def _share_waited(each: ClassFigures) -> float | None:
    """Share of its requests' time, of those that ended."""
    total = (each.e2e_ms.mean or 0.0) / 1e3 * each.finished
    return min(each.waited_s / total, 1.0) if total else None


# ---------------------------------------------------------------------------------------------------------------------
# What was measured beside what was replayed, in a terminal.

_STATISTICS = ("mean", "p50", "p90", "p99")


def print_measured(measured: MeasuredBeside, console: Console) -> None:
    """The section: whether to trust the rest, then figure by figure measured, replayed and their ratio."""
    is_replayed = measured.verdict is not None
    if not measured.measured_requests:
        print_section(console, "Measured", *map(Text, _lines(measured)))
        return
    title = f"{'Measured beside replayed' if is_replayed else 'Measured'}, {_of_whom(measured)}"
    verdict = None if measured.verdict is None else Text(plain(measured.verdict.sentence))
    print_section(console, title, verdict, _measured_table(measured), *map(Text, _lines(measured)))


def _of_whom(measured: MeasuredBeside) -> str:
    if measured.requests == measured.measured_requests:
        return f"of {measured.requests:,} requests"
    return f"of the {measured.requests:,} requests on both sides ({measured.measured_requests:,} were measured)"


def _measured_table(measured: MeasuredBeside) -> Table | None:
    columns = [Column(name, justify="right", no_wrap=True, min_width=9) for name in _STATISTICS]
    table = table_of(Column("", no_wrap=True), Column("", no_wrap=True), *columns)
    for name, latency in measured.latencies():
        own = NAMES[name] if latency.requests == measured.requests else f"{NAMES[name]} ({latency.requests:,})"
        table.add_row(own, "measured", *_cells(latency.measured))
        if latency.replayed is not None and latency.ratio is not None:
            table.add_row("", "replayed", *_cells(latency.replayed))
            ratios = (getattr(latency.ratio, each) for each in _STATISTICS)
            table.add_row("", "ratio", *("-" if each is None else f"{each:,.3g}" for each in ratios))
    return table if table.row_count else None


def _cells(figures: LatencyFigures) -> Iterator[str]:
    return (milliseconds(getattr(figures, each)) for each in _STATISTICS)


def _lines(measured: MeasuredBeside) -> Iterator[str]:
    """What is no latency."""
    if measured.served_per_s is not None:
        pair = measured.served_per_s
        yield _both("served", pair, *(f"{each:,.2f} requests/s" for each in _values(pair)))
    if measured.cached_share is not None:
        pair = measured.cached_share
        yield _both("prefix hits", pair, *map(percent, _values(pair)))
    if measured.not_served:
        each = ", ".join(f"{plain(status)}: {number:,}" for status, number in measured.not_served.items())
        yield f"not served   {sum(measured.not_served.values()):,} requests were answered with an error ({each})"
    if measured.calibration is not None:
        yield f"{plain(measured.calibration.sentence)}. --step-time-factors {measured.calibration.setting} repeats it."


def _values(pair: MeasuredPair) -> tuple[float, ...]:
    return (pair.measured,) if pair.replayed is None else (pair.measured, pair.replayed)


def _both(name: str, pair: MeasuredPair, measured: str, replayed: str | None = None) -> str:
    if replayed is None:
        return f"{name:12} {measured}"
    return f"{name:12} {measured} measured, {replayed} replayed" + (
        "" if pair.ratio is None else f", ratio {pair.ratio:.3g}"
    )


# ---------------------------------------------------------------------------------------------------------------------

_STYLE = {
    Bucket.TOK_BUDGET: "yellow",
    Bucket.KV_EXHAUSTED: "red",
    Bucket.MAX_SEQS: "magenta",
    Bucket.ALLOC_FRAG: "bright_red",
    Bucket.ALLOC_EXHAUSTED: "bright_red",
    Bucket.KV_TIGHT: "bright_yellow",
    Bucket.ADMITTED_ALL: "green",
    Bucket.UNDER_CAPACITY: "cyan",
    Bucket.IDLE: "bright_black",
    Bucket.UNKNOWN: "bright_black",
}
_BAR_WIDTH = 10
_WIDE_BAR_WIDTH = 24
_WIDE = 100
"""Columns from which bars are wide."""
_ALL_STATISTICS = 74
"""Columns from which there is room for all statistics of a latency."""


@suggests_keywords()
def print_report(
    report: Report,
    console: Console,
    *,
    full: bool = True,
    buckets: bool = False,
    header: bool = False,
    classes: Classes | None = None,
) -> None:
    """Print ``report``: what was found, then which run it was, of which deployment; ``header`` puts these first.

    Not ``full``, it fits a screen: the answer, latencies and bounds, the reasons that cost most, what to change first,
    and how far step times can be trusted. The classifier's ``buckets`` come if they are requested, and in the place of
    the reasons where a step that held a request back has none recorded. ``classes`` are the run, class by class.
    """
    given_kind("report", report, Report)
    given_kind("console", console, Console, "give a rich.console.Console; str(report) is the same without one")
    if header:
        print_run(report.header, console)
        console.print()
    if full or buckets:
        print_findings(report, console, buckets=buckets, classes=classes)
    else:
        _print_screen(report, console, classes)
    if full and not header:
        console.print()
        print_run(report.header, console)


def _print_screen(report: Report, console: Console, classes: Classes | None) -> None:
    """The answer on one screen; what it leaves out is counted in its last line."""
    print_answer(report, console, classes)
    print_section(console, "What held requests back", *top_reasons(report))
    remedies = _answer(report, classes).remedies
    if remedies or report.relief is not None:
        print_section(console, "What to change", *remedies_of(report, remedies, brief=True))
    table = _figures(report, only=_IN_SHORT)
    for name, text in (
        ("step times", _trust(report.header)),
        ("ignored", "\n".join(map(plain, report.header.ignored)) or None),
        ("trace", report.header.partial),
    ):
        if text is not None:
            table.add_row(name, Text(str(text)))
    print_section(console, "Figures", table)
    notes = [Text(note) for note in (*_on_latencies(report), *_notes(report))]
    if notes:
        print_section(console, "Note", *notes)
    if report.clients is not None:
        print_section(console, "Clients", *clients_of(report.clients))
    around = (("replicas", report.replicas), ("engines", report.ranks))
    left_out = "".join(f", {name}" for name, part in around if part)
    console.print()
    console.print(
        Text(f"--full adds each reason in words, all advice and figures{left_out}, the deployment.", "bright_black")
    )


def _trust(header: Header) -> str | None:
    """How far step times can be trusted, in a sentence; None where they were really taken."""
    if header.step_time is None:
        return None
    return f"{plain(header.step_time)}; {(header.step_time_error or 'error unknown').partition('. ')[0]}"


def print_findings(report: Report, console: Console, *, buckets: bool = False, classes: Classes | None = None) -> None:
    """The verdict, latencies, bounds, reasons, figures, advice, and what could not be read."""
    print_answer(report, console, classes)
    print_section(console, "What held requests back", *reasons_of(report))
    if buckets or (any(report.reasons.values()) and not report.recorded_reasons):
        print_section(console, "Steps, by what limited admission", _buckets(report, console.width), _agreement(report))
    remedies = _answer(report, classes).remedies
    if remedies or report.tried or report.relief is not None:
        print_section(console, "What to change", *remedies_of(report, remedies))
    print_section(console, "Figures", _figures(report))
    _print_service(report, console)
    notes = [Text(note) for note in (*_on_latencies(report), *_notes(report))]
    if notes:
        print_section(console, "Note", *notes)


def print_answer(report: Report, console: Console, classes: Classes | None = None) -> None:
    """The verdict, latencies, what was measured, and bounds."""
    console.print(Text(plain(_answer(report, classes).sentence), "bold"))
    print_section(
        console,
        "Latency" + (" (exact to a step)" if report.times == "reconstructed" else ""),
        _latency(report, console.width),
    )
    if report.measured is not None:
        print_measured(report.measured, console)
    if report.goodput is not None:
        print_section(console, "Service levels", *goodput_rows(report.goodput))
    if classes is not None:
        print_classes(classes, console)


def _answer(report: Report, classes: Classes | None) -> Answer:
    """Return the answer, which bounds of classes may change."""
    of_classes = None if classes is None else classes.goodput()
    return (report if of_classes is None else msgspec.structs.replace(report, goodput=of_classes)).answer


def print_run(header: Header, console: Console) -> None:
    """Which run it was, and its deployment with what was assumed: to be read once."""
    console.print(_header(header, console.width))
    if header.source:
        source = shorten(plain(header.source), max(console.width - 4, 16))
        console.print(Text(f"src {source}", "bright_black", no_wrap=True))
    if header.warmup_s:
        console.print(
            Text(f"Warm-up: what arrived, and was decided, before {duration(header.warmup_s)} does not count.")
        )
    if header.partial is not None:
        console.print(Text(str(header.partial), "yellow"))
    deployment = deployment_table(header)
    if deployment is not None:
        print_section(console, "Deployment", deployment)


def _print_service(report: Report, console: Console) -> None:
    """What lies around the engine: clients, replicas, engines beside each other."""
    if report.clients is not None:
        print_section(console, "Clients", *clients_of(report.clients))
    if report.replicas is not None:
        print_section(console, "Replicas", *replicas_of(report.replicas, report.duration_s))
    if report.ranks:
        print_section(console, "Engines", ranks_table(report.ranks))


def _header(header: Header, width: int) -> Text:
    """The one-line summary; it wraps between tokens."""
    tokens = [
        (plain(header.policy).upper(), "bold cyan"),
        (plain(header.gpu) + ("?" if header.gpu_inferred and header.gpu != "unknown" else ""), "green"),
    ]
    if header.model:
        tokens.append((plain(header.model), "green"))
    for name, blocks, size in (
        ("KV", header.kv_blocks, header.kv_bytes),
        ("DRAM", header.dram_blocks, header.dram_bytes),
    ):
        if blocks is not None and size is not None:
            tokens.append((f"{name}:{blocks}blk({gigabytes(size)})", "yellow"))
    tokens.append((f"{header.jobs:,} jobs", "magenta"))
    tokens.append((f"steps {header.first_step}\N{EN DASH}{header.last_step} ({header.steps})", ""))
    if header.seconds is not None:
        tokens.append((f"{header.seconds:.1f}s", ""))
    if header.max_running is not None:
        tokens.append((f"maxRun:{header.max_running}", ""))
    if header.request_records is not None:
        tokens.append((f"{short_count(header.request_records)} reqs", ""))
    line, used = Text(), 0
    for text, style in tokens:
        if used and used + 2 + len(text) > width:
            line.append("\n")
            used = 0
        elif used:
            line.append("  ")
            used += 2
        line.append(text, style)
        used += len(text)
    return line


class _Bar:
    """A horizontal bar of eighths, or of # where the terminal knows no blocks."""

    def __init__(self, share: float, style: str) -> None:
        self._share = share
        self._style = Style.parse(style)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        eighths = max(round(self._share * width * 8), 1 if self._share > 0 else 0)
        full, part = divmod(eighths, 8)
        if options.ascii_only:
            text = "#" * max(full, part > 0)
        else:
            text = "\N{FULL BLOCK}" * full + ("" if not part else chr(ord("\N{LEFT ONE EIGHTH BLOCK}") + 1 - part))
        yield Segment(text, self._style)


def _buckets(report: Report, width: int) -> Table:
    table = table_of(
        Column(no_wrap=True),
        Column(width=_BAR_WIDTH if width < _WIDE else _WIDE_BAR_WIDTH),
        Column(justify="right", no_wrap=True),
        Column(justify="right", no_wrap=True),
        Column(style="bright_black"),
        header=False,
    )
    for bucket in Bucket:
        steps = report.buckets[bucket.value]
        if steps:
            share = steps / report.steps
            table.add_row(
                Text(bucket.value),
                _Bar(share, _STYLE[bucket]),
                count(steps),
                percent(share),
                BUCKETS[bucket].meaning,
            )
    return table


def _agreement(report: Report) -> Text | None:
    truth = report.disagreements
    if not truth.steps_compared:
        return None
    wrong = [pair for pair in truth.pairs if not pair.agrees]
    text = Text(
        f"These are guesses from counts. Of {truth.steps_compared:,} steps whose reason is recorded, "
        f"{truth.steps_disagreeing:,} contradict it",
        "bright_black",
    )
    if wrong:
        text.append(f"; most often {wrong[0].bucket} where it was {plain(wrong[0].recorded)}")
    return text.append(".")


def _latency(report: Report, width: int) -> Table | Text:
    """The table; what each row means only where there is room, since the glossary says it."""
    if report.times is None:
        return Text("This trace does not record when requests came and went.")
    statistics = ("mean", "p50", "p90", "p95", "p99", "max") if width >= _ALL_STATISTICS else ("mean", "p90", "p99")
    table = table_of(
        Column("", no_wrap=True),
        *(Column(name, justify="right", no_wrap=True, min_width=9) for name in statistics),
        *([Column("", style="bright_black")] if width >= _WIDE else []),
    )
    for name, latency, meaning in (
        ("queue", report.queue_ms, "arrival to schedule"),
        ("TTFT", report.ttft_ms, "arrival to first token"),
        ("TPOT", report.tpot_ms, "per token after the first"),
        ("ITL", report.itl_ms, "between two tokens"),
        ("E2E", report.e2e_ms, "arrival to end"),
        ("job", report.job_ms, "first turn to end of last"),
    ):
        if name in ("ITL", "job") and latency.mean is None and not latency.never:
            continue
        table.add_row(name, *map(latency.in_words, statistics), *([meaning] if width >= _WIDE else []))
    return table


_NOTABLE_IDLE_S = 600.0
"""A stretch without a step that makes rates over the whole run mean little."""


def _idle(report: Report) -> str:
    idle = report.longest_idle_s or 0.0
    return f", {duration(idle)} of it in one stretch without a step" if idle >= _NOTABLE_IDLE_S else ""


def _throughput(report: Report) -> str:
    """Return the rates over the whole run; empty where the trace has no times."""
    rates = report.throughput
    named = ((rates.requests_per_s, ",.2f", "requests/s"), (rates.output_tokens_per_s, ",.1f", "output tokens/s"))
    said = ", ".join(f"{rate:{form}} {unit}" for rate, form, unit in named if rate is not None)
    return f"{said} over {duration(report.duration_s)}{_idle(report)}" if said else ""


def _people(report: Report) -> str:
    reasons = ", ".join(f"{number:,} {plain(name)}" for name, number in report.finish_reasons.items())
    people = "not recorded" if report.outcomes is None else str(report.outcomes)
    return people + (f" ({reasons})" if reasons else "")


_IN_SHORT = ("requests", "attempts", "load", "throughput", "prefix hits", "pins", "preemptions", "speculation")
"""The figures of a report that fits a screen."""


def _figures(report: Report, *, only: Collection[str] | None = None) -> Table:
    table = table_of(Column(style="bright_black", no_wrap=True), Column(), header=False)

    def row(name: str, text: str) -> None:
        if text and (only is None or name in only):
            table.add_row(name, Text(text))

    row("requests", _people(report))
    if report.attempts is not None:
        tried = report.attempts
        lost = f"their {tried.lost_tokens:,} tokens are in no rate"
        row("attempts", f"{tried.sent:,} in all, {tried.again:,} of them given up and sent again; {lost}")
    if report.load is not None:
        row("load", str(report.load))
    row("throughput", _throughput(report))
    hits = report.prefix_hit_rate
    row("prefix hits", f"{percent(hits.local)} local, {percent(hits.external)} external, of prompt tokens")
    lost = "" if report.recomputed_tokens is None else f", {count(report.recomputed_tokens)} tokens computed again"
    if report.pins is not None:
        row("pins", str(report.pins))
    row("preemptions", count(report.preemptions) + lost)
    use = report.token_budget_use
    row("token budget", f"{percent(use.mean)} used on average, p50 {percent(use.p50)}, p95 {percent(use.p95)}")
    for name, spread in (("running", report.running), ("waiting", report.waiting)):
        mean = "-" if spread.mean is None else f"{spread.mean:,.1f}"
        row(name, f"{mean} on average, p50 {count(spread.p50)}, p95 {count(spread.p95)}")
    if report.speculation is not None:
        row("speculation", str(report.speculation))
    row("KV blocks", f"{percent(report.peak_kv_use)} in use at the peak")
    if report.peak_dram_use is not None:
        row("DRAM blocks", f"{percent(report.peak_dram_use)} in use at the peak")
    return table


def _on_latencies(report: Report) -> Iterable[str]:
    people = report.outcomes
    if people is not None and any(report.censored):
        never = ", those of refused ones without end" if people.refused else ""
        yield (
            f"Figures are of all {people.arrived:,} requests that arrived; {people.served:,} were served. The others "
            f"count by how long they had waited{never}: \N{GREATER-THAN OR EQUAL TO} is a lower bound."
        )
        if report.tpot_ms.says_nothing:
            yield (
                f"No bound on TPOT: {report.tpot_ms.unbounded:,} of {people.arrived:,} requests have no first token, "
                "or no limit of tokens."
            )
    if report.itl_ms.left_out:
        whole = report.itl_requests + report.itl_ms.left_out
        yield (
            f"ITL is of {report.itl_requests:,} of {whole:,} requests: the others paused between two tokens, or got "
            "several at once, and the trace does not say when. No bound on it is judged."
        )


def _notes(report: Report) -> Iterable[str]:
    """What a reader has to know to judge the report."""
    if report.arrivals is not None and report.arrivals.explanation is not None:
        yield report.arrivals.explanation
    reading = report.reading
    cut_off = report.header.partial is not None and report.header.partial.cut_off
    if reading.bad_lines > cut_off:
        first = reading.first_bad_lines[0]
        where = f"the first is line {first.line} of {plain(first.file)}: {plain(first.problem)}"
        were = "line was" if reading.bad_lines == 1 else "lines were"
        yield f"{reading.bad_lines:,} bad {were} left out; {where}."
    if reading.unknown_events:
        events = ", ".join(f"{plain(name)} ({number:,})" for name, number in reading.unknown_events.items())
        yield f"Records of unknown kinds were left out: {events}."
    if reading.dropped_fields:
        fields = ", ".join(f"{plain(name)} ({number:,})" for name, number in reading.dropped_fields.items())
        yield f"Values of a wrong type were taken as missing: {fields}."
    strays = reading.duplicate_records + reading.late_records + reading.unmatched_request_records
    if strays:
        yield f"{strays:,} records were doubled, out of order or of no known step."
    if reading.clock_back_s:
        yield (
            f"The clock of the trace was set back by {duration(reading.clock_back_s)} during the run: times and rates"
            " that span it are wrong."
        )
    if reading.omitted_ids:
        yield f"The trace leaves out {reading.omitted_ids:,} ids of long queues by its bound; all counts are exact."
    if reading.sampled_every > 1:
        yield f"The trace holds every {reading.sampled_every}. step; step counts are of those."
    if reading.missing_ranks:
        ranks = ", ".join(map(str, reading.missing_ranks))
        yield f"Of {report.header.data_parallel_size:,} engines, the traces of these ranks are not there: {ranks}."
