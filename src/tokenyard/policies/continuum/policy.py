"""The CONTINUUM policies: pins with a time to live, consumed by the next turn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum

from tokenyard.arguments import suggests_keywords
from tokenyard.core.kv.allocation import KVShortage
from tokenyard.core.request import Request, RequestStatus
from tokenyard.core.sched.outcomes import Outcome
from tokenyard.core.sched.queues import WaitingQueues
from tokenyard.policies.continuum.tools import ToolReader
from tokenyard.policies.continuum.ttl import (
    CostBenefit,
    FinishedTurn,
    FixedThreshold,
    MemoryShare,
    Observations,
    PrefillReload,
    TtlRule,
)
from tokenyard.policies.programs import Program, Programs
from tokenyard.policies.simple import Key, KeyedPolicy

# ---------------------------------------------------------------------------------------------------------------------
# The order of a CONTINUUM queue: preempted turns, then turns of pinned jobs, then by the arrival of the program.


class QueueRank(IntEnum):
    """The class of a waiting request: a lower one goes first."""

    PREEMPTED = 0
    PINNED = 1
    OTHER = 2


def queue_rank(request: Request, *, pinned: bool) -> QueueRank:
    """Rank of a waiting request; ``pinned``: the blocks of its job's previous turn are kept."""
    if request.status is RequestStatus.PREEMPTED:
        return QueueRank.PREEMPTED
    return QueueRank.PINNED if pinned else QueueRank.OTHER


def requeue(queues: WaitingQueues, request_ids: Iterable[str]) -> None:
    """Their job's pin came or went: put waiting requests where they belong now."""
    for request_id in request_ids:
        for queue in (queues.waiting, queues.skipped):
            request = queue.get(request_id)
            if request is not None:
                queue.discard(request)
                queue.add(request)


# ---------------------------------------------------------------------------------------------------------------------
# The CONTINUUM policies: pins with a time to live, consumed by the next turn.
#
#     a turn ends        the rule gives its blocks a time to live; 0: they are freed
#     time passes        an expired pin is dropped, but never under a turn that waits
#     the next turn      goes before turns without a pin, finds its prefix cached; its admission consumes the pin
#     the last turn      leaves no pin
#     nothing fits       pins are dropped, the latest program's first, until the head of the queue fits
#
# ``docs/continuum.md`` compares them, and says where pins lose.


