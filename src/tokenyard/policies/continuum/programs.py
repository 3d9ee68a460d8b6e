"""Programs: what is remembered of a job from its first turn to its last."""

from __future__ import annotations

from collections import OrderedDict

__all__ = ["Program", "Programs"]


class Program:
    """One job: the turns of one agent."""

    __slots__ = ("arrival", "last_turn_ended", "pin_until", "tool", "turns", "waiting")

    def __init__(self, arrival: float) -> None:
        self.arrival = arrival
        """When its first turn arrived."""
        self.turns = 0
        """Turns that have arrived."""
        self.last_turn_ended: float | None = None
        """When its latest turn ended, until the next one arrives."""
        self.tool: str | None = None
        """Tool that its latest turn called."""
        self.pin_until = 0.0
        """End of its pin's time to live; only means something while it has a pin."""
        self.waiting: dict[str, float] = {}
        """Turns that were never admitted, with their arrivals. One that was aborted stays: ask the waiting room."""


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
