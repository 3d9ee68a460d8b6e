"""Pieces of JSON that rarely change, kept as bytes: the lists of request ids that make up most of a trace.

In steady decode the running list is the same for many steps, so its ids are joined once and put into each record as
they are. That the filled records decode to the records of the schema is tested.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

import msgspec

from tokenyard.columns import IntArray
from tokenyard.printable import valid_text
from tokenyard.request import Request

__all__ = ["Names", "QueueIds", "json_list", "json_map"]

_JOBS_KEPT = 65_536


class _Encoded(dict[str | None, bytes]):
    """Text -> its JSON, filled when asked."""

    def __missing__(self, key: str | None) -> bytes:
        value = self[key] = msgspec.json.encode(None if key is None else valid_text(key))
        return value


class Names:
    """JSON text of request and job ids, encoded once."""

    __slots__ = ("ids", "jobs")

    def __init__(self) -> None:
        self.ids = _Encoded()
        self.jobs = _Encoded()

    def forget(self, request_id: str) -> None:
        """The request will not be named again."""
        self.ids.pop(request_id, None)
        if len(self.jobs) > _JOBS_KEPT:
            self.jobs.clear()


def json_list(values: Iterable[bytes]) -> bytes:
    """A JSON list of encoded values."""
    return b"[" + b",".join(values) + b"]"


def json_map(items: Iterable[bytes]) -> bytes:
    """A JSON object of encoded ``key:value`` items."""
    return b"{" + b",".join(items) + b"}"


class QueueIds:
    """The ids and jobs of one queue, or of its first ``limit`` requests."""

    __slots__ = ("_limit", "_names", "_one_each", "_ones", "ids", "jobs", "names", "omitted", "total")

    def __init__(self, names: Names, limit: int | None) -> None:
        self._names = names
        self._limit = limit
        self.take(0, ())

    def take(self, total: int, requests: Iterable[Request]) -> None:
        """Name the queue, which has ``total`` requests, anew."""
        kept = list(islice(requests, self._limit))
        self._name(total, [request.request_id for request in kept])
        jobs, job_ids = self._names.jobs, [request.job_id for request in kept]
        self.jobs = json_list([jobs[job_id] for job_id in job_ids]) if any(job_ids) else b"[]"

    def take_ids(self, req_ids: Sequence[str]) -> None:
        """Name a queue of these requests, without their jobs."""
        self._name(len(req_ids), req_ids[: self._limit])

    def _name(self, total: int, req_ids: Sequence[str]) -> None:
        ids = self._names.ids
        self.total = total
        self.names = [ids[request_id] for request_id in req_ids]
        self.ids = json_list(self.names)
        self.omitted = total - len(req_ids)
        self._ones: list[bytes] | None = None
        self._one_each: bytes | None = None

    def items(self, tokens: IntArray) -> list[bytes]:
        """``id:count`` for every named request; ``tokens[i]`` belongs to the i-th."""
        if self._ones is None:
            self._ones = [name + b":1" for name in self.names]
        items = self._ones.copy()
        counts = tokens[: len(items)].tolist()
        if counts.count(1) < len(counts):
            for i, count in enumerate(counts):
                if count != 1:
                    items[i] = b"%b:%d" % (self.names[i], count)
        return items

    def one_each(self) -> bytes:
        """The map of a step in which every named request gets one token."""
        if self._one_each is None:
            self._one_each = json_map([name + b":1" for name in self.names])
        return self._one_each
