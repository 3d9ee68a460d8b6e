"""Replay: the scheduler on a virtual clock, fed by a workload, with a latency model in place of a GPU.

What this package offers are settings and results of ``replay``, ``replay_split`` and ``compare``, and what a latency
model or a connector of your own needs there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenyard.lazy import lazy_names

__all__ = [
    "GPU",
    "Cell",
    "Comparison",
    "ConstantLatency",
    "EngineUse",
    "Interval",
    "KVLink",
    "KVTransfer",
    "LatencyModel",
    "Link",
    "LoadShape",
    "LogOptions",
    "Metric",
    "ModelSpec",
    "Progress",
    "RandomOptions",
    "RefusedRequest",
    "ReplayResult",
    "ReplaySettings",
    "SimulatedConnector",
    "SimulatedSpeculation",
    "SimulatedTransfers",
    "SplitResult",
    "Stamp",
    "StepShape",
    "TimeUnit",
    "TokenSource",
    "Transfer",
    "TransferDirection",
    "VirtualClock",
]

OFFERED = {
    "tokenyard.sim.replay": ("ReplayResult", "RefusedRequest", "Progress"),
    "tokenyard.sim.split": ("KVLink", "SplitResult", "EngineUse"),
    "tokenyard.sim.compare.comparison": ("ReplaySettings", "Comparison", "Cell"),
    "tokenyard.sim.compare.intervals": ("Interval",),
    "tokenyard.sim.compare.measures": ("Metric",),
    "tokenyard.sim.latency.model": ("LatencyModel", "StepShape", "ConstantLatency", "Transfer", "TransferDirection"),
    "tokenyard.kv.sizing.gpus": ("GPU",),
    "tokenyard.models.spec": ("ModelSpec",),
    "tokenyard.sim.clock": ("VirtualClock",),
    "tokenyard.sim.workload.tokens": ("TokenSource",),
    "tokenyard.sim.workload.generators.random": ("RandomOptions",),
    "tokenyard.sim.workload.logs.logged": ("Stamp", "TimeUnit", "LogOptions"),
    "tokenyard.sim.workload.load": ("LoadShape",),
    "tokenyard.sim.drafts": ("SimulatedSpeculation",),
    "tokenyard.sim.transfers.offload": ("KVTransfer", "SimulatedConnector"),
    "tokenyard.sim.transfers.link": ("Link", "SimulatedTransfers"),
}

if TYPE_CHECKING:
    from tokenyard.kv.sizing.gpus import GPU
    from tokenyard.models.spec import ModelSpec
    from tokenyard.sim.clock import VirtualClock
    from tokenyard.sim.compare.comparison import Cell, Comparison, ReplaySettings
    from tokenyard.sim.compare.intervals import Interval
    from tokenyard.sim.compare.measures import Metric
    from tokenyard.sim.drafts import SimulatedSpeculation
    from tokenyard.sim.latency.model import ConstantLatency, LatencyModel, StepShape, Transfer, TransferDirection
    from tokenyard.sim.replay import Progress, RefusedRequest, ReplayResult
    from tokenyard.sim.split import EngineUse, KVLink, SplitResult
    from tokenyard.sim.transfers.link import Link, SimulatedTransfers
    from tokenyard.sim.transfers.offload import KVTransfer, SimulatedConnector
    from tokenyard.sim.workload.generators.random import RandomOptions
    from tokenyard.sim.workload.load import LoadShape
    from tokenyard.sim.workload.logs.logged import LogOptions, Stamp, TimeUnit
    from tokenyard.sim.workload.tokens import TokenSource
else:
    __getattr__, __dir__ = lazy_names(__name__, OFFERED)
