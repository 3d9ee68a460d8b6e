"""As much of Ray as a sweep asks for: a cluster whose machines are made up, and run their tasks in this process."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest import mock

from tokenyard.questions.sweeping import worker

__all__ = ["Machine", "ToyRay"]


class RayError(Exception):
    """What Ray's errors derive from."""


@dataclass
class Machine:
    """One of them, with as many processors; ``differs`` is what it has in the place of ours."""

    address: str
    cpus: int = 1
    differs: dict[str, str] = field(default_factory=dict)
    sees_folders: bool = True
    bytes_left: int = 1 << 40


class ToyRay:
    """In the place of the module. Tasks are spread over the machines in turn, and done when they are waited for."""

    def __init__(self, *machines: Machine, refuses: Exception | None = None) -> None:
        self.machines = list(machines)
        self.refuses = refuses
        """What ``init`` raises."""
        self.joins: dict[int, Machine] = {}
        """Tasks that were done -> a machine that joins then."""
        self.sent_ahead: list[int] = []
        """Tasks that were under way whenever one was waited for."""
        self.inits: list[dict[str, Any]] = []
        self.is_shut_down = False
        self.exceptions = SimpleNamespace(RayError=RayError)
        self.cloudpickle = SimpleNamespace(dumps=pickle.dumps, register_pickle_by_value=lambda module: None)
        self._done = 0
        self._sent = 0

    def is_initialized(self) -> bool:
        return False

    def init(self, **options: Any) -> None:
        self.inits.append(options)
        if self.refuses is not None:
            raise self.refuses

    def shutdown(self) -> None:
        self.is_shut_down = True

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": float(sum(each.cpus for each in self.machines))}

    def put(self, value: Any) -> Any:
        return value

    def remote(self, **_: Any) -> Callable[[Callable[..., Any]], Any]:
        return lambda task: SimpleNamespace(remote=lambda *given: self._send(task, given))

    def _send(self, task: Callable[..., Any], given: tuple[Any, ...]) -> Any:
        machine = self.machines[self._sent % len(self.machines)]
        self._sent += 1
        return _Sent(lambda: _run_on(machine, task, given))

    def wait(self, refs: Sequence[Any], timeout: float) -> tuple[list[Any], list[Any]]:
        self.sent_ahead.append(len(refs))
        self._done += 1
        if (joins := self.joins.pop(self._done, None)) is not None:
            self.machines.append(joins)
        return [refs[-1]], list(refs[:-1])  # the order of a cluster is none

    def get(self, ref: Any) -> Any:
        return ref.run()


@dataclass(eq=False)
class _Sent:
    run: Callable[[], Any]


def _run_on(machine: Machine, task: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    identity = {**worker.identity(), **machine.differs}
    usage = SimpleNamespace(free=machine.bytes_left)
    expected, mark, *others = given
    seen = mark if machine.sees_folders or mark is None else f"{mark}-of-another-machine"
    with (
        mock.patch.object(worker, "identity", return_value=identity),
        mock.patch.object(worker, "address", return_value=machine.address),
        mock.patch("shutil.disk_usage", return_value=usage),
    ):
        return task(expected, seen, *others)
