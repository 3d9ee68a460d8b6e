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
    "Cell",
    "ClientFigures",
    "Clients",
    "Comparison",
    "ConstantLatency",
    "EndedBy",
    "EngineReport",
    "EngineState",
    "EngineUse",
    "Fleet",
    "HashedTokens",
    "Interval",
    "JoinedTokens",
    "KVLink",
    "KVTransfer",
    "LatencyFigures",
    "LatencyModel",
    "Link",
    "ListedTokens",
    "LoadShape",
    "LogOptions",
    "MakesConnector",
    "Metric",
    "ModelSpec",
    "Pace",
    "ParallelResult",
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
    "SplitResult",
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
    "tokenyard.sim.replay": ("ReplayResult", "RefusedRequest", "Progress"),
    "tokenyard.sim.extent": ("EndedBy",),
    "tokenyard.sim.choices": ("MakesConnector",),
    "tokenyard.sim.rows.rows": ("ReplayRows",),
    "tokenyard.sim.rows.table": ("RowTable",),
    "tokenyard.sim.split": ("KVLink", "SplitResult", "EngineUse"),
    "tokenyard.sim.parallel.autoscaler": ("Autoscaling",),
    "tokenyard.explain.report.replicas": ("ReplicaChange", "ReplicaFigures"),
    "tokenyard.sim.parallel.replay": ("replay_parallel", "ParallelResult"),
    "tokenyard.sim.parallel.rank": ("RankUse",),
    "tokenyard.sim.parallel.routers.router": ("Router", "EngineState", "EngineReport"),
    "tokenyard.sim.parallel.routers.named": ("router_maker",),
    "tokenyard.sim.parallel.routers.vllm": ("Fleet",),
    "tokenyard.sim.settings": ("ReplaySettings",),
    "tokenyard.sim.compare.comparison": ("Comparison", "Cell"),
    "tokenyard.sim.compare.intervals": ("Interval",),
    "tokenyard.sim.compare.measures": ("Metric",),
    "tokenyard.sim.latency.model": ("LatencyModel", "StepShape", "ConstantLatency", "Transfer", "TransferDirection"),
    "tokenyard.sim.latency.pace": ("Pace",),
    "tokenyard.kv.sizing.gpus": ("GPU",),
    "tokenyard.models.spec": ("ModelSpec",),
    "tokenyard.sim.clock": ("VirtualClock",),
    "tokenyard.sim.workload.builder": ("Session", "Text"),
    "tokenyard.sim.workload.tokens": (
        "TokenSource",
        "StreamTokens",
        "Segment",
        "seed_of",
        "ListedTokens",
        "HashedTokens",
        "JoinedTokens",
    ),
    "tokenyard.sim.workload.generators.random": ("RandomOptions",),
    "tokenyard.sim.workload.logs.logged": ("Stamp", "TimeUnit", "LogOptions"),
    "tokenyard.sim.workload.load": ("LoadShape",),
    "tokenyard.sim.workload.remarks": ("Remark",),
    "tokenyard.sim.workload.clients": ("Clients",),
    "tokenyard.explain.report.clients": ("ClientFigures",),
    "tokenyard.explain.report.percentiles": ("LatencyFigures",),
    "tokenyard.explain.report.slo": ("SLO",),
    "tokenyard.sim.drafts": ("SimulatedSpeculation",),
    "tokenyard.sim.transfers.offload": ("KVTransfer", "SimulatedConnector"),
    "tokenyard.sim.transfers.link": ("Link", "SimulatedTransfers"),
}

if TYPE_CHECKING:
    from tokenyard.explain.report.clients import ClientFigures
    from tokenyard.explain.report.percentiles import LatencyFigures
    from tokenyard.explain.report.replicas import ReplicaChange, ReplicaFigures
    from tokenyard.explain.report.slo import SLO
    from tokenyard.kv.sizing.gpus import GPU
    from tokenyard.models.spec import ModelSpec
    from tokenyard.sim.choices import MakesConnector
    from tokenyard.sim.clock import VirtualClock
    from tokenyard.sim.compare.comparison import Cell, Comparison
    from tokenyard.sim.compare.intervals import Interval
    from tokenyard.sim.compare.measures import Metric
    from tokenyard.sim.drafts import SimulatedSpeculation
    from tokenyard.sim.extent import EndedBy
    from tokenyard.sim.latency.model import ConstantLatency, LatencyModel, StepShape, Transfer, TransferDirection
    from tokenyard.sim.latency.pace import Pace
    from tokenyard.sim.parallel.autoscaler import Autoscaling
    from tokenyard.sim.parallel.rank import RankUse
    from tokenyard.sim.parallel.replay import ParallelResult, replay_parallel
    from tokenyard.sim.parallel.routers.named import router_maker
    from tokenyard.sim.parallel.routers.router import EngineReport, EngineState, Router
    from tokenyard.sim.parallel.routers.vllm import Fleet
    from tokenyard.sim.replay import Progress, RefusedRequest, ReplayResult
    from tokenyard.sim.rows.rows import ReplayRows
    from tokenyard.sim.rows.table import RowTable
    from tokenyard.sim.settings import ReplaySettings
    from tokenyard.sim.split import EngineUse, KVLink, SplitResult
    from tokenyard.sim.transfers.link import Link, SimulatedTransfers
    from tokenyard.sim.transfers.offload import KVTransfer, SimulatedConnector
    from tokenyard.sim.workload.builder import Session, Text
    from tokenyard.sim.workload.clients import Clients
    from tokenyard.sim.workload.generators.random import RandomOptions
    from tokenyard.sim.workload.load import LoadShape
    from tokenyard.sim.workload.logs.logged import LogOptions, Stamp, TimeUnit
    from tokenyard.sim.workload.remarks import Remark
    from tokenyard.sim.workload.tokens import (
        HashedTokens,
        JoinedTokens,
        ListedTokens,
        Segment,
        StreamTokens,
        TokenSource,
        seed_of,
    )
else:
    __getattr__, __dir__ = lazy_names(__name__, OFFERED)
