"""A trace read into a report: the traces of all engines, where there are several, into one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenyard.explain.report.builder import ReportBuilder
from tokenyard.explain.report.joined import EnginePart, joined_report
from tokenyard.explain.report.report import Report
from tokenyard.explain.report.slo import SLO
from tokenyard.explain.why.timeline_reader import StepReader
from tokenyard.trace.format.step_facts import CLASSIFIER_BLOCK_SIZE, Drafts
from tokenyard.trace.read.facts_of_step import facts_of
from tokenyard.trace.read.ranks import RankTrace, find_ranks
from tokenyard.trace.read.reader import Step

__all__ = ["summarize"]


def summarize(path: Path | str, *, requests: bool = True, slos: Sequence[SLO] = ()) -> Report:
    """The report on a trace: a file of the pair, the directory that holds it, or that of the engines of one run.

    ``slos`` are what goodput is counted by. ``requests=False`` leaves a requests file unread, which is faster; the
    classifier then knows no ``minNeed``. Raises TraceError if there is no trace, no step in it, or traces of
    different runs.
    """
    traces = find_ranks(path)
    parts = [EnginePart(each.rank or 0, *_summarized(each, slos, requests=requests)) for each in traces]
    return parts[0].report if len(parts) == 1 else joined_report(parts, source=str(path))


def _summarized(trace: RankTrace, slos: Sequence[SLO], *, requests: bool) -> tuple[ReportBuilder, Report]:
    builder = ReportBuilder(slos)
    source = str(trace.files.source)
    if trace.is_idle:
        return builder, builder.report(source=source)
    reader = StepReader(trace.files, requests=requests)
    for step in reader.steps():
        if builder.start is None and reader.start is not None:
            builder.trace_started(reader.start)
        _feed(builder, step)
    builder.jobs |= reader.jobs
    report = builder.report(source=source, notes=reader.reader.notes, reconstructed=reader.reconstructed)
    return builder, report


def _feed(builder: ReportBuilder, step: Step) -> None:
    """Hand one step to the builder, in the order in which things happened."""
    for arrived in step.arrived:
        builder.request_arrived(arrived)
    for lookup in step.lookups:
        builder.prefix_looked_up(lookup)
    block_size = builder.start.block_size if builder.start is not None else None
    builder.step_decided(facts_of(step, block_size or CLASSIFIER_BLOCK_SIZE))
    if step.completed is not None:
        done = step.completed
        builder.step_completed(done.step, done.ts, done.step_seconds, done.num_sampled_tokens)
        if done.num_drafts and done.num_draft_tokens is not None and done.num_accepted_tokens_per_pos is not None:
            builder.drafts_verified(Drafts(done.num_drafts, done.num_draft_tokens, done.num_accepted_tokens_per_pos))
    for finished in step.finished:
        builder.request_finished(finished)
    for arrived in step.arrived_after:
        builder.request_arrived(arrived)
