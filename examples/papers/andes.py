"""Andes (2404.16283): an answer that is ahead of its reader gives way to one that waits for its first word.

Quality of experience: the share of an answer's tokens that were there when a reader of so many words a second came to
them.
"""

from __future__ import annotations

import tokenyard as ty
from tokenyard.core.request import Request
from tokenyard.policies import PriorityQueue, RequestQueue, StepBounds, WaitingQueues

READS, FIRST = 8.0, 1.0
"""Tokens a second that are read, and seconds after which a reader expects the first."""
ENGINE = ty.Deployment(model="Qwen/Qwen3-8B", gpu="l40s", max_num_seqs=8, max_model_len=8000)


def ahead(request: Request, now: float) -> float:
    """Seconds of reading that a request has in hand."""
    return request.num_output_tokens / READS - (now - request.arrival_time - FIRST)


class Andes(ty.Policy):
    """Preempts who is far ahead of the reader, for who is behind."""

    reads_tokens = False
    reorders = True

    def step_begins(self, now: float, queues: WaitingQueues) -> StepBounds | None:
        running = self.context.state.running
        behind = [each for each in queues if ahead(each, now) < 1.0]
        if not behind or len(running) < self.context.state.max_num_running_reqs:
            return None
        rich = sorted((each for each in running if ahead(each, now) > 8.0), key=lambda each: -ahead(each, now))
        return StepBounds(preempts=[each.request_id for each in rich[: len(behind)]], detail="andes")

    def next_queue(self, queues: WaitingQueues) -> RequestQueue:
        return queues.waiting if len(queues.waiting) else queues.skipped

    def new_queue(self) -> RequestQueue:
        return PriorityQueue(key=lambda request: (request.num_output_tokens > 0, request.arrival_time))


def chats(seed: int) -> ty.Workload:
    """Long answers, more than there are seats for."""
    w = ty.WorkloadBuilder("chats", seed=seed)
    for at in w.poisson(rate=1.0, n=40):
        w.request(at=at, prompt=int(w.lognormal(5, 0.6)) + 1, output=int(w.lognormal(5.6, 0.4)) + 1)
    return w.build()


def late(run: ty.RunResult) -> float:
    """Mean seconds that the first word came later than it was expected."""
    waited: list[float] = [max(row["ttft_ms"] / 1e3 - FIRST, 0.0) for row in run.requests]
    return sum(waited) / len(waited)


def compare() -> dict[str, float]:
    """Mean seconds of lateness of the first word."""
    return {"fcfs": late(ty.run(chats(0), ENGINE)), "andes": late(ty.run(chats(0), ENGINE, policy=Andes))}


if __name__ == "__main__":
    for name, seconds in compare().items():
        print(f"{name:6} first words {seconds:6.2f} s late")
