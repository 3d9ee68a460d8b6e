"""Times with their units, as people write them."""

from __future__ import annotations

import re
from math import inf

from tokenyard.errors import ConfigError
from tokenyard.explain.report.slo import MILLISECONDS

__all__ = ["seconds_of"]

_TIME = re.compile(r"([0-9.]+(?:e[+-]?[0-9]+)?)\s*([a-z]+)")


def seconds_of(field: str, text: str) -> float:
    """A time with its unit (``30s``, ``250ms``), in seconds. Raises ConfigError naming ``field``."""
    found = _TIME.fullmatch(text.strip().lower())
    try:
        seconds = float(found[1]) * MILLISECONDS[found[2]] / 1e3 if found is not None else -1.0
    except (KeyError, ValueError):
        seconds = -1.0
    if not 0 <= seconds < inf:
        raise ConfigError(field, text, f"give a time with its unit ({', '.join(MILLISECONDS)}), for example 30s")
    return seconds
