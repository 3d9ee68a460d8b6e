"""Whether arrivals that nobody gave a unit can be what they were read as."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["doubt_of_seconds"]

_SLOW = 1.0
"""Mean seconds between arrivals from which they may as well be milliseconds: a thousand requests a second are rare."""
_UNIX = 1e8
"""From here on a number of seconds is a Unix time, whose unit is told by its size."""


def doubt_of_seconds(moments: Sequence[float]) -> str | None:
    """A sentence if ``moments``, read as seconds because nothing said otherwise, may be milliseconds; else None."""
    if len(moments) < 2 or max(moments) >= _UNIX:
        return None
    span = max(moments) - min(moments)
    pace = span / (len(moments) - 1)
    if pace < _SLOW:
        return None
    return (
        f"times are read as seconds: {len(moments):,} requests in {span:,.0f} s, one every {pace:,.1f} s; if they are "
        "milliseconds, say --time-unit ms"
    )
