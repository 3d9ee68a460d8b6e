"""Pins: blocks of a finished turn that a policy keeps for the next turn of the same job.

A pinned request has ended for its client and its workers; only its blocks stay, under its slot. The next turn finds
them through the prefix index like any cached block, and its pin is dropped when it is admitted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tokenyard.request import Request

__all__ = ["PinBoard"]


class PinBoard:
    """At most one pinned turn per job."""

    __slots__ = ("_free", "by_job")

    def __init__(self, free: Callable[[Request], None]) -> None:
        self._free = free
        self.by_job: dict[str, Request] = {}
        """Job -> its pinned turn, the one pinned first in front; for reading."""

    def __len__(self) -> int:
        return len(self.by_job)

    def __iter__(self) -> Iterator[Request]:
        """Pinned requests, the one pinned first in front."""
        return iter(list(self.by_job.values()))

    def __contains__(self, job_id: object) -> bool:
        return job_id in self.by_job

    def get(self, job_id: str | None) -> Request | None:
        """The pinned turn of a job."""
        return self.by_job.get(job_id) if job_id is not None else None

    def pin(self, request: Request) -> None:
        """Keep the blocks of a finished turn; an older pin of its job is dropped."""
        assert request.job_id is not None, "only a turn of a job can be pinned"
        self.unpin(request.job_id)
        self.by_job[request.job_id] = request

    def unpin(self, job_id: str) -> bool:
        """Free the blocks; False if the job has no pin."""
        request = self.by_job.pop(job_id, None)
        if request is None:
            return False
        self._free(request)
        return True

    def clear(self) -> None:
        """Drop every pin."""
        for job_id in list(self.by_job):
            self.unpin(job_id)
