"""Many tasks in, a row each out: what a journal has is not done again, the rest in processes or on a cluster."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from glob import glob
from hashlib import blake2s
from pathlib import Path
from typing import Any, TypeVar

from tokenyard.questions.by_class import read_bounds
from tokenyard.questions.scenario import Counting, Scenario
from tokenyard.questions.sweeping.cluster import Cluster
from tokenyard.questions.sweeping.rows import Journal, Row, Settings, key_of
from tokenyard.questions.sweeping.variants import Grid, Job, Workers
from tokenyard.version import __version__
from tokenyard.workload.record import Workload

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


# ---------------------------------------------------------------------------------------------------------------------
# What rows depend on, so that those of an earlier call can be told from others.

_CHUNK = 1 << 20


def identity_of(
    scenario: Scenario, prices: Mapping[str, float], around: Mapping[str, Any], grid: Grid | None = None
) -> Mapping[str, Any]:
    """All that rows of a sweep depend on, apart from their own settings; JSON can hold it.

    ``around`` is what else they depend on. Whether a variant of a plan is replayed to its end depends on the others, so
    a plan's ``grid`` belongs to it.
    """
    groups = ("arrivals", "hardware", "scheduler", "parallel", "adapters", "transfer", "speculation")
    asked = scenario.launch.asked
    workload = scenario.workload
    known: dict[str, Any] = {
        "tokenyard": __version__,
        "workload": scenario.name,
        "contents": contents_of(workload),
        **{f"contents of {each}": _contents(Path(each)) for each in scenario.more},
        "vllm_version": scenario.launch.vllm_version,
        "ignore_unmodelled": scenario.launch.ignore_unmodelled,
        "vllm_flags": sorted(str(each) for each in asked.given),
        "environment": dict(sorted(asked.environment.items())),
        **{group: asdict(getattr(scenario, group)) for group in groups},
        "slo": [str(slo) for slo in read_bounds(scenario.slo, scenario.by)],
        "by": scenario.by,
        "price": dict(prices),
        **around,
    }
    if grid is not None:
        known["grid"] = [[name, list(values)] for name, values in grid.dimensions]
        if grid.is_narrowed:
            known["variants"] = [key_of(each) for each in grid.all()]
    return known | {"files": _files(known)}


def contents_of(workload: str | Workload) -> str | None:
    """A digest of what arrives: of a workload that was made in Python, or of its file; None for a built-in one."""
    if isinstance(workload, Workload):
        what = list(workload), workload.max_concurrency, workload.clients
        return blake2s(pickle.dumps(what), digest_size=16).hexdigest()
    return _contents(Path(workload))


def _files(known: Any) -> dict[str, str | None]:
    """Digests of the files that are named in it: a model's config.json, a policy's FILE.py:CLASS, a trace to fit to."""
    if isinstance(known, Mapping):
        return _files(list(known.values()))
    if isinstance(known, list | tuple):
        return {name: digest for each in known for name, digest in _files(each).items()}
    if not isinstance(known, str):
        return {}
    before, colon, behind = known.rpartition(":")
    path = next((path for path in (known, before) if os.path.isfile(path)), behind if colon else "")  # noqa: PTH113
    return {known: _contents(Path(path))} if path and os.path.exists(path) else {}  # noqa: PTH110 - never raises


def _contents(path: Path) -> str | None:
    """A digest of the file, or of all files of a directory or a pattern; None where there is none."""
    digest = blake2s(digest_size=16)
    fitting = [path] if path.exists() else [Path(each) for each in glob(str(path))]  # noqa: PTH207 - as it is read
    if not fitting:
        return None
    for each in sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else sorted(fitting):
        digest.update(each.name.encode())
        with each.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    return digest.hexdigest()
