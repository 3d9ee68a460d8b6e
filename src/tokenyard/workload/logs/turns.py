"""Sessions of a log that counts no hits: which request goes on where another one ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from tokenyard.workload.logs.logged import LoggedRequest
from tokenyard.workload.record import Remark, remark

# A client sends the whole conversation again with every turn. So the prompt of a turn begins with the prompt before
# and, unless the answer was rewritten (thoughts are left out), with its answer. Lengths show it:
#
#     turn 1   prompt 1,000  answer 200
#     turn 2   prompt 1,350  answer  80     at least 1,200: begins with all of turn 1
#     turn 3   prompt 1,400  answer  90     less than 1,430, more than 1,350: begins with turn 2's prompt
#     turn 4   prompt   600  answer  50     shorter: begins anew (it was summarised)
#
# Each request goes on at most one other, and one at most goes on it: sub-agents of one session stay apart by their
# lengths. It is believed only if most turns are longer than the one just before: of unrelated prompts half are.

MOSTLY = 0.75
"""Share of later turns that have to be longer."""
_MOST_OPEN = 16
"""Ends of a session that a turn may go on: the latest."""
_ROUNDED = 1.0
"""Seconds by which a turn may begin before the one that it goes on has ended: logs round times."""


class LoggedTurn(msgspec.Struct, frozen=True):
    """One request within a conversation."""

    first: int
    """Number of the request that began the conversation: its own, if it goes on none."""
    is_kept: bool = True
    """Whether the turn that goes on holds this one's answer as it was."""
    before: int | None = None
    """Number of the request that it goes on."""
    pause: float = 0.0
    """Seconds from that one's end to its arrival."""


class _End(msgspec.Struct, frozen=True):
    number: int
    prompt_tokens: int
    total: int
    at: float
    """When it ended, or at least began; seconds."""


def turns_of(arrivals: Sequence[tuple[float, LoggedRequest]]) -> tuple[list[LoggedTurn], list[Remark]]:
    """A turn per request, and what was assumed; no turns if sessions say nothing of what prompts share."""
    turns = [LoggedTurn(i) for i in range(len(arrivals))]
    open_ends: dict[tuple[str | None, str], deque[_End]] = {}
    later = longer = gone_on = 0
    for i, (moment, logged) in enumerate(arrivals):
        if logged.session is None:
            continue
        ends = open_ends.setdefault((logged.user, logged.session), deque(maxlen=_MOST_OPEN))
        if ends:
            later += 1
            longer += logged.prompt_tokens > ends[-1].prompt_tokens
        before = _gone_on(ends, moment, logged.prompt_tokens)
        if before is not None:
            ends.remove(before)
            pause = max(moment - before.at, 0.0)
            turns[i] = LoggedTurn(turns[before.number].first, before=before.number, pause=pause)
            if logged.prompt_tokens < before.total:
                turns[before.number] = msgspec.structs.replace(turns[before.number], is_kept=False)
            gone_on += 1
        total = logged.prompt_tokens + max(1, logged.output_tokens)
        ends.append(_End(i, logged.prompt_tokens, total, moment + (logged.duration or 0.0)))
    if not later:
        return [], []
    if longer < MOSTLY * later:
        return [], [remark("no_turns", longer=longer, later=later)]
    return turns, [remark("turns", gone_on=gone_on, later=later)]


def _gone_on(ends: deque[_End], moment: float, prompt_tokens: int) -> _End | None:
    """The longest that this prompt can hold with its answer, else without it; None: it begins anew."""
    fitting = [end for end in ends if end.at <= moment + _ROUNDED and end.prompt_tokens <= prompt_tokens]
    whole = [end for end in fitting if end.total <= prompt_tokens]
    return max(whole or fitting, key=_length, default=None)


def _length(end: _End) -> tuple[int, int]:
    return end.prompt_tokens, end.number
