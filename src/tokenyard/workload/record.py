"""What arrives: one record per request, and a workload as a list of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cache, lru_cache
from os import PathLike
from typing import Any

import msgspec
import numpy as np

from tokenyard.arguments import given_path, is_number
from tokenyard.core.config import MAX_COUNT, require_int
from tokenyard.core.request import MultiModalItem, Request, SamplingParams, TokenIds
from tokenyard.errors import TOO_LONG, ConfigError, RequestError, WorkloadError, shown
from tokenyard.files import packaged
from tokenyard.quick_dataclass import dataclass
from tokenyard.trace.facts import AGAIN
from tokenyard.workload.measured import Measured, ServiceCounts
from tokenyard.workload.tokens import ListedTokens, TokenSource

# ---------------------------------------------------------------------------------------------------------------------
# What there is to say of a workload that was read: what was assumed, and what looks wrong in it.


class Remark(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One remark about a workload; programs go by ``code``."""

    code: str
    """What it is about, for example ``kind`` or ``times_rounded``."""
    text: str
    """A sentence."""
    warning: bool = False
    """Whether the workload may not be what the log's writer served; else it only says how the log was read."""


class _Said(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    says: str
    code: str = ""
    """Empty: the remark's own name."""
    warning: bool = False


@cache
def _remarks() -> dict[str, _Said]:
    return msgspec.json.decode(packaged(__package__, "remarks.json"), type=dict[str, _Said])


def remark(name: str, /, **of: Any) -> Remark:
    """Return the remark of this name in ``remarks.json``, with what its sentence names."""
    said = _remarks()[name]
    return Remark((said.code or name).format(**of), said.says.format(**of), said.warning)


def as_remarks(notes: Iterable[str | Remark]) -> tuple[Remark, ...]:
    """Sentences become remarks of code ``note``."""
    return tuple(each if isinstance(each, Remark) else Remark("note", each) for each in notes)


# ---------------------------------------------------------------------------------------------------------------------
# How long anything in a workload may take.

MAX_SECONDS = 1e9
"""Three decades; beyond it a double no longer resolves a step."""
_A_TIME = f"give a number of seconds from 0 to {MAX_SECONDS:g}"


def is_seconds(value: object) -> bool:
    """Whether it is a moment, or a duration, that a workload may have."""
    try:
        return 0 <= value <= MAX_SECONDS  # type: ignore[operator]  # whatever it is
    except (TypeError, ValueError):
        return False


# ---------------------------------------------------------------------------------------------------------------------
# Clients that do not wait for ever: after a time they hang up, and perhaps retry.
#
# sent ---- timeout ----| hangs up: the request is aborted
#                       |-- wait --> sent again, a request of its own -- timeout --| ... as often as `retries` says

_MOST_RETRIES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """How long clients wait for a whole answer, and what they do then. Raises ConfigError."""

    timeout: float
    """Seconds from sending a request to the end of its answer."""
    retries: int = 0
    """Times that a request is sent again."""
    wait: float = 1.0
    """Seconds between hanging up and sending again."""

    def __post_init__(self) -> None:
        if not is_seconds(self.timeout) or not self.timeout:
            raise ConfigError(
                "client_timeout", self.timeout, f"give a number of seconds above 0, up to {MAX_SECONDS:g}"
            )
        require_int("retries", self.retries, 0, _MOST_RETRIES)
        if not is_seconds(self.wait):
            raise ConfigError("retry_wait", self.wait, _A_TIME)


def attempt_id(request_id: str, attempt: int) -> str:
    """What a request is called when it is sent for the ``attempt``-th time, from 1."""
    return request_id if attempt == 1 else f"{request_id}{AGAIN}{attempt}"


# ---------------------------------------------------------------------------------------------------------------------
# What arrives: one record per request, and a workload as a list of them.
#
# A request arrives at a fixed moment, or when the turns it answers to have ended:
#
#     no ``after``    at ``arrival_time``
#     ``after``       ``gap`` seconds after the last of them ended, and not earlier than ``spacing`` seconds after the
#                     last of them arrived (for traces that recorded arrivals but no durations)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadRequest:
    """One request to come. Its prompt takes no memory until it arrives.

    Raises RequestError for a prompt that makes no tokens, or ``meta`` that is no JSON.
    """

    request_id: str
    """Names the request; unique in the workload."""
    prompt: TokenSource
    """Makes the prompt's token ids when the request arrives; a list or an array of ids is taken as well."""
    max_tokens: int
    """Output tokens of the answer."""
    limit: int | None = None
    """``max_tokens`` of its client, where the answer ends by itself, below it: a scheduler that decides ahead (async
    scheduling) does not see that coming, and gives such a request a step more. None: the limit ends it."""
    arrival_time: float = 0.0
    """Seconds since the start of the workload."""
    after: tuple[str, ...] = ()
    """Requests that must have ended; they stand earlier in the workload."""
    gap: float = 0.0
    """Seconds (tool or user time)."""
    spacing: float = 0.0
    """Seconds between two arrivals, at least."""
    job_id: str | None = None
    """Groups the turns of one agent."""
    is_last_step: bool = False
    """The job's last turn."""
    this_func_call: str | None = None
    """Tool that the turn will call, if known."""
    priority: int = 0
    """Order under the ``priority`` policy: the lower number is served first."""
    lora_name: str | None = None
    """LoRA adapter that it asks for; None: the base model."""
    cache_salt: str | None = None
    """Requests with another salt, or none, share no prefix with it."""
    images: tuple[MultiModalItem, ...] = ()
    """Images whose placeholders stand in the prompt."""
    delay: float = 0.0
    """Seconds from its arrival at the server until the scheduler has it: tokenisation, the way between processes."""
    patience: float | None = None
    """Seconds after its arrival at which its client goes away, if it has not ended; None: never."""
    output_seed: int = 0
    """Stream of the output: see :class:`~tokenyard.workload.tokens.StreamTokens`."""
    predicted_output_tokens: int | None = None
    """Output tokens that are predicted, for policies that go by it; ``max_tokens`` is what the answer has."""
    meta: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Your own fields, by name: anything that JSON can say. Policies and observers find them in ``Request.meta``, a
    replay's rows have a column for each."""
    measured: Measured | None = None
    """What the input has measured of it, to be shown beside what a replay gives; None: nothing."""

    def __post_init__(self) -> None:
        if not callable(getattr(self.prompt, "tokens", None)):
            object.__setattr__(self, "prompt", _listed(self.request_id, self.prompt))
        if self.meta:
            object.__setattr__(self, "meta", _checked_meta(self.request_id, self.meta))

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.prompt)

    def arrive(
        self,
        arrival_time: float,
        max_model_len: int,
        *,
        tokens: TokenIds | None = None,
        kv_transfer_params: Mapping[str, object] | None = None,
    ) -> Request:
        """The scheduler's request, with its prompt made now unless ``tokens`` stand for it.

        ``kv_transfer_params`` tell a KV connector where its KV is, or who will want it.

        Raises RequestError if a field cannot work. A prompt that ``max_model_len`` does not allow is refused before
        it is made: it might not fit the memory.
        """
        if len(self.prompt) >= max_model_len:
            length = f"{len(self.prompt)} tokens"
            fix = f"the prompt must be shorter than §max_model_len ({max_model_len})"
            raise RequestError(self.request_id, "prompt_token_ids", length, fix, code=TOO_LONG)
        return Request(
            self.request_id,
            self.prompt.tokens() if tokens is None else tokens,
            _ends_after(self.max_tokens if self.limit is None else self.limit),
            arrival_time=arrival_time,
            priority=self.priority,
            job_id=self.job_id,
            is_last_step=self.is_last_step,
            this_func_call=self.this_func_call,
            lora_name=self.lora_name,
            cache_salt=self.cache_salt,
            mm_features=self.images,
            output_seed=self.output_seed,
            predicted_output_tokens=self.predicted_output_tokens,
            ends_after=None if self.limit is None else self.max_tokens,
            meta=self.meta,
            kv_transfer_params=kv_transfer_params,
        )

    def unserved(self, arrival_time: float, tokens: TokenIds) -> Request:
        """The scheduler's request where it will never be served; ``tokens`` stand for its prompt."""
        return Request(
            self.request_id,
            tokens,
            _ends_after(self.max_tokens),
            arrival_time=arrival_time,
            priority=self.priority,
            job_id=self.job_id,
            lora_name=self.lora_name,
            predicted_output_tokens=self.predicted_output_tokens,
            meta=self.meta,
        )


