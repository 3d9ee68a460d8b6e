"""From metrics alone: a workload with the same lengths, arrivals and hits, and what that hour was short of."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from math import inf, sqrt
from operator import itemgetter
from os import PathLike
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import msgspec
import numpy as np
import numpy.typing as npt

from tokenyard.arguments import given_path, suggests_keywords
from tokenyard.errors import ConfigError, WorkloadError
from tokenyard.explain.table import Printable, RowTable, table_from
from tokenyard.files import read_input
from tokenyard.redaction import hidden_users
from tokenyard.vocabulary import Reason
from tokenyard.workload.logs.logged import LoggedRequest
from tokenyard.workload.logs.reading import HIT_BLOCK, requests_of
from tokenyard.workload.record import Remark, Workload
from tokenyard.workload.scrapes import MOST_BYTES, Numbers, Scrapes, read_scrapes

# ---------------------------------------------------------------------------------------------------------------------
# The answer.


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What held requests back; programs go by ``code``."""

    code: str
    """``kv_blocks``, ``max_num_seqs``, ``token_budget``, ``deferred``, ``unclear``, ``nothing``, ``too_few``;
    ``preemptions``, ``hits``."""
    text: str
    observations: int
    """On how many it rests: scrapes, of ``preemptions`` and ``hits`` requests that ended."""


class ServedHour(Printable, msgspec.Struct, frozen=True, kw_only=True):
    """What metrics say of a time in which a server was watched."""

    printer = "tokenyard.questions.printing.metrics:print_metrics"

    source: str
    seconds: float
    scrapes: int
    engines: int
    requests: int
    """Requests that came, those under way at the start included."""
    finished: int
    requests_per_s: float
    mean_prompt_tokens: float | None
    mean_output_tokens: float | None
    hit_rate: float | None
    """Share of prompt tokens found in the prefix cache."""
    kv_use_mean: float
    kv_use_max: float
    running_max: float
    waiting_max: float
    waiting_share: float
    """Share of the moments at which a request waited."""
    preemptions: int
    acceptance_rates: list[float]
    """The share of each draft position that is accepted where those before it were; empty with fewer than 30 drafts."""
    num_drafts: int
    """Drafts that these rest on."""
    ttft_mean_s: float | None
    queue_mean_s: float | None
    tpot_mean_s: float | None
    e2e_mean_s: float | None
    findings: list[Finding]
    """What it was short of, the worst first."""
    unknown: list[str]
    """What metrics cannot tell."""

    def summary(self) -> str:
        return f"{self.requests:,} requests in {self.seconds:,.0f} s: {self.findings[0].text}"

    def as_table(self) -> RowTable:
        """One row per finding: ``code``, ``text``."""
        return table_from("findings", [{"code": each.code, "text": each.text} for each in self.findings])


_UNKNOWN = (
    "when within a scrape's interval a request came: arrivals are spread over it by chance",
    "which answer belongs to which prompt: lengths are drawn apart, so long prompts may have had long answers",
    "which prompts begin alike: hits come from one prefix, as long as it takes",
    "lengths within a bucket of a histogram: they have its mean (--skip-refused where one is beyond max_model_len)",
    "priorities, sessions, users and images; and what happened between two scrapes",
)


@suggests_keywords()
def read_metrics(
    source: str | PathLike[str], *, model_name: str | None = None, seed: int = 0
) -> tuple[Workload, ServedHour]:
    """A workload like the one that a server's metrics are of, and what they say of it.

    ``source``: a file of scrapes, or of Prometheus' answers to range queries. Raises WorkloadError if it holds no
    requests, ConfigError where several models are served and none is named.
    """
    path = given_path("source", source)
    return _read(read_scrapes(read_input(path, MOST_BYTES), path.name, model_name), seed)


def _read(scrapes: Scrapes, seed: int) -> tuple[Workload, ServedHour]:
    workload = workload_of(scrapes, seed)
    return workload, _hour(scrapes, workload)


