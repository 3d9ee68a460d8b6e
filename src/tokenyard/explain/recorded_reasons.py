# cython: auto_pickle=True
"""The recorded reasons, added up: how many steps each held requests back, how many requests, for how long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tokenyard.trace.facts import RepeatedFacts, StepFacts
from tokenyard.trace.held_back import held_by_reason, held_by_word
from tokenyard.trace.schema import AdmissionOutcome, KVNumbers
from tokenyard.vocabulary import Reason

_POLICY_REFUSED = str(Reason.POLICY_REFUSED)
_MOST_WORDS = 32
"""Different words of plug-ins that are distinguished."""


class KVMeans(msgspec.Struct, frozen=True):
    """Mean numbers, in blocks, over the steps in which this KV check stopped admission."""

    needed: float
    """Blocks that the head of the queue needed."""
    free: float
    cached_hits: float
    """Free blocks, among those needed, that hold the head's own cached prefix."""
    reserved: float
    watermark: float
    smallest_need: float | None
    """Blocks that the smallest waiting request needs; cache hits count for the head only."""
    smaller_would_fit_steps: int
    """Steps in which the smallest waiting request needed no more than was free and not reserved."""


class WorstStep(msgspec.Struct, frozen=True):
    """The step in which most requests ran or were held back by a reason, the first of those alike: what would have been
    enough then.
    """

    running: int
    held: int
    used_blocks: int | None = None
    """KV blocks in use before it, by requests: without those that are pinned."""
    total_blocks: int | None = None

    @property
    def demand(self) -> int:
        """Requests that would have run, had the reason held none back."""
        return self.running + self.held

    @property
    def fits(self) -> int | None:
        """Number of these requests that the KV cache holds, if those that run are like the others."""
        if not (self.running and self.used_blocks and self.total_blocks):
            return None
        return self.total_blocks * self.running // self.used_blocks

    @property
    def needed_blocks(self) -> int | None:
        """KV blocks for all of them, by the same measure."""
        if not (self.running and self.used_blocks):
            return None
        return -(-self.used_blocks * self.demand // self.running)

    @property
    def shortage(self) -> float | None:
        """The blocks that are needed, as a multiple of those that there are."""
        return self.needed_blocks / self.total_blocks if self.needed_blocks and self.total_blocks else None


class RecordedReason(msgspec.Struct, frozen=True):
    """What one reason cost."""

    steps: int
    """Steps in which it held back at least one request."""
    requests: int
    """Requests it held back, added over the steps."""
    seconds: float
    """Request-seconds lost: each step's duration times the requests it held back."""
    kv: KVMeans | None = None
    """For ``kv_*`` reasons."""
    kv_free: float | None = None
    """Mean share of the pool that was free before these steps."""
    words: dict[str, float] | None = None
    """For ``policy_refused``: the policy's own words, and of the ``seconds`` those that each stands for, most first."""
    worst: WorstStep | None = None
    """None where the trace does not record how many ran."""


class _KVSums:
    """Sums of the numbers of one KV check."""

    def __init__(self) -> None:
        self.steps = self.needed = self.free = self.cached_hits = self.reserved = self.watermark = 0
        self.smallest_steps = self.smallest = self.fits = 0

    def add(self, kv: KVNumbers, smallest: int | None, free: Sequence[int]) -> None:
        """Steps that differ in ``free`` blocks alone."""
        times, reserved, watermark = len(free), kv.reserved or 0, kv.watermark or 0
        self.steps += times
        self.needed += times * (kv.needed or 0)
        self.free += sum(free)
        self.cached_hits += times * (kv.cached_hits or 0)
        self.reserved += times * reserved
        self.watermark += times * watermark
        if smallest is not None:
            self.smallest_steps += times
            self.smallest += times * smallest
            needed = smallest + reserved + watermark
            self.fits += sum([needed <= each for each in free])

    def join(self, other: _KVSums) -> None:
        self.steps += other.steps
        self.needed += other.needed
        self.free += other.free
        self.cached_hits += other.cached_hits
        self.reserved += other.reserved
        self.watermark += other.watermark
        self.smallest_steps += other.smallest_steps
        self.smallest += other.smallest
        self.fits += other.fits

    def means(self) -> KVMeans:
        n = self.steps
        return KVMeans(
            needed=self.needed / n,
            free=self.free / n,
            cached_hits=self.cached_hits / n,
            reserved=self.reserved / n,
            watermark=self.watermark / n,
            smallest_need=self.smallest / self.smallest_steps if self.smallest_steps else None,
            smaller_would_fit_steps=self.fits,
        )


class _ReasonSums:
    """What one reason cost so far."""

    def __init__(self) -> None:
        self.steps = self.requests = self.micros = self.free_steps = 0
        self.free = 0.0
        self.kv: _KVSums | None = None
        self.words: dict[str, int] = {}
        self.worst: WorstStep | None = None
        self.most = -1
        """Requests that ran or were held back in it."""

    def add(self, requests: int, micros: int, facts: StepFacts, free: Sequence[int | None]) -> None:
        """Steps like this one held back so many each; all together they took ``micros``, and began with ``free``."""
        self.steps += len(free)
        self.requests += len(free) * requests
        self.micros += micros * requests
        total, running = facts.total_blocks or None, facts.num_running
        if total is not None:
            for each in free:
                if each is not None:
                    self.free_steps += 1
                    self.free += each / total
        if running is not None and running + requests > self.most:
            self.most, first = running + requests, free[0]
            used = None if first is None or total is None else max(total - first - (facts.pinned_blocks or 0), 0)
            self.worst = WorstStep(running, requests, used, total)

    def add_words(self, words: Mapping[str, int], micros: int) -> None:
        for word, requests in words.items():
            if word in self.words or len(self.words) < _MOST_WORDS:
                self.words[word] = self.words.get(word, 0) + micros * requests

    def join(self, other: _ReasonSums) -> None:
        self.steps += other.steps
        self.requests += other.requests
        self.micros += other.micros
        self.free_steps += other.free_steps
        self.free += other.free
        if other.kv is not None:
            if self.kv is None:
                self.kv = _KVSums()
            self.kv.join(other.kv)
        for word, micros in other.words.items():
            self.words[word] = self.words.get(word, 0) + micros
        if other.most > self.most:
            self.most, self.worst = other.most, other.worst

    def result(self) -> RecordedReason:
        kv = None if self.kv is None else self.kv.means()
        free = self.free / self.free_steps if self.free_steps else None
        words = {word: micros / 1e6 for word, micros in sorted(self.words.items(), key=lambda item: -item[1])}
        return RecordedReason(self.steps, self.requests, self.micros / 1e6, kv, free, words or None, self.worst)


class RecordedReasonCounter:
    """Adds up outcomes."""

    def __init__(self) -> None:
        self._sums: dict[str, _ReasonSums] = {}

    def add(self, outcome: AdmissionOutcome, micros: int, facts: StepFacts) -> None:
        """Take the outcome of the step with these facts, which took ``micros``."""
        kv = outcome.kv
        self._add(outcome, micros, facts, (facts.free_blocks,), () if kv is None else (kv.free or 0,))

    def add_repeated(self, steps: RepeatedFacts, micros: int) -> None:
        """Take the outcomes of all but the last; ``micros`` is the time from the first to the last."""
        outcome, times = steps.like.outcome, len(steps.moments) - 1
        if outcome is not None and times > 0:
            self._add(outcome, micros, steps.like, steps.free_blocks[:times], steps.free_after[:times])

    def _add(
        self,
        outcome: AdmissionOutcome,
        micros: int,
        facts: StepFacts,
        free_before: Sequence[int | None],
        free_after: Sequence[int],
    ) -> None:
        reason, held = outcome.reason, outcome.num_requests
        sums: _ReasonSums
        for name, count in held_by_reason(outcome).items():
            sums = self._sums_of(name)
            sums.add(count, micros, facts, free_before)
            if name == _POLICY_REFUSED:
                sums.add_words(held_by_word(outcome), micros)
        if reason is not None and held and outcome.kv is not None:
            sums = self._sums_of(reason)
            if sums.kv is None:
                sums.kv = _KVSums()
            sums.kv.add(outcome.kv, outcome.smallest_need, free_after)

    def join(self, other: RecordedReasonCounter) -> None:
        """The steps of another engine, too."""
        for name, sums in other._sums.items():
            self._sums_of(name).join(sums)

    def _sums_of(self, name: str) -> _ReasonSums:
        sums = self._sums.get(name)
        if sums is None:
            sums = self._sums[name] = _ReasonSums()
        return sums

    def result(self) -> dict[str, RecordedReason]:
        """Most time lost first."""
        reasons = {name: sums.result() for name, sums in self._sums.items()}
        return dict(sorted(reasons.items(), key=lambda item: (-item[1].seconds, -item[1].requests, item[0])))
