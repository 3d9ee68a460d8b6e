"""Requests of a trace as a workload: arrivals, lengths, shared prompts."""

from __future__ import annotations

import bisect
from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec

from tokenyard.core.request import MultiModalItem
from tokenyard.errors import TraceError
from tokenyard.steptime.front_end import FrontEndTime
from tokenyard.trace.facts import attempt_before, micros
from tokenyard.trace.reader import TraceReader, ingress_of, taken_in_at_once
from tokenyard.trace.schema import PauseChanged, PrefixCacheLookup, RequestArrived, RequestFinished
from tokenyard.trace.steps import Step
from tokenyard.workload.record import Clients, Workload, WorkloadRequest
from tokenyard.workload.tokens import Segment, StreamTokens, TokenSource, seed_of

# ---------------------------------------------------------------------------------------------------------------------
# How long the requests of a trace were on their way to the scheduler.

# ---------------------------------------------------------------------------------------------------------------------
# How long requests were on their way to the scheduler: from the arrival that a server notes to its queue.
#
# A trace brackets it (`tokenyard.trace.reader`). An engine without work takes a request in as soon as it is
# there: the way is known. One that runs a step takes it in when the step ends: the request came at some moment since
# the step before began.

REPLAY = "replay"
"""Host of a trace that is of no server."""

_ENOUGH = 5
"""Ways that are known, to speak of what is usual."""


class _Bracket(msgspec.Struct, frozen=True):
    """Seconds that a request was on its way, at least and at most."""

    least: float
    most: float


class FrontEnd:
    """Takes the steps of a trace in order."""

    def __init__(self) -> None:
        self._brackets: dict[str, _Bracket] = {}
        self._before: int | None = None
        """When the step before began, in microseconds."""
        self._over: int | None = None
        """When it ended; None if the trace does not record it."""

    def add(self, step: Step) -> None:
        """Take one step. One without a time is ignored."""
        if step.ts is None:
            return
        seen = micros(step.ts)
        for arrived in step.arrived:
            if arrived.req_id is None or arrived.arrival_time is None or arrived.ts is None:
                continue
            least = self._surely_on_its_way(arrived, step, micros(arrived.arrival_time), seen) / 1e6
            most = max(arrived.ts - arrived.arrival_time, 0.0)
            is_known = round(most - least, 6) <= 0
            self._brackets.setdefault(arrived.req_id, _Bracket(most if is_known else least, most))
        completed = step.completed.ts if step.completed is not None else None
        self._before, self._over = seen, None if completed is None else micros(completed)

    def _surely_on_its_way(self, arrived: RequestArrived, step: Step, sent: int, seen: int) -> int:
        """Microseconds that it was on its way at least; none if the steps in between are not in the trace."""
        if arrived.step is not None and arrived.step < step.number:
            return 0
        over = sent if self._before is None else self._over
        taken_in = taken_in_at_once(arrived, step.snapshot)
        return ingress_of(sent, seen, before=self._before, over=over, taken_in=taken_in).on_its_way

    @property
    def usual(self) -> float:
        """Seconds that most requests can have taken: the median of those known, else what fits most brackets."""
        known = [bracket.least for bracket in self._brackets.values() if bracket.least == bracket.most]
        if len(known) >= _ENOUGH or not self._brackets:
            return median(known) if known else 0.0
        begins = sorted(bracket.least for bracket in self._brackets.values())
        ends = sorted(bracket.most for bracket in self._brackets.values())
        return max(begins, key=lambda moment: bisect.bisect_right(begins, moment) - bisect.bisect_left(ends, moment))

    def ways(self) -> Mapping[str, float]:
        """Request -> seconds until the scheduler had it: what is usual, within what the trace allows."""
        usual = self.usual
        return {name: min(max(usual, bracket.least), bracket.most) for name, bracket in self._brackets.items()}


def recorded_ways(trace: Path | str) -> list[float]:
    """Seconds that each request of a server's trace was on its way; none of a replay's, which has no front end.

    Raises TraceError if the trace cannot be read.
    """
    reader, front_end = TraceReader(trace, requests=False), FrontEnd()
    for step in reader.steps():
        front_end.add(step)
    if reader.start is not None and reader.start.host == REPLAY:
        return []
    return list(front_end.ways().values())


