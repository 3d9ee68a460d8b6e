"""What clients saw who hang up after a time and ask again."""

from __future__ import annotations

import msgspec

from tokenyard.explain.report.percentiles import LatencyFigures

__all__ = ["ClientFigures"]


class ClientFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Of a replay with ``--client-timeout``; the rest of the report is of attempts, as the server saw them."""

    timeout_s: float
    retries: int
    """Times that a client sends a request again, at most."""
    retry_wait_s: float
    """Seconds between hanging up and sending again."""
    given_up: int
    """Attempts that clients hung up on."""
    retried: int
    """Of them, those that were sent again."""
    answered_late: int
    """Requests that a later attempt than the first one answered."""
    unanswered: int
    """Requests whose client went away for good."""
    answer_ms: LatencyFigures
    """Of each answered request: from its first sending to the end of its answer."""
