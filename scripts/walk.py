#!/usr/bin/env python3
"""Follow one request through the scheduler, and tell how many files and functions a reader would visit.

    python scripts/walk.py [--tokens 3]

One plain prompt: through ``Scheduler`` alone (made, ``schedule`` and ``update_from_output`` until the request ends),
and through ``replay``, which puts traffic, an engine and a clock around it. Counted are the calls of functions of this
package, the files that they stand in, and how often a call enters another file than the one before.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from tokenyard import (
    CacheConfig,
    ModelOutput,
    Request,
    SamplingParams,
    Scheduler,
    SchedulerConfig,
    Workload,
    WorkloadRequest,
    replay,
)
from tokenyard.sim import ConstantLatency, ListedTokens

__all__ = ["Walk", "main", "walked", "walks"]

_PACKAGE = str(Path(sys.modules["tokenyard"].__file__ or "").parent)


class Walk(NamedTuple):
    """What was passed on the way."""

    files: int
    functions: int
    calls: int
    changes: int
    """Calls that entered another file than the call before."""


def walked(way: Callable[[], object]) -> Walk:
    """Call ``way`` and count; a first call, uncounted, imports and compiles what it needs."""
    way()
    calls: list[tuple[str, str]] = []

    def enter(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(_PACKAGE) and not code.co_name.startswith("<"):
            calls.append((code.co_filename, code.co_qualname))

    sys.settrace(enter)
    try:
        way()
    finally:
        sys.settrace(None)
    files = [file for file, _ in calls]
    changes = sum(a != b for a, b in pairwise(files))
    return Walk(len(set(files)), len(set(calls)), len(calls), changes)


def _through_the_scheduler(tokens: int) -> None:
    scheduler = Scheduler(SchedulerConfig(async_scheduling=False), CacheConfig(num_gpu_blocks=100))
    scheduler.add_request(Request("a", [5] * 20, SamplingParams(max_tokens=tokens)))
    while scheduler.has_requests():
        plan = scheduler.schedule()
        scheduler.update_from_output(plan, ModelOutput.from_lists([[7]] * len(plan.req_ids)))


def _through_a_replay(tokens: int) -> None:
    request = WorkloadRequest(request_id="a", prompt=ListedTokens([5] * 20), max_tokens=tokens)
    replay(
        Workload("one", [request]), SchedulerConfig(), CacheConfig(num_gpu_blocks=100), ConstantLatency(seconds=0.01)
    )


def walks(tokens: int) -> dict[str, Walk]:
    """Return what a request for so many tokens passes, by the way that it goes."""
    ways = {"the scheduler": _through_the_scheduler, "a replay": _through_a_replay}
    return {name: walked(partial(way, tokens)) for name, way in ways.items()}


def main() -> None:
    """Print one line for each way."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tokens", type=int, default=3, help="that the request asks for")
    tokens = parser.parse_args().tokens
    for name, found in walks(tokens).items():
        print(
            f"through {name}: {found.files} files, {found.functions} functions, {found.calls} calls, "
            f"{found.changes} changes of file"
        )


if __name__ == "__main__":
    main()
