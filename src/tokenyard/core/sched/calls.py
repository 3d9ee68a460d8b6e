"""One call at a time, of one thread: hooks that call back, threads that mix, interrupts that break a call off."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from tokenyard.errors import EngineDeadError, NestedCallError, text_of

__all__ = ["CallState", "OneThread", "closing_call", "one_call"]


# ---------------------------------------------------------------------------------------------------------------------
# A scheduler belongs to one thread. In debug mode its calls check that; otherwise nobody asks, and nothing costs.


class OneThread:
    """Knows the thread that made the first call."""

    def __init__(self) -> None:
        self._owner: threading.Thread | None = None

    def guard(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """``call``, with RuntimeError in any other thread before it does anything.

        Once the first thread has ended, another may go on.
        """

        @wraps(call)
        def guarded(*args: Any, **options: Any) -> Any:
            owner = self._owner
            if owner is None or owner.ident != threading.get_ident():
                self._change_hands(owner, call.__name__)
            return call(*args, **options)

        return guarded

    def _change_hands(self, owner: threading.Thread | None, called: str) -> None:
        thread = threading.current_thread()
        if owner is not None and owner.is_alive():
            text = f"{called}() was called in thread {thread.name!r}, and the scheduler is used in {owner.name!r}"
            raise RuntimeError(f"{text}: it is not thread-safe; use EngineCore.submit() and submit_abort() from others")
        self._owner = thread


# ---------------------------------------------------------------------------------------------------------------------
# One call at a time: a hook that calls back, and a call that was broken off in its middle.
#
# What a policy, a connector, a grammar, an observer, a clock or an executor is asked, it is asked in the middle of a
# call whose work is half done. A second call that changes the same scheduler or engine is refused there, before it
# does anything. ``KeyboardInterrupt`` and ``SystemExit`` leave a call wherever it is: what it worked on is closed
# then.

_Given = ParamSpec("_Given")
_Answer = TypeVar("_Answer")
_OURS = str(Path(__file__).parents[1])


class CallState:
    """Of a scheduler or an engine: the call that is under way, and the one that was broken off."""

    __slots__ = ("death", "is_waiting", "under_way")

    def __init__(self) -> None:
        self.under_way: str | None = None
        """Its name."""
        self.is_waiting = False
        """It waits for the model, and has changed nothing that the same call once more would not find."""
        self.death: EngineDeadError | None = None
        """Every further call raises it."""

    def refuse(self, owner: object, name: str, *, closes: bool) -> None:
        """Raise what keeps ``name`` from being called now; after a death one that ``closes`` may be called."""
        if self.under_way is not None:
            raise _nested(owner, name, self.under_way)
        if self.death is not None and not closes:
            raise EngineDeadError(self.death.why) from self.death.__cause__

    def broken_off(self, name: str, error: BaseException) -> None:
        """``error`` has left ``name`` wherever it was."""
        said = text_of(error)
        why = f"{type(error).__name__}{': ' if said else ''}{said} broke {name}() off in its middle"
        self.death = EngineDeadError(why)
        self.death.__cause__ = error


class _HasCalls(Protocol):
    _calls: CallState


_Owner = TypeVar("_Owner", bound=_HasCalls)


def one_call(
    call: Callable[Concatenate[_Owner, _Given], _Answer],
) -> Callable[Concatenate[_Owner, _Given], _Answer]:
    """A method that changes its object, and is not called while another one does.

    Raises NestedCallError from within another call, and EngineDeadError after one that was broken off.
    """
    return _alone(call, closes=False)


def closing_call(
    call: Callable[Concatenate[_Owner, _Given], _Answer],
) -> Callable[Concatenate[_Owner, _Given], _Answer]:
    """The same of a method that closes its object: it may be called after one that was broken off."""
    return _alone(call, closes=True)


def _alone(
    call: Callable[Concatenate[_Owner, _Given], _Answer], *, closes: bool
) -> Callable[Concatenate[_Owner, _Given], _Answer]:
    name = call.__name__

    @wraps(call)
    def alone(self: _Owner, /, *args: _Given.args, **options: _Given.kwargs) -> _Answer:
        calls = self._calls
        if calls.under_way is not None or calls.death is not None:
            calls.refuse(self, name, closes=closes)
        try:
            calls.under_way = name
            return call(self, *args, **options)
        except Exception:
            raise
        except BaseException as error:
            if not calls.is_waiting:
                calls.broken_off(name, error)
            raise
        finally:
            calls.under_way = None
            calls.is_waiting = False

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
