"""Replay: the scheduler on a virtual clock, fed by a workload, with a latency model in place of a GPU.

What this package offers are settings and results of ``replay``, ``replay_split`` and ``compare``, the replay of several
engines, and what a latency model, a connector or a router of your own needs there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenyard.lazy import lazy_names

__all__ = [
    "GPU",
    "SLO",
    "Autoscaling",
    "ClientFigures",
    "Clients",
    "ConstantLatency",
    "EndedBy",
    "EngineReport",
    "EngineState",
    "EngineUse",
    "Fleet",
    "HashedTokens",
    "JoinedTokens",
    "KVLink",
    "KVTransfer",
    "LatencyFigures",
    "LatencyModel",
    "Link",
    "ListedTokens",
    "LoadShape",
    "LogOptions",
    "MachineSpeed",
    "MakesConnector",
    "ModelSpec",
    "Progress",
    "RandomOptions",
    "RankUse",
    "RefusedRequest",
    "Remark",
    "ReplayResult",
    "ReplayRows",
    "ReplaySettings",
    "ReplicaChange",
    "ReplicaFigures",
    "Router",
    "RowTable",
    "Segment",
    "Session",
    "SimulatedConnector",
    "SimulatedSpeculation",
    "SimulatedTransfers",
    "Stamp",
    "StepShape",
    "StreamTokens",
    "Text",
    "TimeUnit",
    "TokenSource",
    "Transfer",
    "TransferDirection",
    "VirtualClock",
    "replay_parallel",
    "router_maker",
    "seed_of",
]

OFFERED = {
    "tokenyard.sim.replay": (
        "ReplayResult",
        "EngineUse",
        "RefusedRequest",
        "Progress",
        "replay_parallel",
    ),
    "tokenyard.sim.extent": ("EndedBy",),
    "tokenyard.sim.choices": ("MakesConnector",),
    "tokenyard.sim.rows.rows": ("ReplayRows",),
    "tokenyard.explain.render.table": ("RowTable",),
    "tokenyard.sim.replicas": ("Autoscaling",),
    "tokenyard.explain.report.report": (
        "ReplicaChange",
        "ReplicaFigures",
        "ClientFigures",
    ),
    "tokenyard.sim.engines": ("RankUse",),
    "tokenyard.sim.routers": (
        "Router",
        "EngineState",
        "EngineReport",
        "router_maker",
        "Fleet",
    ),
    "tokenyard.sim.settings": (
        "ReplaySettings",
        "KVLink",
    ),
    "tokenyard.steptime.model": (
        "LatencyModel",
        "StepShape",
        "ConstantLatency",
        "Transfer",
        "TransferDirection",
    ),
    "tokenyard.steptime.pace": (
        "MachineSpeed",
        "VirtualClock",
    ),
    "tokenyard.models.gpus": ("GPU",),
    "tokenyard.models.spec": ("ModelSpec",),
    "tokenyard.workload.builder": (
        "Session",
        "Text",
    ),
    "tokenyard.workload.record": (
        "TokenSource",
        "StreamTokens",
        "Segment",
        "seed_of",
        "ListedTokens",
        "HashedTokens",
        "JoinedTokens",
        "Remark",
        "Clients",
    ),
    "tokenyard.workload.generators": ("RandomOptions",),
    "tokenyard.workload.logs.logged": (
        "Stamp",
        "TimeUnit",
        "LogOptions",
    ),
    "tokenyard.workload.load": ("LoadShape",),
    "tokenyard.explain.report.figures": ("LatencyFigures",),
    "tokenyard.explain.report.slo": ("SLO",),
    "tokenyard.sim.executor": ("SimulatedSpeculation",),
    "tokenyard.sim.transfers": (
        "KVTransfer",
        "SimulatedConnector",
        "Link",
        "SimulatedTransfers",
    ),
}

_FORMER = {"ParallelResult": "ReplayResult", "SplitResult": "ReplayResult"}

if TYPE_CHECKING:
    from tokenyard.explain.render.table import RowTable
    from tokenyard.explain.report.figures import LatencyFigures
    from tokenyard.explain.report.report import ClientFigures, ReplicaChange, ReplicaFigures
    from tokenyard.explain.report.slo import SLO
    from tokenyard.models.gpus import GPU
    from tokenyard.models.spec import ModelSpec
    from tokenyard.sim.choices import MakesConnector
    from tokenyard.sim.engines import RankUse
    from tokenyard.sim.executor import SimulatedSpeculation
    from tokenyard.sim.extent import EndedBy
    from tokenyard.sim.replay import (
        EngineUse,
        Progress,
        RefusedRequest,
        ReplayResult,
        replay_parallel,
    )
    from tokenyard.sim.replicas import Autoscaling
    from tokenyard.sim.routers import EngineReport, EngineState, Fleet, Router, router_maker
    from tokenyard.sim.rows.rows import ReplayRows
    from tokenyard.sim.settings import KVLink, ReplaySettings
    from tokenyard.sim.transfers import KVTransfer, Link, SimulatedConnector, SimulatedTransfers
    from tokenyard.steptime.model import ConstantLatency, LatencyModel, StepShape, Transfer, TransferDirection
    from tokenyard.steptime.pace import MachineSpeed, VirtualClock
    from tokenyard.workload.builder import Session, Text
    from tokenyard.workload.generators import RandomOptions
    from tokenyard.workload.load import LoadShape
    from tokenyard.workload.logs.logged import LogOptions, Stamp, TimeUnit
    from tokenyard.workload.record import (
        Clients,
        HashedTokens,
        JoinedTokens,
        ListedTokens,
        Remark,
        Segment,
        StreamTokens,
        TokenSource,
        seed_of,
    )
else:
    _load, __dir__ = lazy_names(__name__, OFFERED)

    def __getattr__(name: str) -> object:
        """What is offered, and by its former name what is called otherwise now."""
        if name in _FORMER:
            import warnings  # noqa: PLC0415 - for few

            warnings.warn(f"{__name__}.{name} is {_FORMER[name]} now", DeprecationWarning, stacklevel=2)
            return _load(_FORMER[name])
        return _load(name)
