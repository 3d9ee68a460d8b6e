"""The evidence of each rule: one function per rule, which finds it in the symptoms of a run or finds nothing.

Nothing is advised where nothing is wrong: a reason must have cost a noticeable share of all requests' time.
"""

from __future__ import annotations

from collections.abc import Callable

from tokenyard.explain.advice.rule import Evidence
from tokenyard.explain.advice.symptoms import Symptoms
from tokenyard.explain.render.units import duration
from tokenyard.explain.report.recorded_reasons import RecordedReason

__all__ = [
    "compute",
    "evicted_turns",
    "full_sequence",
    "held_by",
    "long_prefills",
    "memory",
    "no_prefix_cache",
    "order",
    "preemptions",
    "seats",
    "token_budget",
    "watermark",
    "whole_prompts",
]

_NOTICEABLE = 0.02
"""Share of all requests' time that a reason must have cost."""
_FEWEST_STEPS = 10
_COMPUTE_BOUND = 3.0
"""A step with a large prefill takes so many times as long as decode alone: then its tokens are what takes the time, and
more of them in a step take as much longer as they are more."""
_FEW_HITS = 0.6
"""Share of a conversation's prompt tokens found cached; where nothing is evicted it is 80 to 95 %."""
_ROOM = 0.2
"""Share of the KV blocks that must be free before more sequences are advised."""
_MEMORY = ("kv_full_sequence", "kv_blocks")


def _noticeable(symptoms: Symptoms, *reasons: str) -> RecordedReason | None:
    """The worst of ``reasons``, if it has cost enough to speak of."""
    held = [symptoms.reasons[name] for name in reasons if name in symptoms.reasons]
    worst = max(held, key=lambda reason: reason.seconds, default=None)
    if worst is None or worst.steps < _FEWEST_STEPS or worst.seconds < _NOTICEABLE * symptoms.request_seconds:
        return None
    return worst


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _of(count: int, total: int, what: str) -> str:
    return f"{count:,} of {total:,} {what}"


def _cost(symptoms: Symptoms, reason: RecordedReason) -> str:
    if not symptoms.request_seconds:
        return "."
    share = _percent(reason.seconds / symptoms.request_seconds)
    return f"; requests lost {duration(reason.seconds)} to it, {share} of their time."


def _stops(symptoms: Symptoms, reason: RecordedReason, what: str) -> Evidence:
    """The common shape: so many steps did ``what``, and what it cost."""
    seem = "seem to have " if symptoms.guessed else ""
    steps = f"{_of(reason.steps, symptoms.steps, 'steps')} {seem}{what}"
    return Evidence(steps + _cost(symptoms, reason), reason.seconds)


def seats(symptoms: Symptoms) -> Evidence | None:
    """Stopped at max_num_seqs while memory was free."""
    reason = _noticeable(symptoms, "max_num_seqs")
    if reason is None or reason.kv_free is None or reason.kv_free < _ROOM or _preempts(symptoms):
        return None
    limit = symptoms.value("max_num_seqs")
    return _stops(symptoms, reason, f"stopped at max_num_seqs = {limit} with {_percent(reason.kv_free)} of KV free")


def token_budget(symptoms: Symptoms) -> Evidence | None:
    """Spent the budget with requests waiting, in steps that are short enough to carry more."""
    return None if _compute_bound(symptoms) else _budget_spent(symptoms)


def compute(symptoms: Symptoms) -> Evidence | None:
    """Spent the budget with requests waiting, in steps as long as their tokens: a larger one gains nothing."""
    spent = _budget_spent(symptoms) if _compute_bound(symptoms) else None
    if spent is None or symptoms.mixed_ms is None or symptoms.decode_ms is None:
        return None
    text = (
        f"{spent.text} Steps with large prefills take {symptoms.mixed_ms / symptoms.decode_ms:.1f} times as long as "
        f"decode alone ({symptoms.mixed_ms:,.1f} ms against {symptoms.decode_ms:,.1f} ms)."
    )
    return Evidence(text, spent.lost_s)


def _budget_spent(symptoms: Symptoms) -> Evidence | None:
    reason = _noticeable(symptoms, "token_budget")
    if reason is None:
        return None
    limit = symptoms.value("max_num_batched_tokens")
    return _stops(symptoms, reason, f"spent all of max_num_batched_tokens = {limit} and left requests without tokens")


def _compute_bound(symptoms: Symptoms) -> bool:
    mixed, decode = symptoms.mixed_ms, symptoms.decode_ms
    return bool(mixed and decode and symptoms.mixed_steps >= _FEWEST_STEPS and mixed >= _COMPUTE_BOUND * decode)


def whole_prompts(symptoms: Symptoms) -> Evidence | None:
    """Stopped at a prompt that would not fit the rest of the budget."""
    reason = _noticeable(symptoms, "prefill_exceeds_budget")
    if reason is None:
        return None
    return _stops(symptoms, reason, "stopped at a prompt longer than what was left of the budget")


def memory(symptoms: Symptoms) -> Evidence | None:
    """Stopped for want of blocks."""
    reason = _noticeable(symptoms, *_MEMORY)
    if reason is None:
        return None
    if reason.kv is None:
        return _stops(symptoms, reason, "stopped for want of KV blocks")
    return _stops(
        symptoms,
        reason,
        f"stopped for want of KV blocks: the head needed {reason.kv.needed:,.0f}, {reason.kv.free:,.0f} were free",
    )


