"""One log read as a whole: its requests, repeats, doubts, and the workload they become."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path

import msgspec

from tokenyard.errors import ConfigError, WorkloadError, shown
from tokenyard.workload.logs.kinds import LOGS, log_kind
from tokenyard.workload.logs.logged import (
    KNOWN,
    LoggedError,
    LoggedRequest,
    LoggedTurn,
    LogOptions,
    LogReading,
    SentAs,
    Stamp,
)
from tokenyard.workload.logs.moments import FASTEST, LEAST_UNIX, TimeUnit, duration_seconds
from tokenyard.workload.logs.source import Source
from tokenyard.workload.readers.plain import FORMATS, reader_of
from tokenyard.workload.record import MAX_SECONDS, Remark, WorkloadRequest, remark
from tokenyard.workload.tokens import HashedTokens, StreamTokens, TokenSource, seed_of

# ---------------------------------------------------------------------------------------------------------------------
# Requests that a log records more than once: copies of a record, and spans around the one that was served.

_SLACK = 1e-3
"""Seconds by which a span may stand out of the one around it."""
_DEEPEST_SPAN = 100
"""Spans around one that are looked at: messages that name the one that they answer make chains of any length."""


def without_copies(logged: Sequence[LoggedRequest], reading: LogReading) -> list[LoggedRequest]:
    """Each request once. Records of one id, time and lengths are copies: exports overlap, or answers come in parts."""
    seen: set[tuple[object, ...]] = set()
    ids: set[str] = set()
    kept, doubtful = [], 0
    for each in logged:
        if each.request_id is not None:
            key = (each.request_id, each.moment, each.prompt_tokens, each.output_tokens)
            if key in seen:
                reading.left_out["copies of others (of the same id, time and lengths)"] += 1
                continue
            doubtful += each.request_id in ids
            seen.add(key)
            ids.add(each.request_id)
        kept.append(each)
    if doubtful and len(ids) > 1:
        reading.note("repeated_ids", doubtful=doubtful, count=len(kept))
    return kept


def with_reasoning(logged: Sequence[LoggedRequest], reading: LogReading) -> list[LoggedRequest]:
    """The requests with reasoning added to their outputs, if the log counts it beside them: then some have more of it.

    OpenAI and vLLM count it in the output, xAI beside it.
    """
    more = sum(each.reasoning_tokens > each.output_tokens for each in logged)
    if not more:
        return list(logged)
    output, reasoning = reading.of_reasoning
    reading.note("reasoning_beside", output=output, reasoning=reasoning, more=more, count=len(logged))
    return [msgspec.structs.replace(each, output_tokens=each.output_tokens + each.reasoning_tokens) for each in logged]


def without_outer(logged: Sequence[LoggedRequest], reading: LogReading) -> list[LoggedRequest]:
    """The requests without spans around others: a chain or an agent says the tokens of all that it called.

    Records that name a parent are spans only if they lie within it in time: messages name the one that they answer.
    """
    if not reading.parents:
        return list(logged)
    told = {each.span: each for each in logged if each.span is not None}
    outer: set[str | None] = set()
    unknown: set[str] = set()
    for each in told.values():
        for span in _around(each.span, reading.parents):
            around = told.get(span)
            if around is None or around is each:
                continue
            if around.duration is None or each.duration is None or around.moment is None or each.moment is None:
                unknown.add(span)
            elif _lies_within(each, around):
                outer.add(span)
    if outer:
        reading.left_out["spans around others that say tokens"] += sum(each.span in outer for each in logged)
    if unknown - outer:
        reading.note("nested", count=len(unknown - outer))
    return [each for each in logged if each.span is None or each.span not in outer]


def _around(span: str | None, parents: Mapping[str, str]) -> Iterator[str]:
    """The spans around one, inner ones first, as far as spans nest."""
    for _ in range(_DEEPEST_SPAN):
        span = None if span is None else parents.get(span)
        if span is None:
            return
        yield span


def _lies_within(inner: LoggedRequest, outer: LoggedRequest) -> bool:
    assert inner.moment is not None
    assert outer.moment is not None
    assert inner.duration is not None
    assert outer.duration is not None
    ends = inner.moment + inner.duration <= outer.moment + outer.duration + _SLACK
    return ends and inner.moment >= outer.moment - _SLACK


# ---------------------------------------------------------------------------------------------------------------------
# What looks wrong in the requests of a log: lengths and times that no service has, and what they usually come from.
#
# A doubt is about the whole log, and says what it found in figures. Few requests say nothing: below ``_FEWEST`` none
# is raised.

_FEWEST = 8
_MOST_AT_CAP = 0.1
"""Share of prompts with one length, the longest, from which it looks like a cut."""
_FEWEST_AT_CAP = 5
_MOST_TWINS = 0.05
_EVEN = 1e-3
"""Seconds by which intervals differ that are even."""
_MOST_MISMATCHES = 0.05
_ROUND = (1000, 512, 500, 256, 128, 100, 64, 50, 10)
"""Lengths that are all multiples of one of these are no counts."""
_GRIDS = ((3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))
_BUSY = 3.0
"""Requests at each of the instants of a coarse clock from which bursts are made up."""


def doubts_of(logged: Sequence[LoggedRequest], *, drawn: bool, has_length_doubts: bool = False) -> Iterator[Remark]:
    """The doubts; of times only where they are used, of lengths only where the reader of the log has none itself."""
    if len(logged) < _FEWEST:
        return
    if not has_length_doubts:
        yield from _length_doubts(logged)
    yield from _total_doubts(logged)
    moments = sorted(each.moment for each in logged if each.moment is not None)
    if len(moments) >= _FEWEST:
        yield from _twin_doubts(logged)
    if not drawn and len(moments) >= _FEWEST:
        yield from _time_doubts(moments)


def models_of(logged: Sequence[LoggedRequest]) -> Counter[str]:
    """The models that were asked, most often first."""
    return Counter(each.model for each in logged if each.model is not None)


def _length_doubts(logged: Sequence[LoggedRequest]) -> Iterator[Remark]:
    for what, lengths, cause in (
        ("prompts", [each.prompt_tokens for each in logged], "a benchmark's, a default value, or the wrong column"),
        (
            "outputs",
            [each.output_tokens for each in logged],
            "a limit that was requested instead of what was generated, or a benchmark with ignore_eos",
        ),
    ):
        count = len(lengths)
        if len(set(lengths)) == 1:
            yield remark("equal", count=count, what=what, length=lengths[0], cause=cause)
            continue
        longest = max(lengths)
        at_cap = lengths.count(longest)
        if what == "prompts" and at_cap >= max(_FEWEST_AT_CAP, _MOST_AT_CAP * count):
            yield remark("prompts_at_cap", at_cap=at_cap, count=count, longest=longest)
        step = next((each for each in _ROUND if not any(length % each for length in lengths)), None)
        if step is not None and len(set(lengths)) > 2:
            yield remark("round", what=what, step=step)
    if all(each.prompt_tokens == each.output_tokens for each in logged):
        yield remark("same_column")


def _total_doubts(logged: Sequence[LoggedRequest]) -> Iterator[Remark]:
    totals = [(each.prompt_tokens + each.output_tokens, each.total_tokens) for each in logged if each.total_tokens]
    wrong = sum(told != total for told, total in totals)
    if totals and wrong > _MOST_MISMATCHES * len(totals):
        yield remark("totals", wrong=wrong, count=len(totals))


def _twin_doubts(logged: Sequence[LoggedRequest]) -> Iterator[Remark]:
    """Requests that are like another one to the fraction of a second and in both lengths: hardly by chance."""
    seen = Counter((each.moment, each.prompt_tokens, each.output_tokens) for each in logged if each.moment is not None)
    distinct = {(prompt, output) for _, prompt, output in seen}
    twins = sum(count - 1 for (moment, _, _), count in seen.items() if moment and not moment.is_integer())
    if twins > _MOST_TWINS * len(logged) and len(distinct) > 1:
        yield remark("twins", twins=twins, count=len(logged))


def _time_doubts(moments: Sequence[float]) -> Iterator[Remark]:
    count, distinct = len(moments), len(set(moments))
    if distinct == 1:
        yield remark("all_at_once", count=count)
        return
    if moments[-1] - moments[0] < FASTEST * count:
        yield remark("too_fast", count=count, span=moments[-1] - moments[0])
        return
    gaps = [later - earlier for earlier, later in pairwise(moments)]
    if max(gaps) - min(gaps) < _EVEN:
        yield remark("evenly_spaced", gap=gaps[0])
        return
    for grid, name in _GRIDS:
        if all(abs(each / grid - round(each / grid)) < 1e-9 for each in moments):
            if grid == 1 and count < _BUSY * distinct:
                yield remark("whole_seconds")
            else:
                yield remark("times_rounded", name=name, count=count, distinct=distinct)
            return
    if count >= _BUSY * distinct:
        yield remark("times_of_batches", count=count, distinct=distinct)


# ---------------------------------------------------------------------------------------------------------------------
# From logged requests to a workload: order, arrivals, prompts, and what had to be assumed.

HIT_BLOCK = 16
"""Tokens of a block in which recorded hits come back."""
_IDS_PER_GROUP = 1 << 30

_YEAR = 365.25 * 86_400.0
_SLOWEST_TOKEN = 3.0
"""Seconds per output token from which durations are hardly seconds."""
_SMALLER = (TimeUnit.MILLISECONDS, TimeUnit.MICROSECONDS, TimeUnit.NANOSECONDS)
_PACES = 2e-3, 1.0
"""Seconds per output token that services take."""


def arrivals_of(
    path: object, logged: Sequence[LoggedRequest], options: LogOptions, *, drawn: bool, from_ends: bool = False
) -> tuple[list[tuple[float, LoggedRequest]], list[Remark]]:
    """The requests with their arrivals in seconds since the first one, in order; and what was assumed for it.

    ``drawn``: arrivals are drawn anyway, so that the log need not say any. ``from_ends``: moments are ends less
    durations.
    """
    timed = _with_times(logged)
    if drawn or not timed:
        if not drawn:
            raise WorkloadError(
                path, 0, "says no arrival times: name their column (--columns arrival_time=NAME) or give --request-rate"
            )
        return [(0.0, each) for each in logged], []
    notes = []
    if len(timed) < len(logged):
        notes.append(remark("no_time", count=len(logged) - len(timed)))
    if options.stamped is Stamp.COMPLETION:
        _require_durations(path, timed)
        notes.append(remark("completions"))
    moments = [_arrival(each, options) for each in timed]
    start = min(moments)
    arrivals = sorted(((moment - start, each) for moment, each in zip(moments, timed, strict=True)), key=_by_moment)
    if arrivals[-1][0] > MAX_SECONDS:
        raise WorkloadError(path, 0, _too_far_apart(arrivals))
    slow = _slow_tokens(timed)
    if slow is not None and (from_ends or options.stamped is Stamp.COMPLETION or options.turns_follow):
        notes.append(remark("slow_tokens", slow=slow))
    elif slow is not None:
        arrivals, read_as = _in_smaller_unit(arrivals, slow)
        notes.append(remark("duration_unit", read_as=read_as, slow=slow))
    return arrivals, notes


def _with_times(logged: Sequence[LoggedRequest]) -> list[LoggedRequest]:
    """The requests that say a time. Among Unix times 0 is none: a service writes it where it has no time."""
    timed = [each for each in logged if each.moment is not None]
    is_unix = max((each.moment or 0.0 for each in timed), default=0.0) >= LEAST_UNIX
    return [each for each in timed if each.moment] if is_unix else timed


def _require_durations(path: object, timed: Sequence[LoggedRequest]) -> None:
    """Raise WorkloadError unless all requests say how long they took."""
    without = sum(each.duration is None for each in timed)
    if without:
        raise WorkloadError(
            path,
            0,
            f"{without:,} of {len(timed):,} requests say no duration, and their times are completions: name its column "
            "(--columns duration=NAME)",
        )


def _by_moment(item: tuple[float, LoggedRequest]) -> float:
    return item[0]


def _too_far_apart(arrivals: Sequence[tuple[float, LoggedRequest]]) -> str:
    """Says between which two requests most of the time lies."""
    (before, first), (after, second) = max(pairwise(arrivals), key=lambda pair: pair[1][0] - pair[0][0])
    named = " and ".join(shown(each.request_id) for each in (first, second) if each.request_id is not None)
    years = (after - before) / _YEAR
    return (
        f"{years:,.0f} years lie between two requests{f' ({named})' if named else ''}: one of them has a wrong time, "
        "or one in another unit; leave it out of the log, or send requests at a rate (--request-rate)"
    )


def _slow_tokens(timed: Sequence[LoggedRequest]) -> float | None:
    """Seconds per output token, over all of them, if hardly any service is so slow."""
    tokens = sum(max(1, each.output_tokens) for each in timed)
    pace = sum(each.duration or 0.0 for each in timed) / tokens
    return pace if pace >= _SLOWEST_TOKEN else None


def _in_smaller_unit(
    arrivals: Sequence[tuple[float, LoggedRequest]], slow: float
) -> tuple[list[tuple[float, LoggedRequest]], str]:
    """Requests whose durations, as seconds, would be ``slow`` seconds a token, in the one unit, if any, in which they
    are what a service takes; and how they are read.
    """
    fits = [unit for unit in _SMALLER if _PACES[0] <= slow * duration_seconds(1, unit) <= _PACES[1]]
    scale = duration_seconds(1, fits[0]) if fits else None
    others = [(moment, _with_duration(each, scale)) for moment, each in arrivals]
    return others, f"read as {fits[0]}" if fits else "not compared"


def _with_duration(logged: LoggedRequest, scale: float | None) -> LoggedRequest:
    is_told = scale is not None and logged.duration is not None
    return msgspec.structs.replace(logged, duration=(logged.duration or 0.0) * (scale or 0.0) if is_told else None)


def _arrival(logged: LoggedRequest, options: LogOptions) -> float:
    assert logged.moment is not None
    if options.stamped is Stamp.COMPLETION and logged.duration is not None:
        return logged.moment - logged.duration
    return logged.moment


def requests_of(
    arrivals: Sequence[tuple[float, LoggedRequest]],
    name: str,
    seed: int,
    turns: Sequence[LoggedTurn] = (),
    *,
    turns_follow: bool = False,
) -> Iterator[WorkloadRequest]:
    """Requests of a workload. Recorded hits come back as prompts that begin alike.

    A log that counts cached tokens does not say with whom they were shared: the whole blocks of ``HIT_BLOCK`` tokens
    within them are taken from one stream per group (named as such, else the session, else the user), or one for all.
    A log in which no answer calls a tool does not say that none does: they may stand in the text.
    With ``turns``, one per request, what goes on is one stream instead; ``turns_follow``: it arrives as long after the
    answer before as it did.
    """
    ids = _request_ids([logged.request_id for _, logged in arrivals], name)
    groups: dict[str | None, int] = {}
    scope = seed_of(name, seed)
    last = {_session(each): i for i, (_, each) in enumerate(arrivals)}
    says_tools = any(each.tool for _, each in arrivals)
    for i, (moment, logged) in enumerate(arrivals):
        request_id = ids[i]
        before = turns[i].before if turns and turns_follow else None
        group = logged.group or logged.session or logged.user
        own, first = seed_of(name, seed, i), groups.setdefault(group, len(groups)) * _IDS_PER_GROUP
        prompt: TokenSource
        if turns:
            said = seed_of(name, seed, turns[i].first)
            prompt = StreamTokens.unique(said, logged.prompt_tokens)
            own = said if turns[i].is_kept else seed_of(name, seed, i, "answer")
        else:
            hits = [(first, blocks)] if (blocks := (logged.cached_tokens or 0) // HIT_BLOCK) else []
            prompt = HashedTokens(hits, logged.prompt_tokens, block_size=HIT_BLOCK, scope=scope, tail=own)
        yield WorkloadRequest(
            request_id=request_id,
            prompt=prompt,
            max_tokens=max(1, logged.output_tokens),
            arrival_time=moment if before is None else arrivals[turns[i].first][0],
            after=() if before is None else (ids[before],),
            gap=0.0 if before is None else turns[i].pause,
            job_id=_job(logged, request_id),
            is_last_step=logged.session is not None and last[_session(logged)] == i,
            this_func_call=logged.tool if says_tools else None,
            priority=logged.priority,
            lora_name=logged.lora_name,
            output_seed=own,
            measured=logged.measured,
            meta={each: value for each in _CLASSES if (value := getattr(logged, each)) is not None},
        )


def _request_ids(given: Sequence[str | None], name: str) -> list[str]:
    """The ids that a log gives; of a request without one, or with that of an earlier one, a number: ``csv_000042``."""
    free = set(given)
    taken: set[str] = set()
    ids: list[str] = []
    for i, said in enumerate(given):
        request_id = said if said and said not in taken else f"{name}_{i:06d}"
        while request_id != said and request_id in free:  # another request of the log has this id
            request_id += "~"
        taken.add(request_id)
        ids.append(request_id)
    return ids


_CLASSES = ("user", "tier")
"""What requests are distinguished by in figures per class."""


def _session(logged: LoggedRequest) -> tuple[str | None, str | None]:
    return logged.user, logged.session


def _job(logged: LoggedRequest, request_id: str) -> str | None:
    """``user/session``, as policies that are fair to users want it; without a session a request is its own job."""
    if logged.user is None:
        return logged.session
    return f"{logged.user.replace('/', '_')}/{logged.session or request_id}"


# ---------------------------------------------------------------------------------------------------------------------
# One log read as a whole: its requests, of one model, and what there is to say of them.

_MOST_MODELS = 6
_SHOWN: Sequence[str] = KNOWN["shown"]
"""Fields that are listed where they were found, in this order."""


class LogRead(msgspec.Struct, frozen=True):
    """The requests of a file, and remarks on it."""

    path: Path
    kind: str
    logged: list[LoggedRequest]
    remarks: list[Remark]
    rounded: str | None
    """Why its times cannot be used; None if they can."""
    counts_hits: bool = False
    """Whether it says how many tokens of prompts were cached."""
    not_served: Sequence[LoggedError] = ()
    """Requests that were answered with an error."""
    load: SentAs = SentAs()
    """How a benchmark says that it sent them."""

    def errors(self, taken: Sequence[LoggedRequest], *, is_whole: bool) -> Counter[str]:
        """Status of an error -> requests that were answered with it: all of a file that ``is_whole``, else those that
        stand before the last of its requests that was ``taken``.
        """
        last = max((each.place for each in taken if each.file == self.path), default=0)
        return Counter(each.status for each in self.not_served if is_whole or each.place < last)


def what_it_holds(path: Path, format: str | None, options: LogOptions) -> tuple[Source, str]:  # noqa: A002
    """A file, and the format or kind that it is read as. Raises WorkloadError, or ConfigError for a name of none."""
    source = Source(path)
    if format is None:
        return source, log_kind(source, options)
    if format not in LOGS and reader_of(format) is None:
        raise ConfigError("format", format, f"use one of: {', '.join((*FORMATS, *LOGS))}; or FILE.py:NAME")
    return source, format


def read_log(source: Source, kind: str, options: LogOptions) -> LogRead:
    """All requests of a log, in its order, and remarks. Raises WorkloadError naming file and line."""
    reading = LogReading(source.path, options)
    logged = list(LOGS[kind].read(source, reading))
    if reading.clock.must_be_day_first:
        reading = LogReading(source.path, options, day_first=True)
        logged = list(LOGS[kind].read(source, reading))
    if not logged:
        errors = (each.text for each in error_remarks(Counter(each.status for each in reading.not_served), ()))
        why = [reading.bad_note, *_left_out(reading), *errors, _ignored(reading)]
        raise WorkloadError(source.path, 0, "; ".join(["holds no request", *(each for each in why if each)]))
    if reading.why_sums is not None:
        raise WorkloadError(source.path, 0, reading.why_sums)
    back = _clock_put_back(logged) if reading.clock.without_offset else None
    if back is not None:
        reading.note("clock_put_back", minutes=back)
    if reading.with_choices * _FEWEST_CHOICES > len(logged):
        reading.note("choices", count=reading.with_choices)
    logged = without_outer(without_copies(with_reasoning(logged, reading), reading), reading)
    counts_hits = any(each.cached_tokens is not None for each in logged)
    if counts_hits:  # a service that counts them leaves them out where there are none
        logged = [
            each if each.cached_tokens is not None else msgspec.structs.replace(each, cached_tokens=0)
            for each in logged
        ]
    return LogRead(
        source.path,
        kind,
        logged,
        list(_remarks(reading, kind)),
        reading.rounded or reading.clock.no_seconds,
        counts_hits=counts_hits,
        not_served=reading.not_served,
        load=reading.load,
    )


_OF_LINES = ("@timestamp", "__realtime_timestamp", "_time", "asctime", "log_line_time", "logged_at", "logging_time")
"""Times that whatever collects lines puts before or into them."""
_FEWEST_CHOICES = 4
"""A field called ``n`` is a number of answers where every fourth request has several."""
_HOUR, _AROUND_AN_HOUR, _OUT_OF_ORDER = 3600.0, 600.0, 300.0


def _clock_put_back(logged: Sequence[LoggedRequest]) -> int | None:
    """The minutes if local times jump back once, by about an hour, in a log that is in order; None if not."""
    moments = [each.moment for each in logged if each.moment is not None]
    jumps = sorted(earlier - later for earlier, later in pairwise(moments))
    if not jumps or not _HOUR - _AROUND_AN_HOUR <= jumps[-1] <= _HOUR or (len(jumps) > 1 and jumps[-2] > _OUT_OF_ORDER):
        return None
    return round(jumps[-1] / 60)


def _remarks(reading: LogReading, kind: str) -> Iterator[Remark]:
    names = {field: " and ".join(reading.taken[field]) for field in _SHOWN if field in reading.taken}
    where = ", ".join(f"{field} from {name}" for field, name in names.items())
    yield remark("kind", kind=kind, where=f"{': ' * bool(where)}{where}")
    lines = [name for name in reading.taken.get("arrival_time", ()) if name.casefold() in _OF_LINES]
    if lines and reading.options.stamped is Stamp.ARRIVAL:
        yield remark("line_times", names=" and ".join(lines))
    yield from reading.remarks
    clock = reading.clock
    if clock.has_slashes:
        order = "day/month" if clock.must_be_day_first else "month/day"
        is_sure = clock.must_be_day_first or clock.must_be_month_first
        yield remark("date_order" if is_sure else "date_order_assumed", order=order)
    if clock.with_offset and clock.without_offset:
        yield remark("mixed_zones", without=clock.without_offset, with_one=clock.with_offset)
    if clock.doubt is not None:
        yield Remark("coarse_times", clock.doubt, warning=True)
    yield from (Remark("left_out", each) for each in _left_out(reading))
    ignored = _ignored(reading)
    if ignored:
        yield Remark("ignored", ignored)
    if reading.bad_note:
        yield Remark("bad_lines", reading.bad_note, warning=True)


def error_remarks(not_served: Counter[str], taken: Iterable[LoggedRequest]) -> Iterator[Remark]:
    """Requests that were answered with an error: those that count as not served, and those that were worked on."""
    broken_off = Counter(each.error for each in taken if each.error is not None)
    for code, counted in (("not_served", not_served), ("broken_off", broken_off)):
        if counted:
            each = ", ".join(f"{status}: {count:,}" for status, count in sorted(counted.items()))
            yield remark(code, count=counted.total(), each=each)


def _left_out(reading: LogReading) -> list[str]:
    return [f"left out: {count:,} {why}" for why, count in reading.left_out.items()]


def _ignored(reading: LogReading) -> str | None:
    return f"ignored, as they say nothing of tokens: {reading.ignored:,}" if reading.ignored else None


def of_one_model(
    logged: Sequence[LoggedRequest], path: object, options: LogOptions
) -> tuple[list[LoggedRequest], list[Remark]]:
    """The requests of the model that was named, or all if the log has one only; WorkloadError if it has several."""
    models = models_of(logged)
    listed = ", ".join(f"{shown(name)} {count:,}" for name, count in models.most_common(_MOST_MODELS))
    listed += f" and {len(models) - _MOST_MODELS} more" * (len(models) > _MOST_MODELS)
    wanted = options.model_name
    if wanted is None:
        named = options.columns.get("lora_name")
        if len(models) > 1 and named is None:
            fix = "a replay is of one model, so name one (--model-name NAME), or say that one serves them all "
            fix += "(--model-name '*'); of adapters name the column (--columns lora_name=NAME)"
            raise WorkloadError(path, 0, f"holds requests of {len(models)} models ({listed}): {fix}")
        return list(logged), []
    chosen = [each for each in logged if each.model is not None and fnmatchcase(each.model, wanted)]
    if not chosen:
        has = f"it has {listed}" if models else "no request says its model; name the column (--columns model=NAME)"
        raise ConfigError("model_name", wanted, f"{path} has no request of this model: {has}")
    left = len(logged) - len(chosen)
    return chosen, [remark("models", left=left, count=len(logged), listed=listed)] if left else []


def merged_requests(read: Sequence[LogRead], *, drawn: bool) -> list[LoggedRequest]:
    """The requests of several files. WorkloadError if their times are not on one clock, unless arrivals are drawn."""
    rounded = next(((each.path, each.rounded) for each in read if each.rounded is not None), None)
    if rounded is not None and not drawn:
        raise WorkloadError(rounded[0], 0, rounded[1])
    if len(read) > 1 and not drawn:
        relative = [
            each for each in read if any(one.moment is not None and one.moment < LEAST_UNIX for one in each.logged)
        ]
        if relative:
            fix = "give it alone, or send requests at a rate (--request-rate)"
            raise WorkloadError(
                relative[0].path, 0, f"its times count from its own start, not from other files': {fix}"
            )
        yearless = [each for each in read if any(remark.code == "whole_seconds" for remark in each.remarks)]
        if yearless and len(yearless) < len(read):
            raise WorkloadError(yearless[0].path, 0, "vLLM's log says no year: it cannot be merged with files that do")
    return [one for each in read for one in each.logged]