class Continuum(KeyedPolicy):
    """Keeps the blocks of finished turns for as long as ``rule`` says.

    ``reload`` says what they would cost to compute again; without it the host is asked, and failing that a default
    profile. Where a connector has a tier, what that is likely to hold costs no more than to load it. ``by_program``:
    turns without a pin go by the arrival of their program, not by their own. ``yielding``: pins are dropped before any
    request is preempted, not only for a request that runs alone.
    """

    reorders = True

    def __init__(
        self,
        rule: TtlRule,
        tools: ToolReader | None = None,
        reload: PrefillReload | None = None,
        *,
        by_program: bool = True,
        yielding: bool = False,
    ) -> None:
        self.known = Observations()
        self._reload = reload
        self._by_program = by_program
        self._yielding = yielding
        self._rule = rule
        self._tools = tools or ToolReader()
        self._programs = Programs()
        self._waiting_queues: WaitingQueues | None = None
        self._repinned: set[str] = set()
        """Jobs pinned while a turn of theirs was waiting already."""

    def _program_arrival(self, request: Request) -> float:
        program = self._programs.get(request.job_id)
        return request.arrival_time if program is None else program.arrival

    # ---- order and victim

    def key(self, request: Request) -> Key:
        rank = queue_rank(request, pinned=request.job_id in self.pins)
        first = self._program_arrival(request) if self._by_program else request.arrival_time
        return rank, first, request.arrival_time

    def victim(self, running: Sequence[Request]) -> int:
        last = len(running) - 1
        return next((i for i in range(last, -1, -1) if running[i].job_id not in self.pins), last)

    # ---- a turn's life

    def request_arrived(self, now: float, request: Request) -> None:
        if request.job_id is None:
            return
        program = self._programs.of(request.job_id, request.arrival_time)
        program.turns += 1
        program.waiting[request.request_id] = now
        if program.last_turn_ended is not None and program.tool is not None:
            self.known.tools.observe(program.tool, now - program.last_turn_ended)
        program.last_turn_ended = None

    def request_admitted(self, now: float, request: Request) -> None:
        program = self._programs.get(request.job_id)
        if program is None or request.job_id is None:
            return
        arrived = program.waiting.pop(request.request_id, None)
        if arrived is None:
            return
        if self.pins.unpin(request.job_id, "used"):
            self._requeue(program)
        elif program.turns > 1:
            self.known.delay.add(now - arrived)
            if self.context.load_seconds is not None:
                external = request.num_external_computed_tokens
                self.known.recall.add(external, program.num_tokens - (request.num_cached_tokens - external))

    def keeps_blocks(self, now: float, request: Request) -> bool:
        assert request.job_id is not None
        program = self._programs.of(request.job_id, request.arrival_time)
        if request.is_last_step:
            self.known.memory.program_ended(program.turns)
            self._programs.forget(request.job_id)
            self.pins.unpin(request.job_id, "last_turn")
            return False
        program.tool, program.last_turn_ended = self._tools.tool_of(request), now
        program.num_tokens = request.num_tokens
        if self._tools.broken:
            return False
        ttl = self._rule.ttl(self.known, self._turn(program, request.num_tokens))
        program.pin_until = now + ttl
        if ttl > 0 and program.waiting:
            self._repinned.add(request.job_id)
        return ttl > 0

    def _turn(self, program: Program, num_tokens: int) -> FinishedTurn:
        left = self.context.kv_tokens - num_tokens - sum(pinned.num_tokens for pinned in self.pins)
        return FinishedTurn(program.tool, self.seconds_to_restore(num_tokens), num_tokens / max(left, 1))

    def seconds_to_restore(self, num_tokens: int) -> float:
        """Seconds to compute a prefix again, or to load what of it a tier is likely to hold, if that is quicker."""
        known = self.context
        again = self._reload.seconds if self._reload is not None else known.prefill_seconds or PrefillReload().seconds
        seconds = again(num_tokens)
        if known.load_seconds is None:
            return seconds
        held = self.known.recall.share
        return held * min(known.load_seconds(num_tokens), seconds) + (1 - held) * seconds

    # ---- pins

    def step_begins(self, now: float, queues: WaitingQueues) -> None:
        self._waiting_queues = queues
        while self._repinned:
            self._requeue(self._programs.get(self._repinned.pop()))
        for pinned in self.pins:
            program = self._programs.get(pinned.job_id)
            if program is None or (now >= program.pin_until and not self._has_waiting_turn(program)):
                self._unpin(pinned, "expired")

    def _has_waiting_turn(self, program: Program) -> bool:
        queues = self._waiting_queues
        assert queues is not None
        for request_id in [each for each in program.waiting if queues.get(each) is None]:
            del program.waiting[request_id]  # aborted
        return bool(program.waiting)

    def next_moment(self, now: float) -> float | None:
        programs = [self._programs.get(pinned.job_id) for pinned in self.pins]
        ends = [program.pin_until for program in programs if program is not None and program.pin_until > now]
        return min(ends, default=None)

    def free_for_waiting(self, refusal: Outcome, num_running: int) -> bool:
        """With nothing running, no memory comes back by itself: drop the pin of the latest program.

        The head's own pin goes last, and none goes where all of them would not be enough.
        """
        if num_running or refusal.kv is None or refusal.kv.missing > refusal.kv.pinned:
            return False
        assert self._waiting_queues is not None
        assert refusal.request_id is not None
        head = self._waiting_queues.get(refusal.request_id)
        return self._drop_latest(None if head is None else head.job_id)

    def free_for_running(self, shortage: KVShortage, num_running: int) -> bool:
        """Drop the latest program's pin: a request that runs alone would be its own victim, again and again."""
        return (self._yielding or num_running == 1) and self._drop_latest(None)

    def _drop_latest(self, spared: str | None) -> bool:
        """Drop the pin of the program that arrived last, that of the ``spared`` job only if there is no other."""
        pins = list(self.pins)
        if pins:
            self._unpin(max(pins, key=lambda pinned: (pinned.job_id != spared, self._program_arrival(pinned))))
        return bool(pins)

    def _unpin(self, pinned: Request, why: str = "dropped") -> None:
        assert pinned.job_id is not None
        self.pins.unpin(pinned.job_id, why)
        self._requeue(self._programs.get(pinned.job_id))

    def _requeue(self, program: Program | None) -> None:
        """Its waiting turns have another rank now."""
        if program is not None and self._waiting_queues is not None:
            requeue(self._waiting_queues, program.waiting)


@suggests_keywords()
def continuum_by_program(tools: ToolReader | None = None, reload: PrefillReload | None = None) -> Continuum:
    """Keeps an agent's KV while its tool runs, as continuum-share does; turns without a pin go by program (ours)."""
    return Continuum(MemoryShare(), tools, reload, yielding=True)


@suggests_keywords()
def continuum_fixed(tools: ToolReader | None = None, threshold: float = 2.0) -> Continuum:
    """Keeps an agent's KV while its tool runs, for a fixed time (CONTINUUM as released).

    ``threshold`` seconds are both the longest mean tool time that is waited for and the time to live.
    """
    return Continuum(FixedThreshold(threshold), tools)


@suggests_keywords()
def continuum_ttl(tools: ToolReader | None = None, reload: PrefillReload | None = None) -> Continuum:
    """Keeps an agent's KV while its tool runs, for as long as that should save time (CONTINUUM's paper)."""
    return Continuum(CostBenefit(), tools, reload)


@suggests_keywords()
def continuum_share(tools: ToolReader | None = None, reload: PrefillReload | None = None) -> Continuum:
    """Keeps an agent's KV while its tool runs, where that costs little memory; no request is preempted for it (ours).

    Holding blocks is taken to cost the share of memory that they are.
    Turns without a pin go first come, first served, so that it is FCFS where it pins nothing.
    """
    return Continuum(MemoryShare(), tools, reload, by_program=False, yielding=True)
