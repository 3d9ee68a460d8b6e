"""A waiting queue with one line per user; the policy says whose turn it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from tokenyard.request import Request
from tokenyard.sched.queues.waiting import FCFSQueue

__all__ = ["User", "UserQueue", "user_name", "user_of"]

User = tuple[int, str]


def user_name(job_id: str | None) -> str:
    """Whose job it is: what stands before the first ``/``, or nothing."""
    return (job_id or "").partition("/")[0]


def user_of(request: Request) -> User:
    """(``client_index``, the user's name within this client)."""
    return request.client_index, user_name(request.job_id)


class UserQueue:
    """First come, first served within a user; the user with the least ``counter`` first, then the one here longest."""

    __slots__ = ("_counter", "_on_pop", "_requests", "lines")

    def __init__(self, counter: Callable[[User], float], on_pop: Callable[[Request], None]) -> None:
        self._counter = counter
        self._on_pop = on_pop
        self.lines: dict[User, FCFSQueue] = {}
        """Users who wait, each with at least one request."""
        self._requests: dict[str, Request] = {}

    def _line(self, request: Request) -> FCFSQueue:
        self._requests[request.request_id] = request
        return self.lines.setdefault(user_of(request), FCFSQueue())

    def add(self, request: Request) -> None:
        self._line(request).add(request)

    def prepend(self, request: Request) -> None:
        self._line(request).prepend(request)

    def prepend_all(self, requests: Iterable[Request]) -> None:
        for request in requests:
            self.prepend(request)

    def peek(self) -> Request:
        return self.lines[min(self.lines, key=self._counter)].peek()

    def pop(self) -> Request:
        request = self.peek()
        self.discard(request)
        self._on_pop(request)
        return request

    def discard(self, request: Request) -> bool:
        user = user_of(request)
        line = self.lines.get(user)
        if line is None or not line.discard(request):
            return False
        del self._requests[request.request_id]
        if not len(line):
            del self.lines[user]
        return True

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        for user in sorted(self.lines, key=self._counter):
            yield from self.lines[user]

    def get(self, request_id: str) -> Request | None:
        return self._requests.get(request_id)
