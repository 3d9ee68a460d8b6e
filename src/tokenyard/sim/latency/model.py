"""What a step costs in time: the protocol, a step's shape, and the simplest model.

A latency model answers two questions: how long the GPU takes for a step of a given shape, and how long it takes to
move bytes between GPU and host (a CPU-offload tier).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from tokenyard.columns import total
from tokenyard.errors import ConfigError
from tokenyard.kv.sizing.gpus import GPU
from tokenyard.sched.steps.scheduler_output import SchedulerOutput

__all__ = [
    "HOST",
    "MOST_SECONDS",
    "ConstantLatency",
    "LatencyModel",
    "StepShape",
    "StepWork",
    "TermedLatency",
    "Transfer",
    "TransferDirection",
    "require_seconds",
]

Int64s = npt.NDArray[np.int64]


class StepShape:
    """What one step computes, as columns over its requests."""

    __slots__ = ("num_computed", "num_new_tokens", "num_sampled", "num_tokens")

    def __init__(self, num_new_tokens: Int64s, num_computed: Int64s, num_sampled: int, num_tokens: int) -> None:
        self.num_new_tokens = num_new_tokens
        """Tokens to compute, shape ``[n]``, all > 0."""
        self.num_computed = num_computed
        """Context in the cache before the step, in tokens, shape ``[n]``."""
        self.num_sampled = num_sampled
        """Requests that get an output token."""
        self.num_tokens = num_tokens
        """Sum of ``num_new_tokens``."""

    @classmethod
    def of(cls, output: SchedulerOutput) -> StepShape:
        """The shape of a scheduler's decision."""
        new = output.num_new_tokens
        chunks = output.is_prefill_chunk
        sampled = len(new) if chunks is None else len(new) - int(np.count_nonzero(chunks))
        return cls(new, output.num_computed, sampled, output.total_num_scheduled_tokens)


class StepWork(NamedTuple):
    """A step's shape in a handful of sums. A request with one new token counts as decode, with more as prefill."""

    num_tokens: int
    num_sampled: int
    num_decodes: int
    decode_context: int
    """Tokens whose KV the decodes read, their own included."""
    num_prefills: int
    prefill_tokens: int
    prefill_context: int
    """Tokens in the cache before the prefills."""
    prefill_pairs: float
    """(query, key) pairs of the prefills under a causal mask: sum of n (c + (n + 1) / 2)."""

    @classmethod
    def of(cls, shape: StepShape) -> StepWork:
        """The sums; a few array operations, none per request."""
        new, computed, tokens = shape.num_new_tokens, shape.num_computed, shape.num_tokens
        count = len(new)
        context = total(computed)
        if tokens == count:
            return cls(tokens, shape.num_sampled, count, context + count, 0, 0, 0, 0.0)
        rows = np.flatnonzero(new > 1)
        chunk, before = new[rows], computed[rows]
        prefills = len(rows)
        decodes = count - prefills
        prefill_tokens = tokens - decodes
        prefill_context = total(before)
        pairs = float(chunk @ before) + (float(chunk @ chunk) + prefill_tokens) / 2
        return cls(
            tokens,
            shape.num_sampled,
            decodes,
            context - prefill_context + decodes,
            prefills,
            prefill_tokens,
            prefill_context,
            pairs,
        )

    @classmethod
    def verifying(cls, shape: StepShape, drafts: int) -> StepWork:
        """The sums where a request that verifies up to ``drafts`` of them counts as decode: its KV is read once for all
        its tokens.
        """
        new, computed = shape.num_new_tokens, shape.num_computed
        few = new <= drafts + 1
        decoding = cls.of(StepShape(np.ones(int(few.sum()), np.int64), computed[few], 0, int(few.sum())))
        rest = new[~few]
        prompts = cls.of(StepShape(rest, computed[~few], 0, int(rest.sum())))
        return prompts._replace(
            num_tokens=shape.num_tokens,
            num_sampled=int(new[few].sum()) + len(rest),
            num_decodes=decoding.num_decodes,
            decode_context=decoding.decode_context,
        )


class TransferDirection(StrEnum):
    """Between GPU and host memory."""

    TO_HOST = "to_host"
    TO_DEVICE = "to_device"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """A link to host memory: a fixed latency plus bytes over bandwidth, the same in both directions."""

    bandwidth: float = 32e9 * 0.8
    """Bytes per second that copies reach; 80 % of the link (PCIe 4.0 x16 by default)."""
    latency: float = 20e-6
    """Seconds per transfer."""

    def __post_init__(self) -> None:
        if not 0 < self.bandwidth < float("inf"):
            raise ConfigError("bandwidth", self.bandwidth, "give a number of bytes per second above 0")
        require_seconds("latency", self.latency)

    @classmethod
    def of(cls, gpu: GPU) -> Transfer:
        """The PCIe link of a named GPU."""
        return cls(bandwidth=gpu.pcie_bandwidth * 0.8)

    def seconds(self, num_bytes: int, direction: TransferDirection) -> float:
        """Time of one transfer; nothing to move takes no time."""
        assert direction in TransferDirection
        return self.latency + num_bytes / self.bandwidth if num_bytes else 0.0


class LatencyModel(Protocol):
    """How long things take on the machine that is simulated."""

    @property
    def host_seconds(self) -> float:
        """Of every step's duration, seconds of work on the host before the GPU begins: input preparation, launch.

        With a further step in flight they pass while the GPU computes (async scheduling). 0 where it is not known.
        """

    def step_seconds(self, shape: StepShape) -> float:
        """Duration of one step in seconds, finite and not negative. Called once per step."""

    def transfer_seconds(self, num_bytes: int, direction: TransferDirection) -> float:
        """Duration of one transfer between GPU and host in seconds."""


HOST = "host"
"""The term of a step that is hidden where it is prepared while the one before runs (:meth:`TermedLatency.terms`)."""


@runtime_checkable
class TermedLatency(LatencyModel, Protocol):
    """A latency model that says what it spends a step on."""

    def work_of(self, shape: StepShape) -> StepWork:
        """What a step has to do."""

    def terms(self, work: StepWork) -> dict[str, Any]:
        """Seconds of a step with this work, by what they are spent on: together those of the step, :data:`HOST` among
        them. Fields of ``work`` may be arrays over many steps; so may the answers be then.
        """


MOST_SECONDS = 1e9
"""Of one step, some thirty years: moments in microseconds stay exact."""


def require_seconds(name: str, value: object) -> None:
    """Raise ConfigError unless ``value`` is a finite number of seconds, not negative."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise ConfigError(name, value, "give a number of seconds, not negative")
    if value > MOST_SECONDS:
        raise ConfigError(name, value, f"give at most {MOST_SECONDS:,.0f} seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantLatency:
    """Every step takes the same time."""

    seconds: float = 0.02
    transfer: Transfer = field(default_factory=Transfer)
    host_seconds: float = 0.0
    """Part of ``seconds``."""

    def __post_init__(self) -> None:
        require_seconds("seconds", self.seconds)
        require_seconds("host_seconds", self.host_seconds)
        if self.host_seconds > self.seconds:
            raise ConfigError("host_seconds", self.host_seconds, f"it is part of a step: give at most {self.seconds}")

    def step_seconds(self, shape: StepShape) -> float:
        return self.seconds

    def transfer_seconds(self, num_bytes: int, direction: TransferDirection) -> float:
        return self.transfer.seconds(num_bytes, direction)
