"""Which vLLM this is, and every place where its versions differ in what we touch.

No other module of the package asks for a version or looks for a field that only some versions have.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from tokenyard.errors import MissingExtraError

__all__ = [
    "TESTED",
    "UntestedVersionWarning",
    "check_version",
    "data_parallel_rank",
    "draft_slots",
    "installed_version",
    "max_batched",
    "max_running",
    "session_of",
    "status_name",
    "version_tuple",
    "waiting_queues",
]

TESTED = ("0.22.1", "0.32.0", "0.33.0")
"""Versions that the tests run with: all with the scheduler, 0.32.0 with the whole engine."""

_RELEASE = re.compile(r"\d+(?:\.\d+)*")


class UntestedVersionWarning(UserWarning):
    """This version of vLLM was never tried."""


def installed_version() -> str:
    """Release of the installed vLLM without its build, as ``0.33.0``. Raises MissingExtraError where there is none."""
    try:
        version = str(import_module("vllm").__version__)
    except ImportError as error:
        if error.name and error.name.partition(".")[0] != "vllm":
            raise
        raise MissingExtraError("vllm", "vllm") from None
    found = _RELEASE.match(version)
    return found.group() if found else version


def version_tuple(version: str) -> tuple[int, ...]:
    """``0.33.0`` as numbers, to compare; () for a version that does not begin with a number."""
    found = _RELEASE.match(version)
    return tuple(map(int, found.group().split("."))) if found else ()


def check_version() -> str:
    """The installed version; one that was never tried is a warning that names those that were."""
    version = installed_version()
    if version not in TESTED:
        warnings.warn(
            f"vLLM {version} was never tried with this Tokenyard, vLLM {', '.join(TESTED)} were: compare a short run "
            "with vLLM's own scheduler first",
            UntestedVersionWarning,
            stacklevel=2,
        )
    return version


def waiting_queues(scheduler: Any) -> Sequence[Any]:
    """The waiting queues of a vLLM scheduler, the one that is tried first in front.

    Until 0.30 that is ``skipped_waiting`` (whoever was passed over), since 0.31 ``kv_holding_waiting`` (whoever holds
    blocks while it waits).
    """
    first = getattr(scheduler, "kv_holding_waiting", None)
    if first is None:
        first = scheduler.skipped_waiting
    return first, scheduler.waiting


def max_running(scheduler: Any) -> int:
    """Most requests that a vLLM scheduler has running at once; since 0.31 fewer than the workers have rows for."""
    return int(getattr(scheduler, "max_num_active_reqs", scheduler.max_num_running_reqs))


def draft_slots(scheduler: Any) -> int:
    """Tokens that each scheduled request takes from the step beside its own, for drafts: since 0.28, 0 before.

    Until then the step's budget is smaller by as much for the most requests that may run.
    """
    config = scheduler.vllm_config
    if config.speculative_config is None or scheduler.max_num_scheduled_tokens < max_batched(config):
        return 0
    return int(getattr(config.speculative_config, "max_num_new_slots_for_drafting", 0) or 0)


def max_batched(vllm_config: Any) -> int:
    """Most tokens that a step of the engine computes."""
    return int(vllm_config.scheduler_config.max_num_batched_tokens)


def data_parallel_rank(vllm_config: Any) -> int | None:
    """Number of this engine among those that share the traffic; None if it is the only one, as far as it knows.

    Engines of dense models are told that they are alone, but keep their number: the first of them, 0, cannot tell.
    """
    parallel = vllm_config.parallel_config
    rank = int(parallel.data_parallel_index)
    return rank if rank or parallel.data_parallel_size > 1 else None


def status_name(request: Any) -> str:
    """Name of the status of a vLLM request; those of all versions are those of our ``RequestStatus``."""
    return str(request.status.name)


def session_of(request: Any) -> str | None:
    """``session_id`` of a vLLM request, which has one since 0.30."""
    session = getattr(request, "session_id", None)
    return None if session is None else str(session)
