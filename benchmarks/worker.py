"""The worker's end of the comparison.

{"scenario": "decode_256", "variants": ["plain"]}   ->   {"plain": {"seconds": {...}, "facts": {...}}}
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from measure import measure
from side import answer
from workload import SCENARIOS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from measure import Build

__all__ = ["serve"]


def serve(variants: Mapping[str, Build]) -> None:
    """Answer until stdin ends."""
    _use_one_core()
    scenarios = {scenario.name: scenario for scenario in SCENARIOS}

    def reply(order: dict[str, Any]) -> dict[str, Any]:
        builds = {name: variants[name] for name in order["variants"]}
        measured = measure(scenarios[order["scenario"]], builds)
        return {name: each._asdict() for name, each in measured.items()}

    answer(reply)


def _use_one_core() -> None:
    """Both workers take the last core, in turns; the one that is not asked sleeps."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
