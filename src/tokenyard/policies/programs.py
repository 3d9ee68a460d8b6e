"""Policies that know programs, the jobs of agents: their order, and how many of them are let in. Nothing is pinned."""

from __future__ import annotations

from collections import OrderedDict

from tokenyard.arguments import is_number
from tokenyard.core.request import Request
from tokenyard.core.sched.candidate import Refused
from tokenyard.core.sched.policy import AdmissionView
from tokenyard.errors import ConfigError
from tokenyard.policies.simple import Key, KeyedPolicy

# ---------------------------------------------------------------------------------------------------------------------
# Programs: what is remembered of a job from its first turn to its last.


class Program:
    """One job: the turns of one agent."""

    __slots__ = ("arrival", "last_turn_ended", "num_tokens", "pin_until", "tool", "turns", "waiting")

    def __init__(self, arrival: float) -> None:
        self.arrival = arrival
        """When its first turn arrived."""
        self.turns = 0
        """Turns that have arrived."""
        self.last_turn_ended: float | None = None
        """When its latest turn ended, until the next one arrives."""
        self.num_tokens = 0
        """Tokens of its latest turn, once that has ended; of one that may be running, those that it can come to."""
        self.tool: str | None = None
        """Tool that its latest turn called."""
        self.pin_until = 0.0
        """End of its pin's time to live; only means something while it has a pin."""
        self.waiting: dict[str, float] = {}
        """Turns that were never admitted, with their arrivals. One that was aborted stays: ask the waiting queues."""


class Programs:
    """Jobs by id. A job that never says that it is over is forgotten when ``capacity`` younger ones have come."""

    __slots__ = ("_capacity", "_programs")

    def __init__(self, capacity: int = 65_536) -> None:
        self._capacity = capacity
        self._programs: OrderedDict[str, Program] = OrderedDict()

    def __len__(self) -> int:
        return len(self._programs)

    def get(self, job_id: str | None) -> Program | None:
        """The program of a job that is known."""
        return self._programs.get(job_id) if job_id is not None else None

    def of(self, job_id: str, arrival: float) -> Program:
        """The program of a job; a job met for the first time arrives at ``arrival``."""
        program = self._programs.get(job_id)
        if program is None:
            program = self._programs[job_id] = Program(arrival)
            if len(self._programs) > self._capacity:
                self._programs.popitem(last=False)
        else:
            self._programs.move_to_end(job_id)
        return program

    def forget(self, job_id: str) -> None:
        """The job is over."""
        self._programs.pop(job_id, None)


# ---------------------------------------------------------------------------------------------------------------------
# Two policies that tell apart what agents gain by order, and by admission: neither keeps a block.


class ProgramFCFS(KeyedPolicy):
    """First come, first served by program: turns go by the arrival of their job's first turn."""

    reads_tokens = False

    def __init__(self) -> None:
        self._programs = Programs()

    def request_arrived(self, now: float, request: Request) -> None:
        if request.job_id is not None:
            self._programs.of(request.job_id, request.arrival_time)

    def key(self, request: Request) -> Key:
        """Sorts requests; one without a job is a program of its own."""
        program = self._programs.get(request.job_id)
        return (request.arrival_time if program is None else program.arrival), request.arrival_time

    def keeps_blocks(self, now: float, request: Request) -> bool:
        assert request.job_id is not None
        if request.is_last_step:
            self._programs.forget(request.job_id)
        return False


class ProgramAdmission(ProgramFCFS):
    """Programs are let in one by one: a first turn waits until the contexts of those let in leave it room.

    ``fill``: share of the KV cache that these may come to. A program that has had no turn for ``idle`` seconds leaves
    its room to others; none of its turns is refused when it comes back.
    """

    reads_tokens = False
    reads_max_tokens = True

    def __init__(self, fill: float = 0.9, idle: float = 60.0) -> None:
        super().__init__()
        for name, value, unit in (("fill", fill, "a share of the KV cache"), ("idle", idle, "seconds")):
            if not is_number(value, above=True):
                raise ConfigError(name, value, f"give {unit}, above 0")
        self._fill, self._idle = fill, idle
        self._let_in: OrderedDict[str, float] = OrderedDict()
        """Program -> when it was last given a turn, or ended one; the one that is longest ago in front."""

    def admits(self, request: Request, view: AdmissionView) -> bool | Refused:
        if request.job_id is None or self._size(request.job_id) or not view.running:
            return True
        self._forget_idle(view)
        held = {job: self._size(job) for job in self._let_in}
        held |= {each.job_id: _most_tokens(each) for each in view.running if each.job_id is not None}
        room = self._fill * self.context.kv_tokens
        return sum(held.values()) + _most_tokens(request) <= room or Refused("program_admission")

    def _size(self, job_id: str) -> int:
        program = self._programs.get(job_id)
        return 0 if program is None else program.num_tokens

    def _forget_idle(self, view: AdmissionView) -> None:
        running = {each.job_id for each in view.running}
        idle = [job for job, at in self._let_in.items() if view.now - at >= self._idle and job not in running]
        for job in idle:
            del self._let_in[job]

    def request_admitted(self, now: float, request: Request) -> None:
        if request.job_id is not None:
            program = self._programs.of(request.job_id, request.arrival_time)
            program.num_tokens = _most_tokens(request)
            self._let_in[request.job_id] = now

    def keeps_blocks(self, now: float, request: Request) -> bool:
        assert request.job_id is not None
        if request.is_last_step:
            self._let_in.pop(request.job_id, None)
        else:
            self._programs.of(request.job_id, request.arrival_time).num_tokens = request.num_tokens
            self._let_in[request.job_id] = now
        return super().keeps_blocks(now, request)

    def next_moment(self, now: float) -> float | None:
        """When the next program may count as gone."""
        ends = (at + self._idle for at in self._let_in.values())
        return min((each for each in ends if each > now), default=None)


def _most_tokens(request: Request) -> int:
    return request.num_prompt_tokens + request.max_tokens