# ---------------------------------------------------------------------------------------------------------------------

# ---------------------------------------------------------------------------------------------------------------------
# Prompts of a trace: numbered blocks, made into tokens that share what the recorded prompts shared.
#
# A trace numbers every full block; equal numbers mean that the block and all before it are equal. So a number stands
# at one place of a prompt, and its tokens can be that place in the stream of the request that brought it first:
#
#     request a, prompt       0 1 2 | tail               all of a's stream
#     request a, output              3 4                 goes on in a's stream, the tail included
#     request b, prompt       0 1 2   3 4   5 | tail     a's stream up to 4, then b's


class Origin(msgspec.Struct, frozen=True):
    """The request that brought a block first."""

    request_id: str
    seed: int
    """Seed of the request's stream."""
    is_output: bool
    """It was reported, not requested."""


class _Stretch(NamedTuple):
    """Blocks ``first..end-1``, which one request brought."""

    first: int
    end: int
    origin: Origin


class RecordedBlocks:
    """Where every numbered block comes from; blocks are noted in the order of the trace."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._known: list[_Stretch] = []
        """Ascending, without overlap."""

    def prompt(self, runs: Sequence[int], num_tokens: int, own: Origin) -> StreamTokens:
        """The prompt of ``num_tokens`` tokens whose full blocks are ``runs`` (first, count, first, count ...).

        ValueError if the runs cannot be those of such a prompt.
        """
        _check(runs, num_tokens // self._block_size)
        pieces: list[Segment] = []
        at = 0
        for origin, count in self._origins(runs, own):
            end = at + count * self._block_size
            _append(pieces, Segment(origin.seed, at, end))
            at = end
        if at < num_tokens:
            _append(pieces, Segment(own.seed, at, num_tokens))
        return StreamTokens(*pieces)

    def origin_of(self, number: int) -> Origin | None:
        """The request that brought a block; None if none has."""
        found = self._stretch_at(number)
        return None if found is None else found.origin

    def note_output(self, runs: Sequence[int], num_tokens: int, own: Origin) -> None:
        """Note blocks that hold output of a request of ``num_tokens`` tokens in all. ValueError as above."""
        _check(runs, num_tokens // self._block_size)
        for _ in self._origins(runs, own):
            pass

    def _origins(self, runs: Sequence[int], own: Origin) -> Iterator[tuple[Origin, int]]:
        """Stretches of the runs by origin, each with its number of blocks; unknown ones are ``own`` from now on."""
        for first, count in zip(runs[::2], runs[1::2], strict=True):
            at, end = first, first + count
            while at < end:
                known = self._stretch_at(at)
                if known is None:
                    known = _Stretch(at, min(end, self._next_known(at)), own)
                    insort(self._known, known)
                yield known.origin, min(known.end, end) - at
                at = min(known.end, end)

    def _stretch_at(self, number: int) -> _Stretch | None:
        place = bisect_right(self._known, number, key=_first) - 1
        found = self._known[place] if place >= 0 else None
        return found if found is not None and number < found.end else None

    def _next_known(self, number: int) -> int:
        """The first number above ``number`` that is known; a large one if none is."""
        place = bisect_right(self._known, number, key=_first)
        return self._known[place].first if place < len(self._known) else 1 << 62


def _first(stretch: _Stretch) -> int:
    return stretch.first


def _append(pieces: list[Segment], piece: Segment) -> None:
    """Add a piece; one that goes on where the last one ends becomes part of it."""
    if pieces and (pieces[-1].seed, pieces[-1].stop) == (piece.seed, piece.start):
        pieces[-1] = pieces[-1]._replace(stop=piece.stop)
    else:
        pieces.append(piece)


def _check(runs: Sequence[int], most: int) -> None:
    """ValueError unless these can be runs of at most ``most`` blocks."""
    counts = runs[1::2]
    if len(runs) % 2 or any(first < 0 for first in runs[::2]) or any(count < 1 for count in counts):
        raise ValueError(f"{len(runs)} numbers are no runs of blocks")
    if sum(counts) > most:
        raise ValueError(f"{sum(counts)} blocks are more than the {most} that the tokens fill")


# ---------------------------------------------------------------------------------------------------------------------
# Requests of a trace, as a workload: arrivals, lengths, shared prefixes, turns, aborts.
#
# What a trace does not hold is counted and noted: requests that were there before it, or had not ended when it did.

_ABORTED = "abort"
_ENDED_BY_ITSELF = "stop"
_NEVER_SERVED = frozenset(("error",))
_SOONER = 1e-6
"""Seconds: an abort is taken in between two steps, so its client went away before the moment that the trace names."""


class _Known:
    """What the records read so far hold of one request."""

    __slots__ = ("answers", "arrived", "finished", "is_guessed", "last", "prompt")

    def __init__(self, arrived: RequestArrived) -> None:
        self.arrived = arrived
        self.last = self
        """Its last attempt."""
        self.finished: RequestFinished | None = None
        self.prompt: TokenSource | None = None
        self.answers: str | None = None
        """The request whose answer its prompt goes on from."""
        self.is_guessed = False
        """No earlier answer is in its prompt."""


class RecordedRequests:
    """Takes the steps of a trace in order, and makes the workload."""

    def __init__(
        self,
        name: str,
        block_size: int | None,
        max_model_len: int,
        *,
        knows_turns: bool,
        clients: Clients | None = None,
        front_end: FrontEndTime | None = None,
    ) -> None:
        """``knows_turns``: the records name for every turn the one before it, as those of a replay do.

        ``clients``: what those do that sent requests again; None: whatever came is a request of its own.
        ``front_end``: what a replay sent its requests through; None: nothing, or a server's, which the trace shows.
        """
        self._name = name
        self._clients = clients
        self._block_size = block_size
        self._blocks = RecordedBlocks(block_size) if block_size else None
        self._max_model_len = max_model_len
        self._knows_turns = knows_turns
        self._front_end = None if knows_turns else FrontEnd()
        self._replayed_front_end = front_end
        self._known: dict[str, _Known] = {}
        self._origins: dict[str, tuple[Origin, Origin]] = {}
        """Request id -> itself as one who brings blocks with its prompt, and with its output."""
        self._ends: dict[int, str] = {}
        """Last full block of a prompt -> who had it first, or went on from that one within the block after it: a prompt
        that has it begins with all blocks of that prompt."""
        self._continued: set[str] = set()
        """Requests whose turn was found by their prompt alone: who else has it only begins alike."""
        self._turns = self._alike = 0
        """Prompts that hold an answer; and those that go on from a whole prompt, where its answer would be seen, and
        is not."""
        self._gaps: Counter[str] = Counter()
        self.began = 0.0
        """Moment of the first arrival, on the trace's clock, once the workload has been made."""
        self._hashed = 0
        """Requests of which the trace has numbered the blocks."""

    def add(self, step: Step) -> None:
        """Take one step of the trace."""
        if self._front_end is not None:
            self._front_end.add(step)
        for arrived in step.arrived:
            self._arrive(arrived)
        for lookup in step.lookups:
            self._look_up(lookup)
        for finished in step.finished:
            self._finish(finished)
        for arrived in step.arrived_after:
            self._arrive(arrived)
        for event in step.host_events:
            self._gaps["pause" if isinstance(event, PauseChanged) else "reset"] += 1

    @property
    def num_with_blocks(self) -> int:
        """Requests whose blocks the trace has numbered: without any it is not known which prompts begin alike."""
        return self._hashed

    def _arrive(self, record: RequestArrived) -> None:
        if record.req_id is None or record.arrival_time is None or not record.num_prompt_tokens:
            self._gaps["unreadable"] += 1
        elif record.req_id in self._known:
            self._gaps["repeated"] += 1
        else:
            self._known[record.req_id] = _Known(record)

    def _origins_of(self, request_id: str) -> tuple[Origin, Origin]:
        if request_id not in self._origins:
            seed = seed_of(self._name, request_id)
            self._origins[request_id] = Origin(request_id, seed, False), Origin(request_id, seed, True)
        return self._origins[request_id]

    def _look_up(self, record: PrefixCacheLookup) -> None:
        known = self._known.get(record.req_id or "")
        if known is None or record.req_id is None:
            self._gaps["before"] += 1
            return
        if self._blocks is None or record.prompt_hash_runs is None or known.prompt is not None:
            return
        length = known.arrived.num_prompt_tokens or 0
        try:
            known.prompt = self._blocks.prompt(record.prompt_hash_runs, length, self._origins_of(record.req_id)[0])
        except ValueError:
            self._gaps["blocks"] += 1
            return
        self._hashed += 1
        known.answers, known.is_guessed = self._answered(record.prompt_hash_runs, length)
        if record.prompt_hash_runs:
            first, count = record.prompt_hash_runs[-2:]
            last = first + count - 1
            if known.answers is not None and self._ends.get(last) == known.answers:
                self._ends[last] = record.req_id  # the tokens since fill no block: the next turn goes on from here
            self._ends.setdefault(last, record.req_id)

    def _answered(self, runs: Sequence[int], length: int) -> tuple[str | None, bool]:
        """The request whose answer a prompt goes on from: of those that left a sign in it, the last; and whether that
        is a guess, as the prompt holds no answer that can be seen.
        """
        assert self._blocks is not None, "who has numbered blocks knows where they come from"
        guess: str | None = None
        begins_alike = False
        for first, count in zip(reversed(runs[::2]), reversed(runs[1::2]), strict=True):
            for number in range(first + count - 1, first - 1, -1):
                asked = self._ends.get(number)
                if guess is None and asked is not None and asked not in self._continued:
                    if self._can_go_on_from(asked, length):
                        guess = asked
                    else:
                        begins_alike |= self._would_be_seen(asked, length)
                origin = self._blocks.origin_of(number)
                if origin is not None and origin.is_output:
                    self._turns += 1
                    return self._taken(guess) or origin.request_id, False
        self._alike += begins_alike
        return self._taken(guess), guess is not None

    def _taken(self, guess: str | None) -> str | None:
        if guess is not None:
            self._continued.add(guess)
        return guess

    def _would_be_seen(self, request_id: str, length: int) -> bool:
        """Whether the answer would fill a block of a prompt of ``length`` tokens that went on from it."""
        finished = self._known[request_id].finished if request_id in self._known else None
        if finished is None or not finished.output_hash_runs:
            return False
        return length > (finished.num_prompt_tokens or 0) + (finished.num_output_tokens or 0)

    def _can_go_on_from(self, request_id: str, length: int) -> bool:
        """Whether a prompt of ``length`` tokens that begins with that whole prompt can hold the answer as well.

        An answer that ends in the block in which the prompt does leaves no other sign of its turn; one that fills that
        block would be seen, so who lacks it only begins alike.
        """
        finished = self._known[request_id].finished if request_id in self._known else None
        if finished is None:
            return False
        asked, answer = self._known[request_id].arrived.num_prompt_tokens or 0, finished.num_output_tokens or 0
        size = self._block_size or 1
        return (asked + answer - 1) // size == asked // size and length > asked + answer

    def _finish(self, record: RequestFinished) -> None:
        known = self._known.get(record.req_id or "")
        if known is None or record.req_id is None:
            return
        known.finished = record
        if self._blocks is not None and record.output_hash_runs is not None:
            length = (record.num_prompt_tokens or 0) + (record.num_output_tokens or 0)
            try:
                self._blocks.note_output(record.output_hash_runs, length, self._origins_of(record.req_id)[1])
            except ValueError:
                self._gaps["blocks"] += 1

    # ---- the workload

    def workload(self) -> Workload:
        """What arrived, from time 0 on. Raises TraceError if the trace holds no request that can be replayed."""
        served = self._users([known for known in self._known.values() if self._can_be_served(known)])
        if not served:
            raise TraceError(f"{self._name}: holds no request from its arrival to its end ({self._why_none()})")
        served.sort(key=lambda known: known.arrived.arrival_time or 0.0)
        began = self.began = served[0].arrived.arrival_time or 0.0
        parents = self._parents(served)
        ways = self._front_end.ways() if self._front_end is not None else {}
        requests = [self._request(known, began, parents, ways) for known in served]
        made = Workload(self._name, requests, notes=tuple(self._notes()), knows_ways=self._replayed_front_end is None)
        if self._replayed_front_end is not None:
            made = made.with_front_end(self._replayed_front_end.seconds)
        return made if self._clients is None else made.with_clients(self._clients)

    def _users(self, served: list[_Known]) -> list[_Known]:
        """Return the first attempts among ``served``, each with the end of its user's last one."""
        clients = self._clients
        if clients is None:
            return served
        first: dict[str, _Known] = {}
        for known in sorted(served, key=lambda each: each.arrived.arrival_time or 0.0):
            request_id = known.arrived.req_id or ""
            user = first.get(attempt_before(request_id) or "", known)
            first[request_id] = user
            user.last = known
            user.prompt = known.prompt if user.prompt is None else user.prompt
        return [known for request_id, known in first.items() if known.arrived.req_id == request_id]

    def _can_be_served(self, known: _Known) -> bool:
        finished = known.finished
        if finished is None:
            self._gaps["unfinished"] += 1
        elif finished.finish_reason in _NEVER_SERVED:
            self._gaps["failed"] += 1
        elif finished.finish_reason != _ABORTED and not finished.num_output_tokens:
            self._gaps["pooled"] += 1
        else:
            return True
        return False

    def _parents(self, served: Iterable[_Known]) -> Mapping[str, str]:
        """Request -> the one after whose end it was sent, as far as the trace shows."""
        found: dict[str, str] = {}
        last_of_job: dict[str, str] = {}
        for known in served:
            arrived = known.arrived
            request_id, job = arrived.req_id or "", arrived.job_id
            parent = None if self._knows_turns else self._answered_by(known) or last_of_job.get(job or "")
            if parent is not None and self._ended_before(parent, arrived.arrival_time or 0.0):
                found[request_id] = parent
            if job:
                last_of_job[job] = request_id
        return found

    def _answered_by(self, known: _Known) -> str | None:
        """What its prompt goes on from. Of a guess: only if more prompts of the trace hold answers than begin alike."""
        return None if known.is_guessed and self._alike > self._turns else known.answers

    def _ended_before(self, request_id: str, moment: float) -> bool:
        known = self._known.get(request_id)
        end = known.finished.finished_time if known is not None and known.finished is not None else None
        return end is not None and end <= moment

    def _request(
        self, known: _Known, began: float, parents: Mapping[str, str], ways: Mapping[str, float]
    ) -> WorkloadRequest:
        arrived, finished = known.arrived, known.last.finished
        assert finished is not None, "served requests have ended"
        request_id, length = arrived.req_id or "", arrived.num_prompt_tokens or 0
        moment, end = arrived.arrival_time or 0.0, finished.finished_time or finished.ts or 0.0
        waited = end - (known.last.arrived.arrival_time or 0.0)
        after, gap = self._follows(known, parents)
        is_aborted = finished.finish_reason == _ABORTED
        if known.prompt is None and self._hashed and length >= (self._block_size or 1):  # a shorter one shares nothing
            self._gaps["unseen"] += 1
        return WorkloadRequest(
            request_id=request_id,
            prompt=known.prompt or StreamTokens.unique(self._origins_of(request_id)[0].seed, length),
            max_tokens=self._most_tokens(arrived, finished) if is_aborted else finished.num_output_tokens or 1,
            limit=self._limit(arrived, finished),
            arrival_time=moment - began,
            after=after,
            gap=gap,
            spacing=(arrived.spacing or 0.0) if self._knows_turns else 0.0,
            job_id=arrived.job_id,
            is_last_step=bool(arrived.is_last_step),
            this_func_call=arrived.this_func_call,
            priority=arrived.priority or 0,
            lora_name=arrived.lora_name,
            cache_salt=arrived.cache_salt_hash,
            images=tuple(
                MultiModalItem(mm_hash=item.mm_hash, offset=item.offset, length=item.length)
                for item in arrived.mm_items or ()
            ),
            delay=ways.get(request_id, 0.0),
            patience=self._patience(waited) if is_aborted else None,
            output_seed=self._origins_of(request_id)[0].seed,
        )

    def _patience(self, waited: float) -> float | None:
        """How long a client waited for an attempt that it gave up; None: as long as all do."""
        if self._clients is not None and waited >= self._clients.timeout - _SOONER:
            return None
        return max(waited - _SOONER, 0.0)

    def _follows(self, known: _Known, parents: Mapping[str, str]) -> tuple[tuple[str, ...], float]:
        """The requests after whose end it is sent, and the time between."""
        arrived = known.arrived
        if self._knows_turns and arrived.after:
            if all(parent in self._known and self._known[parent].finished is not None for parent in arrived.after):
                return tuple(arrived.after), arrived.gap or 0.0
            self._gaps["orphans"] += 1
        parent = parents.get(arrived.req_id or "")
        if parent is None:
            return (), 0.0
        finished = self._known[parent].finished
        end = (finished.finished_time if finished is not None else None) or 0.0
        return (parent,), max((arrived.arrival_time or 0.0) - end, 0.0)

    def _limit(self, arrived: RequestArrived, finished: RequestFinished) -> int | None:
        """What its client had asked for, if the answer ended by itself."""
        if finished.finish_reason != _ENDED_BY_ITSELF or not finished.num_output_tokens:
            return None
        return max(arrived.max_tokens or self._max_model_len, finished.num_output_tokens)

    def _most_tokens(self, arrived: RequestArrived, finished: RequestFinished) -> int:
        """What an aborted request could still have put out."""
        asked = arrived.max_tokens or self._max_model_len
        room = self._max_model_len - (arrived.num_prompt_tokens or 0)
        return max(min(asked, room), (finished.num_output_tokens or 0) + 1, 1)

    # ---- what was left out

    def _why_none(self) -> str:
        return "; ".join(self._notes()) or "it records no arrivals: tokenyard's own traces do"

    def _notes(self) -> Iterator[str]:
        for gap, (of_one, of_several) in _GAPS.items():
            number = self._gaps[gap]
            if number:
                yield of_one if number == 1 else of_several.format(number)


