"""Attributes that are worked out once, and hooks whose names are checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

from tokenyard.errors import ConfigError, near_names

# ---------------------------------------------------------------------------------------------------------------------
# An attribute worked out when it is first asked for, then kept.
#
# ``functools.cached_property`` takes a lock for every first question in Python 3.11, which is most of its cost where
# an object is asked each question once: a step's records are. Here two threads that ask at once may both work it out,
# to the same result.

T = TypeVar("T")


class cached_attribute(Generic[T]):  # noqa: N801 - a decorator, named like ``property``
    """Method -> attribute, kept in the object's ``__dict__`` under the method's name."""

    def __init__(self, work_out: Callable[[Any], T]) -> None:
        self.func = work_out
        self._name = work_out.__name__
        self.__doc__ = work_out.__doc__

    @overload
    def __get__(self, owner: None, kind: type) -> cached_attribute[T]: ...
    @overload
    def __get__(self, owner: object, kind: type) -> T: ...
    def __get__(self, owner: object | None, kind: type) -> cached_attribute[T] | T:
        if owner is None:
            return self
        value = self.func(owner)
        # Not a data descriptor: from now on the attribute is found before this is asked.
        owner.__dict__[self._name] = value
        return value


# ---------------------------------------------------------------------------------------------------------------------
# Hooks by their names: a method that is called almost as a hook is would never be called.

_NEAR = 0.85
"""How alike two names are (difflib) of which one is the other, misspelt."""
ALSO_CALLED = {
    # policies
    "new_queue": "create_queue create_request_queue make_queue get_queue request_queue waiting_queue",
    "next_queue": "select_queue select_waiting_queue choose_queue pick_queue",
    "victim": (
        "select_victim choose_victim pick_victim get_victim find_victim preemption_victim select_for_preemption"
        " preempt preempt_request request_to_preempt"
    ),
    "request_arrived": "add_request on_add_request on_arrival on_request on_new_request request_added new_request",
    "step_begins": "on_step on_step_start step_start step_started before_step pre_step on_schedule before_schedule",
    "admits": "admit can_admit should_admit may_admit can_schedule should_schedule is_admissible accepts allows",
    "request_admitted": "on_admit on_admission on_admitted request_scheduled on_scheduled on_request_scheduled",
    "keeps_blocks": (
        "pin pins_blocks pin_blocks should_pin keep should_keep retain retains retain_blocks request_finished"
        " on_request_finished on_finish on_finished finish_request free_request free_blocks"
    ),
    "free_for_waiting": "unpin unpin_for_waiting make_room make_room_for_waiting reclaim",
    "free_for_running": "unpin_for_running make_room_for_running",
    "next_moment": "next_move next_time next_event next_wakeup wakeup wakeup_time wake_at next_deadline",
    "skips": "should_skip can_skip may_skip skip_request bypass bypasses",
    "keeps_tokens": "retain_tokens tokens_to_keep partial_preemption preempt_partially",
    "evicts_first": "eviction_order evict evict_order evict_blocks select_eviction blocks_to_evict",
    "key": (
        "get_key sort_key sorting_key order_key priority_key queue_key request_key key_of priority get_priority"
        " calc_priority compute_priority score get_score order sort compare"
    ),
    # routers
    "choose": (
        "select select_engine select_replica select_worker choose_engine choose_replica pick pick_engine route"
        " route_request get_engine"
    ),
    "engine_reported": "on_report on_engine_report update_stats update_engine",
    "request_ended": "request_finished on_request_finished on_finish on_request_end request_done",
    # observers
    "step_started": "step_begins on_step on_step_start step_begin",
    "step_decided": "step_scheduled on_schedule on_scheduled scheduled on_step_decided",
    "step_completed": "step_finished step_ended step_done on_step_end on_step_finished",
    "request_finished": "request_ended request_done on_finish on_finished finish_request request_finished_all_groups",
    "cache_reset": "on_reset reset_cache reset_prefix_cache",
    # connectors
    "get_num_new_matched_tokens": "get_matched_tokens num_matched_tokens match_prefix lookup",
    "take_stats": "get_stats get_kv_connector_stats kv_connector_stats",
}
"""Hook -> what other schedulers and routers, or another seam here, call the like of it."""
_NO_HOOKS = frozenset(("bind", "context", "is_bound", "pins"))
"""Names that are never overridden by mistake."""


def check_hook_names(kind: type, seam: str) -> None:
    """Raise ConfigError if the class defines a public name that only looks like a hook of the classes it derives from.

    ``seam`` is what it derives from, in words. Names of one's own begin with an underscore, or are farther from it, or
    stand beside the hook itself, which then calls them (``victim`` and ``select_victim``).
    """
    ours = [base for base in kind.__mro__[1:] if base.__module__.startswith("tokenyard.")]
    known = {name for base in kind.__mro__[1:] for name in vars(base)}
    hooks = sorted({name for base in ours for name in vars(base) if not name.startswith("_")} - _NO_HOOKS)
    theirs = {name for base in kind.__mro__ if base not in ours for name in vars(base)}
    missing = [hook for hook in hooks if hook not in theirs]
    for name in vars(kind):
        if name.startswith("_") or name in known:
            continue
        near = near_names(name, hooks, 1, _NEAR)
        if not near and callable(vars(kind)[name]):
            near = [hook for hook in missing if _means(name, hook)]
        if near:
            fix = f"is no hook, so it is never called: did you mean {near[0]}? (One of your own needs another name.)"
            raise ConfigError(seam, f"{kind.__qualname__}.{name}", fix)


def _means(name: str, hook: str) -> bool:
    """Whether it is what others call the hook, or one letter of it is another, missing or too many, or two change
    places: in a short name that is much, as difflib counts.
    """
    if name in ALSO_CALLED.get(hook, "").split():
        return True
    if len(name) == len(hook):
        differ = [i for i in range(len(name)) if name[i] != hook[i]]
        if len(differ) == 2:
            first, last = differ
            return last == first + 1 and name[first] == hook[last] and name[last] == hook[first]
        return len(differ) == 1
    longer, shorter = (name, hook) if len(name) > len(hook) else (hook, name)
    return any(longer[:i] + longer[i + 1 :] == shorter for i in range(len(longer)))