# ---------------------------------------------------------------------------------------------------------------------
# The workload: arrivals by what finished and what was under way, lengths by their histograms.

_FINISHED = "vllm:request_success_total"
_ASK = "; `tokenyard doctor` says what the server is short of"
_ROUNDS = 20
"""Rounds of a search that comes closer in each."""


def workload_of(scrapes: Scrapes, seed: int) -> Workload:
    """A workload like the one that was served between the first scrape and the last. Raises WorkloadError."""
    rng = np.random.default_rng(seed)
    moments = _arrivals(scrapes, rng)
    count = len(moments)
    if not count:
        raise WorkloadError(scrapes.source, 0, f"no request came or ended between the first scrape and the last{_ASK}")
    lengths = _Lengths(scrapes, count)
    answers, prompts = lengths.drawn("vllm:request_generation_tokens"), lengths.drawn("vllm:request_prompt_tokens")
    if answers is None or prompts is None:
        raise WorkloadError(
            scrapes.source, 0, f"no request ended between the scrapes: how long they are is unknown{_ASK}"
        )
    computed = lengths.drawn("vllm:request_prefill_kv_computed_tokens")
    cached = _cached(hit_rate(scrapes) or 0.0, prompts, computed)
    decodes = scrapes.histogram("vllm:request_decode_time_seconds").sums
    tokens = scrapes.histogram("vllm:request_generation_tokens").sums
    paces = np.append(decodes / np.maximum(tokens, 1.0), 0.0)
    begun: list[tuple[float, LoggedRequest]] = []
    for (begin, end), since, until, pace in zip(
        lengths.stretches, [*scrapes.times[:-1], inf], [*scrapes.times[1:], inf], paces, strict=True
    ):
        mine, theirs = rng.permutation(np.arange(begin, end)), rng.permutation(np.arange(begin, end))
        ended = np.linspace(since, until, 2 * (end - begin) + 1)[1::2] if until < inf else np.full(end - begin, inf)
        begun += [
            (when - pace * answers[j], LoggedRequest(None, int(prompts[i]), int(answers[j]), int(cached[i])))
            for i, j, when in zip(mine, theirs, ended, strict=True)
        ]
    logged = [request for _, request in sorted(begun, key=itemgetter(0))]  # who came first has begun first
    made = f"made of metrics, {len(scrapes.times):,} scrapes in {scrapes.times[-1]:,.0f} s"
    notes = [Remark("metrics", f"{made}; unknown: {each}") for each in _UNKNOWN]
    name = Path(scrapes.source).stem or "metrics"
    arrived = list(zip(moments.tolist(), logged, strict=True))
    made_up = (replace(each, measured=None) for each in requests_of(arrived, name, seed))  # nothing is of one request
    return Workload(name, made_up, notes=notes, kind="prometheus")


def _arrivals(scrapes: Scrapes, rng: np.random.Generator) -> Numbers:
    """Moments, ascending: each spread over its interval, and who is under way at the start over the time before.

    Nothing counts arrivals: they are those that finished, and by how much more were under way. Those of the start came
    within the time that a request takes, at the rate of the others (Little's law), or at once if neither is known.
    """
    load = scrapes.gauge("vllm:num_requests_running") + scrapes.gauge("vllm:num_requests_waiting")
    came = np.maximum.accumulate(load[0] + np.concatenate(([0.0], np.cumsum(scrapes.rise(_FINISHED)))) + load - load[0])
    counts = np.diff(np.rint(came).astype(np.int64))
    under_way, rate = round(float(load[0])), float(counts.sum()) / float(scrapes.times[-1])
    takes = scrapes.mean("vllm:e2e_request_latency_seconds") or 0.0
    before = min(takes, under_way / rate) if rate else 0.0
    begins = np.repeat(np.concatenate(([-before], scrapes.times[:-1])), [under_way, *counts])
    ends = np.repeat(np.concatenate(([0.0], scrapes.times[1:])), [under_way, *counts])
    moments: Numbers = np.sort(rng.uniform(begins, ends))
    moments = _with_waits(scrapes, moments, begins, ends)
    moments -= moments.min(initial=0.0)
    return moments


