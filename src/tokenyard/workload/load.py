"""From a name or a path to a workload."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from glob import glob, has_magic
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import msgspec

from tokenyard.core.params import user_name
from tokenyard.errors import ConfigError, WorkloadError
from tokenyard.plugins import called, foreign, is_foreign
from tokenyard.quick_dataclass import dataclass
from tokenyard.record.recorder import TurnOrder
from tokenyard.units import duration
from tokenyard.workload.generators import RandomOptions, random
from tokenyard.workload.logs import reading
from tokenyard.workload.logs.kinds import LOGS
from tokenyard.workload.logs.logged import LoggedRequest, LoggedTurn, LogOptions, Prefixes, SentAs, Stamp, turns_of
from tokenyard.workload.logs.moments import LEAST_UNIX, duration_seconds
from tokenyard.workload.measured import ServiceCounts
from tokenyard.workload.readers.lines import ReadOptions
from tokenyard.workload.readers.plain import NAMES, About, NamedSource, read_about, reader_of
from tokenyard.workload.record import Remark, Workload, WorkloadRequest, remark

# ---------------------------------------------------------------------------------------------------------------------
# Stretches of a workload: pauses in which nothing arrives, the busiest part, and the whole again and again.

# ---------------------------------------------------------------------------------------------------------------------
# Pauses, in which nothing arrives: they make a rate over the whole mean little.

_SHORTEST_PAUSE = 600.0
_MUCH_LONGER = 30.0
"""Times the mean of all shorter intervals that a pause takes: at random times one in e**30 would."""
_FEWEST_FOR_PAUSES = 8


class Pause(msgspec.Struct, frozen=True):
    """Seconds."""

    start: float
    lasts: float


def pauses_in(workload: Workload) -> list[Pause]:
    """Stretches of ten minutes or more in which nothing arrives, though requests come far closer otherwise."""
    moments = sorted(each.arrival_time for each in workload if not each.after)
    if len(moments) < _FEWEST_FOR_PAUSES:
        return []
    gaps = sorted(later - earlier for earlier, later in pairwise(moments))
    shorter = 0.0
    for i, gap in enumerate(gaps):
        if gap >= _SHORTEST_PAUSE and i and gap >= _MUCH_LONGER * shorter / i:
            return [Pause(start, end - start) for start, end in pairwise(moments) if end - start >= gap]
        shorter += gap
    return []


def remarks_on_pauses(workload: Workload) -> list[Remark]:
    """A remark that there are pauses, and how much of the time they take; nothing if there are none, or where it is
    noted.
    """
    pauses = pauses_in(workload)
    if not pauses or any(each.code == "pauses" for each in workload.remarks):
        return []
    whole = duration(max(each.arrival_time for each in workload))
    longest = max(pauses, key=lambda each: each.lasts)
    said = f"nothing arrives for {duration(longest.lasts)}, from {duration(longest.start)} on, of {whole} in all"
    if len(pauses) > 1:
        total = f"{duration(sum(each.lasts for each in pauses))} of {whole} in all"
        said = f"nothing arrives in {len(pauses):,} pauses, {total} (the longest: {duration(longest.lasts)})"
    return [Remark("pauses", f"{said}: rates over all of it are below those of busy times", warning=True)]


# ---------------------------------------------------------------------------------------------------------------------
# A part of a workload that stands for the whole: its busiest stretch, sessions uncut.


class WorkloadPart(msgspec.Struct, frozen=True):
    """A stretch of a workload."""

    workload: Workload
    """The requests of the stretch; the first arrives at 0."""
    first: float
    """Seconds of the whole, at which its first session or request arrives."""
    last: float
    """Time at which the last one ends."""


def busiest_part(workload: Workload, num_requests: int) -> WorkloadPart | None:
    """Consecutive sessions of ``num_requests`` requests or a few more, where most tokens arrive per second.

    A session is a request with all turns that follow it. None if no session could be left out.
    """
    sessions = _sessions(workload)
    requests = [0, *accumulate(len(session) for session in sessions)]
    tokens = [0, *accumulate(sum(len(each.prompt) + each.max_tokens for each in session) for session in sessions)]
    moments = [_first_arrival(session) for session in sessions]
    best: tuple[float, int, int] | None = None
    end = 0
    for start in range(len(sessions)):
        while end < len(sessions) and requests[end] - requests[start] < num_requests:
            end += 1
        if requests[end] - requests[start] < num_requests:
            break
        seconds = max(moments[end - 1] - moments[start], 1e-3)
        busy = (tokens[end] - tokens[start]) / seconds
        if best is None or busy > best[0]:
            best = busy, start, end
    if best is None or best[2] - best[1] == len(sessions):
        return None
    _, start, end = best
    chosen = {each.request_id for session in sessions[start:end] for each in session}
    part = [
        each if each.after else replace(each, arrival_time=each.arrival_time - moments[start])
        for each in workload
        if each.request_id in chosen
    ]
    return WorkloadPart(workload.with_requests(part), moments[start], moments[end - 1])


def _sessions(workload: Workload) -> list[list[WorkloadRequest]]:
    """Requests with those that follow them, by their first arrival."""
    session_of: dict[str, list[WorkloadRequest]] = {}
    for request in workload:
        session: list[WorkloadRequest] = []
        for other in (session_of[each] for each in request.after):
            if other is session:
                continue
            larger, smaller = (session, other) if len(session) > len(other) else (other, session)
            larger += smaller  # it answers to several: they belong together
            session_of |= {each.request_id: larger for each in smaller}
            session = larger
        session.append(request)
        session_of[request.request_id] = session
    return sorted({id(each): each for each in session_of.values()}.values(), key=_first_arrival)


def _first_arrival(session: Sequence[WorkloadRequest]) -> float:
    return min(each.arrival_time for each in session if not each.after)


# ---------------------------------------------------------------------------------------------------------------------
# A workload that goes on: the same again, as often as wanted, for what a short one cannot show.
#
#     a  b    c |  a#2  b#2    c#2 |  a#3 ...        each as long after the one before as c would be after b, on average
#
# What comes again is other people's: it has ids of its own, and shares no prefix with what came before, of which a
# cache would otherwise know every prompt.


def repeated(workload: Workload, times: int) -> Workload:
    """Return the workload so many times in a row. Raises ConfigError where all of it arrives at once."""
    if times == 1:
        return workload
    moments = [each.arrival_time for each in workload if not each.after]
    span = max(moments) - min(moments)
    if span <= 0:
        raise ConfigError("times", times, f"{workload.name} arrives all at once: there is no pace to go on at")
    period = span * len(moments) / (len(moments) - 1)
    copies = [*workload, *(_again(each, number, period) for number in range(2, times + 1) for each in workload)]
    return workload.with_requests(copies)


def _again(request: WorkloadRequest, number: int, period: float) -> WorkloadRequest:
    """A request when it comes for the ``number``-th time."""
    mark = f"#{number}"
    return replace(
        request,
        request_id=request.request_id + mark,
        arrival_time=request.arrival_time + (number - 1) * period,
        after=tuple(each + mark for each in request.after),
        job_id=None if request.job_id is None else request.job_id + mark,
        cache_salt=(request.cache_salt or "") + mark,
        images=tuple(replace(each, mm_hash=each.mm_hash + mark) for each in request.images),
    )


# ---------------------------------------------------------------------------------------------------------------------

# ---------------------------------------------------------------------------------------------------------------------
# Which files a workload is read from: one, several, or those that fit a pattern.


def files_named(spec: str | Path | Sequence[str | Path], *, format: str | None = None) -> list[Path] | None:  # noqa: A002
    """The files that a workload is read from; None for one that is built in, or another's program.

    Raises WorkloadError if a name is no file.
    """
    if isinstance(spec, str):
        is_file = Path(spec).exists()
        if (spec in GENERATORS and (format is None or not is_file)) or (not is_file and is_foreign("workload", spec)):
            return None
    return workload_files(spec, f"a built-in workload ({', '.join(GENERATORS)})")


def workload_files(spec: str | Path | Sequence[str | Path], otherwise: str) -> list[Path]:
    """The files. WorkloadError if a name is no file; ``otherwise`` says what else it could have been."""
    names = [spec] if isinstance(spec, str | Path) else list(spec) if isinstance(spec, Sequence) else []
    if not names or not all(isinstance(each, str | Path) for each in names):
        raise ConfigError("workload", spec, "give a name, a path, or a list of paths")
    if len(names) > 1:
        otherwise = "a pattern of files: only logs are merged, by time (a flag takes several values as --gpu a,b)"
    return [path for name in names for path in _paths(name, otherwise)]


def _paths(name: str | Path, otherwise: str) -> list[Path]:
    path = Path(name)
    if path.exists():
        return [path]
    if isinstance(name, str) and has_magic(name):
        found = sorted(glob(name))  # noqa: PTH207 - the pattern may be an absolute one
        if found:
            return [Path(each) for each in found]
        fix = "give a pattern that fits a file, or a path"
        raise WorkloadError(name, 0, "is a pattern that no file fits", field="workload", value=name, fix=fix)
    fix = f"give the path of a file, or {otherwise}"
    raise WorkloadError(name, 0, f"is neither a file nor {otherwise}", field="workload", value=name, fix=fix)


# ---------------------------------------------------------------------------------------------------------------------
# What lies beyond a limit.


def _limit_remarks(arrivals: Sequence[tuple[float, object]], limit: int | None) -> list[Remark]:
    if limit is None or limit >= len(arrivals):
        return []
    last, whole = arrivals[limit - 1][0], arrivals[-1][0]
    said = f", {duration(last)} of {duration(whole)}; what comes later was" if whole else "; the others were"
    return [remark("limit", limit=limit, whole=f"{len(arrivals):,}", what="requests", said=said)]


def _left_out_remarks(options: ReadOptions) -> list[Remark]:
    """What lies beyond the limit of a file whose later lines were counted, not read."""
    left = options.left_out
    if options.limit is None or not left.count:
        return []
    whole = f"{'at least ' * left.at_least}{options.limit + left.count:,}"
    return [remark("limit", limit=options.limit, whole=whole, what=left.what, said="; the others were")]


# ---------------------------------------------------------------------------------------------------------------------
# Whether arrivals that came without a unit can be what they were read as.

_SLOW = 1.0
"""Mean seconds between arrivals from which they may as well be milliseconds: a thousand requests a second are rare."""


def _unit_doubts(moments: Sequence[float]) -> list[Remark]:
    """A remark if ``moments``, read as seconds for want of a unit, may be milliseconds."""
    if len(moments) < 2 or max(moments) >= LEAST_UNIX:
        return []
    span = max(moments) - min(moments)
    pace = span / (len(moments) - 1)
    return [] if pace < _SLOW else [remark("time_unit", count=len(moments), span=span, pace=pace)]


# ---------------------------------------------------------------------------------------------------------------------
# Whether a policy has anything to decide by in a workload: it may be asked for what no request says.


def doubt_of_policy(policy: str, workload: Workload) -> str | None:
    """A sentence if the registered policy of this name finds nothing in ``workload`` to order or keep; else None."""
    if policy == "priority" and len({each.priority for each in workload}) < 2:
        return "all requests have the same priority: only their arrival orders them"
    if policy == "fair-share" and len({user_name(each.job_id) for each in workload}) < 2:
        return "all requests are of one user: only their arrival orders them"
    if policy.startswith(("continuum", "program-")) and all(each.job_id is None for each in workload):
        return "no request belongs to a job: there is no KV to keep between turns, and no order of programs"
    return None


# ---------------------------------------------------------------------------------------------------------------------
# Which requests of a workload follow which others, for the recorder of its trace.


def turn_orders(workload: Workload) -> dict[str, TurnOrder]:
    """Request id -> what it follows, and how long after it; of requests that follow any."""
    return {each.request_id: TurnOrder(each.after, each.gap, each.spacing) for each in workload if each.after}


# ---------------------------------------------------------------------------------------------------------------------
# From a name or a path to a workload.
#
#     name of a generator    ->  generated
#     file of a format       ->  read request by request (readers/): prefixes, turns and jobs as recorded
#     log of a service       ->  read as what it says (logs/): lengths and times, perhaps hits


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadShape:
    """When requests are sent, where that is not what was recorded: the flags of ``vllm bench serve``."""

    request_rate: float | None = None
    """Requests a second, at random, in the workload's order; infinity: all at once; None: as recorded."""
    burstiness: float = 1.0
    """1: a Poisson process; less: burstier; more: more regular."""
    max_concurrency: int | None = None
    """Most requests under way (a closed loop); None: no limit."""


