"""Many tasks in, a row each out: what a journal has is not done again, the rest in processes or on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from tokenyard.questions.scenario import Counting
from tokenyard.questions.sweeping.cluster import Cluster
from tokenyard.questions.sweeping.rows import Journal, Row, Settings
from tokenyard.questions.sweeping.variants import Job, Workers

T = TypeVar("T")
R = TypeVar("R")


def workers_for(
    job: Callable[[T], R], processes: int | None, ray: str | None, traces: Path | None = None
) -> Workers[T, R] | Cluster[T, R]:
    """Return what does tasks: so many processes of this machine (None: as many as pay), or the cluster at ``ray``.

    ``traces``: the folder in which the job leaves them.
    """
    return Workers(job, processes) if ray is None else Cluster(job, ray, traces=traces)


def measured(
    job: Job,
    variants: Sequence[Settings],
    processes: int | None = 1,
    *,
    ray: str | None = None,
    traces: Path | None = None,
) -> Iterator[Row]:
    """Yield a row per variant, as they finish. A variant whose process or worker dies is begun anew.

    Raises ConfigError if they die again and again, or there is no such cluster.
    """
    most = None if processes is None else min(processes, len(variants))
    with workers_for(job, most, ray, traces) as workers:
        yield from (row for _, row in workers.each(variants))


def complete(
    journal: Journal,
    variants: Sequence[Settings],
    job: Job,
    bar: Counting,
    *,
    processes: int | None = 1,
    ray: str | None = None,
    traces: Path | None = None,
) -> None:
    """Measure what the journal lacks, and keep it there; ``bar`` is told of every row."""
    left = [settings for settings in variants if settings not in journal]
    with bar(len(variants), len(variants) - len(left)) as advance:
        for row in measured(job, left, processes, ray=ray, traces=traces) if left else ():
            journal.add(row)
            advance()
