"""The right one of two scheduler classes: vLLM has one for synchronous and one for asynchronous scheduling.

An engine that schedules asynchronously counts on ``AsyncScheduler``, and vLLM does not check what a ``--scheduler-cls``
derives from. So our classes come in pairs, and whichever is named, the engine gets the one that it runs with. The
asynchronous twin derives from the synchronous class, and its ``super()`` reaches vLLM's ``AsyncScheduler``.
"""

from __future__ import annotations

from typing import Any


def is_async(vllm_config: Any) -> bool:
    """Whether an engine with this ``VllmConfig`` schedules the next step before the last one's output is there."""
    return bool(vllm_config.scheduler_config.async_scheduling)


class Twins:
    """Put before vLLM's class among the bases; each class of a pair names both in ``twins``."""

    twins: tuple[type[Any], type[Any]]
    """For synchronous and for asynchronous scheduling."""

    def __new__(cls, vllm_config: Any, *args: Any, **options: Any) -> Any:
        """An instance of the twin that ``vllm_config`` asks for; a class of the user's own stays what it is."""
        pair = cls.__dict__.get("twins")
        if pair is None or cls not in pair:
            return super().__new__(cls)
        wanted = pair[is_async(vllm_config)]
        if issubclass(wanted, cls):  # then ``__init__`` is called by Python
            return super().__new__(wanted)
        return wanted(vllm_config, *args, **options)