def _without_none(**options: Any) -> dict[str, Any]:
    """The options that are not None."""
    return {name: value for name, value in options.items() if value is not None}


def _built_in(name: str, count: str, *, has_rate: bool = False) -> Callable[[ReadOptions], Workload]:
    """Makes a built-in workload; ``count`` is the setting that the limit is of."""

    def make(options: ReadOptions) -> Workload:
        from tokenyard.workload import generators  # noqa: PLC0415 - a workload of a file needs none

        given = {"seed": options.seed, count: options.limit} | ({"rate": options.session_rate} if has_rate else {})
        made: Workload = getattr(generators, name)(
            getattr(generators, f"{name.title()}Options")(**_without_none(**given))
        )
        return made

    return make


_OWN_FORMAT = "plain"
_LEAVES_UNIT_OPEN = ("csv", "envoy", "jsonl", "langfuse", "litellm", "openai")
"""Kinds whose times may be numbers of any unit."""

GENERATORS: dict[str, NamedSource[Callable[[ReadOptions], Workload]]] = {
    name: NamedSource(_built_in(name, each["count"], has_rate="has_rate" in each), each["about"])
    for name, each in NAMES["generators"].items()
}
"""Built-in workloads by name."""

STARTS_ARE_DRAWN = ("agentic", "chat", "lmcache", "weka")
"""Workloads and formats with sessions that nothing says the start of: ``session_rate`` does."""


