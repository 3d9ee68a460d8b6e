"""A deployment: what the user says of ``vllm serve``, settled, and what a replay of it needs.

What this package offers beyond ``Deployment`` and ``ResolvedDeployment``: the groups of settings that they hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenyard.lazy import lazy_names

__all__ = [
    "AdapterSettings",
    "DeploymentSettings",
    "HardwareSettings",
    "LaunchSettings",
    "ParallelSettings",
    "SchedulerSettings",
    "SpeculationSettings",
    "TransferSettings",
]

OFFERED = {
    "tokenyard.deploy.settings": (
        "DeploymentSettings",
        "LaunchSettings",
        "HardwareSettings",
        "SchedulerSettings",
        "ParallelSettings",
        "AdapterSettings",
        "TransferSettings",
        "SpeculationSettings",
    ),
}

if TYPE_CHECKING:
    from tokenyard.deploy.settings import (
        AdapterSettings,
        DeploymentSettings,
        HardwareSettings,
        LaunchSettings,
        ParallelSettings,
        SchedulerSettings,
        SpeculationSettings,
        TransferSettings,
    )
else:
    __getattr__, __dir__ = lazy_names(__name__, OFFERED)
