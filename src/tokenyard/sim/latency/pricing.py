"""What a latency model answers, asked by everybody who prices steps or transfers, and checked.

A model that somebody wrote or learned may answer with anything. A negative time would let the clock of a replay run
backwards, and NaN would compare with nothing: either gives a result, and a wrong one. So nobody in ``sim`` asks a model
but through these functions; each raises LatencyError for an answer that is no finite number of seconds from 0 on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from numbers import Real
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tokenyard.columns import total
from tokenyard.errors import LatencyError
from tokenyard.sim.latency.model import MOST_SECONDS, LatencyModel, StepShape, TransferDirection

__all__ = ["RanksLatency", "decode_seconds", "host_seconds", "ranks_seconds", "step_seconds", "transfer_seconds"]

Int64s = npt.NDArray[np.int64]

_FIRST_PIECE = 16
"""Steps of a leap whose time is computed at once: it often ends before it has gone as far as it could."""
_DUMMY = StepShape(np.ones(1, np.int64), np.zeros(1, np.int64), 1, 1)
"""A dummy batch: one token without context."""


class RanksLatency(LatencyModel, Protocol):
    """A latency model that knows what ranks cost each other."""

    def ranks_seconds(self, shapes: Sequence[StepShape | None]) -> float:
        """Duration of a step that all ranks take together; None: a rank that computes nothing for anybody."""


def step_seconds(latency: LatencyModel, shape: StepShape, step: int | None = None) -> float:
    """Seconds of a step; ``step`` is its number, where it has one."""
    seconds = latency.step_seconds(shape)
    if type(seconds) is float and 0.0 <= seconds <= MOST_SECONDS:
        return seconds
    return _checked(seconds, latency, "step_seconds", _words_of(shape), step)


def host_seconds(latency: LatencyModel) -> float:
    """Seconds of every step that are the host's."""
    seconds = latency.host_seconds
    if type(seconds) is float and 0.0 <= seconds <= MOST_SECONDS:
        return seconds
    return _checked(seconds, latency, "host_seconds", "the host's part of a step")


def transfer_seconds(latency: LatencyModel, num_bytes: int, direction: TransferDirection) -> float:
    """Seconds of one transfer between GPU and host."""
    seconds = latency.transfer_seconds(num_bytes, direction)
    return _checked(seconds, latency, "transfer_seconds", f"{num_bytes:,} bytes {direction.value}")


def ranks_seconds(latency: LatencyModel, shapes: Sequence[StepShape | None]) -> float:
    """Seconds of a step that ranks take together: as the model says it of them, or as long as the slowest takes alone.

    A rank that computes nothing for anybody (None) takes part with a dummy batch.
    """
    together = getattr(latency, "ranks_seconds", None)
    if together is None:
        return max(step_seconds(latency, _DUMMY if shape is None else shape) for shape in shapes)
    tokens = sum(0 if shape is None else shape.num_tokens for shape in shapes)
    return _checked(together(shapes), latency, "ranks_seconds", f"{len(shapes)} ranks that compute {tokens:,} tokens")


def decode_seconds(
    latency: LatencyModel, num_computed: Int64s, steps: int, first_step: int | None = None
) -> Iterator[float]:
    """Durations of ``steps`` steps that follow each other, in each of which the same requests decode.

    ``num_computed`` is the context of the first of them, shape ``[n]``, ``first_step`` its number. Ask for each when it
    begins: a model may know what time it is. One that does not may have a method of this name that takes the number of
    requests, the tokens in their caches together and ``steps``, and says the same at once.
    """
    num, ones = len(num_computed), np.ones(len(num_computed), np.int64)
    at_once = getattr(latency, "decode_seconds", None)
    if at_once is None:
        for ahead in range(steps):
            step = None if first_step is None else first_step + ahead
            yield step_seconds(latency, StepShape(ones, num_computed + ahead, num, num), step)
        return
    context, piece, done = total(num_computed), _FIRST_PIECE, 0
    while done < steps:
        piece = min(piece, steps - done)
        said = at_once(num, context, piece)
        if len(said) != piece:
            raise LatencyError(latency, "decode_seconds", len(said), f"{piece} steps", "give as many durations")
        for ahead, seconds in enumerate(said, done):
            step = None if first_step is None else first_step + ahead
            yield _checked(seconds, latency, "decode_seconds", f"{num} requests that decode", step)
        context += num * piece
        done += piece
        piece *= 4


def _checked(seconds: object, latency: LatencyModel, method: str, what: str, step: int | None = None) -> float:
    """``seconds`` as a float. Raises LatencyError unless it is a number from 0 to some thirty years."""
    if isinstance(seconds, Real | Decimal) and not isinstance(seconds, bool | np.bool_):
        try:
            plain = float(seconds)  # compared as what it is kept as: a float16 knows no thirty years, a Decimal no NaN
        except (OverflowError, ValueError):
            plain = np.inf
        if 0.0 <= plain <= MOST_SECONDS:
            return plain
    asked = what if step is None else f"step {step}, {what}"
    raise LatencyError(latency, method, seconds, asked, "give a finite number of seconds, not negative")


def _words_of(shape: StepShape) -> str:
    requests = len(shape.num_new_tokens)
    are = "request that computes" if requests == 1 else "requests that compute"
    return f"{requests} {are} {shape.num_tokens:,} tokens behind {total(shape.num_computed):,}"