def _with_waits(scrapes: Scrapes, moments: Numbers, begins: Numbers, ends: Numbers) -> Numbers:
    """Moved within their intervals, so that who came first and had the first tokens of an interval waited as it says.

    What their TTFT sums up to says by how much they came before their first tokens. Requests keep their distances
    where there is room.
    """
    name = "vllm:time_to_first_token_seconds"
    waits, served = scrapes.rise(f"{name}_sum"), np.rint(scrapes.rise(f"{name}_count")).astype(np.int64)
    load = round(float(scrapes.gauge("vllm:num_requests_running")[0]))
    came = _first_tokens(scrapes, served) - waits / np.maximum(served, 1)
    last = np.minimum(np.cumsum(served) + load, len(moments))
    groups = [
        (*each, when) for each, when in zip(pairwise([min(load, len(moments)), *last.tolist()]), came, strict=True)
    ]
    for _ in range(_ROUNDS):
        for begin, end, when in groups:
            if begin < end:
                mine = slice(begin, end)
                moments[mine] = np.clip(moments[mine] + when - moments[mine].mean(), begins[mine], ends[mine])
    return np.sort(moments)


def _first_tokens(scrapes: Scrapes, served: npt.NDArray[np.int64]) -> Numbers:
    """When the first tokens of each interval came on average: who decodes has been decoding for what ITLs sum up to."""
    begins, ends = scrapes.times[:-1], scrapes.times[1:]
    middles: Numbers = (begins + ends) / 2
    decoding = scrapes.rise("vllm:inter_token_latency_seconds_sum")
    if not decoding.any():
        return middles
    all_the_time = scrapes.gauge("vllm:num_requests_running")[:-1] * (ends - begins)
    ended = scrapes.rise(_FINISHED)
    began = ends - (decoding - all_the_time + ended * (ends - middles)) / np.maximum(served, 1)
    sure = served / np.maximum(served + ended, 1)  # of those that ended it is not known when
    return middles + sure * (np.clip(began, begins, ends) - middles)


class _Lengths:
    """Lengths by the histograms of finished requests, interval by interval.

    Within an interval they fill the buckets as they were filled, with the mean that it had, ascending. Those that had
    not ended have lengths of all the others.
    """

    def __init__(self, scrapes: Scrapes, count: int) -> None:
        self._scrapes = scrapes
        ended = np.rint(scrapes.rise("vllm:request_generation_tokens_count")).astype(np.int64)
        borders = np.minimum(np.concatenate(([0], np.cumsum(ended))), count)
        self._borders = [*borders.tolist(), count]

    @property
    def stretches(self) -> list[tuple[int, int]]:
        """First and last row (exclusive) of each interval, then of those that had not ended."""
        return list(pairwise(self._borders))

    def drawn(self, name: str) -> Numbers | None:
        """A length for each row; None if nothing was counted."""
        bounds, counts, sums = self._scrapes.histogram(name)
        if not counts.sum():
            return None
        every = counts.sum(axis=1), float(sums.sum())
        parts = []
        for i, (begin, end) in enumerate(self.stretches):
            filled, total = (counts[:, i], float(sums[i])) if i < len(sums) and counts[:, i].sum() else every
            parts.append(_filling(bounds, filled, total, end - begin, every[0]))
        return np.concatenate(parts)


_HALVINGS = 40


