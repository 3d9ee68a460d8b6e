"""What every way to ask for a replay takes: each option as a keyword, and with its default and its meaning."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import TypedDict, TypeVar

from tokenyard.arguments import suggests_keywords
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.policies.eviction import EvictionChoice
from tokenyard.quick_dataclass import dataclass
from tokenyard.sim.choices import ObserverChoice, PolicyChoice
from tokenyard.sim.traffic import OnProgress

_Function = TypeVar("_Function", bound=Callable[..., object])


class ReplayKeywords(TypedDict, total=False):
    """Options of ``replay``, ``replay_parallel`` and ``replay_split``, as a function that passes them on declares them:
    ``**options: Unpack[ReplayKeywords]``.
    """

    observer: ObserverChoice | Sequence[ObserverChoice] | None
    """Observers of every engine."""
    policy: PolicyChoice | None
    """The policy of each engine; None: the one that its scheduler's settings name."""
    eviction: EvictionChoice | None
    """Which cached block is given up when one is needed, of each engine; None: as its policy says."""
    make_scheduler: Callable[..., Scheduler] | None
    """Called with what ``Scheduler`` takes; None: ``Scheduler`` itself."""
    skip_refused: bool
    """Go on without requests that can never be served."""
    on_progress: OnProgress | None
    """Called every 256 steps or so; it may return ``"stop"``."""
    rows: bool
    """Whether the result has tables of requests, steps and waits."""
    warmup: float
    """Seconds of virtual time whose requests do not count."""
    until: float | None
    """Seconds of virtual time at which the replay ends; None: with its workload."""
    progress: bool
    """Whether a line on standard error shows how far it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """The same options with their defaults, once they are given."""

    observer: ObserverChoice | Sequence[ObserverChoice] | None = None
    policy: PolicyChoice | None = None
    eviction: EvictionChoice | None = None
    make_scheduler: Callable[..., Scheduler] | None = None
    skip_refused: bool = False
    on_progress: OnProgress | None = None
    rows: bool = False
    warmup: float = 0.0
    until: float | None = None
    progress: bool = False


def takes_options(function: _Function) -> _Function:
    """``function``, whose ``**options`` are shown one by one where its signature is (``help``, the API page).

    It raises UnknownArgumentError for one that there is not.
    """
    signature = inspect.signature(function)
    *own, _ = signature.parameters.values()
    options = [
        inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=each.type)
        for each in fields(ReplayOptions)
    ]
    function.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
    return suggests_keywords(others=_names)(function)


def _names() -> list[str]:
    return [each.name for each in fields(ReplayOptions)]
