"""Latency models: what a step, or a transfer to host memory, costs in time."""

from __future__ import annotations

from tokenyard.steptime.fitted import FittedLatency, fit, step_features
from tokenyard.steptime.load import load_latency, load_tables
from tokenyard.steptime.model import ConstantLatency, LatencyModel, StepShape, StepWork, Transfer, TransferDirection
from tokenyard.steptime.roofline import Efficiency, RooflineLatency
from tokenyard.steptime.tables import TableLatency

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
