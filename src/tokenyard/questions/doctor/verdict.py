"""What a server's own figures say is wrong: one answer, made of queues, pool, steps and hits at some moments.

Metrics record no reason, so one is read off what stood at its limit while requests waited, and each is as sure as what
it rests on.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from math import inf
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from tokenyard.explain.answer.answer import Answer, Overload
from tokenyard.explain.answer.causes import (
    CACHE_MISSED,
    CERTAIN,
    GUESS,
    HARDLY,
    HELD_BACK,
    HOT_ENGINE,
    LIKELY,
    PREEMPTION_STORM,
    Cause,
)
from tokenyard.explain.answer.progress import STUCK_S
from tokenyard.explain.answer.remedies import SETTING, Remedy, remedies_for
from tokenyard.explain.steady import rate_in_words
from tokenyard.questions.metrics import acceptance, heavy_steps, hit_rate
from tokenyard.units import count, count_of, duration, percent
from tokenyard.vocabulary import FAMILIES, REASONS, Reason
from tokenyard.workload.scrapes import Numbers, Scrapes
from tokenyard.workload.stats_lines import HIT_RATE

Marks = npt.NDArray[np.bool_]

FULL, _NEARLY_FULL = 0.95, 0.9
"""Use of the pool from which on it is what requests wait for, and where nothing else shows."""
_AT_LIMIT = 0.98
"""Part of the largest number that ran from which on seats are taken to be all taken."""
_PREFILL, _MOSTLY, _LEAST_STEPS = 512, 0.5, 20
"""Steps of fewer tokens are no prompts' doing; the share of heavy ones that tells, and of how many."""
_STORM, _STORM_LEAST = 0.2, 10
"""Preemptions for each request that ended, and how many at least."""
_HOT, _HOT_OVER = 0.6, 1.5
_FELL, _FEWEST_HITS = 0.3, 5_000
"""Part of prompt tokens by which hits have to fall, at least by half, and prompt tokens that tell it."""
_USELESS, _LONG = 0.01, 512
"""Share of hits that is none, and the mean prompt from which on it is worth a word."""
_LONGEST = 0.9
_GROWS_S = 30.0
"""Seconds from which on a queue that grows is more than a burst."""
_FEWEST_ENDED = 10


class Limits(msgspec.Struct, frozen=True):
    """What a deployment says of itself that metrics do not."""

    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen. Rates and means are of the time that was watched; of one scrape, since the server's start."""

    seconds: float
    scrapes: int
    is_since_start: bool
    engines: int
    running: float
    """At the last moment, as ``waiting`` and ``kv_use``."""
    waiting: float
    deferred: float | None
    """Requests that wait for something of their own: a load, a grammar, an adapter."""
    kv_use: float | None
    running_max: float
    waiting_max: float
    waiting_first: float
    kv_use_max: float | None
    waiting_share: float
    """Share of their time that requests in the server waited: waiting over running and waiting, on average."""
    kv_tokens: int | None
    """Tokens that one engine's pool holds."""
    finished: int | None
    failed: int
    """Requests that ended by an error, or were aborted."""
    refused: int
    """Refused at the door (``max_num_queued_reqs`` and the like)."""
    preemptions: int
    output_tokens_per_s: float | None
    tokens_per_step: float | None
    hit_rate: float | None
    hit_rate_before: float | None
    """The same of the time before the first scrape, since the server's start."""
    mean_prompt_tokens: float | None
    mean_output_tokens: float | None
    queue_s: float | None
    ttft_s: float | None
    tpot_s: float | None
    e2e_s: float | None
    acceptance_rates: list[float]


class Verdict(NamedTuple):
    """The answer, what it rests on, and what is worth a word beside it."""

    answer: Answer
    seen: Seen
    also: list[str]


class _Watched(NamedTuple):
    """Gauges at the moments of scrapes, of all engines together and of the one at which most requests wait."""

    scrapes: Scrapes
    seen: Seen
    limits: Limits
    times: Numbers
    running: Numbers
    waiting: Numbers
    at_worst: Numbers
    """Requests that run in that engine."""
    kv_worst: Numbers
    busy: Marks