def read_workload(
    spec: str | Path | Sequence[str | Path],
    *,
    format: str | None = None,  # noqa: A002 (the option is called --format)
    limit: int | None = None,
    rate_scale: float = 1.0,
    seed: int = 0,
    session_rate: float | None = None,
    random_options: RandomOptions | None = None,
    log: LogOptions | None = None,
    load: LoadShape | None = None,
) -> Workload:
    """A built-in workload by name, or one read from a file (plain or gzipped): what ``tokenyard.load_workload`` calls.

    Several logs are merged by time; a pattern (``logs/*.jsonl``) names them, too.

    ``format`` overrides what the file's beginning shows; ``limit`` counts sessions where the workload has them, else
    requests; ``rate_scale`` makes arrivals so many times as fast; ``session_rate`` is the sessions per second where
    starts are drawn (``STARTS_ARE_DRAWN``; default 0.05 for files, else the generator's own), and refused elsewhere.
    ``random_options`` are for the workload ``random``, ``log`` for logs of services; ``load`` sends the requests
    otherwise than recorded. Raises WorkloadError naming file and line, or ConfigError naming the option.
    """
    options = ReadOptions(limit=limit, seed=seed, session_rate=session_rate)
    load = load or LoadShape()
    paths = files_named(spec, format=format)
    if paths is not None:
        workload = _read(paths, format, options, log or LogOptions(), load)
        if load.request_rate is None and (pauses := remarks_on_pauses(workload)):
            workload = workload.with_notes(pauses)
    else:
        assert isinstance(spec, str)
        if format is not None:
            what = "built in" if spec in GENERATORS else "a program"
            raise ConfigError("format", format, f"it belongs to files, and {spec} is {what}: leave it out")
        if spec in GENERATORS:
            _check_session_rate(session_rate, spec)
            workload = _generated(spec, options, random_options)
        else:
            workload = _foreign(spec, options)
    if load.request_rate is not None:
        workload = workload.with_request_rate(load.request_rate, burstiness=load.burstiness, seed=seed)
    if load.max_concurrency is not None:
        workload = workload.with_max_concurrency(load.max_concurrency)
    return workload.with_rate(rate_scale)