_GAPS = {
    "before": (
        "1 request was there before the trace began and is left out",
        "{:,} requests were there before the trace began and are left out",
    ),
    "unfinished": (
        "1 request had not ended when the trace did and is left out",
        "{:,} requests had not ended when the trace did and are left out",
    ),
    "failed": (
        "1 request ended with an error and is left out",
        "{:,} requests ended with an error and are left out",
    ),
    "pooled": (
        "1 request put nothing out (embedding, or stopped at once) and is left out",
        "{:,} requests put nothing out (embeddings, or stopped at once) and are left out",
    ),
    "unreadable": (
        "1 arrival says no id, time or length and is left out",
        "{:,} arrivals say no id, time or length and are left out",
    ),
    "repeated": ("1 arrival repeats an id and is left out", "{:,} arrivals repeat an id and are left out"),
    "blocks": (
        "blocks of 1 request cannot be read: it is taken to share nothing",
        "blocks of {:,} requests cannot be read: they are taken to share nothing",
    ),
    "unseen": (
        "1 request went away before the cache was asked for its blocks: it is taken to share nothing",
        "{:,} requests went away before the cache was asked for their blocks: they are taken to share nothing",
    ),
    "orphans": (
        "1 turn follows a request that is left out: it arrives when it did",
        "{:,} turns follow a request that is left out: they arrive when they did",
    ),
    "pause": (
        "the host paused or resumed once, which is not repeated",
        "the host paused or resumed {:,} times, which is not repeated",
    ),
    "reset": (
        "a cache was reset once, which is not repeated",
        "a cache was reset {:,} times, which is not repeated",
    ),
}
"""What a trace may lack, or hold that a replay does not repeat -> the note for one request, and for several."""
