"""The worker's end of the comparison: JSON lines in, JSON lines out.

    {"scenario": "decode_256", "variants": ["plain"]}   ->   {"plain": {"seconds": {...}, "facts": {...}}}

Anything the libraries print goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

from measure import measure
from workload import SCENARIOS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from measure import Build

__all__ = ["serve"]


def serve(variants: Mapping[str, Build]) -> None:
    """Answer until stdin ends."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    _use_one_core()
    scenarios = {scenario.name: scenario for scenario in SCENARIOS}
    for line in sys.stdin:
        order = json.loads(line)
        builds = {name: variants[name] for name in order["variants"]}
        measured = measure(scenarios[order["scenario"]], builds)
        answers.write(json.dumps({name: each._asdict() for name, each in measured.items()}) + "\n")
        answers.flush()


def _use_one_core() -> None:
    """Both workers take the last core, in turns; the one that is not asked sleeps."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
