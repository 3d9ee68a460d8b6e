"""Step times from measured kernel timings.

A step is the sum of its kernels: everything that depends on the number of tokens, everything that depends on the
number of sampled sequences, and attention per layer, which depends on four numbers: the prefill chunk, the context
before it, the number of decodes and their mean context. A step with several prefills is looked up as the one prefill
that has as many tokens and as many (query, key) pairs.
"""

from __future__ import annotations

import math
from typing import Protocol

from tokenyard.kv.sizing.gpus import GPU
from tokenyard.sim.latency.grid import Curve, Grid
from tokenyard.sim.latency.model import StepShape, StepWork, Transfer, TransferDirection, require_seconds

__all__ = ["AttentionTable", "JointAttention", "SeparateAttention", "TableLatency", "equivalent_prefill"]


class AttentionTable(Protocol):
    """Attention of one layer."""

    def seconds(self, chunk: float, before: float, decodes: int, context: float) -> float:
        """A prefill of ``chunk`` tokens after ``before`` cached ones, and ``decodes`` with a mean ``context``."""


class JointAttention:
    """Prefill and decode measured together, as one kernel call runs them.

    A chunk beyond the table costs what consecutive smaller ones cost: the same pairs.
    """

    __slots__ = ("_decode", "_largest_chunk", "_mixed", "_prefill")

    def __init__(self, *, prefill: Grid, decode: Grid, mixed: Grid) -> None:
        """Axes: (chunk, before), (decodes, context), and all four."""
        self._prefill = prefill
        self._decode = decode
        self._mixed = mixed
        self._largest_chunk = min(prefill.axes[0][-1], mixed.axes[0][-1])

    def seconds(self, chunk: float, before: float, decodes: int, context: float) -> float:
        if not chunk:
            return self._decode(decodes, context)
        pieces = math.ceil(chunk / self._largest_chunk)
        size = chunk / pieces
        seconds = sum(self._prefill(size, before + i * size) for i in range(1, pieces))
        if decodes:
            return seconds + self._mixed(size, before, decodes, context)
        return seconds + self._prefill(size, before)


class SeparateAttention:
    """Prefill and decode measured apart; a mixed step costs their sum.

    Prefill is known without cached context only: a chunk behind a context costs the whole sequence less the context
    (their causal triangles).
    """

    __slots__ = ("_decode", "_per_token")

    def __init__(self, *, prefill_per_token: Grid, decode: Grid) -> None:
        """``prefill_per_token``: seconds per token over sequence length; ``decode`` axes: (decodes, context)."""
        self._per_token = prefill_per_token
        self._decode = decode

    def seconds(self, chunk: float, before: float, decodes: int, context: float) -> float:
        seconds = self._decode(decodes, context) if decodes else 0.0
        if chunk:
            whole = before + chunk
            seconds += whole * self._per_token(whole) - (before * self._per_token(before) if before else 0.0)
        return seconds


class TableLatency:
    """Step times by adding up measured kernels."""

    __slots__ = (
        "_attention",
        "_num_layers",
        "_per_sequence",
        "_per_token",
        "_step_overhead",
        "_transfer",
        "host_seconds",
    )

    def __init__(
        self,
        *,
        per_token: Curve,
        per_sequence: Curve,
        attention: AttentionTable,
        num_layers: int,
        step_overhead: float,
        host_seconds: float = 0.0,
        gpu: GPU | None = None,
    ) -> None:
        """``per_token`` and ``per_sequence``: seconds of the whole model over tokens and sampled sequences.

        ``step_overhead``: seconds per step that no kernel accounts for; ``host_seconds`` of them are the host's, and
        pass while another step runs. ``gpu`` gives the PCIe link.
        """
        require_seconds("host_seconds", host_seconds)
        require_seconds("step_overhead", step_overhead)
        self._per_token = per_token
        self._per_sequence = per_sequence
        self._attention = attention
        self._num_layers = num_layers
        self._step_overhead = step_overhead
        self.host_seconds = host_seconds
        self._transfer = Transfer.of(gpu) if gpu else Transfer()

    def step_seconds(self, shape: StepShape) -> float:
        work = StepWork.of(shape)
        chunk, before = equivalent_prefill(work) if work.num_prefills else (0.0, 0.0)
        context = work.decode_context / work.num_decodes if work.num_decodes else 0.0
        attention = self._attention.seconds(chunk, before, work.num_decodes, context)
        return (
            self._step_overhead
            + self._per_token(work.num_tokens)
            + self._per_sequence(work.num_sampled)
            + self._num_layers * attention
        )

    def transfer_seconds(self, num_bytes: int, direction: TransferDirection) -> float:
        return self._transfer.seconds(num_bytes, direction)


def equivalent_prefill(work: StepWork) -> tuple[float, float]:
    """(chunk, context before it) of the one prefill that stands for all of a step's.

    As many tokens and pairs; where several short prompts have fewer pairs than one prompt of their tokens, the
    prompt with as many pairs.
    """
    chunk = float(work.prefill_tokens)
    before = work.prefill_pairs / chunk - (chunk + 1) / 2
    if before >= 0:
        return chunk, before
    return (math.sqrt(1.0 + 8.0 * work.prefill_pairs) - 1.0) / 2, 0.0