def _as_sent(workload: Workload, sent: SentAs, seed: int) -> Workload:
    """The requests of a benchmark that says no moments, sent as it says that it sent them; what was measured stays."""
    rate, most = sent.request_rate or math.inf, sent.max_concurrency
    others = workload.with_request_rate(rate, burstiness=sent.burstiness, seed=seed)
    closed = "" if most is None else f", at most {most:,} at once"
    drawn = "all at once" if rate == math.inf else f"at {rate:g} a second, drawn with seed {seed}"
    return Workload(
        workload.name,
        [replace(each, measured=own.measured) for each, own in zip(others, workload, strict=True)],
        max_concurrency=most,
        notes=(*workload.remarks, remark("drawn_as_stated", drawn=drawn, closed=closed)),
        kind=workload.kind,
        service=workload.service,
    )


def _generated(name: str, options: ReadOptions, random_options: RandomOptions | None) -> Workload:
    if name != "random" or random_options is None:
        return GENERATORS[name].read(options)
    return random(replace(random_options, **_without_none(seed=options.seed, num_prompts=options.limit)))


def _foreign(spec: str, options: ReadOptions) -> Workload:
    """One of another's making, which may take ``seed`` and ``limit``."""
    own = foreign("workload", spec)
    made = own if isinstance(own, Workload) else called(own, "workload", spec, seed=options.seed, limit=options.limit)
    if not isinstance(made, Workload):
        raise ConfigError("workload", spec, "it has to be a Workload, or a function that makes one (WorkloadBuilder)")
    if options.limit is None or len(made) <= options.limit:
        return made
    options.left_out.count = len(made) - options.limit
    return made.with_requests(list(made)[: options.limit]).with_notes(_left_out_remarks(options))


