"""Drafts of a trace: in which steps each request had some, and how many of them were right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, product

import msgspec

from tokenyard.sim.drafts import DraftRow, RecordedDrafts
from tokenyard.trace.steps import Step

# ---------------------------------------------------------------------------------------------------------------------
# A trace names the tokens of every request in a step, so it shows who had drafts and how many. How many were right it
# says of the step as a whole: how often the draft at each position was. Together these tell what each request had, but
# where several requests of a step had drafts and some were wrong. There the numbers are the step's, and who gets which
# follows from what each request still has to get: it sampled so many tokens in so many steps.


_MOST_TRIES = 300_000
"""Pairs of requests that are looked at: about a second."""


class DraftTotals(msgspec.Struct, frozen=True):
    """What a trace says of all drafts together."""

    presence: float
    """Share of the steps in which a request decoded that verified drafts of it."""
    acceptance: tuple[float, ...]
    """Share of the drafts at each position that were right, of those whose predecessors were."""


class _Row(msgspec.Struct, frozen=True):
    """A step in which a request sampled, as far as the step's decision shows it."""

    step: int
    """Place of the step among those taken."""
    drafts: int
    is_anew: bool = False
    """The request had been preempted, and its tokens were computed once more."""


class _Known:
    """What was read of one request."""

    __slots__ = ("computed", "prompt", "resumed", "rows", "sampled")

    def __init__(self, prompt: int) -> None:
        self.prompt = prompt
        self.computed = 0
        """Tokens in the cache, until its prompt is computed."""
        self.rows: list[_Row] = []
        self.resumed: int | None = None
        """Place of the last step that computed its tokens anew; None: none since it sampled."""
        self.sampled: int | None = None
        """Tokens of its answer; None until it has ended."""


class DraftRecords:
    """Takes the steps of a trace in order."""

    def __init__(self, max_drafts: int) -> None:
        self._max_drafts = max_drafts
        self._requests: dict[str, _Known] = {}
        self._right: list[Sequence[int]] = []
        """How many drafts at each position were right, step by step."""
        self._drafts = self._decodes = 0
        self._per_position = [0] * max_drafts
        self.is_whole = True
        """No step has left out ids."""

    def add(self, step: Step) -> None:
        """Take one step."""
        for arrived in step.arrived:
            if arrived.req_id is not None:
                self._requests[arrived.req_id] = _Known(arrived.num_prompt_tokens or 0)
        for lookup in step.lookups:
            if lookup.req_id in self._requests:
                self._requests[lookup.req_id].computed = lookup.total_hit_tokens or 0
        self._decide(step)
        self._complete(step)
        for finished in step.finished:
            if finished.req_id in self._requests:
                self._requests[finished.req_id].sampled = finished.num_output_tokens

    def _decide(self, step: Step) -> None:
        decision, place = step.decision, len(self._right)
        if decision is None:
            return
        scheduled = decision.num_scheduled_tokens or {}
        self.is_whole &= decision.total_scheduled_tokens in (None, sum(scheduled.values()))
        resumed = set(decision.scheduled_resumed_req_ids or ())
        for request_id, tokens in scheduled.items():
            known = self._requests.get(request_id)
            if known is None:
                continue
            if request_id in resumed:
                known.resumed, known.computed = place, known.prompt
            elif known.resumed is not None and tokens <= self._max_drafts + 1:
                self._came_back(known)  # what it had lost is computed
            if known.resumed is not None:
                known.resumed = place
            elif known.computed >= known.prompt:
                known.rows.append(_Row(place, tokens - 1))
            else:
                known.computed += tokens
                if known.computed >= known.prompt:  # one that lacks a single token may have drafts at once
                    known.rows.append(_Row(place, known.computed - known.prompt))

    def _came_back(self, known: _Known) -> None:
        """The last step that computed tokens of a preempted request anew has sampled."""
        if known.resumed is not None:
            known.rows.append(_Row(known.resumed, 0, is_anew=True))
            known.resumed = None

    def _complete(self, step: Step) -> None:
        completed = step.completed
        right = [] if completed is None else completed.num_accepted_tokens_per_pos or []
        self._right.append(right)
        if completed is not None:
            self._drafts += completed.num_drafts or 0
            self._decodes += (completed.num_sampled_tokens or 0) - sum(right)
            for position, count in enumerate(right[: self._max_drafts]):
                self._per_position[position] += count

    def totals(self) -> DraftTotals | None:
        """What the trace says of all of them; None if it says nothing of drafts."""
        if not self._drafts:
            return None
        prompts = sum(1 for known in self._requests.values() if known.rows)
        reached = [self._drafts, *self._per_position]
        rates = tuple(after / before if before else 0.0 for before, after in pairwise(reached))
        return DraftTotals(min(self._drafts / max(self._decodes - prompts, 1), 1.0), rates)

    def recorded(self) -> RecordedDrafts | None:
        """Every request's drafts; None if the trace does not name all requests of its steps."""
        if not self.is_whole:
            return None
        for known in self._requests.values():
            self._came_back(known)  # it ended in the step that computed its tokens anew
        shared = _SharedOut(self._requests)
        shared.share_out(self._right)
        shared.mend()
        right = shared.found
        rows = {}
        for request_id, known in self._requests.items():
            position = known.prompt
            found: list[DraftRow] = []
            for row in known.rows:
                accepted = right.get((row.step, request_id), 0)
                # Who was preempted had drafts as in the step before, and lost them: they may have been what it lacked
                # room for.
                drafts = found[-1].offered if row.is_anew and found else row.drafts
                found.append(DraftRow(position, drafts, accepted))
                position += 1 + accepted
            rows[request_id] = found
        return RecordedDrafts(rows)