def judged(scrapes: Scrapes, limits: Limits) -> Verdict:
    """Say what is wrong, as far as these figures show it."""
    watched = _watched(scrapes, limits)
    seen = watched.seen
    stuck = _stuck(watched)
    causes = [stuck] if stuck is not None else [*_hot(watched), *_storm(watched)]
    reason: Reason | None = None
    overload: Overload | None = None
    is_held = stuck is None and _is_held(watched)
    if is_held:
        reason, held = _held(watched)
        causes.append(held)
        overload = _overload(watched)
    elif stuck is None:
        causes = []  # what nobody waits for is not wrong
    causes += _hits(watched)
    if stuck is None and not is_held:
        causes += _useless(watched)
    code = "stuck" if stuck is not None else "overloaded" if overload is not None else HELD_BACK if is_held else "idle"
    is_empty = code == "idle" and not (seen.running_max or seen.waiting_max or seen.output_tokens_per_s)
    remedies = remedies_for(causes, [], is_stuck=stuck is not None)
    if reason is not None and not any(each.code == HOT_ENGINE for each in causes):
        known = REASONS[reason]
        remedies.append(Remedy(code=SETTING, title=known.remedy[:1].lower() + known.remedy[1:].rstrip(".")))
    first = causes[0] if causes else None
    said = [_idle(watched)] if code == "idle" else []
    said += [each.sentence for each in causes]
    if overload is not None:
        offered, served = map(rate_in_words, (overload.offered_requests_per_s, overload.served_requests_per_s))
        said.insert(0, f"Overloaded: {offered} requests/s arrive, {served} are served.")
    answer = Answer(
        code="empty" if is_empty else code,
        causes=causes,
        since_ts=None if first is None else first.since_ts,
        until_ts=None if first is None else first.until_ts,
        remedies=remedies,
        sure=None if first is None else first.sure,
        reason=reason,
        family=None if reason is None else REASONS[reason].family.value,
        share=seen.waiting_share,
        overload=overload,
        sentence=" ".join(said),
    )
    return Verdict(answer, seen, list(_also(watched, answer)))


# ---------------------------------------------------------------------------------------------------------------------
# What was seen.


def _watched(scrapes: Scrapes, limits: Limits) -> _Watched:
    real = slice(1, None) if scrapes.is_since_start else slice(None)
    running, waiting = (scrapes.gauge(f"vllm:num_requests_{name}")[real] for name in ("running", "waiting"))
    queues = {
        name: np.nan_to_num(column[real]) for name, column in scrapes.by_engine("vllm:num_requests_waiting").items()
    }
    worst = max(queues, key=lambda name: float(queues[name].mean()), default="")
    kv = scrapes.by_engine("vllm:kv_cache_usage_perc")
    kv_worst = kv[worst][real] if worst in kv else scrapes.gauge("vllm:kv_cache_usage_perc", mean=True)[real]
    at_worst = scrapes.by_engine("vllm:num_requests_running").get(worst, scrapes.gauge("vllm:num_requests_running"))[
        real
    ]
    seen = _seen(scrapes, running, waiting, np.nan_to_num(kv_worst) if kv else None)
    times, clean = scrapes.times[real], np.nan_to_num
    return _Watched(scrapes, seen, limits, times, running, waiting, clean(at_worst), clean(kv_worst), waiting > 0)