def _read(paths: Sequence[Path], said: str | None, options: ReadOptions, log: LogOptions, load: LoadShape) -> Workload:
    """``said``: the format that was named."""
    held = [reading.what_it_holds(path, said, log) for path in paths]
    for source, kind in held:
        if kind not in LOGS and len(held) > 1:
            fix = f"{source.path} is in format {kind}, of which one file is a workload: give it alone"
            raise ConfigError("workload", " ".join(map(str, paths)), fix)
    _check_session_rate(options.session_rate, held[0][1])
    is_timed = log.time_unit is not None or load.request_rate is not None
    if held[0][1] not in LOGS:
        return _recorded(paths[0], held[0][1], options, log, is_timed=is_timed)
    read = [reading.read_log(source, kind, log) for source, kind in held]
    stated = _stated(read) if load == LoadShape() else None
    drawn = load.request_rate is not None or stated is not None
    name = " ".join(map(str, paths))
    kind = read[0].kind if len({each.kind for each in read}) == 1 else "jsonl"
    remarks = [each for one in read for each in _file_remarks(one, len(read))]
    logged, of_models = reading.of_one_model(reading.merged_requests(read, drawn=drawn), name, log)
    from_ends = any(each.code == "ends" for each in remarks)
    arrivals, assumed = reading.arrivals_of(name, logged, log, drawn=drawn, from_ends=from_ends)
    remarks += [*of_models, *assumed, *_limit_remarks(arrivals, options.limit)]
    if kind in _LEAVES_UNIT_OPEN and not is_timed and not logged[0].says_unit:
        remarks += _unit_doubts([each.moment for each in logged if each.moment is not None])
    codes = {each.code for each in remarks}
    doubts = reading.doubts_of(logged, drawn=drawn, has_length_doubts=bool(codes & {"prompts_cut", "outputs_assumed"}))
    remarks += [each for each in doubts if each.code not in codes]
    is_whole = options.limit is None or options.limit >= len(arrivals)
    arrivals = arrivals[: options.limit]
    taken = [each for _, each in arrivals]
    errors = sum((each.errors(taken, is_whole=is_whole) for each in read), Counter[str]())
    remarks += reading.error_remarks(errors, taken)
    turns: list[LoggedTurn] = []
    if log.prefixes is Prefixes.SESSIONS and not any(each.counts_hits for each in read):
        turns, of_turns = turns_of(arrivals)
        remarks += of_turns
    if log.turns_follow:
        _require_turns(name, arrivals, turns)
        remarks.append(remark("turns_follow"))
    requests = reading.requests_of(arrivals, kind, options.seed, turns, turns_follow=log.turns_follow)
    rate = read[0].load.served_per_s if len(read) == 1 and options.limit is None else None
    service = ServiceCounts(requests_per_s=rate, not_served=dict(sorted(errors.items())))
    workload = Workload(name, requests, notes=remarks, kind=kind, service=service)
    return workload if stated is None else _as_sent(workload, stated, options.seed)