class _Candidate(msgspec.Struct, frozen=True):
    """A request that has drafts in a step."""

    request_id: str
    drafts: int
    is_last: bool
    """It ended there: what was right beyond its end is not in its answer."""


class _Share:
    """What a request has got and still has to get, so that it samples as many tokens as it did in as many steps."""

    __slots__ = ("coming", "is_open", "last", "needed", "right")

    def __init__(self, known: _Known) -> None:
        drafts = [row.drafts for row in known.rows]
        self.is_open = known.sampled is None
        """It has not ended in the trace: how many were right in all is not known."""
        self.last = drafts.pop() if drafts and not self.is_open else 0
        """What was right in the step that it ended in; until it is known the most that can be."""
        self.coming = sum(drafts)
        """Drafts of its other steps that are still to come."""
        self.needed = self.coming if known.sampled is None else max(known.sampled - len(known.rows), 0)
        """How many were right in all, but for what was right beyond its end."""
        self.right = 0
        """How many were right in steps but the last."""

    @property
    def rate(self) -> float:
        """The share that is right of what is to come."""
        return (self.needed - self.right) / self.coming if self.coming else 0.0

    def wrong(self, right: int, last: int) -> int:
        """By how many these numbers cannot be: with more before its last step it had ended sooner, with fewer later."""
        return 0 if self.is_open else max(right - self.needed, 0) + max(self.needed - right - last, 0)


class _SharedOut:
    """The numbers of right drafts of each step, shared out among its requests."""

    def __init__(self, requests: Mapping[str, _Known]) -> None:
        self.found: dict[tuple[int, str], int] = {}
        """Step and request -> how many of its drafts were right."""
        self._shares = {request_id: _Share(known) for request_id, known in requests.items()}
        self._candidates: dict[int, list[_Candidate]] = {}
        for request_id, known in requests.items():
            for place, row in enumerate(known.rows, 1):
                if row.drafts > 0:
                    is_last = known.sampled is not None and place == len(known.rows)
                    self._candidates.setdefault(row.step, []).append(_Candidate(request_id, row.drafts, is_last))

    def share_out(self, right: Sequence[Sequence[int]]) -> None:
        """Step by step: many go to whom most is still to come for, of its drafts."""
        for step in sorted(self._candidates):
            left = list(self._candidates[step])
            for count in _runs(right[step]):
                fitting = [each for each in left if each.drafts >= count]
                if fitting:
                    taker = max(fitting, key=lambda each: self._wish(each, count))
                    left.remove(taker)
                    self._give(step, taker, count)
            for each in left:
                self._give(step, each, 0)

    def _wish(self, each: _Candidate, count: int) -> tuple[bool, float, int]:
        share = self._shares[each.request_id]
        return each.is_last or share.right + count <= share.needed, share.rate, each.drafts

    def _give(self, step: int, each: _Candidate, count: int) -> None:
        self.found[step, each.request_id] = count
        share = self._shares[each.request_id]
        if each.is_last:
            share.last = count
        else:
            share.right, share.coming = share.right + count, share.coming - each.drafts

    def mend(self) -> None:
        """Let two requests of a step change what they got, where that brings both nearer to what they can have got."""
        tries, changed = _MOST_TRIES, True
        while changed and tries > 0:
            changed = False
            for step, candidates in self._candidates.items():
                wrong = [each for each in candidates if self._wrong(each, 0)]
                tries -= 1 + len(wrong) * len(candidates)
                for one, other in product(wrong, candidates):
                    changed |= self._changes(step, one, other)

    def _changes(self, step: int, one: _Candidate, other: _Candidate) -> bool:
        """Exchange what two requests got in a step, if that is better."""
        mine, theirs = self.found[step, one.request_id], self.found[step, other.request_id]
        if mine == theirs or mine > other.drafts or theirs > one.drafts:
            return False
        more = theirs - mine
        before = self._wrong(one, 0) + self._wrong(other, 0)
        if self._wrong(one, more) + self._wrong(other, -more) >= before:
            return False
        for each, change in ((one, more), (other, -more)):
            self.found[step, each.request_id] += change
            share = self._shares[each.request_id]
            if each.is_last:
                share.last += change
            else:
                share.right += change
        return True

    def _wrong(self, each: _Candidate, more: int) -> int:
        """By how many a request's numbers cannot be, with so many more in this step."""
        share = self._shares[each.request_id]
        if each.is_last:
            return share.wrong(share.right, share.last + more)
        return share.wrong(share.right + more, share.last)


def _runs(per_position: Sequence[int]) -> Iterator[int]:
    """Drafts that were right in each row that had any, the most first: of the times that each position was right."""
    for length in range(len(per_position), 0, -1):
        more = per_position[length] if length < len(per_position) else 0
        for _ in range(per_position[length - 1] - more):
            yield length
