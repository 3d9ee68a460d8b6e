"""Between the scheduler and its policy: what a policy answers is checked, and whatever is wrong is said in its name.

A method that the policy does not override is called as it is; each of the others costs one more call.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from functools import partial, wraps
from operator import index
from typing import Any

import numpy as np

from tokenyard.errors import ConfigError, PolicyError, TokenyardError, shown, text_of
from tokenyard.request import Request
from tokenyard.sched.policy import Policy, PolicyContext
from tokenyard.sched.queues.waiting import RequestQueue, WaitingQueues
from tokenyard.sched.steps.outcomes import Outcome

__all__ = ["PolicyGate", "named"]

_QUEUE_METHODS = ("__len__", "__iter__", *(name for name in vars(RequestQueue) if not name.startswith("_")))
_NO_QUESTIONS = ("bind", "context", "pins", "reads_max_tokens", "reads_tokens", "reorders")
_METHODS = tuple(name for name in vars(Policy) if not name.startswith("_") and name not in _NO_QUESTIONS)


def named(policy: Policy, method: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """``call`` with whatever it raises said in the policy's name, as PolicyError."""

    @wraps(call)
    def guarded(*args: object) -> Any:
        try:
            return call(*args)
        except TokenyardError:
            raise
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            problem = f"raised {type(error).__name__}: {text_of(error)} ({frame.filename}:{frame.lineno})"
            raise PolicyError(policy, method, problem) from error

    return guarded


class PolicyGate(Policy):
    """A policy whose answers can be relied on. Raises PolicyError for those that cannot."""

    def __init__(self, policy: Policy) -> None:
        """ConfigError if it is no policy at all."""
        if not isinstance(policy, Policy):
            raise ConfigError("policy", policy, "give an object of a class derived from tokenyard.Policy")
        self._policy = policy
        self._queues: list[object] = []
        """All that it has made."""
        for name in _METHODS:
            method = getattr(policy, name)
            if getattr(method, "__func__", None) is getattr(Policy, name):
                setattr(self, name, method)
                continue
            call, check = named(policy, name, method), getattr(self, f"_checked_{name}", None)
            if name.startswith("free_for_"):
                call = partial(self._freed, name, call)
            setattr(self, name, call if check is None else _checked(call, check))

    @property
    def reorders(self) -> bool:  # type: ignore[override]  # of the policy, whenever it is asked
        """As the policy says."""
        return self._policy.reorders

    def bind(self, context: PolicyContext) -> None:
        """Bind the policy, and see that its base class was told."""
        named(self._policy, "bind", self._policy.bind)(context)
        if self._policy.context is not context:
            raise PolicyError(self._policy, "bind", "keeps its context to itself: call super().bind(context) in it")

    @property
    def context(self) -> PolicyContext | None:  # type: ignore[override]  # likewise
        """The policy's."""
        return self._policy.context

    def _wrong(self, method: str, value: object, fix: str) -> PolicyError:
        return PolicyError(self._policy, method, f"returned {shown(value)}: return {fix}")

    def _checked_new_queue(self, queue: Any) -> RequestQueue:
        missing = [name for name in _QUEUE_METHODS if not callable(getattr(queue, name, None))]
        if missing:
            fix = f"a queue of requests, empty and new at every call; this one lacks {', '.join(missing)}"
            raise self._wrong("new_queue", queue, fix)
        if any(queue is each for each in self._queues) or len(queue):
            fix = "a queue of requests, empty and new at every call: it has returned this one before, or it holds some"
            raise self._wrong("new_queue", queue, fix)
        self._queues.append(queue)
        checked: RequestQueue = queue
        return checked

    def _checked_next_queue(self, queue: Any, room: WaitingQueues) -> RequestQueue:
        if queue is not room.waiting and queue is not room.skipped:
            raise self._wrong("next_queue", queue, "room.waiting or room.skipped")
        if not len(queue):
            raise self._wrong("next_queue", queue, "the one of the two queues that holds a request: this one is empty")
        checked: RequestQueue = queue
        return checked

    def _checked_victim(self, position: Any, running: Sequence[Request]) -> int:
        try:
            at = index(position)
        except TypeError:
            at = -1
        if not 0 <= at < len(running) or isinstance(position, bool):
            raise self._wrong("victim", position, f"an index of running, from 0 to {len(running) - 1}")
        return at

    def _checked_keeps_blocks(self, answer: Any, now: float, request: Request) -> bool:
        return self._yes_or_no("keeps_blocks", answer)

    def _checked_passes_over(self, answer: Any, refusal: Outcome) -> bool:
        return self._yes_or_no("passes_over", answer)

    def _checked_next_moment(self, moment: Any, now: float) -> float | None:
        if moment is None:
            return None
        if isinstance(moment, bool) or not isinstance(moment, int | float | np.number) or not moment > now:
            raise self._wrong("next_moment", moment, f"a moment after now ({now:g}), in seconds, or None")
        return float(moment)

    def _yes_or_no(self, method: str, answer: Any) -> bool:
        if not isinstance(answer, bool | np.bool_):
            raise self._wrong(method, answer, "True or False")
        return bool(answer)

    def _freed(self, name: str, call: Callable[..., Any], *args: object) -> bool:
        """The scheduler asks again as long as the answer is True: it has to have freed something."""
        pinned = len(self.pins)
        freed = self._yes_or_no(name, call(*args))
        if freed and len(self.pins) >= pinned:
            raise self._wrong(name, freed, "True only where a pin was dropped")
        return freed


def _checked(call: Callable[..., Any], check: Callable[..., Any]) -> Callable[..., Any]:
    def checked(*args: object) -> Any:
        return check(call(*args), *args)

    return checked
