"""From logged requests to a workload: order, arrivals, prompts, and what had to be assumed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tokenyard.errors import WorkloadError
from tokenyard.sim.workload.logs.logged import LoggedRequest, LogOptions, Stamp
from tokenyard.sim.workload.record import WorkloadRequest
from tokenyard.sim.workload.remarks import Remark
from tokenyard.sim.workload.tokens import HashedTokens, seed_of

__all__ = ["HIT_BLOCK", "arrivals_of", "requests_of"]

HIT_BLOCK = 16
"""Tokens of a block in which recorded hits come back."""
_IDS_PER_GROUP = 1 << 30

_SLOWEST_TOKEN = 3.0
"""Seconds per output token from which durations are hardly seconds."""


def arrivals_of(
    path: object, logged: Sequence[LoggedRequest], options: LogOptions, *, drawn: bool
) -> tuple[list[tuple[float, LoggedRequest]], list[Remark]]:
    """The requests with their arrivals in seconds since the first one, in order; and what was assumed for it.

    ``drawn``: arrivals are drawn anyway, so that the log need not say any.
    """
    timed = [each for each in logged if each.moment is not None]
    if drawn or not timed:
        if not drawn:
            raise WorkloadError(
                path, 0, "says no arrival times: name their column (--columns arrival_time=NAME) or give --request-rate"
            )
        return [(0.0, each) for each in logged], []
    notes = []
    if len(timed) < len(logged):
        text = f"{len(logged) - len(timed):,} requests without a time were left out"
        notes.append(Remark("no_time", text, warning=True))
    moments = [_arrival(each, options) for each in timed]
    if options.stamped is Stamp.COMPLETION:
        without = sum(each.duration is None for each in timed)
        if without:
            raise WorkloadError(
                path,
                0,
                f"{without:,} of {len(timed):,} requests say no duration, and their times are completions: name its "
                "column (--columns duration=NAME)",
            )
        notes.append(Remark("completions", "arrivals are completions less durations"))
    start = min(moments)
    arrivals = sorted(((moment - start, each) for moment, each in zip(moments, timed, strict=True)), key=_by_moment)
    slow = _slow_tokens(timed) if options.stamped is Stamp.COMPLETION else None
    if slow is not None:
        text = (
            f"requests took {slow:,.0f} s per output token, if durations are seconds: if they are milliseconds, say so "
            "in the column's name (latency_ms), or --columns duration=NAME --time-unit ms"
        )
        notes.append(Remark("slow_tokens", text, warning=True))
    return arrivals, notes


def _by_moment(item: tuple[float, LoggedRequest]) -> float:
    return item[0]


def _slow_tokens(timed: Sequence[LoggedRequest]) -> float | None:
    """Seconds per output token, over all of them, if hardly any service is so slow."""
    tokens = sum(max(1, each.output_tokens) for each in timed)
    pace = sum(each.duration or 0.0 for each in timed) / tokens
    return pace if pace >= _SLOWEST_TOKEN else None


def _arrival(logged: LoggedRequest, options: LogOptions) -> float:
    assert logged.moment is not None
    if options.stamped is Stamp.COMPLETION and logged.duration is not None:
        return logged.moment - logged.duration
    return logged.moment


def requests_of(arrivals: Sequence[tuple[float, LoggedRequest]], name: str, seed: int) -> Iterator[WorkloadRequest]:
    """Requests of a workload. Recorded hits come back as prompts that begin alike.

    A log that counts cached tokens does not say with whom they were shared: the whole blocks of ``HIT_BLOCK`` tokens
    within them are taken from one stream per group (named as such, else the session, else the user), or one for all.
    """
    taken: set[str] = set()
    groups: dict[str | None, int] = {}
    scope = seed_of(name, seed)
    last = {_session(each): i for i, (_, each) in enumerate(arrivals)}
    for i, (moment, logged) in enumerate(arrivals):
        request_id = logged.request_id if logged.request_id not in taken else None
        request_id = request_id or f"{name}_{i:06d}"
        taken.add(request_id)
        group = logged.group or logged.session or logged.user
        own, first = seed_of(name, seed, i), groups.setdefault(group, len(groups)) * _IDS_PER_GROUP
        hits = [(first, blocks)] if (blocks := logged.cached_tokens // HIT_BLOCK) else []
        yield WorkloadRequest(
            request_id=request_id,
            prompt=HashedTokens(hits, logged.prompt_tokens, block_size=HIT_BLOCK, scope=scope, tail=own),
            max_tokens=max(1, logged.output_tokens),
            arrival_time=moment,
            job_id=_job(logged, request_id),
            is_last_step=logged.session is not None and last[_session(logged)] == i,
            priority=logged.priority,
            lora_name=logged.lora_name,
            output_seed=own,
        )


def _session(logged: LoggedRequest) -> tuple[str | None, str | None]:
    return logged.user, logged.session


def _job(logged: LoggedRequest, request_id: str) -> str | None:
    """``user/session``, as policies that are fair to users want it; without a session a request is its own job."""
    if logged.user is None:
        return logged.session
    return f"{logged.user.replace('/', '_')}/{logged.session or request_id}"
