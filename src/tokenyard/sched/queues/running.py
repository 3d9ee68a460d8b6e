"""The running list: requests that hold a place in the batch, in admission order, with their slots as a column."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from tokenyard.columns import IntArray
from tokenyard.request import Request

__all__ = ["RunningList"]


class RunningList:
    """``requests[i]`` has slot ``slots[i]``. ``version`` changes with every change of members or order."""

    __slots__ = ("_rows", "_rows_version", "_slots", "requests", "version")

    def __init__(self, capacity: int) -> None:
        self.requests: list[Request] = []
        self._slots: IntArray = np.zeros(max(capacity, 1), np.int64)
        self.version = 0
        self._rows: tuple[tuple[Request, ...], IntArray] = ((), self._slots[:0])
        self._rows_version = 0

    def __len__(self) -> int:
        return len(self.requests)

    @property
    def slots(self) -> IntArray:
        """Slots in running order (a view: copy it to keep it)."""
        return self._slots[: len(self.requests)]

    def rows(self) -> tuple[tuple[Request, ...], IntArray]:
        """The requests and their slots now, for steps to keep: the same objects until somebody comes or goes.

        Neither can be changed.
        """
        if self._rows_version != self.version:
            slots = self.slots.copy()
            slots.flags.writeable = False
            self._rows, self._rows_version = (tuple(self.requests), slots), self.version
        return self._rows

    def append(self, request: Request) -> None:
        """Admit a request, which has its slot already."""
        n = len(self.requests)
        self._slots[n] = request.slot
        self.requests.append(request)
        self.version += 1

    def pop(self, index: int) -> Request:
        """Take the request at ``index`` out, keeping the order."""
        request = self.requests.pop(index)
        n = len(self.requests)
        self._slots[index:n] = self._slots[index + 1 : n + 1]
        self.version += 1
        return request

    def remove_all(self, gone: Collection[Request]) -> None:
        """Take several requests out, keeping the order."""
        if len(gone) == 1:
            self.pop(self.requests.index(next(iter(gone))))
        elif gone:
            out = set(gone)
            keep = [i for i, request in enumerate(self.requests) if request not in out]
            self._slots[: len(keep)] = self._slots[keep]
            self.requests = [self.requests[i] for i in keep]
            self.version += 1
