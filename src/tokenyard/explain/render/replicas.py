"""Replicas that come and go, over time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from rich.table import Column, Table
from rich.text import Text

from tokenyard.explain.render.tables import table_of
from tokenyard.explain.render.units import count, duration
from tokenyard.explain.report.replicas import ReplicaFigures

__all__ = ["replicas_of"]

_ROWS = 12
"""Stretches of the run that are shown, where replicas came or went."""


def replicas_of(replicas: ReplicaFigures, seconds: float | None) -> Iterator[Table | Text]:
    """What they were scaled by, what that took, and how many there were when."""
    if replicas.least == replicas.most:
        yield Text(f"{count(replicas.most)} of them, always.")
        return
    yield Text(
        f"{count(replicas.least)} to {count(replicas.most)}, by Kubernetes' HorizontalPodAutoscaler that aims at "
        f"{replicas.target:g} waiting requests each; {duration(replicas.startup_s)} to start."
    )
    gpus = "" if replicas.gpus is None else f", {replicas.held_s * replicas.gpus / 3600:,.2f} GPU-hours"
    yield Text(
        f"{replicas.mean_held:,.2f} on average, {count(replicas.max_held)} at most; {count(replicas.started)} started; "
        f"{replicas.held_s / 3600:,.2f} replica-hours{gpus}"
    )
    if len(replicas.changes) > 1 and seconds:
        yield _over_time(replicas, seconds)


def _over_time(replicas: ReplicaFigures, seconds: float) -> Table:
    """A row for each twelfth of the run: how many there were at its beginning, and at most."""
    names = ("replicas", "at most", "taking requests")
    table = table_of(Column("from", justify="right"), *(Column(name, justify="right", no_wrap=True) for name in names))
    changes = replicas.changes
    moments = [change.at_s for change in changes]
    for i in range(_ROWS):
        begin, end = seconds * i / _ROWS, seconds * (i + 1) / _ROWS
        at = bisect_right(moments, begin) - 1
        within = changes[at : bisect_right(moments, end)]
        most = max(change.held for change in within)
        table.add_row(duration(begin), count(changes[at].held), count(most), count(changes[at].ready))
    return table
