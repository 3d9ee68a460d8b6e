"""Random traces, read by the package and by the viewer: every figure of both must be the same.

Real schedulers on random small workloads write the traces; some are sampled, bounded, without a requests file, without
their completions, or as another emitter would have written them. Compared are the classifier's answer for each step,
the statistics, the waits of all requests and the comparison of two traces.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.figures import differences, figures_of_package, figures_of_viewer
from tests.support.headless import HeadlessViewer, TraceLines
from tests.support.workloads import WORKLOADS, TracedWorkload

from tokenyard.errors import TraceError

_OPTIONS: dict[str, dict[str, Any]] = {
    "whole": {},
    "sampled": {"every_n": 3},
    "bounded": {"max_ids_per_step": 1},
    "no requests file": {"request_records": False},
    "no completions": {},
    "another emitter's": {},
}


class Drawn(NamedTuple):
    """How a trace is made."""

    workload: str
    seed: int
    requests: int
    kind: str
    to_the_end: bool

    def write(self, folder: Path) -> Path:
        """Serve the workload; returns where the trace is."""
        recorded = folder / "recorded"
        workload = TracedWorkload(self.workload, self.seed, recorded, trace=_OPTIONS[self.kind])
        workload.run(self.requests, to_the_end=self.to_the_end)
        lines = TraceLines.of(recorded)
        if self.kind == "no completions":
            lines = _only(lines, lambda event: event != "step_completed")
        if self.kind == "another emitter's":
            lines = _only(lines, lambda event: event in ("step_snapshot", "step_decision"))
        return lines.write(folder / "read")


def _only(lines: TraceLines, keeps: Any) -> TraceLines:
    return lines._replace(steps=[line for line in lines.steps if keeps(json.loads(line)["event"])])


TRACES = st.builds(
    Drawn,
    workload=st.sampled_from(sorted(WORKLOADS)),
    seed=st.integers(0, 2**32 - 1),
    requests=st.integers(1, 25),
    kind=st.sampled_from(sorted(_OPTIONS)),
    to_the_end=st.booleans(),
)
BOUNDS: st.SearchStrategy[dict[str, float | None]] = st.fixed_dictionaries(
    {
        name: st.sampled_from((None, low, high))
        for name, low, high in (("ttft", 1, 60), ("tpot", 2, 25), ("e2e", 5, 400))
    }
)
"""Milliseconds, some of which are missed."""


@settings(max_examples=examples(40))
@given(one=TRACES, other=TRACES, same=st.booleans(), bounds=BOUNDS)
def test_the_viewer_says_what_the_package_says(
    headless_viewer: HeadlessViewer, one: Drawn, other: Drawn, same: bool, bounds: dict[str, float | None]
) -> None:
    if same:  # the same requests under other settings, or the very same run
        other = other._replace(seed=one.seed, workload=one.workload if other.seed % 2 else other.workload)
    with tempfile.TemporaryDirectory() as folder:
        a, b = one.write(Path(folder) / "a"), other.write(Path(folder) / "b")
        try:
            ours = figures_of_package(a, b, bounds)
        except TraceError:
            return  # not a step in one of them
        theirs = figures_of_viewer(headless_viewer, a, b, bounds)
    theirs["spans"] = {name: theirs["spans"].get(name) for name in ours["spans"]}
    assert list(differences(ours, theirs)) == []