def order(symptoms: Symptoms) -> Evidence | None:
    """The head did not fit, the smallest would have."""
    reason = _noticeable(symptoms, *_MEMORY)
    if reason is None or reason.kv is None or reason.kv.smallest_need is None:
        return None
    fits = reason.kv.smaller_would_fit_steps
    if fits < 0.25 * reason.steps:
        return None
    text = (
        f"In {_of(fits, reason.steps, 'steps that stopped for want of KV blocks')}, the smallest waiting request would "
        f"have fitted: it needed {reason.kv.smallest_need:,.0f} blocks where the head needed {reason.kv.needed:,.0f}."
    )
    return Evidence(text, reason.seconds * fits / reason.steps)


def full_sequence(symptoms: Symptoms) -> Evidence | None:
    """Refused the whole sequence while much was free and nothing was preempted."""
    reason = _noticeable(symptoms, "kv_full_sequence")
    if reason is None or reason.kv_free is None or reason.kv_free < _ROOM or _preempts(symptoms):
        return None
    return _stops(
        symptoms,
        reason,
        f"refused a request whose whole sequence did not fit, with {_percent(reason.kv_free)} of KV free and "
        f"{symptoms.preemptions or 0:,} preemptions",
    )


def watermark(symptoms: Symptoms) -> Evidence | None:
    """Refused because of the watermark."""
    reason = _noticeable(symptoms, "kv_watermark")
    return None if reason is None else _stops(symptoms, reason, "kept blocks free for the watermark alone")


def _preempts(symptoms: Symptoms) -> bool:
    """Preemptions are more than an accident: one request in twenty, or one token in twenty computed again."""
    again, scheduled = symptoms.recomputed_tokens or 0, symptoms.scheduled_tokens or 0
    often = (symptoms.preemptions or 0) >= max(0.05 * (symptoms.requests or 0), _FEWEST_STEPS)
    return often or bool(scheduled and again >= 0.05 * scheduled)


def preemptions(symptoms: Symptoms) -> Evidence | None:
    """Preempted often, or computed much again."""
    if not _preempts(symptoms):
        return None
    again, scheduled = symptoms.recomputed_tokens, symptoms.scheduled_tokens
    text = f"Running requests lost their blocks {symptoms.preemptions or 0:,} times"
    if symptoms.requests:
        text += f" ({symptoms.requests:,} requests)"
    if again and scheduled:
        text += f"; {again:,} tokens were computed again, {_percent(again / scheduled)} of all"
    reason = symptoms.reasons.get("preempted_this_step")
    return Evidence(text + ".", None if reason is None else reason.seconds)


def long_prefills(symptoms: Symptoms) -> Evidence | None:
    """Steps that mix large prefills with decode are slow, and the slowest tokens show it."""
    mixed, decode = symptoms.mixed_ms, symptoms.decode_ms
    median, slow = symptoms.tpot_p50_ms, symptoms.tpot_p99_ms
    if mixed is None or decode is None or not median or slow is None:
        return None
    if symptoms.mixed_steps < max(0.01 * symptoms.steps, _FEWEST_STEPS) or mixed < 3 * decode or slow < 2 * median:
        return None
    return Evidence(
        f"{_of(symptoms.mixed_steps, symptoms.steps, 'steps')} carried large prefills beside running requests and took "
        f"{mixed / decode:.1f} times as long as decode alone ({mixed:,.1f} ms against {decode:,.1f} ms); "
        f"p99 of the time per token is {slow:,.1f} ms, p50 {median:,.1f} ms."
    )


def no_prefix_cache(symptoms: Symptoms) -> Evidence | None:
    """Turns of jobs, and no cache."""
    requests, jobs = symptoms.requests or 0, symptoms.jobs
    if symptoms.settings.get("enable_prefix_caching") is not False or not jobs or requests < 2 * jobs:
        return None
    return Evidence(
        f"{requests:,} requests are turns of {jobs:,} jobs, and each computes its whole prompt again, because prefix "
        "caching is off."
    )


def evicted_turns(symptoms: Symptoms) -> Evidence | None:
    """Turns of jobs, a full cache, and few hits."""
    requests, jobs = symptoms.requests or 0, symptoms.jobs
    hits, peak = symptoms.local_hit_rate, symptoms.peak_kv_use
    if symptoms.settings.get("enable_prefix_caching") is False or hits is None or peak is None:
        return None
    if not jobs or requests < 2 * jobs or hits >= _FEW_HITS or peak < 0.95:
        return None
    return Evidence(
        f"{requests:,} requests are turns of {jobs:,} jobs, but only {_percent(hits)} of their prompt tokens were "
        f"still cached; KV was {_percent(peak)} full at its peak, so turns are evicted before the next one comes."
    )


def held_by(reason_name: str, what: str) -> Callable[[Symptoms], Evidence | None]:
    """The evidence of a reason that needs no further numbers."""

    def find(symptoms: Symptoms) -> Evidence | None:
        reason = _noticeable(symptoms, reason_name)
        return None if reason is None else _stops(symptoms, reason, what)

    return find