def _filling(bounds: Numbers, counts: Numbers, total: float, count: int, every: Numbers) -> Numbers:
    """``count`` lengths that fill the buckets as counted, with the same mean; ascending.

    Within a bucket they lie as ``every``, what all intervals counted, has it: see :func:`_within`.
    """
    ends = np.cumsum(counts) / counts.sum()
    places = (np.arange(count) + 0.5) / max(count, 1)
    bucket = np.minimum(np.searchsorted(ends, places), len(bounds) - 1)
    begins, lows, highs = np.concatenate(([0.0], ends[:-1])), *_borders(bounds)
    within = np.clip((places - begins[bucket]) / np.maximum(ends[bucket] - begins[bucket], 1e-12), 0, 1)
    share = _within(lows, highs, every, bucket, within)

    def bent(bend: float) -> Numbers:
        values: Numbers = np.ceil(lows[bucket] + (highs[bucket] - lows[bucket]) * share**bend)
        least: Numbers = np.maximum(lows[bucket] + 1, 1)
        return np.maximum(values, least)

    low, high = 0.01, 100.0
    for _ in range(_HALVINGS if count else 0):
        middle = sqrt(low * high)
        low, high = (middle, high) if bent(middle).mean() > total / counts.sum() else (low, middle)
    return bent(sqrt(low * high))


def _borders(bounds: Numbers) -> tuple[Numbers, Numbers]:
    """Lower and upper bounds of the buckets; the last is as wide as all before it."""
    lows = np.concatenate(([0.0], bounds[:-1]))
    return lows, np.where(np.isfinite(bounds), bounds, 2 * np.maximum(lows, 1.0))


def _within(lows: Numbers, highs: Numbers, counts: Numbers, bucket: npt.NDArray[np.intp], within: Numbers) -> Numbers:
    """Where in its bucket a length lies, from 0 to 1, whose share of the bucket's lengths is below it.

    Between two bounds the logarithm of a length is linear in the logit of its rank, as lengths that are nearly
    log-normal have it; in the first and the last bucket that holds any it goes on as in the one beside it.
    """
    most = np.cumsum(counts) / counts.sum()
    least = np.concatenate(([0.0], most[:-1]))
    inner = (least > 0) & (most < 1) & (most > least)
    if not inner.any():
        return within
    with np.errstate(divide="ignore", invalid="ignore"):
        at_least, at_most = np.log(least / (1 - least)), np.log(most / (1 - most))
        slopes = np.log(highs / lows) / (at_most - at_least)
    nearest = np.flatnonzero(inner)
    slope = slopes[nearest[np.abs(nearest - bucket[:, None]).argmin(axis=1)]]
    rank = least[bucket] + within * (most[bucket] - least[bucket])
    logit = np.log(np.clip(rank, 1e-9, None) / np.clip(1 - rank, 1e-9, None))
    from_below = np.log(np.maximum(lows[bucket], 1.0)) + slope * (logit - at_least[bucket])
    from_above = np.log(highs[bucket]) - slope * (at_most[bucket] - logit)
    value = np.exp(np.where(np.isfinite(at_least[bucket]), from_below, from_above))
    share: Numbers = np.clip((value - lows[bucket]) / (highs[bucket] - lows[bucket]), 1e-6, 1.0)
    return share


def _cached(rate: float, prompts: Numbers, computed: Numbers | None) -> Numbers:
    """Tokens of each prompt that the prefix cache had, as far as histograms show: the rate is that of the counters."""
    cached = prompts * rate if computed is None else np.clip(prompts - computed, 0, None)
    for _ in range(_ROUNDS):  # what one prompt has no room for, others have
        found = cached.sum() - cached.max(initial=0.0)  # who has more of the one prefix than all before computes it
        cached = np.minimum(cached * (rate * prompts.sum() / found if found > 0 else 1.0), prompts - 1)
    whole: Numbers = np.minimum(np.rint(cached / HIT_BLOCK) * HIT_BLOCK, prompts - 1)
    return whole