def _seen(scrapes: Scrapes, running: Numbers, waiting: Numbers, kv: Numbers | None) -> Seen:
    def rise(name: str) -> float | None:
        return float(scrapes.rise(name).sum()) if name in scrapes else None

    seconds = float(scrapes.times[-1])
    ended = scrapes.parts("vllm:request_success_total")
    tokens = rise("vllm:generation_tokens_total")
    deferred = scrapes.last_by_part("vllm:num_requests_waiting_by_reason")
    in_server = float(running.sum() + waiting.sum())
    asked, hits = (scrapes.first(f"vllm:prefix_cache_{name}_total") for name in ("queries", "hits"))
    logged = scrapes.by_engine(HIT_RATE)
    of_log = float(np.nanmean([column[-1] for column in logged.values()])) if logged else None
    rate = hit_rate(scrapes)
    known = scrapes.infos.get("vllm:cache_config_info", {})
    return Seen(
        seconds=seconds,
        scrapes=len(running),
        is_since_start=scrapes.is_since_start,
        engines=scrapes.num_engines,
        running=float(running[-1]),
        waiting=float(waiting[-1]),
        deferred=deferred.get("deferred") if deferred else None,
        kv_use=None if kv is None else float(kv[-1]),
        running_max=float(running.max()),
        waiting_max=float(waiting.max()),
        waiting_first=float(waiting[0]),
        kv_use_max=None if kv is None else float(kv.max()),
        waiting_share=float(waiting.sum()) / in_server if in_server else 0.0,
        kv_tokens=_whole(known.get("num_gpu_blocks")) * _whole(known.get("block_size")) or None,
        finished=int(sum(each.sum() for each in ended.values())) if ended else None,
        failed=int(sum(ended[part].sum() for part in ("error", "abort") if part in ended)),
        refused=int(rise("vllm:admission_rejections_total") or 0),
        preemptions=int(rise("vllm:num_preemptions_total") or 0),
        output_tokens_per_s=None if tokens is None else tokens / seconds,
        tokens_per_step=scrapes.mean("vllm:iteration_tokens_total"),
        hit_rate=of_log if rate is None else rate,
        hit_rate_before=hits / asked if asked >= _FEWEST_HITS else None,
        mean_prompt_tokens=scrapes.mean("vllm:request_prompt_tokens"),
        mean_output_tokens=scrapes.mean("vllm:request_generation_tokens"),
        queue_s=scrapes.mean("vllm:request_queue_time_seconds"),
        ttft_s=scrapes.mean("vllm:time_to_first_token_seconds"),
        tpot_s=scrapes.mean("vllm:request_time_per_output_token_seconds"),
        e2e_s=scrapes.mean("vllm:e2e_request_latency_seconds"),
        acceptance_rates=list(acceptance(scrapes)),
    )


