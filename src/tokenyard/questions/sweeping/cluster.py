"""Tasks on a Ray cluster: whose workers replay what this process would, and what came of it."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from socket import create_connection
from types import TracebackType
from typing import Any, Generic, TypeVar
from uuid import uuid4

from tokenyard.errors import ConfigError, MissingExtraError
from tokenyard.questions.sweeping import worker

__all__ = ["LOCAL_RAY", "Cluster"]

LOCAL_RAY = "local"
"""Stands in the place of an address: a cluster of this machine, for this command."""
_RETRIES = 3
"""Times that Ray begins a task anew whose worker, or whose machine, died."""
_TASKS_PER_CPU = 4
"""Tasks that are sent ahead."""
_ASK_AGAIN = 10.0
"""Seconds after which the cluster is asked for its size, though no task was finished."""
_SECONDS_TO_REACH = 20.0
"""For the first answer from an address: Ray asks one that does not answer again for a quarter of an hour."""
_HOST_AND_PORT = re.compile(r"(?:ray://)?(?:\[(?P<six>[^\]]+)\]|(?P<name>[^:/]+)):(?P<port>\d+)")
_LITTLE_ROOM = 1 << 30
"""Bytes below which the room for traces is worth a warning."""

T = TypeVar("T")
R = TypeVar("R")
_log = logging.getLogger("tokenyard.cluster")


class Cluster(Generic[T, R]):
    """Does tasks on the workers of a Ray cluster, as :class:`~tokenyard.questions.sweeping.variants.Workers` does here.

    ``address`` is what ``ray.init`` takes, or :data:`LOCAL_RAY`. A cluster that this process is connected to already is
    used as it is. What workers warn of is logged here. Raises MissingExtraError without Ray, ConfigError if there is no
    such cluster, if a worker has another Tokenyard or other settings, or does not see ``traces``, the folder in which
    the job leaves them; or if the worker of a task dies again and again.
    """

    def __init__(self, job: Callable[[T], R], address: str, *, traces: Path | None = None) -> None:
        self._job = job
        self._address = address
        self._mark = None if traces is None else traces.absolute() / f".seen-by-every-machine-{uuid4().hex[:8]}"
        self._ray: Any = None
        self._is_ours = False
        self._warned: set[str] = set()
        """Addresses of machines with little room for traces."""

    def __enter__(self) -> Cluster[T, R]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        if self._mark is not None:
            self._mark.unlink(missing_ok=True)
        if self._is_ours:
            self._ray.shutdown()

    def each(self, tasks: Sequence[T], given: Callable[[T], T] = lambda task: task) -> Iterator[tuple[int, R]]:
        """Number and result of each task, as they finish; one whose worker dies is begun anew.

        A task is begun as what it is ``given`` then.
        """
        ray = self._connected()
        send = self._sender(ray)
        waiting = iter(enumerate(tasks))
        running: dict[Any, int] = {}
        try:
            while True:
                for number, task in waiting:
                    running[send(given(task))] = number
                    if len(running) >= _room(ray):
                        break
                if not running:
                    return
                for done in ray.wait(list(running), timeout=_ASK_AGAIN)[0]:
                    yield running.pop(done), self._taken(ray.get(done))
        except ray.exceptions.RayError as error:
            fix = f"a variant could not be measured: {str(error).strip()}"
            raise ConfigError("ray", self._address, fix) from None

    def _connected(self) -> Any:
        if self._ray is not None:
            return self._ray
        ray = _ray()
        if not ray.is_initialized():
            more = {"include_dashboard": False} if self._address == LOCAL_RAY else {}
            try:
                _reach(self._address)
                ray.init(address=self._address, log_to_driver=False, **more)
            except Exception as error:  # noqa: BLE001 - Ray raises plain ones where a cluster does not start
                raise ConfigError("ray", self._address, _why_not(error, self._address)) from None
            self._is_ours = True
        self._ray = ray
        return ray

    def _sender(self, ray: Any) -> Callable[[T], Any]:
        """What sends a task to a worker: the job and what a worker needs go before the first one."""
        ray.cloudpickle.register_pickle_by_value(worker)
        packed = ray.cloudpickle.dumps(self._job)
        key, shared = blake2b(packed, digest_size=16).hexdigest(), ray.put(packed)
        mark, expected = self._mark, worker.identity()
        if mark is not None:
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()
        remote = ray.remote(max_retries=_RETRIES)(worker.do)
        return lambda task: remote.remote(expected, None if mark is None else str(mark), key, shared, task)

    def _taken(self, answer: tuple[str, str, Any, list[str], int | None]) -> R:
        """The result of a task, once the rest of the answer was heard. Raises ConfigError if it was not run."""
        how, where, result, texts, left = answer
        if how == worker.DIFFERS:
            ours = worker.identity()
            differs = ", ".join(f"{name} {theirs} (here {ours[name]})" for name, theirs in result.items())
            fix = (
                f"the worker at {where} would replay with something else than this process: {differs}. Install the same"
                " Tokenyard on every machine and start its workers with the same settings, or leave that machine out"
            )
            raise ConfigError("ray", self._address, fix)
        if how == worker.UNSEEN:
            folder = Path(result).parent
            fix = (
                f"the worker at {where} does not see {folder}, where traces are kept: give §output a folder that every"
                " machine has under the same path"
            )
            raise ConfigError("ray", self._address, fix)
        for text in texts:
            _log.warning("%s: %s", where, text)
        if left is not None and left < _LITTLE_ROOM and where not in self._warned:
            self._warned.add(where)
            _log.warning("%s: %.1f MB are left for traces", where, left / 1e6)
        found: R = result
        return found


def _reach(address: str) -> None:
    """Raise OSError where nothing listens at a host and port."""
    matched = _HOST_AND_PORT.fullmatch(address)
    if matched is not None:
        with create_connection((matched["six"] or matched["name"], int(matched["port"])), _SECONDS_TO_REACH):
            pass


def _room(ray: Any) -> int:
    """Tasks that the cluster has work for now: machines come and go."""
    return _TASKS_PER_CPU * max(int(ray.cluster_resources().get("CPU", 1)), 1)


def _why_not(error: Exception, address: str) -> str:
    """Why this process is not connected to a cluster, and what to do."""
    text = " ".join(str(error).split()) or type(error).__name__
    kind = f"{type(error).__name__} {text}".lower()
    cause = str(error.__cause__).lower()  # a refused token is no more than that of a connection that failed
    if "authenticat" in kind or "token" in kind or "unauthorized" in kind or "authentication" in cause:
        return (
            f"it asks for a token: {text[:300]}. Set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN, or RAY_AUTH_TOKEN_PATH, to"
            " what its machines were started with"
        )
    if "version mismatch" in kind or ("ray:" in kind and "python:" in kind):
        return f"it runs another Ray or Python, and both have to be the same: {text[:400]}"
    what = "none could be started on this machine" if address == LOCAL_RAY else "there is no such cluster"
    return f"{what}: {text[:300]}"


def _ray() -> Any:
    try:
        import ray  # noqa: PLC0415 - an extra
    except ImportError:
        raise MissingExtraError("ray", "ray") from None
    return ray
