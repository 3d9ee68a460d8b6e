"""Latency models: what a step, or a transfer to host memory, costs in time."""

from __future__ import annotations

from tokenyard.sim.latency.fitted import FittedLatency, fit, step_features
from tokenyard.sim.latency.load import load_latency, load_tables
from tokenyard.sim.latency.model import ConstantLatency, LatencyModel, StepShape, StepWork, Transfer, TransferDirection
from tokenyard.sim.latency.roofline import Efficiency, RooflineLatency
from tokenyard.sim.latency.table import TableLatency

__all__ = [
    "ConstantLatency",
    "Efficiency",
    "FittedLatency",
    "LatencyModel",
    "RooflineLatency",
    "StepShape",
    "StepWork",
    "TableLatency",
    "Transfer",
    "TransferDirection",
    "fit",
    "load_latency",
    "load_tables",
    "step_features",
]
