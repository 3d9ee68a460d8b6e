"""``tokenyard split``: prefill on one engine or several, decode on others; the report is what clients see."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tokenyard.cli.run import warn_of_refused, where_it_is
from tokenyard.cli.support.asking import say_overwritten, scenario_of
from tokenyard.cli.support.console import errors, print_json, replay_bar, results, say_notes
from tokenyard.cli.support.flags import Split
from tokenyard.explain.render.report import print_report
from tokenyard.explain.render.units import count, gigabytes, milliseconds, percent
from tokenyard.explain.report.report import Report
from tokenyard.questions.run import Recordings
from tokenyard.questions.variants import sides_of
from tokenyard.sim.replay import ReplayResult, replay_engines
from tokenyard.trace.start import Deployment

__all__ = ["BusyShares", "SplitReport", "execute"]


class BusyShares(msgspec.Struct, frozen=True, kw_only=True):
    """How busy engines and links were, each on average, as shares of the run."""

    prefill: float
    decode: float
    link: float
    kv_bytes: int
    """Sent from one GPU of each prefill engine, added up."""


class SplitReport(msgspec.Struct, frozen=True, kw_only=True):
    """What ``--json`` prints. ``decode`` holds the latencies that clients see: both sides know the true arrivals."""

    header: Deployment
    """Of the decode engines; those that prefill are alike, but for how many they are."""
    prefill_engines: int
    decode_engines: int
    prefill: Report
    decode: Report
    use: BusyShares


class _Outcome(NamedTuple):
    report: SplitReport
    traces: Path | None
    """The directory of both; None if none were wanted."""
    problem: str | None
    """Why they are not whole."""


def execute(flags: Split) -> int:
    """Replay and report; 0 if it ends, 2 if its traces do not hold all of it."""
    outcome = _run(flags)
    if flags.json:
        print_json(outcome.report)
    else:
        _show(outcome, results(), buckets=flags.buckets)
    return 0 if outcome.problem is None else 2


def _run(flags: Split) -> _Outcome:
    with errors().status(f"reading {escape(flags.workload)}"):
        split = sides_of(scenario_of(flags), flags.apart)
    setup = split.prefill
    say_notes(setup.workload)
    with ExitStack() as stack:
        sides = [Recordings(each, stack, None, say_overwritten) for each in split.recorded]
        on_progress = stack.enter_context(replay_bar(len(setup.workload)))
        settings = setup.replays(skip_refused=flags.arrivals.skip_refused)
        result = replay_engines(
            setup.workload,
            settings,
            decode=split.decode_side(skip_refused=settings.skip_refused),
            observers=[*sides[0].recorders, *sides[1].recorders],
            policy=setup.policy,
            on_progress=on_progress,
        )
    if result.refused:
        warn_of_refused(setup.workload, result.refused, result.num_left_out)
    prefill, decode = (
        side.report(use.ranks, result.seconds) for side, use in zip(sides, (result.prefill, result.decode), strict=True)
    )
    problems = [side.problem for side in sides if side.problem is not None]
    report = SplitReport(
        header=split.decode.deployment,
        prefill_engines=split.prefill.num_engines,
        decode_engines=split.decode.num_engines,
        prefill=prefill,
        decode=decode,
        use=_use(result),
    )
    return _Outcome(report, setup.trace.path, problems[0] if problems else None)


def _use(result: ReplayResult) -> BusyShares:
    seconds = result.seconds or 1.0
    return BusyShares(
        prefill=result.prefill.busy_seconds / seconds,
        decode=result.decode.busy_seconds / seconds,
        link=result.link_busy_seconds / seconds,
        kv_bytes=result.kv_bytes,
    )


def _engines(number: int, side: str) -> str:
    return f"{number} {side} engines" if number > 1 else f"{side} engine"


def _show(outcome: _Outcome, console: Console, *, buckets: bool) -> None:
    """The decode side's report in full, of the other one and the link what there is to know."""
    report = outcome.report
    size = report.prefill_engines
    decode = _engines(report.decode_engines, "decode")
    prefill = _engines(size, "prefill")
    console.print(f"[bold]The {decode}[/], with the latencies that clients see")
    print_report(report.decode, console, buckets=buckets)
    console.print(f"\n[bold]The {prefill} and the link{'s' * (size > 1)}[/]")
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1))
    table.add_column(style="bright_black", no_wrap=True)
    table.add_column()
    side, use = report.prefill, report.use
    queue, first = (
        f"{milliseconds(each.p50)} p50, {milliseconds(each.p99)} p99" for each in (side.queue_ms, side.ttft_ms)
    )
    hits = f"{percent(side.prefix_hit_rate.local)} of prompt tokens"
    for name, text in (
        ("busy", f"prefill {percent(use.prefill)}, decode {percent(use.decode)}, link {percent(use.link)}"),
        ("prefill queue", queue),
        ("prefill, to its end", first),
        ("prefix hits", hits),
        ("KV blocks", f"{percent(side.peak_kv_use)} in use at the peak"),
        ("KV sent", f"{gigabytes(use.kv_bytes)} per GPU, for {count(side.requests_finished)} requests"),
    ):
        table.add_row(name, text)
    console.print(table)
    if outcome.traces is not None:
        console.print(where_it_is("The traces are", outcome.traces, outcome.problem), soft_wrap=True)
