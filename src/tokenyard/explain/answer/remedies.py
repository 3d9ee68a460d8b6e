"""What would help: what the cause itself asks for, then the settings that the rules propose and the hardware allows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from tokenyard.explain.advice.rules import Advice, Trial
from tokenyard.explain.answer.causes import (
    HELD_BACK,
    HOT_ENGINE,
    PINS_HELD,
    PINS_LEAK,
    POOL_FELL,
    PREEMPTION_STORM,
    Cause,
    group_name,
)
from tokenyard.explain.answer.whose import BLOCKS, SEATS, SLOTS, TOKENS, Whose
from tokenyard.units import count

UNPIN, RESTART, RESTORE_POOL, ROUTE = "unpin", "restart", "restore_pool", "route"
LIMIT, SETTING, SCALE = "limit", "setting", "scale"
_NO_SETTING = (PINS_LEAK, PINS_HELD, POOL_FELL, HOT_ENGINE)
"""Causes that no setting of the engine cures."""
_LONGER_WAITS = "long-prefills"
"""The rule that lets prompts wait longer for their tokens: no remedy where they wait for tokens."""


class Remedy(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that would help."""

    code: str
    """``unpin``, ``restart``, ``restore_pool``, ``route``, ``limit`` (a group of requests), ``setting``, ``scale``."""
    title: str
    """The same in a few words: ``limit tenant 9d22 to about 5,400 prompt tokens a second``."""
    setting: str | None = None
    flag: str | None = None
    """The flag and its value, where a replay tried it."""
    rule: str | None = None
    """The rule that proposes a setting (``rules.toml``)."""
    evidence: str = ""
    price: str = ""
    is_tried: bool = False
    """A replay with it helped; else it is not tried."""


def remedies_for(
    causes: Sequence[Cause], advice: Sequence[Advice], *, is_stuck: bool, engines: int | None = None
) -> list[Remedy]:
    """What would help, most likely first; without settings where the cause is none that a setting cures.

    ``engines``: how many like this one serve what arrives, where this one does not.
    """
    found = [remedy for cause in causes for remedy in _of_cause(cause)]
    if is_stuck and not found:
        found.append(Remedy(code=RESTART, title="restart the engine; `tokenyard why --stuck` shows where it stands"))
    if is_stuck or any(each.code in _NO_SETTING for each in causes):
        return found
    tried = [_setting(each, each.trial) for each in advice if each.trial is not None and each.trial.effects]
    waits_for_tokens = any(each.code == HELD_BACK and each.whose and each.whose.of == TOKENS for each in causes)
    untried = [
        _setting(each, None)
        for each in advice
        if each.trial is None and not (waits_for_tokens and each.rule == _LONGER_WAITS)
    ]
    if engines is not None:
        untried.append(
            Remedy(code=SCALE, title=f"serve it with about {engines:,} engines like this one", price="their GPUs")
        )
    unique = {each.title: each for each in [*tried, *found, *untried]}
    return list(unique.values())


def _setting(advice: Advice, trial: Trial | None) -> Remedy:
    return Remedy(
        code=SETTING,
        title=advice.title if trial is None else trial.title,
        setting=advice.setting,
        flag=None if trial is None else trial.flag,
        rule=advice.rule,
        evidence=advice.evidence,
        price=advice.price,
        is_tried=trial is not None,
    )


def _of_cause(cause: Cause) -> Iterator[Remedy]:
    """What the cause itself asks for."""
    if cause.code in (PINS_LEAK, PINS_HELD):
        yield Remedy(
            code=UNPIN,
            title="let the pins go (what pins the blocks of ended turns has to release them); a restart frees them",
            price="turns that come back compute their history again",
        )
    elif cause.code == POOL_FELL:
        yield Remedy(code=RESTORE_POOL, title="give the engine its KV blocks back", price="the memory that was taken")
    elif cause.code == HOT_ENGINE:
        yield Remedy(
            code=ROUTE,
            title=f"choose a router that goes by load, not by session alone: engine {cause.rank} gets too much",
            price="prefix hits of sessions that move",
        )
    elif cause.code in (HELD_BACK, PREEMPTION_STORM) and cause.whose is not None and cause.whose.of != SLOTS:
        yield _limit(cause.whose)


def _limit(whose: Whose) -> Remedy:
    """A bound on the group that had what was short."""
    name = group_name(whose)
    if whose.kind == "request":
        most = "bound how long one request may be (max_tokens, max_model_len)"
        title = f"{most}: {name} had {count(whose.prompt_tokens)} prompt tokens"
    elif whose.of == TOKENS and whose.limit_tokens_per_s:
        title = f"limit {name} to about {_round(whose.limit_tokens_per_s)} prompt tokens a second"
    elif whose.of == SEATS:
        title = f"limit how many of {name} run at once, or give them an engine of their own"
    elif whose.of == BLOCKS:
        title = f"limit how many of {name} run at once, or how long their answers may be"
    else:
        title = f"limit {name}, or give them an engine of their own"
    return Remedy(code=LIMIT, title=title, price="they wait longer, the others less")


def _round(value: float) -> str:
    """Two digits that count."""
    digits = len(f"{value:.0f}") - 2
    return f"{round(value, -digits):,.0f}"
