"""Replicas of a deployment, as flags say how many there are."""

from __future__ import annotations

import re

from tokenyard.deploy.settings import ParallelSettings
from tokenyard.deploy.times import seconds_of
from tokenyard.errors import ConfigError
from tokenyard.sim.parallel.autoscaler import Autoscaling

__all__ = ["read_autoscaling"]

_FORM = re.compile(r"([0-9]{1,4})(?:\.\.([0-9]{1,4}))?")


def read_autoscaling(flags: ParallelSettings) -> Autoscaling | None:
    """How many replicas there are; None: the deployment is one. Raises ConfigError."""
    if flags.replicas is None:
        return None
    found = _FORM.fullmatch(flags.replicas.strip())
    if found is None:
        raise ConfigError("replicas", flags.replicas, "give a number, or the fewest and the most: 4, or 1..8")
    if flags.data_parallel_size > 1:
        fix = "replicas are of one engine each here: give one of the two"
        raise ConfigError("data_parallel_size", flags.data_parallel_size, fix)
    least = int(found[1])
    return Autoscaling(
        least=least,
        most=int(found[2]) if found[2] is not None else least,
        startup=seconds_of("startup", flags.startup),
        target=flags.scale_target,
    )
