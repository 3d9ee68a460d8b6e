"""What a worker of a cluster does. It is sent as it stands here: what is installed there may be another text.

    same package and settings?   else nothing is run, and the answer says what differs
    sees the folder of traces?   else nothing is run
    job(task)                    what it warns of, and what room is left for traces, go back with the result

Nothing but Python's own library is imported before the first question is answered.
"""

from __future__ import annotations

import logging
import os
import pickle
import platform
import shutil
import sys
import warnings
from collections.abc import Mapping
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["DIFFERS", "DONE", "UNSEEN", "address", "do", "identity", "identity_now"]

DONE, DIFFERS, UNSEEN = "done", "differs", "unseen"
"""How a task ended: it was run; the worker has another Tokenyard; it does not see the folder of traces."""

_ABSENT = "not installed"
_TEXTS = (".py", ".json", ".toml", ".html")
_DECIDES = ("TOKENYARD_DECIDES_AS",)
"""Variables that change what a replay decides; others say how the product is run, tested or shown."""


def _kept() -> dict[str, Any]:
    """What this process has worked out. It stands apart: names of this module travel with it, and their values too."""
    return vars(sys.modules.setdefault("_tokenyard_worker", ModuleType("_tokenyard_worker")))


def identity() -> dict[str, str]:
    """What decides a replay beside its workload and its settings, by name, as it was when this was first asked."""
    kept = _kept()
    if "identity" not in kept:
        kept["identity"] = identity_now()
    return dict(kept["identity"])


def identity_now() -> dict[str, str]:
    """What decides a replay beside its workload and its settings, by name; two that are equal replay alike."""
    given = [name for name in _DECIDES if name in os.environ]
    return {
        "tokenyard": _digest_of_package(),
        "python": ".".join(platform.python_version_tuple()[:2]),
        "numpy": _version("numpy"),
        "settings": " ".join(f"{name}={os.environ[name]}" for name in given) or "none",
    }


def _digest_of_package() -> str:
    """A checksum of every text and table of the package, whatever its version says."""
    spec = find_spec("tokenyard")
    if spec is None or spec.origin is None:
        return _ABSENT
    root, digest = Path(spec.origin).parent, blake2b(digest_size=6)
    for file in sorted(root.rglob("*")):
        if file.suffix in _TEXTS and file.is_file():
            data = file.read_bytes()
            digest.update(f"{file.relative_to(root).as_posix()} {len(data)} ".encode() + data)
    return digest.hexdigest()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return _ABSENT


def address() -> str:
    """Where this process runs, as the cluster names it."""
    import ray  # noqa: PLC0415 - a worker of it has it

    return str(ray.util.get_node_ip_address())


class _Heard(logging.Handler):
    """Keeps what Tokenyard logs."""

    def __init__(self, texts: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._texts = texts

    def emit(self, record: logging.LogRecord) -> None:
        self._texts.append(record.getMessage())


def do(
    expected: Mapping[str, str], mark: str | None, key: str, packed: bytes, task: Any
) -> tuple[str, str, Any, list[str], int | None]:
    """Do a task, if this worker may: how it ended, the address, the result, warnings, bytes left for traces.

    ``expected`` is the identity that a worker needs; ``mark`` a file in the folder of traces that has to be there;
    ``packed`` the job, which is unpacked once, by its ``key``. What differs is the result where something does.
    """
    own = identity()
    if own != dict(expected):
        return (
            DIFFERS,
            address(),
            {name: own.get(name, "") for name in expected if own.get(name) != expected[name]},
            [],
            None,
        )
    if mark is not None and not Path(mark).exists():
        return UNSEEN, address(), mark, [], None
    kept = _kept()
    if kept.get("key") != key:
        kept["job"], kept["key"] = pickle.loads(packed), key  # of the process that asks
    texts: list[str] = []
    logger, heard = logging.getLogger("tokenyard"), _Heard(texts)
    logger.addHandler(heard)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default", UserWarning)
            result = kept["job"](task)
    finally:
        logger.removeHandler(heard)
    texts += [str(each.message) for each in caught]
    left = None if mark is None else shutil.disk_usage(Path(mark).parent).free
    return DONE, address(), result, texts, left
