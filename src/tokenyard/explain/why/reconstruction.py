"""Lives of requests in a trace that does not record them: pieced together from who is in which queue at which step.

What comes out are the same arrival and end records that our own traces carry, exact to a step: a request arrives when
it is first seen, has its first token when the step that finishes its prompt is over, and ends when it is in no queue
any more (an abort looks the same). Sampled traces, and traces without id lists, do not show this.
"""

from __future__ import annotations

from tokenyard.trace.format.schema import RequestArrived, RequestFinished
from tokenyard.trace.format.step_facts import FactSink
from tokenyard.trace.read.step_joiner import Step

__all__ = ["Reconstruction"]

_UNKNOWN_END = "unknown"


class _Life:
    """What is known of one request."""

    __slots__ = ("arrived", "computed", "first_scheduled", "first_token", "job_id", "outputs", "to_compute")

    def __init__(self, arrived: float | None, job_id: str | None) -> None:
        self.arrived = arrived
        self.job_id = job_id
        self.first_scheduled: float | None = None
        self.first_token: float | None = None
        self.to_compute: int | None = None
        """Prompt tokens less prefix hits: once so many are computed, every step samples. None if not known."""
        self.computed = 0
        self.outputs: int | None = 0
        """Tokens sampled; None once they cannot be counted any more."""

    def compute(self, tokens: int) -> bool:
        """It was scheduled; True if the step samples a token."""
        self.computed += tokens
        return self.to_compute is not None and self.computed >= self.to_compute

    def sample(self, ts: float | None) -> None:
        """A step that sampled is over."""
        if self.first_token is None:
            self.first_token = ts
        if self.outputs is not None:
            self.outputs += 1

    def preempt(self) -> None:
        """It starts again, from hits that the format does not record: from here on its tokens cannot be counted."""
        self.to_compute = None
        self.outputs = None


class Reconstruction:
    """Watches steps and tells a sink who arrived and who ended."""

    def __init__(self, sink: FactSink) -> None:
        self._sink = sink
        self._lives: dict[str, _Life] = {}
        self._sampling: list[_Life] = []
        """Sampled in the last step; their tokens are there when the next one begins."""
        self._last_step: int | None = None
        self.gaps = False
        """Steps are missing between recorded ones: times would be wrong, so ends carry none."""
        self.jobs: set[str] = set()

    def before(self, step: Step) -> None:
        """Look at the queues of a step, before its facts are told."""
        present = self._present(step)
        if present is None:
            return
        if self._last_step is not None and step.number != self._last_step + 1:
            self.gaps = True
        self._last_step = step.number
        for life in self._sampling:
            life.sample(step.ts)
        self._sampling.clear()
        for request_id in [known for known in self._lives if known not in present]:
            self._end(request_id, step)
        for request_id, job_id in present.items():
            if request_id not in self._lives:
                self._begin(request_id, job_id, step)

    def after(self, step: Step) -> None:
        """Look at the decision of a step."""
        for lookup in step.lookups:
            life = self._lives.get(lookup.req_id or "")
            if life is not None and lookup.total_prompt_tokens is not None:
                hits = (lookup.local_hit_tokens or 0) + (lookup.external_hit_tokens or 0)
                life.to_compute = lookup.total_prompt_tokens - hits
        if step.decision is None:
            return
        for request_id in step.decision.preempted_req_ids or ():
            if request_id in self._lives:
                self._lives[request_id].preempt()
        for request_id, tokens in (step.decision.num_scheduled_tokens or {}).items():
            life = self._lives.get(request_id)
            if life is not None:
                if life.first_scheduled is None:
                    life.first_scheduled = step.ts
                if life.compute(tokens):
                    self._sampling.append(life)

    def _present(self, step: Step) -> dict[str, str | None] | None:
        """Request id -> job id of everyone in a queue; None if the step does not say."""
        snapshot = step.snapshot
        if snapshot is None or snapshot.running_req_ids is None or snapshot.waiting_req_ids is None:
            if not step.requests:
                return None
            found = {record.req_id: record.job_id for record in step.requests if record.req_id is not None}
            self.jobs.update(job for job in found.values() if job)
            return found
        present: dict[str, str | None] = {}
        for ids, jobs in (
            (snapshot.running_req_ids, snapshot.running_job_ids or []),
            (snapshot.waiting_req_ids, snapshot.waiting_job_ids or []),
        ):
            self.jobs.update(job for job in jobs if job)
            present.update(zip(ids, jobs, strict=True) if len(ids) == len(jobs) else dict.fromkeys(ids))
        return present

    def _begin(self, request_id: str, job_id: str | None, step: Step) -> None:
        self._lives[request_id] = _Life(step.ts, job_id)
        self._sink.request_arrived(
            RequestArrived(step=step.number, ts=step.ts, req_id=request_id, job_id=job_id, arrival_time=step.ts)
        )

    def _end(self, request_id: str, step: Step) -> None:
        life = self._lives.pop(request_id)
        timed = not self.gaps
        self._sink.request_finished(
            RequestFinished(
                step=step.number,
                ts=step.ts,
                req_id=request_id,
                job_id=life.job_id,
                finish_reason=_UNKNOWN_END,
                arrival_time=life.arrived if timed else None,
                first_scheduled_time=life.first_scheduled if timed else None,
                first_token_time=life.first_token if timed else None,
                finished_time=step.ts if timed else None,
                num_output_tokens=life.outputs if timed else None,
            )
        )