def _stated(read: Sequence[reading.LogRead]) -> SentAs | None:
    """How one benchmark's requests were sent, where it says that, and no moments; None else."""
    sent = read[0].load
    is_said = sent.request_rate is not None or sent.max_concurrency is not None
    says_moments = any(each.moment is not None for one in read for each in one.logged)
    return sent if len(read) == 1 and is_said and not says_moments else None


def _require_turns(name: str, arrivals: Sequence[tuple[float, LoggedRequest]], turns: Sequence[LoggedTurn]) -> None:
    """Raise ConfigError where nothing says which turn follows which, or how long after."""
    if not turns:
        raise ConfigError("turns_follow", True, f"{name} has no sessions whose prompts grow: leave it out")
    silent = sum(turn.before is not None and arrivals[turn.before][1].duration is None for turn in turns)
    if silent:
        fix = f"{silent:,} requests say no duration: name its column (§columns duration=NAME), or leave it out"
        raise ConfigError("turns_follow", True, fix)


def _file_remarks(read: reading.LogRead, files: int) -> Iterator[Remark]:
    """Remarks on one of several files, by its name."""
    for each in read.remarks:
        yield each if files == 1 else Remark(each.code, f"{read.path.name}: {each.text}", each.warning)


def _recorded(path: Path, format: str, options: ReadOptions, log: LogOptions, *, is_timed: bool) -> Workload:  # noqa: A002
    """A file of one of the formats, which say themselves what is what; ``plain`` may count in another unit."""
    of_logs = {
        "columns": ", ".join(log.columns),
        "stamped": str(log.stamped) if log.stamped is not Stamp.ARRIVAL else "",
        "prefixes": str(log.prefixes) if log.prefixes is not Prefixes.SESSIONS else "",
        "turns_follow": "True" if log.turns_follow else "",
        "model_name": log.model_name or "",
    }
    for name, value in of_logs.items():
        if value:
            raise ConfigError(
                name, value, f"it is for logs of services, and {path} is in format {format}: leave it out"
            )
    if log.time_unit is not None and format != _OWN_FORMAT:
        fix = f"{format} says the unit of its times itself: leave it out"
        raise ConfigError("time_unit", str(log.time_unit), fix)
    reader = reader_of(format)
    assert reader is not None
    unit = 1.0 if log.time_unit is None else duration_seconds(1, log.time_unit)
    about = read_about(path) if format == _OWN_FORMAT else About()
    if log.time_unit is not None and about.says_unit:
        raise ConfigError("time_unit", str(log.time_unit), f"the first line of {path} says seconds: leave it out")
    workload = Workload(
        str(path),
        reader(path, replace(options, seconds_per_unit=unit)),
        max_concurrency=about.max_concurrency,
        clients=about.clients,
        notes=about.remarks,
        kind=format,
        service=about.service,
    )
    if of_limit := _left_out_remarks(options):
        workload = workload.with_notes(of_limit)
    if format != _OWN_FORMAT or is_timed or about.says_unit:
        return workload
    doubts = _unit_doubts([each.arrival_time for each in workload if not each.after])
    return workload.with_notes(doubts) if doubts else workload


def _check_session_rate(rate: float | None, kind: str) -> None:
    if rate is not None and kind not in STARTS_ARE_DRAWN:
        fix = (
            f"{kind} says itself when requests arrive, so leave it out or use §rate_scale; it is for "
            f"{', '.join(STARTS_ARE_DRAWN[:-1])} and {STARTS_ARE_DRAWN[-1]}, whose sessions start at random"
        )
        raise ConfigError("session_rate", rate, fix)
