"""Replay: the scheduler on a virtual clock, fed by a workload, with a latency model in place of a GPU.

What this package offers are settings and results of ``replay``, ``replay_split`` and ``compare``, the replay of several
engines, and what a latency model, a connector or a router of your own needs there.
"""

from __future__ import annotations

from tokenyard.lazy import lazy_names

OFFERED, __all__, _load, __dir__ = lazy_names(__name__)

_FORMER = {"ParallelResult": "ReplayResult", "SplitResult": "ReplayResult"}


def __getattr__(name: str) -> object:
    """What is offered, and by its former name what is called otherwise now."""
    if name in _FORMER:
        import warnings  # noqa: PLC0415 - for few

        warnings.warn(f"{__name__}.{name} is {_FORMER[name]} now", DeprecationWarning, stacklevel=2)
        return _load(_FORMER[name])
    return _load(name)
