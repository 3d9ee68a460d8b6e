"""What a step costs in time: the protocol, the shape of a step, and how every caller asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from decimal import Decimal
from enum import StrEnum
from numbers import Real
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from tokenyard.arguments import is_number
from tokenyard.core.arrays import total
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.core.sched.step_rows import Rows
from tokenyard.errors import ConfigError, LatencyError
from tokenyard.models.gpus import GPU
from tokenyard.quick_dataclass import dataclass

# ---------------------------------------------------------------------------------------------------------------------
# What a step costs in time: the protocol, a step's shape, and the simplest model.
#
# A latency model answers two questions: how long the GPU takes for a step of a given shape, and how long it takes to
# move bytes between GPU and host (a CPU-offload tier).

Int64s = npt.NDArray[np.int64]


class StepShape:
    """What one step computes, as columns over its requests."""

    __slots__ = ("encoded", "num_computed", "num_new_tokens", "num_sampled", "num_tokens")

    def __init__(
        self,
        num_new_tokens: Int64s,
        num_computed: Int64s,
        num_sampled: int,
        num_tokens: int,
        encoded: tuple[int, ...] = (),
    ) -> None:
        self.num_new_tokens = num_new_tokens
        """Tokens to compute, shape ``[n]``, all > 0."""
        self.num_computed = num_computed
        """Context in the cache before the step, in tokens, shape ``[n]``."""
        self.num_sampled = num_sampled
        """Requests that get an output token."""
        self.num_tokens = num_tokens
        """Sum of ``num_new_tokens``."""
        self.encoded = encoded
        """Embeddings of each picture whose encoder runs in the step."""

    @classmethod
    def of(cls, output: SchedulerOutput) -> StepShape:
        """The shape of a scheduler's decision."""
        if output.rows is not None:
            return PlannedShape(output, output.rows)
        new = output.num_new_tokens
        chunks = output.is_prefill_chunk
        sampled = len(new) if chunks is None else len(new) - int(np.count_nonzero(chunks))
        return cls(new, output.num_computed, sampled, output.total_num_scheduled_tokens, output.encoder_embeds)

    def work(self) -> StepWork:
        """The sums; a few array operations, and a few of numbers per prompt."""
        new, computed, tokens = self.num_new_tokens, self.num_computed, self.num_tokens
        if tokens == len(new):
            return StepWork.summed(tokens, self.num_sampled, tokens, total(computed), (0, 0, 0, 0, 0))
        many = new > 1
        prompts, behind = new[many], computed[many]
        sums = len(prompts), total(prompts), total(behind), int(prompts @ behind), int(prompts @ prompts)
        return StepWork.summed(tokens, self.num_sampled, len(new), total(computed), sums)


class PlannedShape(StepShape):
    """The shape of a decision whose sums the scheduler has made on its way."""

    __slots__ = ("_output", "_rows")

    def __init__(self, output: SchedulerOutput, rows: Rows) -> None:
        self._output = output
        self._rows = rows
        self.num_sampled = rows.size - rows.num_chunks
        self.num_tokens = int(output.total_num_scheduled_tokens)
        self.encoded = output.encoder_embeds

    @property
    def num_new_tokens(self) -> Int64s:  # type: ignore[override]
        """Tokens to compute, shape ``[n]``, all > 0."""
        return self._output.num_new_tokens

    @property
    def num_computed(self) -> Int64s:  # type: ignore[override]
        """Context in the cache before the step, in tokens, shape ``[n]``."""
        return self._output.num_computed

    def work(self) -> StepWork:
        rows = self._rows
        sums = rows.num_prompts, rows.prompt_tokens, rows.prompt_context, rows.prompt_products, rows.prompt_squares
        return StepWork.summed(self.num_tokens, self.num_sampled, rows.size, rows.context, sums)


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
        """The sums of a step."""
        return shape.work()

    @classmethod
    def summed(
        cls, tokens: int, sampled: int, requests: int, context: int, prompts: tuple[int, int, int, int, int]
    ) -> StepWork:
        """The work of so many requests. ``prompts``: how many they are, their tokens, the context before them, and the
        sums of tokens times context and of tokens squared.
        """
        prefills, prompt_tokens, prompt_context, products, squares = prompts
        decodes = requests - prefills
        pairs = float(products) + (float(squares) + prompt_tokens) / 2
        decode_context = context - prompt_context + decodes
        return cls(tokens, sampled, decodes, decode_context, prefills, prompt_tokens, prompt_context, pairs)

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
    """Direction of a transfer between GPU and host memory."""

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
        if not is_number(self.bandwidth, above=True):
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
        """Seconds of work on the host, in every step, before the GPU begins: input preparation, launch.

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
"""Longest time of one step, some thirty years: moments in microseconds stay exact."""


def require_seconds(name: str, value: object) -> None:
    """Raise ConfigError unless ``value`` is a finite number of seconds, not negative."""
    if not is_number(value):
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


# ---------------------------------------------------------------------------------------------------------------------
# What a latency model answers, asked by all who prices steps or transfers, and checked.
#
# A model of a user's, written or learned, may answer with anything. A negative time would let the clock of a replay run
# backwards, and NaN would compare with nothing: either gives a result, and a wrong one. So ``sim`` asks no
# model but through these functions; each raises LatencyError for an answer that is no finite number of seconds from 0
# on.

_FIRST_PIECE = 16
"""Steps of a leap whose time is computed at once: it often ends before it has gone as far as it could."""
_DUMMY = StepShape(np.ones(1, np.int64), np.zeros(1, np.int64), 1, 1)
"""A dummy batch: one token without context."""


class RanksLatency(LatencyModel, Protocol):
    """A latency model that knows what ranks cost each other."""

    def ranks_seconds(self, shapes: Sequence[StepShape | None]) -> float:
        """Duration of a step that all ranks take together; None: a rank that computes nothing for any request."""


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

    A rank that computes nothing for any request (None) takes part with a dummy batch.
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
    num = len(num_computed)
    at_once = getattr(latency, "decode_seconds", None)
    if at_once is None:
        ones = np.ones(num, np.int64)
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
            if type(seconds) is float and 0.0 <= seconds <= MOST_SECONDS:
                yield seconds
                continue
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


# ---------------------------------------------------------------------------------------------------------------------
# A latency model made of another: scaled, paced, watched.


def _the_same(seconds: float) -> float:
    return seconds


@dataclass(frozen=True, slots=True)
class MappedLatency:
    """``model`` with other step times: ``change`` makes them of its own and the shape of the step."""

    model: LatencyModel
    change: Callable[[float, StepShape], float]
    host: Callable[[float], float] = _the_same
    """Makes the host's part of a step of the one of ``model``."""
    links: LatencyModel | None = None
    """The model whose transfers are taken; None: ``model``."""

    @property
    def host_seconds(self) -> float:
        return self.host(host_seconds(self.model))

    def step_seconds(self, shape: StepShape) -> float:
        return self.change(step_seconds(self.model, shape), shape)

    def transfer_seconds(self, num_bytes: int, direction: TransferDirection) -> float:
        return transfer_seconds(self.model if self.links is None else self.links, num_bytes, direction)