def hit_rate(scrapes: Scrapes) -> float | None:
    """Return the share of prompt tokens that the prefix cache had; None where none was looked up."""
    asked = float(scrapes.rise("vllm:prefix_cache_queries_total").sum())
    return float(scrapes.rise("vllm:prefix_cache_hits_total").sum()) / asked if asked else None


# ---------------------------------------------------------------------------------------------------------------------
# What the hour was short of.

_FULL = 0.9
"""KV use from which on memory holds requests back: the head of the queue needs more than a block."""
_AT_MOST = 0.98
"""The largest number of requests runs."""
_PREFILL = 512
"""Steps of fewer tokens are no prompts' doing."""
_MUCH = 0.5
_RARE = 0.02
_LEAST_SCRAPES, _LEAST_WAITING = 10, 5
"""Scrapes, and of these ones at which a request waited, from which on it is said what was short."""
_LEAST_STEPS = 20
"""Steps of which a share is told."""
_LEAST_ENDED = 30
"""Requests that ended in each half of the time, from which on both are set side by side."""
_LEAST_DRAFTS = 30


def _hour(scrapes: Scrapes, workload: Workload) -> ServedHour:
    running, waiting = scrapes.gauge("vllm:num_requests_running"), scrapes.gauge("vllm:num_requests_waiting")
    kv = scrapes.gauge("vllm:kv_cache_usage_perc", mean=True)
    finished = scrapes.rise(_FINISHED)
    return ServedHour(
        source=scrapes.source,
        seconds=float(scrapes.times[-1]),
        scrapes=len(scrapes.times),
        engines=scrapes.num_engines,
        requests=len(workload),
        finished=int(finished.sum()),
        requests_per_s=len(workload) / float(scrapes.times[-1]),
        mean_prompt_tokens=scrapes.mean("vllm:request_prompt_tokens"),
        mean_output_tokens=scrapes.mean("vllm:request_generation_tokens"),
        hit_rate=hit_rate(scrapes),
        kv_use_mean=float(kv.mean()),
        kv_use_max=float(kv.max()),
        running_max=float(running.max()),
        waiting_max=float(waiting.max()),
        waiting_share=float((waiting > 0).mean()),
        preemptions=int(scrapes.rise("vllm:num_preemptions_total").sum()),
        acceptance_rates=list(acceptance(scrapes)),
        num_drafts=int(scrapes.rise("vllm:spec_decode_num_drafts_total").sum()),
        ttft_mean_s=scrapes.mean("vllm:time_to_first_token_seconds"),
        queue_mean_s=scrapes.mean("vllm:request_queue_time_seconds"),
        tpot_mean_s=scrapes.mean("vllm:request_time_per_output_token_seconds"),
        e2e_mean_s=scrapes.mean("vllm:e2e_request_latency_seconds"),
        findings=_findings(scrapes, running, waiting, kv),
        unknown=list(_UNKNOWN),
    )


def acceptance(scrapes: Scrapes) -> Iterator[float]:
    """Acceptance rates as ``--acceptance-rates`` takes them: each position's drafts over those of the one before that
    were accepted.
    """
    before = float(scrapes.rise("vllm:spec_decode_num_drafts_total").sum())
    if before < _LEAST_DRAFTS:
        return
    by_position = scrapes.parts("vllm:spec_decode_num_accepted_tokens_per_pos_total")
    for position in sorted(filter(str.isdecimal, by_position), key=int):
        accepted = float(by_position[position].sum())
        if not before:
            return
        yield min(accepted / before, 1.0)
        before = accepted


