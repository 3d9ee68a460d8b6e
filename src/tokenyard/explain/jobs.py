"""Figures of jobs, the programs of agents: how long each takes from end to end, and what was kept between its turns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import inf

import msgspec
import numpy as np

from tokenyard.explain.figures import LatencyFigures, latency_figures
from tokenyard.trace.facts import StepFacts
from tokenyard.trace.schema import REFUSED, PinEnded, RequestArrived, RequestFinished

# ---------------------------------------------------------------------------------------------------------------------
# Job completion time: from the arrival of a job's first turn to the end of its last one, its tools' time included.
#
# A job is over when the turn that ended last was served and none is under way; where clients say which turn is the
# last one, it is over with that turn. Of a job that is not over, or whose client went away, the time is known to be at
# least what has passed; one whose turn was refused, or ended by an error, will never be over.

_SERVED = ("stop", "length", "repetition")


class _Job:
    """What is known of one."""

    __slots__ = ("begun", "is_last", "open", "outcome", "until")

    def __init__(self, begun: float) -> None:
        self.begun = self.until = begun
        """Arrival of its first turn; end of the latest one that ended, in seconds."""
        self.open = 0
        """Turns that have not ended."""
        self.outcome: str | None = None
        """Finish reason of the turn that ended last."""
        self.is_last = False
        """Its last turn has come, as its client says."""

    @property
    def is_lost(self) -> bool:
        return self.outcome in (REFUSED, "error")


class JobCounter:
    """Job completion times, gathered while things happen; some 200 bytes a job."""

    def __init__(self) -> None:
        self._jobs: dict[str, _Job] = {}
        self._under_way: dict[str | None, str] = {}
        """Turn whose arrival was told, and not its end -> its job."""
        self._ended_before: dict[str | None, RequestFinished] = {}
        """The reverse: a turn that left before any step is told of with the ends of the step before it."""
        self._says_last = False

    def arrived(self, record: RequestArrived) -> None:
        """A request came."""
        moment = record.ts if record.arrival_time is None else record.arrival_time
        if record.job_id is None or moment is None:
            return
        job = self._jobs.get(record.job_id)
        if job is None:
            job = self._jobs[record.job_id] = _Job(moment)
        job.begun = min(job.begun, moment)
        job.open += 1
        job.is_last |= bool(record.is_last_step)
        self._says_last |= job.is_last
        self._under_way[record.req_id] = record.job_id
        end = self._ended_before.pop(record.req_id, None)
        if end is not None:
            self.ended(end)

    def ended(self, record: RequestFinished) -> None:
        """A request ended."""
        name = self._under_way.pop(record.req_id, None)
        if name is not None:
            self._jobs[name].open -= 1
        elif record.job_id is not None:
            self._ended_before[record.req_id] = record
        job = self._jobs.get(name or record.job_id or "")
        moment = record.ts if record.finished_time is None else record.finished_time
        if job is None or moment is None:
            return
        if moment >= job.until and not job.is_lost:
            job.until, job.outcome = moment, record.finish_reason

    def join(self, other: JobCounter) -> None:
        """The turns of another engine, too: those of one job may be on several."""
        self._says_last |= other._says_last
        self._under_way |= other._under_way
        self._ended_before |= other._ended_before
        for name, theirs in other._jobs.items():
            mine = self._jobs.setdefault(name, theirs)
            if mine is theirs:
                continue
            mine.begun, mine.open = min(mine.begun, theirs.begun), mine.open + theirs.open
            mine.is_last |= theirs.is_last
            if theirs.is_lost or (theirs.until >= mine.until and not mine.is_lost):
                mine.until, mine.outcome = theirs.until, theirs.outcome

    def figures(self, now: float | None) -> LatencyFigures:
        """The figures in milliseconds, up to ``now``; None each where no request names a job."""
        over = [each for each in self._jobs.values() if self._is_over(each)]
        others = [each for each in self._jobs.values() if not self._is_over(each)]
        floors = [inf if each.is_lost else self._waited(each, now) for each in others]
        return latency_figures(np.array([each.until - each.begun for each in over]), floors=np.array(floors))

    def _is_over(self, job: _Job) -> bool:
        return not job.open and job.outcome in _SERVED and (job.is_last or not self._says_last)

    @staticmethod
    def _waited(job: _Job, now: float | None) -> float:
        return max(job.until if now is None or job.outcome == "abort" else now, job.until) - job.begun


# ---------------------------------------------------------------------------------------------------------------------
# The ledger of pins: how many were made, what became of them, and how much memory they took for how long.


class PinLedger(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks of finished turns that the policy kept for the next turn of their job."""

    made: int
    """Turns whose blocks were kept."""
    ends: dict[str, int]
    """Why they were freed (``used``, ``expired``, ``dropped`` ...) -> how many."""
    held: int
    """Pins that had not ended when the run, or its record, did."""
    block_seconds: float
    """KV blocks, times the seconds for which they were kept, of all that have ended."""
    unused_block_seconds: float
    """The part of it that is of pins which no next turn used."""
    mean_blocks: float | None
    """KV blocks that were kept on average over the run; None without times."""

    def __str__(self) -> str:
        if not self.made:
            return "none was made"
        ends = [f"{number:,} {why.replace('_', ' ')}" for why, number in self.ends.items()]
        ends += [f"{self.held:,} still held"] if self.held else []
        unused = self.unused_block_seconds / self.block_seconds if self.block_seconds else 0.0
        return f"{self.made:,} made: {', '.join(ends)}; {unused:.0%} of the blocks' time unused"


class PinCounter:
    """Adds up pins."""

    def __init__(self) -> None:
        self._ends: Counter[str] = Counter()
        self._block_seconds = self._unused = 0.0
        self._held = self._most_held = 0

    def stepped(self, facts: StepFacts) -> None:
        """A step was decided."""
        self._held = facts.num_pinned or 0
        self._most_held = max(self._most_held, self._held)

    def ended(self, record: PinEnded) -> None:
        """A pin is over."""
        self._held = max(self._held - 1, 0)
        self._ends[record.why or "unknown"] += 1
        if record.ts is not None and record.pinned_time is not None:
            held = (record.pinned_blocks or 0) * max(record.ts - record.pinned_time, 0.0)
            self._block_seconds += held
            self._unused += held if record.why != "used" else 0.0

    def join(self, other: PinCounter) -> None:
        """The pins of another engine, too."""
        self._ends += other._ends
        self._block_seconds += other._block_seconds
        self._unused += other._unused
        self._held += other._held
        self._most_held += other._most_held

    def result(self, policies: Sequence[str], seconds: float | None) -> PinLedger | None:
        """The ledger; None of a policy that pins nothing, and of a trace that tells of pins and not of their ends."""
        made = sum(self._ends.values()) + self._held
        pins = any(each.startswith("continuum") for each in policies)
        if (not made and not pins) or (self._most_held and not self._ends and not self._held):
            return None
        return PinLedger(
            made=made,
            ends=dict(self._ends.most_common()),
            held=self._held,
            block_seconds=self._block_seconds,
            unused_block_seconds=self._unused,
            mean_blocks=self._block_seconds / seconds if seconds else None,
        )
