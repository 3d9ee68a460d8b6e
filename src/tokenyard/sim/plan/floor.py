"""Where no variant holds a bound: what the bound would have to be, and which part of the time makes it.

The floor is what the nearest variant reaches when it serves one request at a time: then nobody queues, and every step
has one request's tokens. A bound below it is held at no load; one above it is missed because of the load.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from tokenyard.explain.report.slo import SLO
from tokenyard.sim.sweep.row import Row

__all__ = ["Floor", "floors_of", "meets_alone", "sentence_of"]


class Floor(msgspec.Struct, frozen=True, kw_only=True):
    """One bound that the nearest variant misses."""

    bound: str
    """``ttft_p90=500ms``."""
    bound_ms: float
    reached_ms: float
    """By the nearest variant, at the workload's own load."""
    alone_ms: float | None
    """By it, serving one request at a time; None where that was not measured."""
    parts_ms: dict[str, float]
    """``queueing``, ``prefill``, ``decode``: means at the workload's own load, as far as the figure has them."""


def floors_of(slos: Sequence[SLO], row: Row, alone: Row) -> list[Floor]:
    """Bounds on statistics that ``row`` misses; ``alone`` is the same variant, serving one request at a time."""
    return list(_missed(slos, row, alone))


def _missed(slos: Sequence[SLO], row: Row, alone: Row) -> Iterator[Floor]:
    for slo in slos:
        if slo.statistic is None:
            continue
        name = f"{slo.figure}_ms.{slo.statistic}"
        reached = row.figures.get(name)
        if reached is not None and reached > slo.bound_ms:
            yield Floor(
                bound=str(slo),
                bound_ms=slo.bound_ms,
                reached_ms=reached,
                alone_ms=alone.figures.get(name),
                parts_ms=_parts(slo.figure, row),
            )


def _parts(figure: str, row: Row) -> dict[str, float]:
    """A request queues until it is first scheduled, is prefilled until its first token, and decodes until its end."""
    queue, first, end = (row.figures.get(f"{name}_ms.mean") for name in ("queue", "ttft", "e2e"))
    parts: dict[str, float] = {}
    if queue is not None and figure in ("queue", "ttft", "e2e"):
        parts["queueing"] = queue
        if first is not None and figure != "queue":
            parts["prefill"] = first - queue
    if figure == "e2e" and first is not None and end is not None:
        parts["decode"] = end - first
    if figure in ("tpot", "itl") and (mean := row.figures.get(f"{figure}_ms.mean")) is not None:
        parts["decode"] = mean
    return parts


def meets_alone(floors: Sequence[Floor]) -> bool:
    """Whether every bound that is missed would hold for one request at a time: it is the load that is too much."""
    return bool(floors) and all(each.alone_ms is not None and each.alone_ms <= each.bound_ms for each in floors)


def sentence_of(floor: Floor) -> str:
    """The same in words."""
    said = f"{floor.bound}: {_time(floor.reached_ms)} here"
    if len(floor.parts_ms) > 1:
        said += f" (on average {', '.join(f'{_time(value)} {name}' for name, value in floor.parts_ms.items())})"
    if floor.alone_ms is None:
        return said
    alone = f"{said}; one request at a time {_time(floor.alone_ms)}"
    if floor.alone_ms <= floor.bound_ms:
        return f"{alone}, so it is the load that is too much"
    parts = " and ".join(name for name in floor.parts_ms if name != "queueing") or "waiting"
    return f"{alone}, all of it {parts}: no load holds this bound here, it would have to be that much at least"


def _time(milliseconds: float) -> str:
    return f"{milliseconds / 1e3:.3g} s" if milliseconds >= 1e3 else f"{milliseconds:.3g} ms"