def _findings(scrapes: Scrapes, running: Numbers, waiting: Numbers, kv: Numbers) -> list[Finding]:
    found = [_shortage(scrapes, running, waiting, kv)]
    ended = scrapes.rise(_FINISHED)
    preempted, finished = scrapes.rise("vllm:num_preemptions_total").sum(), ended.sum()
    if preempted > _RARE * max(finished, 1):
        text = f"{preempted:,.0f} preemptions for {finished:,.0f} requests: running ones lost their KV and began again"
        found.append(Finding(code="preemptions", text=text, observations=int(finished)))
    halves = np.array_split(np.arange(len(scrapes.times) - 1), 2)
    asked, hits = (scrapes.rise(f"vllm:prefix_cache_{name}_total") for name in ("queries", "hits"))
    rates = [float(hits[half].sum() / asked[half].sum()) if asked[half].sum() else 0.0 for half in halves]
    numbers = [int(ended[half].sum()) for half in halves]
    if min(numbers) >= _LEAST_ENDED and rates[0] > 0 and rates[1] < rates[0] * (1 - _MUCH / 2):
        first, second = (f"{rate:.0%} in the" for rate in rates)
        text = f"prefix hits fell from {first} first half ({numbers[0]:,} requests) to {second} second ({numbers[1]:,})"
        found.append(Finding(code="hits", text=text, observations=sum(numbers)))
    return found


def _shortage(scrapes: Scrapes, running: Numbers, waiting: Numbers, kv: Numbers) -> Finding:
    """What held requests back, by what stood at its limit while they waited."""
    code, text = _shortage_of(scrapes, running, waiting, kv)
    return Finding(code=code, text=text, observations=len(waiting))


def _shortage_of(scrapes: Scrapes, running: Numbers, waiting: Numbers, kv: Numbers) -> tuple[str, str]:
    """Code and text."""
    busy = waiting > 0
    waited = f"waited at {int(busy.sum()):,} of {len(busy):,} scrapes"
    if len(busy) < _LEAST_SCRAPES:
        return "too_few", f"requests {waited}: too few to say what was short ({_LEAST_SCRAPES} are the least)"
    if busy.mean() <= _RARE:
        return "nothing", f"nothing was short: a request {waited}"
    if busy.sum() < _LEAST_WAITING:
        return "too_few", f"requests {waited}: too few to say for what ({_LEAST_WAITING} are the least)"
    most = float(running.max())
    full, seats = float((kv[busy] >= _FULL).mean()), float((running[busy] >= _AT_MOST * most).mean())
    when = f"requests {waited} ({busy.mean():.0%}), {waiting[busy].mean():,.0f} on average"
    stood = f"KV stood at {float(np.median(kv[busy])):.0%}"
    largest, heavy, steps = heavy_steps(scrapes, busy)
    if largest >= _PREFILL and heavy >= _MUCH and steps >= _LEAST_STEPS:
        tokens = f"{largest / 2:,.0f} to {largest:,.0f} tokens: prompts fill them (max_num_batched_tokens)"
        return Reason.TOKEN_BUDGET.value, f"{when}, while {heavy:.0%} of {steps:,} steps had {tokens}"
    if full >= _MUCH:
        return Reason.KV_BLOCKS.value, f"{when}, while {stood}: KV memory was full"
    if _deferred(scrapes) > _MUCH:
        return "deferred", f"{when}, most of them deferred (a load, a grammar, an adapter), while {stood}"
    if seats >= _MUCH:
        return Reason.MAX_NUM_SEQS.value, f"{when}, while {stood} and {most:,.0f} ran, never more: max_num_seqs"
    than = f"the {most:,.0f} of other times: none of the limits that metrics show"
    return "unclear", f"{when}, while {stood} and fewer ran than {than}"


def heavy_steps(scrapes: Scrapes, busy: npt.NDArray[np.bool_]) -> tuple[float, float, int]:
    """Bound of the bucket of the largest steps, and which share of how many steps are in it while requests waited."""
    steps = scrapes.histogram("vllm:iteration_tokens_total")
    counts = steps.counts[:, busy[1:] | busy[:-1]].sum(axis=1)
    known = np.flatnonzero((counts > _RARE * counts.sum()) & np.isfinite(steps.bounds))
    if not len(known):
        return 0.0, 0.0, 0
    return float(steps.bounds[known[-1]]), float(counts[known[-1]] / counts.sum()), int(counts.sum())


