"""What looks wrong in the requests of a log: lengths and times that no service has, and what they usually come from.

A doubt is about the whole log, and says what it found in figures. Few requests say nothing: below ``_FEWEST`` none is
raised.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from tokenyard.sim.workload.logs.logged import LoggedRequest
from tokenyard.sim.workload.logs.moments import FASTEST
from tokenyard.sim.workload.remarks import Remark

__all__ = ["doubts_of", "models_of"]

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
        yield from _of_lengths(logged)
    yield from _of_totals(logged)
    moments = sorted(each.moment for each in logged if each.moment is not None)
    if len(moments) >= _FEWEST:
        yield from _of_twins(logged)
    if not drawn and len(moments) >= _FEWEST:
        yield from _of_times(moments)


def models_of(logged: Sequence[LoggedRequest]) -> Counter[str]:
    """The models that were asked, most often first."""
    return Counter(each.model for each in logged if each.model is not None)


def _of_lengths(logged: Sequence[LoggedRequest]) -> Iterator[Remark]:
    for what, lengths, cause in (
        ("prompts", [each.prompt_tokens for each in logged], "a benchmark's, a default value, or the wrong column"),
        (
            "outputs",
            [each.output_tokens for each in logged],
            "a limit that was asked for instead of what was generated, or a benchmark with ignore_eos",
        ),
    ):
        count = len(lengths)
        if len(set(lengths)) == 1:
            yield _doubt(f"equal_{what}", f"all {count:,} {what} are {lengths[0]:,} tokens long: {cause}?")
            continue
        longest = max(lengths)
        at_cap = lengths.count(longest)
        if what == "prompts" and at_cap >= max(_FEWEST_AT_CAP, _MOST_AT_CAP * count):
            text = f"{at_cap:,} of {count:,} prompts are {longest:,} tokens long, and none is longer: were they cut "
            yield _doubt("prompts_cut", text + "(a log's limit, or truncation before the model)?")
        step = next((each for each in _ROUND if not any(length % each for length in lengths)), None)
        if step is not None and len(set(lengths)) > 2:
            text = f"all {what} are multiples of {step}: estimates, padding, or buckets, and no counts of tokens?"
            yield _doubt(f"round_{what}", text)
    if all(each.prompt_tokens == each.output_tokens for each in logged):
        yield _doubt("same_column", "every prompt is as long as its output: is one column taken for both?")


def _of_totals(logged: Sequence[LoggedRequest]) -> Iterator[Remark]:
    totals = [(each.prompt_tokens + each.output_tokens, each.total_tokens) for each in logged if each.total_tokens]
    wrong = sum(told != total for told, total in totals)
    if totals and wrong > _MOST_MISMATCHES * len(totals):
        text = f"prompt and output are not what the log calls their total in {wrong:,} of {len(totals):,} requests: "
        yield _doubt("totals", text + "tokens of another kind (reasoning, cached ones), or the wrong columns?")


def _of_twins(logged: Sequence[LoggedRequest]) -> Iterator[Remark]:
    """Requests that are like another one to the fraction of a second and in both lengths: hardly by chance."""
    seen = Counter((each.moment, each.prompt_tokens, each.output_tokens) for each in logged if each.moment is not None)
    distinct = {(prompt, output) for _, prompt, output in seen}
    twins = sum(count - 1 for (moment, _, _), count in seen.items() if moment and not moment.is_integer())
    if twins > _MOST_TWINS * len(logged) and len(distinct) > 1:
        text = f"{twins:,} of {len(logged):,} requests have the time and the lengths of another one: "
        yield _doubt("twins", text + "does the log tell of them twice (exports that overlap)?")


def _of_times(moments: Sequence[float]) -> Iterator[Remark]:
    count, distinct = len(moments), len(set(moments))
    if distinct == 1:
        yield _doubt("all_at_once", f"all {count:,} requests arrive at one instant: rounded or exported times?")
        return
    if moments[-1] - moments[0] < FASTEST * count:
        text = f"{count:,} requests arrive within {moments[-1] - moments[0]:.3g} s: are times in another unit "
        yield _doubt("too_fast", text + "(days, as spreadsheets count: --time-unit d), or rounded?")
        return
    gaps = [later - earlier for earlier, later in pairwise(moments)]
    if max(gaps) - min(gaps) < _EVEN:
        text = f"requests arrive every {gaps[0]:,.3g} s, evenly: rows of sums (one a minute), or a made-up log?"
        yield _doubt("evenly_spaced", text)
        return
    for grid, name in _GRIDS:
        if all(abs(each / grid - round(each / grid)) < 1e-9 for each in moments):
            if grid == 1 and count < _BUSY * distinct:
                yield Remark("whole_seconds", "all times are whole seconds")
            else:
                text = f"all times are whole {name}: {count:,} requests arrive at {distinct:,} instants, in bursts "
                yield _doubt("times_rounded", text + "that there were not")
            return
    if count >= _BUSY * distinct:
        text = f"{count:,} requests arrive at {distinct:,} instants: times of batches, or rounded ones?"
        yield _doubt("times_rounded", text)


def _doubt(code: str, text: str) -> Remark:
    return Remark(code, text, warning=True)
