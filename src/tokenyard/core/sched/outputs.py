"""What comes back from the workers, and what goes on to the clients after a step."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import field
from enum import IntEnum
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from tokenyard.core.arrays import IntArray, all_ones, any_true, are_within, as_whole_numbers
from tokenyard.core.config import MAX_COUNT
from tokenyard.core.request import FinishReason, Request
from tokenyard.core.rows import NO_TOKEN, Numbers
from tokenyard.core.sched.candidate import Candidate, FeatureHook
from tokenyard.core.sched.outcomes import NO_STATS, SchedulerStats
from tokenyard.core.sched.step_rows import Names
from tokenyard.errors import GrammarError, shown
from tokenyard.quick_dataclass import dataclass

# ---------------------------------------------------------------------------------------------------------------------
# Events of single requests with their times, for clients that draw time lines: queued, scheduled, preempted.


class EventType(IntEnum):
    """What happened (vLLM's ``EngineCoreEventType``)."""

    QUEUED = 1
    """It arrived, or a session got its next input."""
    SCHEDULED = 2
    """It was admitted, for the first time or again."""
    PREEMPTED = 3
    """It lost its blocks."""


class RequestEvent(msgspec.Struct, frozen=True):
    """One event; ``timestamp`` is in seconds on the scheduler's clock."""

    type: EventType
    timestamp: float


class RequestEvents(FeatureHook):
    """Events that have not been sent to clients yet."""

    def __init__(self) -> None:
        self._pending: defaultdict[Request, list[RequestEvent]] = defaultdict(list)

    def __len__(self) -> int:
        """Requests with events that have not been sent."""
        return len(self._pending)

    def record(self, request: Request, kind: EventType, timestamp: float) -> None:
        """Something happened to a request."""
        self._pending[request].append(RequestEvent(kind, timestamp))

    def take(self, request: Request) -> tuple[RequestEvent, ...]:
        """Its events since the last call."""
        return tuple(self._pending.pop(request, ()))

    def request_added(self, now: float, request: Request) -> None:
        self.record(request, EventType.QUEUED, now)

    def request_admitted(self, now: float, candidate: Candidate) -> None:
        self.record(candidate.request, EventType.SCHEDULED, now)

    def request_preempted(self, now: float, request: Request) -> None:
        self.record(request, EventType.PREEMPTED, now)

    def request_aborted(self, request: Request) -> None:
        self._pending.pop(request, None)


# ---------------------------------------------------------------------------------------------------------------------
# What passes through a step beside tokens: log-probabilities, poolers' results, routed experts, NaNs, events.
#
# Most steps carry none of it.

ExpertIds = npt.NDArray[np.integer]
"""Experts that tokens were routed to, shape ``[tokens, layers, experts per token]``."""


class TokenLogprobs(NamedTuple):
    """Log-probabilities at consecutive positions: of the token that stands there, then of the likeliest ones.

    They are the model's own: before temperature, penalties and what cuts the tail off.
    """

    token_ids: npt.NDArray[np.int64]
    """Shape ``[positions, 1 + k]``: the token, then the ``k`` likeliest, likeliest first."""
    logprobs: npt.NDArray[np.float64]
    """Natural logarithms, of the same shape."""
    ranks: npt.NDArray[np.int64]
    """Rank of the token that stands there, shape ``[positions]``: 1 for the likeliest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAuxOutput:
    """What a model returns for a step beside tokens."""

    pooler_output: Sequence[object | None] = ()
    """One result per scheduled request, None where its prompt is not complete; empty without pooling requests."""
    routed_experts: ExpertIds | None = None
    """The experts of all tokens that the step computed, in scheduling order."""
    num_nans_in_logits: Mapping[str, int] = field(default_factory=dict)
    """Request id -> NaNs, where there were any: its output is corrupt."""
    logprobs: Mapping[int, TokenLogprobs] = field(default_factory=dict)
    """Row -> of its sampled tokens, where ``SamplingParams.logprobs`` asks for them."""
    prompt_logprobs: Mapping[int, TokenLogprobs] = field(default_factory=dict)
    """Row -> of its whole prompt but the first token, in the step that completes the prompt."""
    failed: Set[str] = frozenset()
    """Ids of scheduled requests that the workers have lost: they end as errors, whatever their rows hold."""


class RequestAuxOutput(msgspec.Struct, frozen=True):
    """What a client is notified of one request beside its tokens."""

    pooling_output: object | None = None
    routed_experts: ExpertIds | None = None
    num_nans_in_logits: int = 0
    events: tuple[RequestEvent, ...] = ()
    """The events of the request since its last output."""
    logprobs: TokenLogprobs | None = None
    """Log-probabilities of the new tokens, one position each; None unless ``SamplingParams.logprobs`` requests them."""
    prompt_logprobs: TokenLogprobs | None = None
    """Log-probabilities of the prompt from its second token on, once; None unless ``prompt_logprobs`` requests them."""


NO_AUX_OUTPUT = RequestAuxOutput()
"""What nearly every output has."""

NO_AUX: Mapping[int, RequestAuxOutput] = MappingProxyType({})
"""What nearly every step has."""


def with_events(
    requests: Sequence[Request], extras: Mapping[int, RequestAuxOutput], events: RequestEvents
) -> Mapping[int, RequestAuxOutput]:
    """``extras`` and the events of the rows' requests since their last outputs."""
    if not len(events):
        return extras
    told = {row: happened for row, request in enumerate(requests) if (happened := events.take(request))}
    return {
        **extras,
        **{row: msgspec.structs.replace(extras.get(row, NO_AUX_OUTPUT), events=each) for row, each in told.items()},
    }


# ---------------------------------------------------------------------------------------------------------------------
# What comes back from the workers: sampled tokens, drafts for the next step, and what a KV connector has done.
#
# Columns over the step's scheduled requests, in scheduling order.


class DraftTokens(NamedTuple):
    """Drafts that a model runner proposes after a step, aligned with the step's requests."""

    tokens: IntArray
    """Shape ``[n, width]``, width at most num_speculative_tokens."""
    counts: IntArray
    """Drafts per request, shape ``[n]``."""

    @classmethod
    def from_lists(cls, drafts: Sequence[Sequence[int]]) -> DraftTokens:
        """From one list of drafts per scheduled request."""
        return cls(*_padded(drafts))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorOutput:
    """What the workers report after a step."""

    finished_sending: frozenset[str] = frozenset()
    """Requests whose blocks were kept after their end until they had been read: they can be freed."""
    finished_receiving: frozenset[str] = frozenset()
    """Requests whose load is complete, successfully or not."""
    invalid_block_ids: frozenset[int] = frozenset()
    """Blocks whose load failed."""
    completed_jobs: frozenset[int] = frozenset()
    """Jobs of the connector's own metadata that are over, successfully or not."""


class ModelOutput:
    """What the model returned for one step: sampled tokens, aligned with ``SchedulerOutput.req_ids``.

    ``sampled`` has shape ``[n, width]``; row ``i`` holds ``num_sampled[i]`` tokens, then padding. Prefill chunks and
    pooling requests have none; every other row has one at least, unless its request has ended or is lost.
    Whole numbers of any width will do; they are kept as int64. Raises ValueError for a token that is no id from 0 to
    2**31 - 1 (padding may hold anything), for a count that is none of its row's, and for what is no array of whole
    numbers.
    """

    sampled: IntArray
    num_sampled: IntArray
    width: int
    """Places per row."""
    one_each: bool
    """Every row has one token, as in nearly every step."""
    connector: ConnectorOutput | None
    """What the workers' half of a KV connector reports."""
    extras: ModelAuxOutput | None
    """What there is beside tokens; None: nothing."""

    def __init__(
        self,
        sampled: IntArray,
        num_sampled: IntArray,
        connector: ConnectorOutput | None = None,
        extras: ModelAuxOutput | None = None,
    ) -> None:
        for name, column in (("sampled", sampled), ("num_sampled", num_sampled)):
            if not isinstance(column, np.ndarray) or column.dtype.kind not in "iu":
                raise ValueError(f"{name} = {shown(column)}: give an array of whole numbers")
        # What is read of columns in every step looks at their bytes: all are of one kind.
        sampled, num_sampled = as_whole_numbers(sampled), as_whole_numbers(num_sampled)
        if sampled.ndim != 2 or num_sampled.shape != sampled.shape[:1]:
            raise ValueError(f"sampled {sampled.shape} and num_sampled {num_sampled.shape} do not belong together")
        self.width = int(sampled.shape[1])
        self.one_each = self.width > 0 and all_ones(num_sampled)
        if not self.one_each:
            _check_counts(num_sampled, self.width)
        _check_ids(sampled, num_sampled)
        self.sampled = sampled
        self.num_sampled = num_sampled
        self.connector = connector
        self.extras = extras

    def tokens(self) -> Numbers:
        """Return a copy of ``sampled``, row after row."""
        return array("q", self.sampled.tobytes())

    def counts(self) -> Numbers:
        """Return a copy of ``num_sampled``."""
        return array("q", self.num_sampled.tobytes())

    @classmethod
    def from_lists(
        cls,
        tokens: Sequence[Sequence[int]],
        connector: ConnectorOutput | None = None,
        extras: ModelAuxOutput | None = None,
    ) -> ModelOutput:
        """From one list of tokens per scheduled request; ValueError for an id below 0 or above 2**31 - 1."""
        sampled, num_sampled = _padded(tokens)
        return cls(sampled, num_sampled, connector, extras)

    def check_chunks(self, req_ids: Sequence[str], is_prefill_chunk: npt.NDArray[np.bool_] | None) -> None:
        """ValueError if a prefill chunk brings a token: what follows its last position is known already."""
        if is_prefill_chunk is None:
            return
        sampled = is_prefill_chunk & (self.num_sampled > 0)
        if any_true(sampled):
            row = int(sampled.argmax())
            fix = "its prompt is not computed to its end in this step: give no token for it"
            raise ValueError(f"row {row} holds {self.num_sampled[row]} tokens for request {req_ids[row]!r}, but {fix}")


def _padded(lists: Sequence[Sequence[int]]) -> tuple[IntArray, IntArray]:
    """Ragged token lists as a padded array of shape ``[n, width]`` and their lengths."""
    lengths = np.fromiter(map(len, lists), np.int64, len(lists))
    width = int(lengths.max()) if len(lists) else 1
    padded = np.full((len(lists), max(width, 1)), -1, np.int64)
    for row, values in enumerate(lists):
        ids = np.asarray(values)
        if ids.size and (ids.ndim != 1 or ids.dtype.kind not in "iu"):
            raise ValueError(f"row {row} = {shown(values)}: give whole numbers from 0 to {MAX_COUNT}")
        padded[row, : ids.size] = ids
    return padded, lengths


def _check_counts(counts: IntArray, width: int) -> None:
    """ValueError unless every row has room for its tokens."""
    if are_within(counts, 0, width):
        return
    row = int(((counts < 0) | (counts > width)).argmax())
    raise ValueError(f"num_sampled[{row}] = {counts[row]}: give 0 to {width}, the width of sampled")


def _check_ids(tokens: IntArray, counts: IntArray) -> None:
    """ValueError unless all tokens but the padding can be token ids."""
    if are_within(tokens, 0, MAX_COUNT):
        return
    wrong = ((tokens < 0) | (tokens > MAX_COUNT)) & (np.arange(tokens.shape[1]) < counts[:, None])
    if any_true(wrong):
        row, column = np.argwhere(wrong)[0].tolist()
        raise ValueError(f"row {row} holds token {tokens[row, column]}: give ids from 0 to {MAX_COUNT}, or no token")


# ---------------------------------------------------------------------------------------------------------------------
# What goes on to the clients after a step: columns over the requests that have news, records on demand.


def _looked_at(numbers: Numbers) -> IntArray:
    """Return an array over them, read-only."""
    column: IntArray = np.frombuffer(numbers, np.int64)
    column.flags.writeable = False
    return column


class RequestOutput(msgspec.Struct, frozen=True, gc=False):  # made by the dozen in every step, and in no cycle
    """News about one request after a step."""

    request_id: str
    """The request that the news is about."""
    new_token_ids: list[int]
    """Tokens accepted in this step, in order."""
    finish_reason: FinishReason | None = None
    """Why it has ended; None: it has not."""
    stop_reason: int | str | None = None
    """The stop token or text that ended it; None: something else did, or nothing."""
    extras: RequestAuxOutput = NO_AUX_OUTPUT
    """What there is beside tokens."""
    kv_transfer_params: Mapping[str, object] | None = None
    """What the client has to hand to the engine that goes on with the request."""
    error: GrammarError | None = None
    """What its grammar has done that ended it; None: it has not, or was ended by something else."""


_NO_NOTES: Mapping[Any, Any] = MappingProxyType({})


class EngineOutputs:
    """Result of ``update_from_output``: columns over the requests that produced something."""

    step: int
    requests: list[Request]
    names: Names
    """Their ids."""
    accepted: Numbers
    """Their tokens: ``width`` places per request, of which as many are accepted as ``counts`` says."""
    counts: Numbers
    width: int
    finish_reasons: Mapping[int, FinishReason]
    """Row -> reason, for requests that ended."""
    stop_reasons: Mapping[int, int | str]
    extras: Mapping[int, RequestAuxOutput]
    """Row -> what there is beside tokens, for the few requests that have any."""
    kv_transfer_params: Mapping[str, Mapping[str, object]]
    """Request id -> a connector's parameters for the client, for requests that have ended."""
    errors: Mapping[str, GrammarError]
    """Request id -> what its grammar has done, for requests that have ended by it."""
    scheduler_stats: SchedulerStats
    """Gauges when the step was over."""

    def __init__(
        self,
        step: int,
        requests: list[Request],
        names: Names,
        accepted: Numbers,
        counts: Numbers,
        width: int,
        scheduler_stats: SchedulerStats = NO_STATS,
    ) -> None:
        self.step = step
        self.requests = requests
        self.names = names
        self.accepted = accepted
        self.counts = counts
        self.width = width
        self.scheduler_stats = scheduler_stats
        self.finish_reasons = self.stop_reasons = self.kv_transfer_params = self.errors = _NO_NOTES
        self.extras = NO_AUX
        self._tokens: IntArray | None = None
        self._num_tokens: IntArray | None = None

    @property
    def req_ids(self) -> tuple[str, ...]:
        """Ids of the requests, in scheduling order."""
        return self.names.tuple_of_ids()

    @property
    def tokens(self) -> IntArray:
        """Tokens, shape ``[m, width]``, read-only."""
        if self._tokens is None:
            self._tokens = _looked_at(self.accepted).reshape(len(self.requests), self.width)
        return self._tokens

    @property
    def num_tokens(self) -> IntArray:
        """Accepted tokens per request, shape ``[m]``, read-only."""
        if self._num_tokens is None:
            self._num_tokens = _looked_at(self.counts)
        return self._num_tokens

    def add_failed(self, failed: Sequence[Request]) -> None:
        """Add requests that ended as errors, without a token."""
        n, more = len(self.requests), len(failed)
        self.requests = [*self.requests, *failed]
        self.names = Names(self.requests)
        self.accepted = self.accepted + array("q", [NO_TOKEN] * (more * self.width))
        self.counts = self.counts + array("q", [0] * more)
        self.finish_reasons = {**self.finish_reasons, **dict.fromkeys(range(n, n + more), FinishReason.ERROR)}

    def by_client(self) -> dict[int, list[RequestOutput]]:
        """The records per ``client_index``, for hosts with several front ends."""
        clients: dict[int, list[RequestOutput]] = {}
        for request, news in zip(self.requests, self, strict=True):
            clients.setdefault(request.client_index, []).append(news)
        return clients

    @property
    def num_sampled(self) -> int:
        """Tokens that the step brought: none for pooling requests, and for those that ended as errors."""
        if self.width == 1 and not self.finish_reasons and not self.extras:
            return len(self.requests)  # without anything else to say, a request is there because of its token
        return sum(self.counts)

    @property
    def streamed_req_ids(self) -> Sequence[str]:
        """Ids of the requests that got a token, or several."""
        if self.width == 1 and not self.finish_reasons and not self.extras:
            return self.req_ids
        return [request_id for request_id, count in zip(self.req_ids, self.counts, strict=True) if count]

    def apart(self) -> EngineOutputs:
        """Return the same with dictionaries of its own, for those who may look and not change."""
        same = EngineOutputs(
            self.step, self.requests, self.names, self.accepted, self.counts, self.width, self.scheduler_stats
        )
        same.extras = self.extras
        same.finish_reasons, same.stop_reasons = dict(self.finish_reasons), dict(self.stop_reasons)
        same.kv_transfer_params, same.errors = dict(self.kv_transfer_params), dict(self.errors)
        return same

    def __len__(self) -> int:
        return len(self.requests)

    def __iter__(self) -> Iterator[RequestOutput]:
        """One record per request, in scheduling order."""
        rows: list[list[int]] = self.tokens.tolist()
        width = self.width
        if width > 1:
            rows = [row if n == width else row[:n] for row, n in zip(rows, self.counts, strict=True)]
        records = list(map(RequestOutput, self.req_ids, rows))
        for i in self._with_more_news():
            records[i] = self._record(i, rows[i])
        return iter(records)

    def _with_more_news(self) -> Set[int]:
        """Rows of requests that have more to tell than their tokens; mostly none.

        Who has no token is among them: it has ended, or has extras.
        """
        rows = self.finish_reasons.keys() | self.extras.keys()
        if self.kv_transfer_params:
            rows |= {i for i, request_id in enumerate(self.req_ids) if request_id in self.kv_transfer_params}
        return rows

    def records(self, but: Set[str]) -> Iterator[tuple[Request, RequestOutput]]:
        """Requests with their records, but those of ``but`` that have nothing but tokens."""
        if not but:
            return zip(self.requests, self, strict=True)
        rows = {i for i, request_id in enumerate(self.req_ids) if request_id not in but}
        chosen = sorted(rows.union(self.finish_reasons, self.extras))
        return ((self.requests[i], self._record(i, self.tokens[i].tolist())) for i in chosen)

    def _record(self, i: int, row: list[int]) -> RequestOutput:
        request_id = self.req_ids[i]
        return RequestOutput(
            request_id,
            row[: self.counts[i]],
            self.finish_reasons.get(i),
            self.stop_reasons.get(i),
            self.extras.get(i, NO_AUX_OUTPUT),
            self.kv_transfer_params.get(request_id),
            self.errors.get(request_id),
        )