def _whole(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() else 0


# ---------------------------------------------------------------------------------------------------------------------
# An engine that does not move.

_DONE = ("vllm:generation_tokens_total", "vllm:prompt_tokens_total", "vllm:iteration_tokens_total_count")
"""Counters that rise whenever something is computed."""


def _stuck(watched: _Watched) -> Cause | None:
    """Requests are there and nothing is computed, as long as was watched, or at the end."""
    scrapes, seen = watched.scrapes, watched.seen
    if not seen.running + seen.waiting:
        return None
    asleep = scrapes.last_by_part("vllm:engine_sleep_state")
    if asleep and not asleep.get("awake") and any(asleep.values()):
        state = max(asleep, key=lambda name: asleep[name])
        said = f"The engine sleeps ({state}): {_queues(seen)}. POST /wake_up wakes it."
        return Cause(code="stuck", sure=CERTAIN, sentence=said)
    since = _still_since(watched)
    if since is None:
        return None
    seconds = float(watched.times[-1]) - since
    where = f"No token in the last {duration(seconds)}" if seconds else "Nothing runs"
    proven = CERTAIN if seconds >= STUCK_S else LIKELY if seconds >= STUCK_S / 2 and not seen.running else GUESS
    said = f"{where}: {_queues(seen)}. {_why_stuck(watched)}"
    return Cause(code="stuck", since_ts=scrapes.begin + since, sure=proven, sentence=said)


def _still_since(watched: _Watched) -> float | None:
    """Since when nothing is computed; None: something is, or there is too little to tell."""
    scrapes, seen = watched.scrapes, watched.seen
    if scrapes.is_since_start:
        is_idle = not seen.running and seen.waiting > 0
        return float(watched.times[-1]) if is_idle else None
    counted = [name for name in _DONE if name in scrapes]
    active = (watched.running + watched.waiting) > 0
    if counted:
        rises = sum((scrapes.rise(name) for name in counted), np.zeros(len(watched.times) - 1))
        moved = np.flatnonzero(rises > 0)
        first = int(moved[-1]) + 1 if len(moved) else 0
    else:
        moved = np.flatnonzero(watched.running > 0)
        first = int(moved[-1]) + 1 if len(moved) else 0
    if first >= len(active) - 1 or not active[first:].all():
        return None
    return float(watched.times[first])


def _queues(seen: Seen) -> str:
    pool = "" if seen.kv_use is None else f", KV {percent(seen.kv_use)}"
    return f"{count(seen.running)} run and {count(seen.waiting)} wait{pool}"


def _why_stuck(watched: _Watched) -> str:
    seen = watched.seen
    if seen.waiting and seen.deferred is not None and seen.deferred >= _MOSTLY * seen.waiting:
        return f"Those that wait are deferred: for {_DEFERRED[_deferred_for(watched)[0]]} that does not come."
    if seen.running:
        return "A step does not end: look for a rank that died or a kernel that hangs in the server's log."
    if (seen.kv_use or 0.0) >= _MOSTLY:
        return "What runs no more holds the KV blocks: pins, transfers that were never taken, or a leak."
    pool = "" if seen.kv_tokens is None else f" ({count(seen.kv_tokens)} tokens)"
    return (
        f"Memory is free, so the first in the queue can never be placed: it may be larger than the pool{pool},"
        " or the engine's process is gone."
    )


# ---------------------------------------------------------------------------------------------------------------------
# Requests that wait, and for what.


def _is_held(watched: _Watched) -> bool:
    """Whether they wait for more than a moment."""
    seen, busy = watched.seen, watched.busy
    if seen.waiting_share < HARDLY:
        return False
    queued, took = (
        watched.scrapes.mean(f"vllm:{name}_seconds") for name in ("request_queue_time", "e2e_request_latency")
    )
    if busy.mean() >= _MOSTLY or queued is None or not took or (seen.finished or 0) < _FEWEST_ENDED:
        return True
    return queued / took >= HARDLY


def _held(watched: _Watched) -> tuple[Reason | None, Cause]:
    seen = watched.seen
    reason, shown, sure = _reason(watched)
    few = int(watched.busy.sum()) < 3 and not watched.limits.max_num_seqs
    since, until = _span(watched)
    when = _when(watched.scrapes.begin, since, until, seen)
    of = "" if reason is None else f", mostly for {_FOR.get(reason, FAMILIES[REASONS[reason].family])}"
    said = f"Requests waited {percent(seen.waiting_share)} of their time{when}{of}: {shown}."
    begin = watched.scrapes.begin
    return reason, Cause(
        code=HELD_BACK,
        since_ts=None if since is None else begin + since,
        until_ts=None if until is None else begin + until,
        share=seen.waiting_share,
        sure=GUESS if few and sure == LIKELY and reason != Reason.KV_BLOCKS else sure,
        sentence=said,
    )


_FOR = {
    Reason.TOKEN_BUDGET: "the token budget of the steps",
    Reason.MAX_NUM_SEQS: "seats (max_num_seqs)",
    Reason.KV_BLOCKS: "KV blocks",
    Reason.KV_FULL_SEQUENCE: "KV blocks (the next prompt needs more than are free)",
    Reason.LORA_SLOTS: "LoRA slots (max_loras)",
    Reason.WAITING_GRAMMAR: "a grammar, or another input of their own",
    Reason.WAITING_REMOTE_KV: "KV that is loaded from elsewhere",
}
_DEFERRED = {
    Reason.LORA_SLOTS: "a LoRA slot",
    Reason.WAITING_GRAMMAR: "a grammar, or another input of their own,",
    Reason.WAITING_REMOTE_KV: "KV from elsewhere",
}


def _reason(watched: _Watched) -> tuple[Reason | None, str, str]:
    """The reason, what shows it, and how sure that is."""
    seen, busy, limits = watched.seen, watched.busy, watched.limits
    kv, at_most = watched.kv_worst[busy], watched.at_worst[busy]
    pool, ran = _pool(watched, kv), f"{count(float(np.median(at_most)))} ran"
    total = float(watched.waiting[busy].sum())
    deferred = watched.scrapes.part_means("vllm:num_requests_waiting_by_reason")
    if total and deferred.get("deferred", 0.0) > _MOSTLY * sum(deferred.values()):
        reason, shown, sure = _deferred_for(watched)
        return reason, f"most of them are deferred while KV stands {pool}; {shown}", sure
    seats = limits.max_num_seqs
    if seats is not None and float((at_most >= _AT_LIMIT * seats).mean()) >= _MOSTLY:
        return Reason.MAX_NUM_SEQS, f"{ran}, and max_num_seqs is {seats:,}; KV stood {pool}", CERTAIN
    if float((kv >= FULL).mean()) >= _MOSTLY or (seen.preemptions and float(np.median(kv)) >= _NEARLY_FULL):
        sure = LIKELY if float((kv >= FULL).mean()) >= _MOSTLY else GUESS
        return Reason.KV_BLOCKS, f"the pool stood {pool} while {ran}", sure
    largest, heavy, steps = heavy_steps(watched.scrapes, _on_all(watched))
    if largest >= _PREFILL and heavy >= _MOSTLY and steps >= _LEAST_STEPS:
        shown = f"prompts fill {percent(heavy)} of {steps:,} steps with {largest / 2:,.0f} to {largest:,.0f} tokens"
        return Reason.TOKEN_BUDGET, f"{shown}, KV stood {pool}", LIKELY
    if float((kv >= _NEARLY_FULL).mean()) >= _MOSTLY:
        return Reason.KV_BLOCKS, f"the pool stood {pool} while {ran}", LIKELY
    return _by_elimination(watched, pool, ran)


def _by_elimination(watched: _Watched, pool: str, ran: str) -> tuple[Reason | None, str, str]:
    """The same where neither the pool nor the steps are full."""
    seen, at_most = watched.seen, watched.at_worst[watched.busy]
    most, share = float(watched.at_worst.max()), float(np.median(watched.kv_worst[watched.busy]))
    free = None if seen.kv_tokens is None else (1 - share) * seen.kv_tokens
    longest = _longest_prompt(watched.scrapes)
    if free is not None and longest is not None and free < longest < inf:
        shown = f"prompts have up to {count(longest)} tokens and about {count(free)} are free"
        return Reason.KV_FULL_SEQUENCE, shown, GUESS
    if (
        watched.limits.max_num_seqs is None
        and float((at_most >= _AT_LIMIT * most).mean()) >= _MOSTLY
        and len(at_most) > 1
        and most
    ):
        shown = f"{count(most)} ran and never more, while KV stood {pool}"
        return Reason.MAX_NUM_SEQS, shown, LIKELY
    if len(at_most) == 1 and most:
        return Reason.MAX_NUM_SEQS, f"{count(most)} ran while KV stood {pool}; one look shows no more", GUESS
    return None, f"none of the limits that metrics show is reached ({ran}, KV {pool})", GUESS


def _pool(watched: _Watched, kv: Numbers) -> str:
    return "at an unknown level" if watched.seen.kv_use is None else f"at {percent(float(np.median(kv)))}"


def _deferred_for(watched: _Watched) -> tuple[Reason, str, str]:
    """For what those wait that wait for something of their own."""
    scrapes = watched.scrapes
    lora = scrapes.infos.get("vllm:lora_requests_info", {})
    here, there = (
        set(filter(None, lora.get(f"{which}_lora_adapters", "").split(","))) for which in ("running", "waiting")
    )
    slots = _whole(lora.get("max_lora"))
    if slots and there - here and len(here) >= slots:
        names = ", ".join(sorted(there - here)[:3])
        return Reason.LORA_SLOTS, f"{len(here):,} of {slots:,} adapters run, {names} waits for a slot", LIKELY
    loads = scrapes.by_engine("vllm:log_kv_fetches")
    fetched = any(float(np.nansum(column)) > 0 for column in loads.values())
    if fetched or scrapes.rise("vllm:external_prefix_cache_queries_total").any():
        return Reason.WAITING_REMOTE_KV, "a connector is asked for KV", LIKELY
    return Reason.WAITING_GRAMMAR, "no adapter and no KV connector shows, so it is likely a grammar", GUESS


def _longest_prompt(scrapes: Scrapes) -> float | None:
    """A bound that one prompt in ten may be as long as, of all that ended since the server's start."""
    at_most = {
        float(bound): number for bound, number in scrapes.last_by_part("vllm:request_prompt_tokens_bucket").items()
    }
    bounds = sorted(at_most)
    if not bounds or not at_most[bounds[-1]]:
        return None
    return next(bound for bound in bounds if at_most[bound] >= _LONGEST * at_most[bounds[-1]])


def _on_all(watched: _Watched) -> Marks:
    """The moments at which requests waited, of all that the scrapes have."""
    marks = np.zeros(len(watched.scrapes.times), bool)
    marks[-len(watched.busy) :] = watched.busy
    return marks


def _span(watched: _Watched) -> tuple[float | None, float | None]:
    """When they began to wait, and when that was over; None where it was so from the first, or to the last."""
    at = np.flatnonzero(watched.busy)
    calm_after = len(watched.busy) - 1 - at[-1]
    since = float(watched.times[at[0]]) if at[0] > 0 else None
    return since, float(watched.times[at[-1]]) if calm_after >= max(2, 0.1 * len(watched.busy)) else None


def _when(begin: float, since: float | None, until: float | None, seen: Seen) -> str:
    """A while in words, with a space before it; empty where it is all of the time."""
    if seen.seconds < 2 * STUCK_S or (since is None and until is None):
        return ""
    words = [datetime.fromtimestamp(begin + at, UTC).strftime("%H:%M:%S") for at in (since, until) if at is not None]
    if since is None:
        return f" until {words[0]}"
    return f" from {words[0]} to {words[1]}" if until is not None else f" since {words[0]}"


def _overload(watched: _Watched) -> Overload | None:
    """More comes than is served: the queue grows over more than a burst."""
    seen = watched.seen
    if seen.finished is None or seen.is_since_start or seen.seconds < _GROWS_S:
        return None
    grown = float(watched.running[-1] + watched.waiting[-1] - watched.running[0] - watched.waiting[0])
    came = seen.finished + grown
    queue = seen.waiting - seen.waiting_first
    if came <= 0 or queue < max(5.0, 0.1 * came):
        return None
    return Overload(offered_requests_per_s=came / seen.seconds, served_requests_per_s=seen.finished / seen.seconds)


# ---------------------------------------------------------------------------------------------------------------------
# One engine alone, preemptions, hits.


def _hot(watched: _Watched) -> Iterator[Cause]:
    columns = (watched.scrapes.by_engine(f"vllm:num_requests_{name}") for name in ("waiting", "running"))
    waiting, runs = ({name: float(np.nansum(each)) for name, each in column.items()} for column in columns)
    waits = dict.fromkeys(runs, 0.0) | waiting
    total = sum(waits.values())
    if len(waits) < 2 or not total or not _is_held(watched):
        return
    hot = max(waits, key=lambda name: waits[name])
    share = waits[hot] / total
    if share < max(_HOT, min(_HOT_OVER / len(waits), 0.9)):
        return
    ran = runs.get(hot, 0.0) / total_of if (total_of := sum(runs.values())) else 0.0
    rank = sorted(waits).index(hot)
    said = f"Engine {rank} of {len(waits):,} has {percent(share)} of the waiting, and {percent(ran)} of those that run."
    yield Cause(code=HOT_ENGINE, share=share, rank=rank, sure=LIKELY, sentence=said)


def _storm(watched: _Watched) -> Iterator[Cause]:
    seen = watched.seen
    if seen.is_since_start or seen.preemptions < max(_STORM_LEAST, _STORM * (seen.finished or 0)):
        return
    ended = "" if seen.finished is None else f" ({count_of(seen.finished, 'request')} ended)"
    said = f"Running requests lost their blocks {count_of(seen.preemptions, 'time')}{ended}: they compute them again."
    yield Cause(code=PREEMPTION_STORM, sure=CERTAIN, sentence=said)


def _hits(watched: _Watched) -> Iterator[Cause]:
    """Hits that fell, or that there never are, and what may be why."""
    scrapes, seen = watched.scrapes, watched.seen
    asked = float(scrapes.rise("vllm:prefix_cache_queries_total").sum())
    before, now = seen.hit_rate_before, seen.hit_rate
    if now is None or asked < _FEWEST_HITS:
        return
    if before is not None and before - now >= _FELL and now <= before / 2:
        is_full = (seen.kv_use_max or 0.0) >= FULL
        why = "the KV blocks are all in use, so others' are evicted" if is_full else "what begins the prompts changed"
        said = f"Prefix hits fell from {percent(before)} to {percent(now)} of prompt tokens: {why}."
        yield Cause(code=CACHE_MISSED, share=before - now, sure=LIKELY if is_full else GUESS, sentence=said)


def _useless(watched: _Watched) -> Iterator[Cause]:
    """Hits that there never are, although prompts are long."""
    seen = watched.seen
    asked = float(watched.scrapes.rise("vllm:prefix_cache_queries_total").sum())
    is_long = (seen.mean_prompt_tokens or 0.0) >= _LONG and (seen.finished or 0) >= _FEWEST_ENDED
    if seen.hit_rate is None or seen.hit_rate >= _USELESS or max(seen.hit_rate_before or 0.0, 0.0) >= _USELESS:
        return
    if asked >= _FEWEST_HITS and is_long:
        said = (
            f"The prefix cache found {percent(seen.hit_rate)} of {count(asked)} prompt tokens: no two prompts begin"
            " alike, as with a date, a name or an id in front of what they share; or what they share is evicted before"
            " it is used again."
        )
        yield Cause(code=CACHE_MISSED, share=1 - seen.hit_rate, sure=GUESS, sentence=said)


# ---------------------------------------------------------------------------------------------------------------------
# What is worth a word beside the answer.


def _idle(watched: _Watched) -> str:
    seen = watched.seen
    if not (seen.running_max or seen.waiting_max or seen.output_tokens_per_s):
        return "No request ran, waited or ended."
    return f"Requests hardly waited: {percent(seen.waiting_share)} of their time."


def _also(watched: _Watched, answer: Answer) -> Iterator[str]:
    seen, scrapes = watched.seen, watched.scrapes
    if scrapes.has_restarted:
        yield "a counter began again from 0: a server was started anew meanwhile"
    if answer.code == "idle" and seen.tpot_s and seen.running:
        yield (
            f"a token takes {1e3 * seen.tpot_s:.1f} ms with {count(seen.running_max)} running at most: that is the"
            " steps themselves, no queue"
        )
    grown = seen.waiting - seen.waiting_first
    if answer.code == HELD_BACK and seen.scrapes > 1 and grown:
        yield f"the queue {'grew' if grown > 0 else 'fell'} from {count(seen.waiting_first)} to {count(seen.waiting)}"
    if seen.preemptions and not any(each.code == PREEMPTION_STORM for each in answer.causes):
        yield f"{count_of(seen.preemptions, 'preemption')}"
    if seen.failed:
        yield f"{seen.failed:,} of {count_of(seen.finished or 0, 'request')} ended by an error or were aborted"
    if seen.refused:
        yield f"{count_of(seen.refused, 'request')} refused at the door (max_num_queued_reqs, max_num_queued_tokens)"
    if scrapes.infos.get("vllm:cache_config_info", {}).get("enable_prefix_caching") == "False":
        yield "prefix caching is off (enable_prefix_caching): prompts that begin alike are computed each time"
    rates = seen.acceptance_rates
    if rates and rates[0] < 0.3:
        yield f"drafts: {percent(rates[0])} of the first ones are accepted, so most of their work is lost"
