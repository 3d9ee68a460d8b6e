"""Requests that a log tells of more than once: copies of a record, and spans around the one that was served."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tokenyard.sim.workload.logs.logged import LoggedRequest, Reading

__all__ = ["without_copies", "without_outer"]

_SLACK = 1e-3
"""Seconds by which a span may stand out of the one around it."""


def without_copies(logged: Sequence[LoggedRequest], reading: Reading) -> list[LoggedRequest]:
    """Each once. Records of one id, time and lengths are copies: of exports that overlap, or of an answer's parts."""
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
        text = f"{doubtful:,} of {len(kept):,} requests have the id of another one: does the log tell of them twice?"
        reading.note("repeated_ids", text, warning=True)
    return kept


def without_outer(logged: Sequence[LoggedRequest], reading: Reading) -> list[LoggedRequest]:
    """Those that are no spans around others: a chain or an agent says the tokens of all that it called.

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
            if around is None:
                continue
            if around.duration is None or each.duration is None or around.moment is None or each.moment is None:
                unknown.add(span)
            elif _lies_within(each, around):
                outer.add(span)
    if outer:
        reading.left_out["spans around others that say tokens"] += sum(each.span in outer for each in logged)
    if unknown - outer:
        text = f"{len(unknown - outer):,} requests are the parents of others, and nothing says how long they took: "
        reading.note("nested", text + "if they are spans around others, their tokens count twice", warning=True)
    return [each for each in logged if each.span is None or each.span not in outer]


def _around(span: str | None, parents: Mapping[str, str]) -> Iterator[str]:
    """The spans around one, inner ones first; of a circle each once."""
    passed = {span}
    while span is not None and (span := parents.get(span)) is not None and span not in passed:
        passed.add(span)
        yield span


def _lies_within(inner: LoggedRequest, outer: LoggedRequest) -> bool:
    assert inner.moment is not None
    assert outer.moment is not None
    assert inner.duration is not None
    assert outer.duration is not None
    ends = inner.moment + inner.duration <= outer.moment + outer.duration + _SLACK
    return ends and inner.moment >= outer.moment - _SLACK
