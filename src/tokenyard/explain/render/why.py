"""The answer to "why did this request wait?" in a terminal. Nothing that comes from a trace is read as markup."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from tokenyard.explain.classifier import meaning_of
from tokenyard.explain.render.parts import print_section, table_of, table_that_fits
from tokenyard.explain.why.prefix import CAUSES, PrefixMisses
from tokenyard.explain.why.stuck import Standstills, StuckPlace
from tokenyard.explain.why.why import RankWaiting, ReasonShare, Span, Waiting, Why
from tokenyard.redaction import plain
from tokenyard.trace.reader import Partial
from tokenyard.units import count, duration, percent, shorten
from tokenyard.vocabulary import PLACES, Place, reason_meaning

_SPANS_SHOWN = 30
_LOOKS_SHOWN = 8
_REASONS_EXPLAINED = 6
_ALL = 0.99
"""Share of the waiting time that is worded as all of it."""
_ID_WIDTH = 28
_WITH_JOBS = 80
"""Columns from which the longest waits name their jobs."""


def print_why(why: Why, console: Console) -> None:
    """Print the timeline of a request, what it waited for in all, and the same step by step."""
    console.print(Text(_verdict(why), "bold"))
    console.print()
    console.print(_title(why), soft_wrap=True)  # an id in one piece can be copied
    for line in _facts(why):
        console.print(Text(line))
    _print_partial(why.partial, console)
    print_section(console, "Where its time went", _phases(why))
    if not why.waited_us:
        return
    print_section(
        console, f"What it waited for: {_time(why.waited_us)}", _reasons(why.reasons), Text(), _meanings(why.reasons)
    )
    print_section(console, "Step by step", _spans(why), _more(why))
    _whole_ids(console, [span.head for span in _longest_spans(why.spans) if span.head is not None])
    if why.reconstructed:
        console.print()
        console.print(Text("This trace records no arrivals and ends: moments are exact to a step.", "bright_black"))


def print_stuck(found: Standstills, console: Console) -> None:
    """Print where the engine did not move, at whom, and what that means."""
    if not found.places:
        console.print(
            Text(f"Nothing is stuck: a request got on, or waited for an event, in all {found.num_steps:,} steps")
        )
        return
    for place in found.places:
        rank = "" if place.rank is None else f"rank {place.rank}, "
        steps = f"steps {place.first_step:,} to {place.last_step:,}"
        end = ", and there the trace ends" if place.ends_trace else ""
        print_section(
            console,
            f"{'Livelock' if place.preempted else 'Stuck'}: {rank}{steps} ({place.num_steps:,} in a row){end}",
            *(Text(line) for line in _stuck_at(place)),
            Text(),
            *((_meanings_of(list(place.reasons)), Text()) if place.reasons else ()),
            Text(place.explanation),
        )


def print_prefix(misses: PrefixMisses, console: Console) -> None:
    """Print why prompt tokens were not found in the prefix cache: in all, and of the requests that miss most."""
    console.print(Text(misses.sentence, "bold"))
    prompt = misses.tokens["prompt"]
    if not prompt:
        return
    whole = table_of(Column(no_wrap=True), Column(justify="right"), Column(justify="right"), Column(), header=False)
    for name, meaning in {"found": "in the cache", **CAUSES}.items():
        if misses.tokens[name]:
            whole.add_row(
                name.replace("_", " "), count(misses.tokens[name]), percent(misses.tokens[name] / prompt), meaning
            )
    print_section(console, f"{count(prompt)} prompt tokens, in blocks of {misses.block_size}", whole)
    names = ("prompt", "found", *CAUSES)
    columns = [Column(name.replace("_", " "), justify="right") for name in names]
    each_one = table_of(Column("request", no_wrap=True), *columns, Column("begins like", no_wrap=True))
    for look in misses.requests[:_LOOKS_SHOWN]:
        like = "-" if look.like is None else shorten(plain(look.like), _ID_WIDTH // 2)
        figures = [count(getattr(look, name)) for name in names]
        each_one.add_row(shorten(plain(look.request_id), _ID_WIDTH // 2), *figures, like)
    print_section(console, "Who missed most", each_one)
    if len(misses.requests) > _LOOKS_SHOWN:
        console.print(Text(f"and {count(len(misses.requests) - _LOOKS_SHOWN)} more: --json has them", "bright_black"))


def _stuck_at(place: StuckPlace) -> list[str]:
    """The request at which admission stopped, what was short, and which other requests wait."""
    whom = "no request is named" if place.request_id is None else plain(place.request_id)
    numbers = []
    if place.needed_blocks is not None:
        numbers.append(f"{place.needed_blocks:,} blocks needed")
    if place.free_blocks is not None:
        total = "" if place.total_blocks is None else f" of {place.total_blocks:,}"
        numbers.append(f"{place.free_blocks:,}{total} free")
    if place.wanted_tokens is not None and place.needed_blocks is None:
        numbers.append(f"{place.wanted_tokens:,} tokens wanted, {place.budget_left or 0:,} left")
    lines = [f"request  {whom}", f"reason   {plain(place.reason)}{': ' if numbers else ''}{', '.join(numbers)}"]
    if place.start_ts is not None and place.end_ts is not None:
        lines.append(f"time     {place.start_ts:.6f} s to {place.end_ts:.6f} s")
    lines.append(f"queues   {place.num_running or 0:,} running, {place.num_waiting or 0:,} waiting")
    lines += [f"         {number:,} held back by {plain(reason)}" for reason, number in place.reasons.items()]
    often = list(place.preempted.items())[:_MOST_PREEMPTED]
    lines += [f"evicted  {plain(request)} {number:,} times" for request, number in often]
    if len(place.preempted) > len(often):
        lines.append(f"         and {len(place.preempted) - len(often):,} other requests")
    return lines


_MOST_PREEMPTED = 5
"""Requests of a livelock that are listed."""


def print_waiting(waiting: Waiting, console: Console, of_job: str | None = None) -> None:
    """Print what all requests waited for, or those of one job, and which requests waited longest."""
    waited, total = waiting.requests_that_waited, _time(waiting.waited_us)
    whose = "" if of_job is None else f" of job {plain(of_job)}"
    console.print(Text(f"{waited:,} of {waiting.requests:,} requests{whose} waited, {total} in all"), soft_wrap=True)
    _print_partial(waiting.partial, console)
    if not waiting.waited_us:
        return
    print_section(console, "What they waited for", _reasons(waiting.reasons), Text(), _meanings(waiting.reasons))
    if waiting.ranks:
        print_section(console, "Engines", _engines(waiting.ranks))
    print_section(
        console,
        "Who waited longest",
        table_that_fits(console, partial(_longest, with_job=console.width >= _WITH_JOBS), waiting),
    )
    _whole_ids(console, [each.request_id for each in waiting.longest])


def _longest(waiting: Waiting, *, with_job: bool, narrow: bool) -> Table:
    """A line for each request; a narrow terminal has no room for preemptions and places."""
    with_rank, with_job = bool(waiting.ranks), with_job and any(each.job_id for each in waiting.longest)
    more = not narrow
    table = table_of(
        Column("request", no_wrap=not narrow, overflow="fold"),
        *([Column("job", no_wrap=not narrow, overflow="fold")] * with_job),
        *([Column("rank", justify="right")] * with_rank),
        Column("waited", justify="right", no_wrap=True),
        *([Column("preempted", justify="right")] * more),
        Column("mostly for", no_wrap=True),
        *([Column("")] * more),
        Column("", justify="right", no_wrap=True),
    )
    for each in waiting.longest:
        table.add_row(
            _id(each.request_id),
            *([_id(each.job_id or "")] * with_job),
            *([str(each.rank)] * with_rank),
            _time(each.waited_us),
            *([count(each.num_preemptions)] * more),
            Text(plain(each.reason)),
            *([PLACES[each.place].word] * more),
            percent(each.share),
        )
    return table


def _print_partial(partial: Partial | None, console: Console) -> None:
    if partial is not None:
        console.print(Text(str(partial), "yellow"))


def _engines(ranks: Sequence[RankWaiting]) -> Table:
    """A line for each engine: how long its requests waited, and mostly for what."""
    table = table_of(
        Column("rank", style="bright_black", no_wrap=True),
        Column("requests", justify="right", no_wrap=True),
        Column("waited", justify="right", no_wrap=True),
        Column("time", justify="right", no_wrap=True),
        Column("mostly for", no_wrap=True),
        Column("", justify="right", no_wrap=True),
    )
    for each in ranks:
        mostly = each.reasons[0] if each.reasons else None
        table.add_row(
            str(each.rank),
            count(each.requests),
            count(each.requests_that_waited),
            _time(each.waited_us),
            Text("" if mostly is None else plain(mostly.reason)),
            "" if mostly is None else percent(mostly.share),
        )
    return table


def _whole_ids(console: Console, ids: Iterable[str]) -> None:
    """Print the ids that a table has shortened, each whole on a line of its own, so that it can be copied."""
    shortened = [plain(each) for each in dict.fromkeys(ids) if len(plain(each)) > _ID_WIDTH]
    if not shortened:
        return
    console.print()
    console.print(Text("These ids in full", "bold"))
    for each in shortened:
        console.print(Text(f"  {each}"), soft_wrap=True)


def _id(text: str) -> Text:
    return Text(shorten(plain(text), _ID_WIDTH))


def _time(us: int) -> str:
    """Microseconds, to the digit that matters."""
    if us < 10_000_000:
        return f"{us / 1e3:,.3f} ms" if us < 1_000_000 else f"{us / 1e6:.6f} s"
    return duration(us / 1e6)


def _verdict(why: Why) -> str:
    """How long the request waited, and for what it waited most."""
    if not why.waited_us:
        return "It never waited."
    total = max(why.until_us - (why.arrived_us or 0), 1)
    most = why.reasons[0]
    meaning = meaning_of(most.reason, most.place).rstrip(".")
    share = "" if most.share > _ALL else f" {percent(most.share)} of that"
    said: Counter[str] = Counter()
    for span in why.spans:
        if span.reason == most.reason and span.kv is None and span.detail is not None:
            said[span.detail] += span.us
    reason = plain(most.reason)
    if said:  # the policy's own word
        reason, meaning = f"{reason} ({plain(said.most_common(1)[0][0])})", meaning.split(";")[0]
    return (
        f"It waited {percent(why.waited_us / total)} of its time,{share} for {reason}: "
        f"{meaning[:1].lower()}{meaning[1:]}."
    )


def _title(why: Why) -> Text:
    text = Text(plain(why.request_id), "bold cyan")
    if why.job_id:
        text.append(f"  job {plain(why.job_id)}", "not bold magenta")
    ended = (
        "had not ended when the trace did" if why.finished_us is None else f"ended ({plain(why.finish_reason or '?')})"
    )
    text.append(f"  {ended}", "not bold default")
    return text if why.rank is None else text.append(f"  rank {why.rank}", "not bold bright_black")


def _facts(why: Why) -> Iterable[str]:
    start = why.arrived_us or 0
    moments = [f"arrived at {start / 1e6:,.6f} s"]
    if why.first_scheduled_us is not None:
        step = "" if why.first_scheduled_step is None else f" (step {why.first_scheduled_step:,})"
        moments.append(f"first scheduled{step} after {_time(why.first_scheduled_us - start)}")
    if why.first_token_us is not None:
        moments.append(f"first token after {_time(why.first_token_us - start)}")
    moments.append(f"{'last seen' if why.finished_us is None else 'end'} after {_time(why.until_us - start)}")
    yield "; ".join(moments) + "."
    sizes = []
    if why.num_prompt_tokens is not None:
        hits = (why.local_hit_tokens or 0) + (why.external_hit_tokens or 0)
        sizes.append(f"{why.num_prompt_tokens:,} prompt tokens, {hits:,} of them cached")
    if why.num_output_tokens is not None:
        sizes.append(f"{why.num_output_tokens:,} output tokens")
    if sizes:
        yield "; ".join(sizes) + "."
    for each in why.preemptions:
        own = each.for_request_id == why.request_id
        whom = "" if each.for_request_id is None else " for itself" if own else f" for {plain(each.for_request_id)}"
        lost = "" if each.lost_tokens is None else f" and lost {each.lost_tokens:,} computed tokens"
        yield f"Preempted in step {each.step:,}{whom}{lost}."


def _phases(why: Why) -> Table:
    table = table_of(Column(no_wrap=True), Column(justify="right"), Column(justify="right"), header=False)
    phases, total = why.phases, max(why.until_us - (why.arrived_us or 0), 1)
    for name, us in (
        ("queued", phases.queued_us),
        ("prefill", phases.prefill_us),
        ("decode", phases.decode_us),
        ("preempted", phases.preempted_us),
        ("stalled", phases.stalled_us),
    ):
        if us:
            table.add_row(name, _time(us), percent(us / total))
    return table


def _reasons(reasons: Sequence[ReasonShare]) -> Table:
    table = table_of(
        Column("reason", no_wrap=True),
        Column("", no_wrap=True),
        Column("time", justify="right", no_wrap=True),
        Column("share", justify="right", no_wrap=True),
    )
    for each in reasons:
        table.add_row(
            Text(plain(each.reason)),
            PLACES[each.place].word,
            _time(each.us),
            percent(each.share),
        )
    return table


def _meanings(reasons: Sequence[ReasonShare]) -> Table:
    """Each reason once, in a sentence."""
    table = table_of(Column(no_wrap=True), Column(style="bright_black"), header=False)
    for reason, place in {each.reason: each.place for each in reasons[:_REASONS_EXPLAINED]}.items():
        table.add_row(Text(plain(reason), "bold"), meaning_of(reason, place))
    return table


def _meanings_of(reasons: Iterable[str]) -> Table:
    """Each reason in a sentence, as :func:`_meanings`, of reasons without places."""
    table = table_of(Column(no_wrap=True), Column(style="bright_black"), header=False)
    for reason in reasons:
        table.add_row(Text(plain(reason), "bold"), reason_meaning(reason))
    return table


def _spans(why: Why) -> Table:
    table = table_of(
        Column("steps", no_wrap=True),
        Column("", no_wrap=True),
        Column("waited for"),
        Column("time", justify="right", no_wrap=True),
        Column("numbers", style="bright_black"),
    )
    for span in _longest_spans(why.spans):
        steps = f"{span.first_step:,}"
        if span.last_step != span.first_step:
            steps += f"\N{EN DASH}{span.last_step:,}"
        head = f" {shorten(plain(span.head), _ID_WIDTH)}" if span.head is not None else ""
        place = "behind" + head if span.place is Place.BEHIND else PLACES[span.place].word
        table.add_row(
            steps,
            span.state.value,
            Text(f"{plain(span.reason)} {place}".rstrip()),
            _time(span.us),
            Text(_numbers(span)),
        )
    return table


def _longest_spans(spans: Sequence[Span]) -> Sequence[Span]:
    """The longest, in order of time."""
    longest = sorted(spans, key=lambda span: -span.us)[:_SPANS_SHOWN]
    return sorted(longest, key=lambda span: span.start_us)


def _more(why: Why) -> Text | None:
    rest = len(why.spans) - _SPANS_SHOWN
    return Text(f"{rest:,} shorter spans are not shown; --json has them.", "bright_black") if rest > 0 else None


def _numbers(span: Span) -> str:
    kv = span.kv
    if kv is None:
        return "" if span.detail is None else plain(span.detail)
    text = f"needed {count(kv.needed)}, {count(kv.free)} free"
    return text if span.smallest_need is None else f"{text}, smallest {count(span.smallest_need)}"
