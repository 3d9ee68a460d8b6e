"""Everything that the package and the viewer say of a trace, under the same names."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from tests.support.headless import HeadlessViewer, TraceLines

from tokenyard.explain.classifier import classify, meaning_of
from tokenyard.explain.compare.first_difference import FirstDifference, StateDifference, align_jobs, first_difference
from tokenyard.explain.figures import LatencyFigures, StepFigures
from tokenyard.explain.report.report import Report
from tokenyard.explain.report.summary import summarize
from tokenyard.explain.slo import SLO
from tokenyard.explain.why.timeline import TimelineReader
from tokenyard.explain.why.why import why
from tokenyard.trace.facts import CLASSIFIER_BLOCK_SIZE, RequestTimeline, micros
from tokenyard.trace.held_back import main_reason
from tokenyard.trace.reader import TraceReader
from tokenyard.trace.steps import facts_of

__all__ = ["differences", "figures_of_package", "figures_of_viewer"]

_PER_STEP = ("mean", "p50", "p95")
_LATENCY = ("mean", "p50", "p90", "p95", "p99", "max")
_RELATIVE = 1e-9
_COUNTS = re.compile(r"[\d,]+ in A, [\d,]+ in B")


def differences(ours: Any, theirs: Any, where: str = "") -> Iterator[str]:
    """Where two figures of the same name differ; numbers may by what rounding does."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in ours.keys() | theirs.keys():
            yield from differences(ours.get(name), theirs.get(name), f"{where}.{name}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for number, (left, right) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(left, right, f"{where}[{number}]")
    elif not _same(ours, theirs):
        yield f"{where}: the package says {ours!r}, the viewer {theirs!r}"


def _same(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, bool) or isinstance(theirs, bool) or not isinstance(ours, int | float):
        return bool(ours == theirs)
    return isinstance(theirs, int | float) and math.isclose(ours, theirs, rel_tol=_RELATIVE, abs_tol=1e-9)


# ---- the package


def figures_of_package(
    path: Path, other: Path | None = None, bounds: Mapping[str, float | None] | None = None
) -> dict[str, Any]:
    """What the reports, the classifier, `why` and the comparison say; ``bounds`` are milliseconds of each request."""
    slos = [SLO(name, None, bound) for name, bound in (bounds or {}).items() if bound is not None]
    report = summarize(path, slos=slos)
    lives, reconstructed = _lives(path)
    figures = {
        "steps": list(_steps(path)),
        "statistics": _statistics(report),
        "reading": _reading(report),
        "partial": None if report.header.partial is None else str(report.header.partial),
        "waits": {life.request_id: _wait(life, reconstructed=reconstructed) for life in lives},
        "spans": {life.request_id: _spans(path, life.request_id) for life in lives[:2]},
    }
    if other is not None:
        figures["comparison"] = _comparison(path, other)
    return figures


def _steps(path: Path) -> Iterator[dict[str, Any]]:
    reader = TraceReader(path)
    for step in reader.steps():
        size = reader.start.block_size if reader.start is not None else None
        facts = facts_of(step, size or CLASSIFIER_BLOCK_SIZE)
        verdict = classify(facts)
        yield {
            "step": step.number,
            "bucket": verdict.bucket.value,
            "reason": None if verdict.reason is None else verdict.reason.value,
            "unadmitted": verdict.unadmitted,
            "effectiveFree": verdict.effective_free,
            "minNeed": facts.min_need,
            "tokens": facts.token_sum,
            "mainReason": None if step.outcome is None else main_reason(step.outcome),
        }


def _statistics(report: Report) -> dict[str, Any]:
    good = report.goodput
    return {
        "steps": report.steps,
        "buckets": report.buckets,
        "reasons": list(report.reasons.values()),
        "recorded": [
            {"reason": name} | _camel(msgspec.to_builtins(reason), leave_out=("kv_free", "worst"))
            for name, reason in report.recorded_reasons.items()
        ],
        "unseen": report.unseen_s,
        "compared": report.disagreements.steps_compared,
        "disagreeing": report.disagreements.steps_disagreeing,
        "pairs": sorted(msgspec.to_builtins(report.disagreements.pairs), key=str),
        "budgetUse": report.token_budget_use.mean,
        "lookups": report.prefix_lookups,
        "localHits": report.prefix_hit_rate.local,
        "externalHits": report.prefix_hit_rate.external,
        "running": _spread(report.running),
        "waiting": _spread(report.waiting),
        "peakKvUse": report.peak_kv_use,
        "preemptions": report.preemptions,
        "recomputedTokens": report.recomputed_tokens or 0,
        "finished": report.requests_finished or 0,
        "outputTokens": report.output_tokens,
        "seconds": report.duration_s,
        "requestsPerSecond": report.throughput.requests_per_s,
        "tokensPerSecond": report.throughput.output_tokens_per_s,
        "queueMs": _spread(report.queue_ms),
        "ttftMs": _spread(report.ttft_ms),
        "tpotMs": _spread(report.tpot_ms),
        "e2eMs": _spread(report.e2e_ms),
        "itlMs": _spread(report.itl_ms),
        "itlOf": report.itl_requests if report.itl_ms.left_out and report.itl_ms.mean is not None else None,
        "outcomes": None if report.outcomes is None else msgspec.to_builtins(report.outcomes),
        "attempts": None if report.attempts is None else msgspec.to_builtins(report.attempts),
        "goodput": None if good is None or good.requests is None else [good.requests, good.open, good.share],
        "jobs": report.header.jobs,
    }


def _spread(spread: LatencyFigures | StepFigures) -> dict[str, Any] | None:
    """What the viewer has of it."""
    if spread.mean is None:
        return None
    names = _LATENCY if isinstance(spread, LatencyFigures) else _PER_STEP
    at_least = {"atLeast": list(spread.censored)} if isinstance(spread, LatencyFigures) else {}
    return {name: getattr(spread, name) for name in names} | at_least


def _camel(value: Any, leave_out: tuple[str, ...] = ()) -> Any:
    if not isinstance(value, Mapping):
        return value
    head = {name: name.split("_") for name in value if name not in leave_out}
    return {first + "".join(map(str.capitalize, rest)): _camel(value[name]) for name, (first, *rest) in head.items()}


def _reading(report: Report) -> dict[str, Any]:
    reading = report.reading
    return {
        "badLines": reading.bad_lines,
        "unknownEvents": reading.unknown_events,
        "droppedFields": reading.dropped_fields,
        "duplicateRecords": reading.duplicate_records,
        "lateRecords": reading.late_records,
    }


def _lives(path: Path) -> tuple[list[RequestTimeline], bool]:
    reader = TimelineReader(path)
    return list(reader.timelines()), reader.reconstructed


def _wait(life: RequestTimeline, *, reconstructed: bool) -> dict[str, Any]:
    parts: Counter[tuple[str, str, str]] = Counter()
    for wait in life.waits:
        for part in wait.parts:
            parts[part.reason, part.place.value, meaning_of(part.reason, part.place)] += part.us
    return {
        "us": life.waited_us,
        "arrived": life.arrived_us,
        "scheduled": life.first_scheduled_us,
        "until": life.until_us,
        "reconstructed": reconstructed,
        "parts": sorted([*cause, us] for cause, us in parts.items()),
    }


def _spans(path: Path, request_id: str) -> list[list[Any]]:
    answer = why(path, request_id)
    return [[each.state.value, each.reason, each.place.value, each.start_us, each.end_us] for each in answer.spans]


def _comparison(path: Path, other: Path) -> dict[str, Any]:
    return {
        "parting": _first_unequal(*first_difference(path, other)),
        "jobs": {
            pair.job_id: [side and (side.end_us - side.begin_us) / 1e6 for side in (pair.a, pair.b)]
            for pair in align_jobs(path, other)
        },
    }


def _first_unequal(decision: FirstDifference | None, states: list[StateDifference]) -> list[Any] | None:
    """The first step in which anything differs: lists before counts, what a step finds before what it decides."""
    found: list[FirstDifference | StateDifference] = [*states, *([decision] if decision is not None else [])]

    def order(each: FirstDifference | StateDifference) -> tuple[int, bool, bool, bool]:
        is_count = _COUNTS.fullmatch(each.detail) is not None and each.what != "step number"
        return each.equal_steps, each.what == "free blocks", is_count, isinstance(each, FirstDifference)

    first = min(found, key=order, default=None)
    return None if first is None else [first.what, first.detail, first.equal_steps]


# ---- the viewer


def figures_of_viewer(
    viewer: HeadlessViewer, path: Path, other: Path | None = None, bounds: Mapping[str, float | None] | None = None
) -> dict[str, Any]:
    """The same of the page."""
    told = viewer.ask(TraceLines.of(path), None if other is None else TraceLines.of(other), bounds)
    waits = {each["id"]: each for each in told["waits"] if each["seen"]}
    figures = {
        "steps": [{name: value for name, value in each.items() if name != "badge"} for each in told["steps"]],
        "statistics": _viewer_statistics(told),
        "reading": {
            name: told["notes"][name]
            for name in ("badLines", "unknownEvents", "droppedFields", "duplicateRecords", "lateRecords")
        },
        "partial": told["partial"],
        "waits": {name: _viewer_wait(each) for name, each in waits.items()},
        "spans": {
            name: [[span[key] for key in ("state", "reason", "place", "startUs", "endUs")] for span in each["spans"]]
            for name, each in waits.items()
        },
    }
    if other is not None:
        figures["comparison"] = _viewer_comparison(told["comparison"])
    return figures


def _viewer_statistics(told: dict[str, Any]) -> dict[str, Any]:
    found = told["statistics"]
    hits, agreement = found["prefixHits"], found["agreement"] or {"compared": 0, "disagreeing": 0, "pairs": []}
    prompt = hits["promptTokens"]
    recorded = [{name: value for name, value in each.items() if name != "family"} for each in found["recorded"]]
    return {
        **{name: found[name] for name in ("steps", "buckets", "reasons", "peakKvUse", "preemptions", "finished")},
        **{name: found[name] for name in ("outputTokens", "seconds", "requestsPerSecond", "tokensPerSecond")},
        "recorded": recorded,
        "unseen": found["unseenSeconds"],
        "compared": agreement["compared"],
        "disagreeing": agreement["disagreeing"],
        "pairs": sorted(agreement["pairs"], key=str),
        "budgetUse": found["tokenBudget"]["mean"],
        "lookups": hits["lookups"],
        "localHits": hits["localTokens"] / prompt if prompt else None,
        "externalHits": hits["externalTokens"] / prompt if prompt else None,
        "running": _viewer_spread(found["running"], _PER_STEP),
        "waiting": _viewer_spread(found["waiting"], _PER_STEP),
        "recomputedTokens": found["recomputedTokens"] or 0,
        "queueMs": _viewer_spread(found["queueSeconds"], _LATENCY, 1e3),
        "ttftMs": _viewer_spread(found["ttftSeconds"], _LATENCY, 1e3),
        "tpotMs": _viewer_spread(found["tpotSeconds"], _LATENCY, 1e3),
        "e2eMs": _viewer_spread(found["e2eSeconds"], _LATENCY, 1e3),
        "itlMs": _viewer_spread(found["itlSeconds"], _LATENCY, 1e3),
        "itlOf": (found["itlSeconds"] or {}).get("count"),
        "outcomes": found["outcomes"],
        "attempts": _snake(found["attempts"]),
        "goodput": None if (good := told["goodput"]) is None else [good["requests"], good["open"], good["share"]],
        "jobs": told["jobs"],
    }


def _viewer_spread(spread: dict[str, Any] | None, names: tuple[str, ...], scale: float = 1.0) -> Any:
    if spread is None:
        return None
    at_least = {"atLeast": spread.get("atLeast", [])} if names == _LATENCY else {}
    return {name: spread[name] * scale for name in names} | at_least


def _viewer_wait(wait: dict[str, Any]) -> dict[str, Any]:
    return {
        "us": wait["us"],
        "arrived": wait["arrivedUs"],
        "scheduled": wait["firstScheduledUs"],
        "until": wait["untilUs"],
        "reconstructed": wait["reconstructed"],
        "parts": sorted([each["reason"], each["place"], each["meaning"], each["us"]] for each in wait["parts"]),
    }


def _viewer_comparison(found: dict[str, Any]) -> dict[str, Any]:
    parting = found["parting"]
    return {
        "parting": parting and [parting["what"], parting["detail"], max(parting["rowA"], parting["rowB"])],
        "jobs": {each["id"]: [_length(side) for side in (each["a"], each["b"])] for each in found["jobs"]},
    }


def _length(span: dict[str, Any] | None) -> float | None:
    """Seconds; None where the trace does not tell."""
    return None if span is None or span["begin"] is None else (micros(span["end"]) - micros(span["begin"])) / 1e6


def _snake(value: dict[str, Any] | None) -> dict[str, Any] | None:
    """Names as the package has them."""
    return (
        None
        if value is None
        else {re.sub("[A-Z]", lambda at: f"_{at[0].lower()}", name): value[name] for name in value}
    )
