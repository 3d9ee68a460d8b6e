"""Waits of damaged traces: whatever is lost, doubled or moved, nothing crashes and every part adds up."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Iterator
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

from tokenyard.errors import TraceError
from tokenyard.explain.report.summary import summarize
from tokenyard.explain.why.timeline import TimelineReader
from tokenyard.explain.why.why import phases_of, waiting, why
from tokenyard.trace.export.timeline import ChromeWriter, emit_timeline, segments_of
from tokenyard.trace.facts import RequestTimeline

VECTORS = Path(__file__).parents[1] / "unit" / "explain" / "why_vectors.json"
TRACES: list[list[dict[str, Any]]] = [
    vector["lines"] for vector in json.loads(VECTORS.read_text(encoding="utf-8"))["vectors"]
]
ODD: tuple[Any, ...] = (None, -1, 0, 1e9, "", "r1", [], ["r0", "r0"], {}, {"r1": 2}, True)


def damaged(rng: random.Random, lines: list[dict[str, Any]]) -> Iterator[str]:
    """Lines lost, doubled, moved, cut, and with odd values in their fields."""
    lines = [dict(line) for line in lines]
    for _ in range(rng.randint(1, 12)):
        if not lines:
            break
        at, what = rng.randrange(len(lines)), rng.randrange(5)
        if what == 0:
            del lines[at]
        elif what == 1:
            lines.insert(rng.randrange(len(lines)), dict(lines[at]))
        elif what == 2:
            lines.insert(rng.randrange(len(lines)), lines.pop(at))
        else:
            lines[at][rng.choice(list(lines[at]))] = rng.choice(ODD)
    for line in lines:
        text = json.dumps(line)
        yield (text if rng.random() > 0.01 else text[: len(text) // 2]) + "\n"


def check(timeline: RequestTimeline) -> None:
    for wait in timeline.waits:
        assert sum(part.us for part in wait.parts) == wait.us
        assert all(part.us > 0 for part in wait.parts)
    phases = phases_of(timeline)
    assert phases.queued_us + phases.preempted_us + phases.stalled_us == timeline.waited_us
    segments = segments_of(timeline)
    assert all(segment.end_us > segment.start_us for segment in segments)
    assert all(earlier.end_us <= later.start_us for earlier, later in pairwise(segments))


@settings(max_examples=examples(100))
@given(trace=st.sampled_from(TRACES), seed=st.integers(0, 2**32))
def test_parts_of_a_damaged_trace_add_up(trace: list[dict[str, Any]], seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "a.steps.jsonl"
        file.write_text("".join(damaged(random.Random(seed), trace)), encoding="utf-8")
        try:
            timelines = list(TimelineReader(file).timelines())
        except TraceError:
            return
        for timeline in timelines:
            check(timeline)
        assert waiting(file).waited_us == sum(timeline.waited_us for timeline in timelines)
        if timelines:
            answer = why(file, timelines[0].request_id)
            assert sum(span.us for span in answer.spans) == answer.waited_us
        summarize(file)
        writer = ChromeWriter(BytesIO(), "damaged")
        emit_timeline(TimelineReader(file).with_timelines(), writer)


@pytest.mark.parametrize("trace", TRACES)
def test_parts_of_the_whole_trace_add_up(tmp_path: Path, trace: list[dict[str, Any]]) -> None:
    file = tmp_path / "a.steps.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in trace), encoding="utf-8")
    for timeline in TimelineReader(file).timelines():
        check(timeline)