@lru_cache(maxsize=4096, typed=True)
def _ends_after(max_tokens: int) -> SamplingParams:
    """What a recorded request asks for: so many tokens. Checking it anew for each takes as long as all else of it."""
    return SamplingParams(max_tokens=max_tokens, ignore_eos=True)


def _listed(request_id: str, prompt: object) -> TokenSource:
    """What was given in place of a source, if it is a list of token ids."""
    fix = "give token ids from 0 to 2147483647 as a list, or a TokenSource (WorkloadBuilder makes them by length)"
    if isinstance(prompt, str | bytes | Mapping) or not isinstance(prompt, Sequence | np.ndarray):
        raise RequestError(request_id, "prompt", prompt, fix)
    try:
        return ListedTokens(prompt)
    except ValueError:
        raise RequestError(request_id, "prompt", prompt, fix) from None


def _checked_meta(request_id: str, meta: object) -> dict[str, Any]:
    """A copy as it comes back from a file."""
    fix = "give a dictionary that JSON can say: names as texts; texts, finite numbers, booleans, None, lists of them"
    try:
        told = msgspec.json.decode(msgspec.json.encode(meta, enc_hook=_plain_number))
    except (TypeError, ValueError, RecursionError, OverflowError):
        told = None
    if not isinstance(told, dict) or told != meta:
        raise RequestError(request_id, "meta", meta, fix)
    return told


