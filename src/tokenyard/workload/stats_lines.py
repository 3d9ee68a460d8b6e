"""The line that vLLM logs every ten seconds of what runs and waits, as samples of the metrics that say the same.

    INFO 03-11 06:16:52 [loggers.py:257] Engine 000: Avg prompt throughput: 16.5 tokens/s, Avg generation throughput:
    1157.2 tokens/s, Running: 51 reqs, Waiting: 117 reqs, GPU KV cache usage: 100.0%, Prefix cache hit rate: 70.0%

Queues and the pool are as they were at that moment, throughputs are means since the line before: their counters here
are what these come to. Hits are a share of the last 1,000 requests, and no counter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

EVERY_S = 10.0
"""Seconds between two lines of an engine, unless they say their time."""
HIT_RATE = "vllm:log_prefix_cache_hit_rate"
"""What is kept of the share of prefix hits: vLLM has no metric of it."""
_LINE = re.compile(r"Running: (\d{1,9}) reqs,(?: Swapped: \d{1,9} reqs,)? (?:Waiting|Pending): (\d{1,9}) reqs")
_ENGINE = re.compile(r"\bEngine (\d{1,6}): ")
_LOGGED = re.compile(r"\b(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)\b")
_DATED = re.compile(r"\b(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d(?:\.\d{1,9})?)")
_SHARES = {
    "vllm:kv_cache_usage_perc": re.compile(r"(?<!CPU )KV cache usage: (\d{1,3}(?:\.\d{1,6})?)%"),
    HIT_RATE: re.compile(r"(?<!External )(?:Prefix|GPU prefix) cache hit rate: (?:GPU: )?(\d{1,3}(?:\.\d{1,6})?)%"),
}
_RATES = {
    "vllm:prompt_tokens_total": re.compile(r"Avg prompt throughput: (\d{1,12}(?:\.\d{1,6})?) tokens/s"),
    "vllm:generation_tokens_total": re.compile(r"Avg generation throughput: (\d{1,12}(?:\.\d{1,6})?) tokens/s"),
}
_DEFERRED = re.compile(r"Deferred: (\d{1,9}) reqs")
_PREEMPTIONS = re.compile(r"Preemptions: (\d{1,9})")
_FETCHED = re.compile(r"KV fetch: (\d{1,9}) waiting to start, (\d{1,9}) in progress")
_LEAP_YEAR = 2000
"""The year of a time without one: February has all its days."""


def has_stats_lines(text: str) -> bool:
    """Whether a text holds such a line."""
    return _LINE.search(text) is not None


def stats_samples(text: str) -> Iterator[tuple[str, Mapping[str, str], float, float]]:
    """Name, labels, moment and value of all that the lines say."""
    totals: dict[tuple[str, str], float] = {}
    last: dict[str, float] = {}
    for line in text.splitlines():
        queues = _LINE.search(line)
        if queues is None:
            continue
        found = _ENGINE.search(line)
        engine = str(int(found[1])) if found else "0"
        labels = {"engine": engine}
        at = _moment(line)
        before = last.get(engine)
        if at is None:
            at = 0.0 if before is None else before + EVERY_S
        seconds = EVERY_S if before is None or at <= before else at - before
        last[engine] = at
        yield "vllm:num_requests_running", labels, at, float(queues[1])
        yield "vllm:num_requests_waiting", labels, at, float(queues[2])
        for name, pattern in _SHARES.items():
            share = pattern.search(line)
            if share is not None:
                yield name, labels, at, float(share[1]) / 100
        deferred, fetched = _DEFERRED.search(line), _FETCHED.search(line)
        parts = {"deferred": int(deferred[1]) if deferred else 0}
        parts["capacity"] = int(queues[2]) - parts["deferred"]
        for reason, number in parts.items():
            yield "vllm:num_requests_waiting_by_reason", labels | {"reason": reason}, at, float(number)
        if fetched is not None:
            yield "vllm:log_kv_fetches", labels, at, float(fetched[1]) + float(fetched[2])
        preempted = _PREEMPTIONS.search(line)
        amounts = {name: float(rate[1]) * seconds for name, each in _RATES.items() if (rate := each.search(line))}
        amounts["vllm:num_preemptions_total"] = float(preempted[1]) if preempted else 0.0
        for name, amount in amounts.items():
            if before is None:  # what was there before the first line
                totals[engine, name] = 0.0
            totals[engine, name] += amount if before is not None else 0.0
            yield name, labels, at, totals[engine, name]


def _moment(line: str) -> float | None:
    """Seconds of a clock; a line of vLLM's own says no year."""
    logged, dated = _LOGGED.search(line), _DATED.search(line)
    try:
        if dated is not None:
            return datetime.fromisoformat(f"{dated[1]}T{dated[2]}").replace(tzinfo=UTC).timestamp()
        if logged is not None:
            return datetime(_LEAP_YEAR, *map(int, logged.groups()), tzinfo=UTC).timestamp()  # type: ignore[misc,arg-type]
    except ValueError:
        return None
    return None
