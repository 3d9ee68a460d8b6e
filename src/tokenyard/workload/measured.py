"""What an input has measured: times and hits of single requests, and what it says of the whole service."""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class Measured(NamedTuple):
    """What was measured of one request, as its client or a gateway saw it; None: the input does not say."""

    ttft_s: float | None = None
    """Seconds from sending it to its first token."""
    e2e_s: float | None = None
    """Seconds from sending it to the end of its answer."""
    cached_tokens: int | None = None
    """Prompt tokens that the service found in its prefix cache."""

    def tpot_s(self, num_tokens: int) -> float | None:
        """Seconds per token after the first, of an answer of ``num_tokens``; None where it had no second one."""
        if self.ttft_s is None or self.e2e_s is None or num_tokens < 2 or self.e2e_s < self.ttft_s:
            return None
        return (self.e2e_s - self.ttft_s) / (num_tokens - 1)


class ServiceCounts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What an input says of all its requests together."""

    requests_per_s: float | None = None
    """Requests that were served per second, by the input's own count; None: it has none."""
    not_served: dict[str, int] = {}
    """Status -> requests that were answered with it and are left out: the service refused them, or failed."""
