"""Measuring many variants: one after the other, in processes of this machine, or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from importlib import import_module
from multiprocessing import get_context
from typing import Any

from tokenyard.errors import ConfigError, MissingExtraError
from tokenyard.sim.sweep.row import Row, Settings

__all__ = ["LOCAL_RAY", "Job", "measured", "measured_on_ray"]

Job = Callable[[Settings], Row]
"""Measures one variant; it can be pickled."""

LOCAL_RAY = "local"
"""In the place of an address: a cluster of this machine, for this sweep."""
_MOST_DEATHS = 3
"""Times that worker processes may die without a variant finished in between."""
_RETRIES = 3
"""Times that Ray begins a variant anew whose worker, or whose machine, died."""


def measured(job: Job, variants: Sequence[Settings], processes: int = 1) -> Iterator[Row]:
    """A row per variant, as they finish. A variant whose process dies is begun anew.

    Raises ConfigError if processes die again and again.
    """
    if processes == 1 or len(variants) == 1:
        yield from map(job, variants)
        return
    left = dict(enumerate(variants))
    deaths = 0
    while left:
        try:
            for number, row in _in_processes(job, left, processes):
                del left[number]
                deaths = 0
                yield row
        except BrokenProcessPool:
            deaths += 1
            if deaths > _MOST_DEATHS:
                fix = "worker processes died several times in a row: there may not be enough memory for so many"
                raise ConfigError("processes", processes, fix) from None


_job: Job | None = None
"""Of a worker process."""


def _begin(job: Job) -> None:
    global _job  # noqa: PLW0603 - sent once per process, not with every variant
    _job = job


def _measure(settings: Settings) -> Row:
    assert _job is not None
    return _job(settings)


def _in_processes(job: Job, variants: dict[int, Settings], processes: int) -> Iterator[tuple[int, Row]]:
    """Number and row of each, as they finish; new processes know nothing of this one's threads."""
    pool = ProcessPoolExecutor(processes, get_context("spawn"), _begin, (job,))
    try:
        numbers: dict[Future[Row], int] = {}
        waiting = iter(list(variants.items()))
        while True:
            for number, settings in waiting:
                numbers[pool.submit(_measure, dict(settings))] = number
                if len(numbers) >= 4 * processes:
                    break
            if not numbers:
                return
            for future in wait(numbers, return_when=FIRST_COMPLETED).done:
                yield numbers.pop(future), future.result()
    except BrokenProcessPool:
        pool.shutdown()  # its threads close its pipes, and must not close what is opened after them
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def measured_on_ray(job: Job, variants: Sequence[Settings], address: str) -> Iterator[Row]:
    """A row per variant, as they finish, from the workers of a Ray cluster.

    ``address`` is what ``ray.init`` takes, or :data:`LOCAL_RAY`. A cluster that this process is connected to already is
    used as it is. Raises MissingExtraError without Ray, ConfigError if there is no such cluster, or if the worker of a
    variant dies again and again.
    """
    ray = _ray()
    is_ours = not ray.is_initialized()
    if is_ours:
        of_this_machine = {"include_dashboard": False} if address == LOCAL_RAY else {"address": address}
        try:
            ray.init(log_to_driver=False, **of_this_machine)
        except Exception as error:  # noqa: BLE001 - Ray raises plain ones where a cluster does not start
            problem = str(error).strip().partition("\n")[0]
            raise ConfigError("ray", address, f"there is no such cluster: {problem}") from None
    try:
        yield from _on_cluster(ray, job, variants)
    except ray.exceptions.RayError as error:
        raise ConfigError("ray", address, f"a variant could not be measured: {str(error).strip()}") from None
    finally:
        if is_ours:
            ray.shutdown()


def _ray() -> Any:
    try:
        return import_module("ray")
    except ImportError:
        raise MissingExtraError("ray", "ray") from None


def _on_cluster(ray: Any, job: Job, variants: Sequence[Settings]) -> Iterator[Row]:
    def measure(job: Job, settings: Settings) -> Row:
        return job(settings)

    remote = ray.remote(max_retries=_RETRIES)(measure)
    shared = ray.put(job)
    most = 4 * max(int(ray.cluster_resources().get("CPU", 1)), 1)
    waiting = iter(variants)
    running: list[Any] = []
    while True:
        for settings in waiting:
            running.append(remote.remote(shared, dict(settings)))
            if len(running) >= most:
                break
        if not running:
            return
        done, running = ray.wait(running)
        yield from ray.get(done)