def _deferred(scrapes: Scrapes) -> float:
    """Share of those that wait that wait for something of their own."""
    parts = scrapes.part_means("vllm:num_requests_waiting_by_reason")
    total = sum(parts.values())
    return parts.get("deferred", 0.0) / total if total else 0.0


# ---------------------------------------------------------------------------------------------------------------------
# From an address: Prometheus' range, or a server scraped for a while.

_PATIENCE_S = 30.0
_MOST_STEPS = 11_000
"""Prometheus answers with no more points of a series."""


def fetched(url: str) -> bytes:
    """What the address answers. Raises ConfigError."""
    try:
        with urllib.request.urlopen(url, timeout=_PATIENCE_S) as answer:
            data: bytes = answer.read(MOST_BYTES + 1)
    except urllib.error.HTTPError as error:
        raise ConfigError("prometheus", url, f"answers {error.code}: {_why(error)}") from None
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise ConfigError("prometheus", url, f"does not answer: {reason}") from None
    if len(data) > MOST_BYTES:
        raise ConfigError(
            "prometheus", url, f"answers with more than {MOST_BYTES >> 20} MiB: ask for less (§last, §step)"
        )
    return data


def _why(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read(10_000)).get("error", error.reason))
    except (OSError, ValueError, AttributeError):
        return str(error.reason)


def scraped(
    url: str,
    *,
    last: float | None = None,
    step: float | None = None,
    model_name: str | None = None,
    seed: int = 0,
    now: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
    fetch: Callable[[str], bytes] = fetched,
) -> tuple[Workload, ServedHour]:
    """The last seconds that Prometheus knows, at steps; of an address that ends in ``/metrics`` the next, scraped now.

    ``last`` and ``step`` are seconds: None is an hour at steps of 15 s, of a server a minute at steps of 1 s. Raises
    ConfigError for an address that does not answer, WorkloadError for an answer without requests.
    """
    host = host_of(url)
    is_server = urlsplit(url).path.endswith("/metrics")
    last = (60.0 if is_server else 3600.0) if last is None else last
    step = (1.0 if is_server else 15.0) if step is None else step
    if not 0 < step < last:
        raise ConfigError("step", step, "must be above 0 and shorter than the range (§last)")
    data = _scrape(url, last, step, now, sleep, fetch) if is_server else range_of(url, last, step, now, fetch)
    return _read(read_scrapes(data, host, model_name), seed)


def host_of(url: str, field: str = "prometheus") -> str:
    """The host of an http address. Raises ConfigError for another, or one with a user or password."""
    parts = urlsplit(url)
    if "@" in parts.netloc or parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(field, hidden_users(url), "give an http address without a user or password, or a file")
    return parts.hostname


def range_of(url: str, last: float, step: float, now: Callable[[], float], fetch: Callable[[str], bytes]) -> bytes:
    """What a Prometheus answers of the last seconds. Raises ConfigError."""
    if last / step > _MOST_STEPS:
        raise ConfigError("step", step, f"Prometheus answers with {_MOST_STEPS:,} points at most: make it longer")
    end = now()
    asked = {"query": '{__name__=~"vllm:.*"}', "start": end - last, "end": end, "step": step}
    return fetch(f"{url.rstrip('/')}/api/v1/query_range?{urlencode(asked)}")


def _scrape(
    url: str,
    last: float,
    step: float,
    now: Callable[[], float],
    sleep: Callable[[float], None],
    fetch: Callable[[str], bytes],
) -> bytes:
    texts: list[bytes] = []
    begin = now()
    while True:
        moment = now()
        texts.append(f"# scraped_at {moment:.6f}\n".encode() + fetch(url) + b"\n")
        if moment - begin >= last or sum(map(len, texts)) > MOST_BYTES:
            return b"".join(texts)
        sleep(max(step - (now() - moment), 0.0))
