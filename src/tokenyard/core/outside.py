"""What the profiles of some versions do not model as their version has it, by name.

A replay goes on with what a neighbour does, and says so; inside vLLM such a configuration is refused.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tokenyard.core.config import CacheConfig, SchedulerConfig
from tokenyard.core.profiles import PROFILES, nearest_version


class Outside(msgspec.Struct, frozen=True):
    """A feature, and the versions that it was not modelled of."""

    first: str
    last: str
    what: str
    """What a replay does in its place."""
    uses: Callable[[SchedulerConfig, CacheConfig], bool]
    """Whether settings use it."""


OUTSIDE: dict[str, Outside] = {}
"""By the name of the feature. There is none now; a new version may bring one before it is modelled."""


def outside(version: str) -> dict[str, str]:
    """Features that the profile of ``version`` does not model as that version has them, each with what it does."""
    names = list(PROFILES)
    place = names.index(nearest_version(version))
    return {
        feature: each.what
        for feature, each in OUTSIDE.items()
        if names.index(each.first) <= place <= names.index(each.last)
    }


def outside_features(scheduler: SchedulerConfig, cache: CacheConfig) -> dict[str, str]:
    """The features that these settings use."""
    found = outside(scheduler.profile.vllm_version)
    return {feature: what for feature, what in found.items() if OUTSIDE[feature].uses(scheduler, cache)}
