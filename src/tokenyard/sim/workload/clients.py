"""Clients that do not wait for ever: after a time they hang up, and perhaps ask again.

sent ---- timeout ----| hangs up: the request is aborted
                      |-- wait --> sent again, a request of its own -- timeout --| ... as often as `retries` says
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from tokenyard.config import require_int
from tokenyard.errors import ConfigError

__all__ = ["Clients", "attempt_id"]

_MOST_RETRIES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """How long clients wait for a whole answer, and what they do then. Raises ConfigError."""

    timeout: float
    """Seconds from sending a request to the end of its answer."""
    retries: int = 0
    """Times that a request is sent again."""
    wait: float = 1.0
    """Seconds between hanging up and sending again."""

    def __post_init__(self) -> None:
        if not 0 < self.timeout < inf:
            raise ConfigError("client_timeout", self.timeout, "give a time above 0")
        require_int("retries", self.retries, 0, _MOST_RETRIES)
        if not 0 <= self.wait < inf:
            raise ConfigError("retry_wait", self.wait, "give a time, not negative")


def attempt_id(request_id: str, attempt: int) -> str:
    """What a request is called when it is sent for the ``attempt``-th time, from 1."""
    return request_id if attempt == 1 else f"{request_id}~{attempt}"