def _plain_number(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(type(value))


class Workload:
    """A named list of requests, checked once.

    Made by ``load_workload`` (files, logs, generators), by ``WorkloadBuilder``, or of ``WorkloadRequest`` objects.
    """

    __slots__ = ("clients", "kind", "knows_ways", "max_concurrency", "name", "remarks", "requests", "service")

    def __init__(
        self,
        name: str,
        requests: Iterable[WorkloadRequest],
        *,
        max_concurrency: int | None = None,
        notes: Sequence[str | Remark] = (),
        clients: Clients | None = None,
        kind: str | None = None,
        service: ServiceCounts | None = None,
        knows_ways: bool | None = None,
    ) -> None:
        """Raises WorkloadError if there is no request, an id occurs twice, or a turn follows an unknown one."""
        if max_concurrency is not None:
            require_int("max_concurrency", max_concurrency, 1)
        if not isinstance(notes, Sequence):
            raise ConfigError("notes", notes, "give a list of sentences, or leave it out")
        self.name = name
        self.max_concurrency = max_concurrency
        """A closed loop: a request is sent only when fewer than so many are under way; None: when it is due."""
        self.clients = clients
        """How long clients wait before they hang up and retry; None: they wait, except where ``patience`` ends."""
        self.kind = kind
        """The format of the file, or the kind of log, that it was read as; None: it was read from none."""
        self.service = service or ServiceCounts()
        """What the file says of all its requests together."""
        self.remarks = as_remarks(notes)
        """What was left out or assumed when it was read, and what looks wrong in it."""
        self.requests = tuple(_checked_requests(name, requests))
        self.knows_ways = any(each.delay for each in self.requests) if knows_ways is None else knows_ways
        """Whether it says how long requests are on their way to the scheduler; else the deployment does."""
        if not self.requests:
            fix = "give one WorkloadRequest at least"
            raise WorkloadError(name, 0, "holds no request", field="requests", value=(), fix=fix)
        seen: set[str] = set()
        for request in self.requests:
            problem = _problem(request, seen)
            if problem:
                text = f"request {shown(request.request_id)}: {problem}"
                raise WorkloadError(name, 0, text, field=problem.field, value=problem.value, fix=problem.fix)
            seen.add(request.request_id)

    def __repr__(self) -> str:
        arrivals = [each.arrival_time for each in self.requests if not each.after]
        loop = "" if self.max_concurrency is None else f", at most {self.max_concurrency} at once"
        return (
            f"<Workload {shown(self.name)}: {len(self):,} requests in {self.num_jobs:,} jobs, "
            f"{self.num_prompt_tokens:,} prompt and {self.num_output_tokens:,} output tokens, "
            f"first arrivals from {min(arrivals):g} to {max(arrivals):g} s{loop}>"
        )

    def __len__(self) -> int:
        return len(self.requests)

    def __iter__(self) -> Iterator[WorkloadRequest]:
        return iter(self.requests)

    def save(self, path: str | PathLike[str]) -> None:
        """Write it as JSON lines in our own format, packed where the name ends in ``.gz``; what was there is replaced.

        Read again, it replays as it does now. Raises ConfigError where the file cannot be written.
        """
        from tokenyard.workload.readers.plain import write_plain  # noqa: PLC0415 - it makes workloads: it stands above them

        write_plain(self, given_path("path", path))

    def with_one_token_each(self) -> Workload:
        """The same requests with answers of one token: what a prompt's embedding or score counts as."""
        return self._with(replace(each, max_tokens=1, limit=None, measured=None) for each in self.requests)

    @property
    def notes(self) -> tuple[str, ...]:
        """The remarks as sentences."""
        return tuple(each.text for each in self.remarks)

    @property
    def num_prompt_tokens(self) -> int:
        return sum(len(request.prompt) for request in self.requests)

    @property
    def num_output_tokens(self) -> int:
        return sum(request.max_tokens for request in self.requests)

    @property
    def first_impatient(self) -> WorkloadRequest | None:
        """The first request whose client may go away; None if none does."""
        return next((request for request in self.requests if request.patience is not None), None)

    @property
    def first_with_adapter(self) -> WorkloadRequest | None:
        """The first request that asks for a LoRA adapter; None if none does."""
        return next((request for request in self.requests if request.lora_name is not None), None)

    @property
    def first_with_images(self) -> WorkloadRequest | None:
        """The first request with an image; None if none has one."""
        return next((request for request in self.requests if request.images), None)

    @property
    def num_jobs(self) -> int:
        """Distinct job ids; a request without one is its own job."""
        named = {request.job_id for request in self.requests}
        return len(named - {None}) + sum(request.job_id is None for request in self.requests)

    def with_rate(self, scale: float) -> Workload:
        """The same workload arriving ``scale`` times as fast; gaps between turns stay as they are."""
        if not is_number(scale, above=True):
            raise ConfigError("rate_scale", scale, "give a number above 0")
        if scale == 1:
            return self
        return self._as_other_load(replace(r, arrival_time=r.arrival_time / scale) for r in self.requests)

    def with_request_rate(self, rate: float, *, burstiness: float = 1.0, seed: int = 0) -> Workload:
        """The same requests, arriving at random: ``rate`` a second on average, in this order; infinity: all at once.

        As in ``vllm bench serve``: intervals are gamma distributed, and ``burstiness`` 1 is a Poisson process, less is
        burstier, more is more regular. ConfigError if a number cannot work, or if turns follow each other.
        """
        for name, value in (("request_rate", rate), ("burstiness", burstiness)):
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise ConfigError(name, value, "give a number above 0")
        if any(request.after for request in self.requests):
            each = len(self.requests) / max(self.num_jobs, 1)
            fix = f"{self.name} has turns that follow each other, {each:.3g} a session on average: use §session_rate"
            raise ConfigError("request_rate", rate, fix + (f" {rate / each:.3g}" if rate < math.inf else ""))
        count = len(self.requests)
        if rate == math.inf:
            moments = np.zeros(count)
        else:
            intervals = np.random.default_rng(seed).gamma(burstiness, 1.0 / (rate * burstiness), count)
            moments = np.cumsum(intervals) - intervals[0]
        return self._as_other_load(
            replace(request, arrival_time=float(moment))
            for request, moment in zip(self.requests, moments.tolist(), strict=True)
        )

    def with_max_concurrency(self, most: int) -> Workload:
        """The same workload, of which never more than ``most`` requests are under way: a closed loop."""
        return self._as_other_load(self.requests, max_concurrency=most)

    def with_clients(self, clients: Clients) -> Workload:
        """The same workload, whose clients hang up; those whose ``patience`` ends sooner do so as before, for good.

        WorkloadError if a request is called as another one is when it is sent again.
        """
        if not isinstance(clients, Clients):
            raise ConfigError("clients", clients, "give Clients(timeout=...)")
        known = {request.request_id for request in self.requests}
        for request in self.requests:
            for attempt in range(2, clients.retries + 2):
                if attempt_id(request.request_id, attempt) in known:
                    taken = shown(attempt_id(request.request_id, attempt))
                    raise WorkloadError(self.name, 0, f"request {taken}: is the id of a retry: rename the request")
        hurried = (
            request
            if request.patience is not None and request.patience <= clients.timeout
            else replace(request, patience=clients.timeout)
            for request in self.requests
        )
        return self._with(hurried, clients=clients)

    def with_delays(self, delays: Iterable[float]) -> Workload:
        """The same workload, whose requests reach the scheduler later by so many seconds each.

        Raises ConfigError for other than one delay for each request.
        """
        given = list(delays)
        wrong = next((each for each in given if not is_seconds(each)), None)
        if wrong is not None or len(given) != len(self.requests):
            fix = f"{_A_TIME} for each of {len(self.requests):,} requests"
            raise ConfigError("delays", f"{len(given):,} of them" if wrong is None else wrong, fix)
        delayed = zip(self.requests, given, strict=True)
        return self._with((replace(each, delay=each.delay + delay) for each, delay in delayed), knows_ways=True)

    def with_front_end(self, seconds: Callable[[int], float]) -> Workload:
        """The same workload, whose requests reach the scheduler after the ``seconds`` that a front end takes for so
        many prompt tokens, in place of those of another deployment; as it is where it knows its ways.
        """
        if self.knows_ways:
            return self
        delayed = (replace(each, delay=seconds(each.num_prompt_tokens)) for each in self.requests)
        return self._with(delayed, knows_ways=False)

    def with_notes(self, notes: Sequence[str | Remark]) -> Workload:
        """The same workload with further remarks."""
        return self._with(notes=(*self.remarks, *notes))

    def with_requests(self, requests: Iterable[WorkloadRequest]) -> Workload:
        """Other requests (a part of these, or these changed) under the same name, kind, clients and remarks."""
        return self._with(requests)

    def _as_other_load(self, requests: Iterable[WorkloadRequest], *, max_concurrency: int | None = None) -> Workload:
        """The same requests sent otherwise: what was measured of them is of the load that was, and goes."""
        if all(each.measured is None for each in self.requests):
            return self._with(requests, max_concurrency=max_concurrency)
        others = (replace(each, measured=None) for each in requests)
        return self._with(others, max_concurrency=max_concurrency, notes=(*self.remarks, remark("other_load")))

    def _with(
        self,
        requests: Iterable[WorkloadRequest] | None = None,
        *,
        max_concurrency: int | None = None,
        notes: Sequence[str | Remark] | None = None,
        clients: Clients | None = None,
        knows_ways: bool | None = None,
    ) -> Workload:
        return Workload(
            self.name,
            self.requests if requests is None else requests,
            max_concurrency=self.max_concurrency if max_concurrency is None else max_concurrency,
            notes=self.remarks if notes is None else notes,
            clients=self.clients if clients is None else clients,
            kind=self.kind,
            service=self.service,
            knows_ways=self.knows_ways if knows_ways is None else knows_ways,
        )


def _checked_requests(name: str, requests: object) -> Iterator[WorkloadRequest]:
    if not isinstance(requests, Iterable):
        fix = "give a list of WorkloadRequest"
        raise WorkloadError(name, 0, f"requests = {shown(requests)}: {fix}", field="requests", value=requests, fix=fix)
    for each in requests:
        if not isinstance(each, WorkloadRequest):
            fix = "give WorkloadRequest objects"
            raise WorkloadError(name, 0, f"holds {shown(each)}: {fix}", field="requests", value=each, fix=fix)
        yield each


_TIMES = ("arrival_time", "gap", "spacing", "delay")


class _Problem(msgspec.Struct, frozen=True):
    """What is wrong with a request."""

    field: str
    value: object
    fix: str
    says: str | None = None
    """The sentence, where it is another one than of every field."""

    def __str__(self) -> str:
        return self.says or f"{self.field} = {shown(self.value)}: {self.fix}"


def _problem(request: WorkloadRequest, earlier: set[str]) -> _Problem | None:
    """What is wrong with ``request``, or None."""
    problem = _order_problem(request, earlier) or _time_problem(request) or _output_problem(request)
    if problem:
        return problem
    if not len(request.prompt):
        return _Problem("prompt", request.prompt, "give one token at least", "has an empty prompt")
    return None


def _order_problem(request: WorkloadRequest, earlier: set[str]) -> _Problem | None:
    """What is wrong with its id, or with those that it follows, or None."""
    own, after = request.request_id, request.after
    if not isinstance(own, str) or not own:
        return _Problem("request_id", own, "give a text that is not empty")
    if own in earlier:
        return _Problem("request_id", own, "give each request an id of its own", "occurs twice")
    if not isinstance(after, tuple | list) or not all(isinstance(each, str) for each in after):
        return _Problem("after", after, "give the ids of earlier requests as a tuple")
    for parent in after:
        if parent not in earlier:
            says = f"comes after {shown(parent)}, which no earlier request is called"
            return _Problem("after", after, "name requests that stand before it", says)
    return None


def _time_problem(request: WorkloadRequest) -> _Problem | None:
    """What is wrong with its moments and durations, or None."""
    times = request.arrival_time, request.gap, request.spacing, request.delay
    for name, value in zip(_TIMES, times, strict=True):
        if not is_seconds(value):
            since = "; of Unix times subtract the first one" if name == "arrival_time" else ""
            return _Problem(name, value, f"{_A_TIME}{since}")
    if request.patience is not None and not is_seconds(request.patience):
        return _Problem("patience", request.patience, f"{_A_TIME}, or leave it out")
    return None


def _output_problem(request: WorkloadRequest) -> _Problem | None:
    """What is wrong with what it says of its output, or None."""
    most, limit, predicted = request.max_tokens, request.limit, request.predicted_output_tokens
    if not _is_count(most, 1):
        return _Problem("max_tokens", most, f"give a whole number from 1 to {MAX_COUNT}")
    if limit is not None and not _is_count(limit, most):
        return _Problem("limit", limit, f"give a whole number from max_tokens ({most}) to {MAX_COUNT}")
    if predicted is not None and not _is_count(predicted, 0):
        return _Problem("predicted_output_tokens", predicted, "give a whole number from 0, or leave it out")
    if not _is_count(request.output_seed, -(2**63), 2**63 - 1):
        fix = "give a whole number of 64 bits, as seed_of makes them"
        return _Problem("output_seed", request.output_seed, fix)
    return None


def _is_count(value: object, low: int, high: int = MAX_COUNT) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
