"""One call at a time, of one thread, that comes to its end: what else happens closes what it worked on.

What a policy, a connector, an observer, a clock or an executor is asked, it is asked in the middle of a call whose work
is half done. A second call that changes the same scheduler or engine is refused there, before it does anything. What
leaves a call while its work is half done, an error of a hook, ``KeyboardInterrupt`` or ``SystemExit``, closes the
scheduler or engine.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import Concatenate, ParamSpec, Protocol, TypeVar, TypeVarTuple

from tokenyard.errors import (
    ConfigError,
    ConnectorError,
    EngineDeadError,
    NestedCallError,
    PolicyError,
    RequestError,
    text_of,
)

_Given = ParamSpec("_Given")
_Answer = TypeVar("_Answer")
_Asked = TypeVarTuple("_Asked")
_OURS = str(Path(__file__).parents[1])


# ---------------------------------------------------------------------------------------------------------------------
# A hook is asked, and what it raises is reported in its name.


def asked(
    kind: type[PolicyError | ConnectorError],
    owner: object,
    method: str,
    call: Callable[[*_Asked], _Answer],
    *given: *_Asked,
) -> _Answer:
    """What ``call``, a method of the policy or connector ``owner``, answers. Raises ``kind`` where it raises."""
    try:
        return call(*given)
    except (ConfigError, ConnectorError, NestedCallError, PolicyError, RequestError):
        raise  # it says already whose mistake it is
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        problem = f"raised {type(error).__name__}: {text_of(error)} ({frame.filename}:{frame.lineno})"
        raise kind(owner, method, problem) from error


# ---------------------------------------------------------------------------------------------------------------------
# One call at a time.


class CallState:
    """The call of a scheduler or an engine that is under way, and the one that was broken off."""

    __slots__ = ("_owner", "death", "hosts", "is_half_done", "under_way", "watches_thread")

    def __init__(self, within: CallState | None = None, *, watches_thread: bool = False) -> None:
        """``within``: that of the scheduler that an engine drives. ``watches_thread``: all calls belong to the thread
        of the first one; once it has ended, another may go on.
        """
        self.hosts: list[CallState] = []
        """Hooks of engines, which end with this one."""
        if within is not None:
            within.hosts.append(self)
        self._owner: threading.Thread | None = None
        self.watches_thread = watches_thread
        self.under_way: str | None = None
        """Its name."""
        self.is_half_done = False
        """What leaves the call now closes the object."""
        self.death: EngineDeadError | None = None
        """Every further call raises it."""

    def refuse(self, owner: object, name: str, *, closes: bool) -> None:
        """Raise what keeps ``name`` from being called now; after a death one that ``closes`` may be called."""
        if self.watches_thread:
            self._check_thread(name)
        if self.under_way is not None:
            raise _nested(owner, name, self.under_way)
        if self.death is not None and not closes:
            raise EngineDeadError(self.death.why) from self.death.__cause__

    def _check_thread(self, name: str) -> None:
        thread, owner = threading.current_thread(), self._owner
        if owner is not None and owner is not thread and owner.is_alive():
            text = f"{name}() was called in thread {thread.name!r}, and the scheduler is used in {owner.name!r}"
            raise RuntimeError(f"{text}: it is not thread-safe; use EngineCore.submit() and submit_abort() from others")
        self._owner = thread

    def broken_off(self, name: str, error: BaseException) -> None:
        """``error`` has left ``name`` in the middle of its work."""
        text = text_of(error)
        theirs = [each for each in traceback.extract_tb(error.__traceback__) if not each.filename.startswith(_OURS)]
        where = f" (in {theirs[-1].name}, {theirs[-1].filename}:{theirs[-1].lineno})" if theirs else ""
        why = f"{type(error).__name__}{': ' if text else ''}{text} broke {name}() off in its middle{where}"
        for each in (self, *self.hosts):
            each.death = EngineDeadError(why)
            each.death.__cause__ = error


class _HasCalls(Protocol):
    _calls: CallState


_Owner = TypeVar("_Owner", bound=_HasCalls)
_Method = Callable[Concatenate[_Owner, _Given], _Answer]


def one_call(call: _Method[_Owner, _Given, _Answer]) -> _Method[_Owner, _Given, _Answer]:
    """A method that changes its object, and is not called while another one does.

    Raises NestedCallError from within another call, and EngineDeadError after one that was broken off.
    """
    return _alone(call)


def checked_call(call: _Method[_Owner, _Given, _Answer]) -> _Method[_Owner, _Given, _Answer]:
    """The same of a method that checks what it is given, and says by ``is_half_done`` when it begins to work."""
    return _alone(call, checks=True)


def closing_call(call: _Method[_Owner, _Given, _Answer]) -> _Method[_Owner, _Given, _Answer]:
    """The same of a method that closes its object, or hands over what clients have to be told: it may be called after
    one that was broken off.
    """
    return _alone(call, closes=True)


def _alone(
    call: _Method[_Owner, _Given, _Answer], *, checks: bool = False, closes: bool = False
) -> _Method[_Owner, _Given, _Answer]:
    name = call.__name__

    @wraps(call)
    def alone(self: _Owner, /, *args: _Given.args, **options: _Given.kwargs) -> _Answer:
        calls = self._calls
        if calls.under_way is not None or calls.death is not None or calls.watches_thread:
            calls.refuse(self, name, closes=closes)
        try:
            calls.under_way, calls.is_half_done = name, not checks
            return call(self, *args, **options)
        except BaseException as error:
            if calls.is_half_done or isinstance(error, ConnectorError | PolicyError):
                calls.broken_off(name, error)
            raise
        finally:
            calls.under_way = None

    return alone


def _is_call_of(owner: object, frame: FrameType) -> bool:
    """Whether the frame is one of ``alone`` above."""
    code = frame.f_code
    return code.co_filename == __file__ and code.co_name == "alone" and frame.f_locals["self"] is owner


def _nested(owner: object, name: str, outer: str) -> NestedCallError:
    """The error of a call within ``outer``, or beside it."""
    frames: list[FrameType] = []
    frame: FrameType | None = sys._getframe(3)  # noqa: SLF001 - the frame that has made the call
    while frame is not None and not _is_call_of(owner, frame):
        frames.append(frame)
        frame = frame.f_back
    if frame is None:
        return NestedCallError(owner, name, outer, None)
    theirs = [each for each in frames if not each.f_code.co_filename.startswith(_OURS)]
    hook = theirs[-1] if theirs else frames[0]
    code = hook.f_code
    return NestedCallError(owner, name, outer, f"{code.co_qualname} ({code.co_filename}:{hook.f_lineno})")
