"""Service: tokens that requests have been given, counted while they run.

A policy tells the meter of admissions and lets it settle before it compares. A token of output costs more than one of
input, as in the virtual token counter (arXiv 2401.00588): it takes a step of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from tokenyard.request import Request, RequestStatus

__all__ = ["OUTPUT_WEIGHT", "ServiceMeter"]

OUTPUT_WEIGHT = 2
"""Cost of an output token in input tokens."""


class ServiceMeter:
    """Charges running requests for what they have been given since they were last looked at."""

    __slots__ = ("_charge", "_seen")

    def __init__(self, charge: Callable[[Request, int], None]) -> None:
        self._charge = charge
        self._seen: dict[Request, int] = {}
        """Admitted request -> output tokens it has paid for."""

    def __len__(self) -> int:
        return len(self._seen)

    def admitted(self, request: Request) -> None:
        """Charge for its prompt (what the cache held is charged as well) and watch its output."""
        self._charge(request, request.num_tokens)
        self._seen[request] = request.num_output_tokens

    def charge_output(self) -> None:
        """Charge for output; forget who does not run any more. A preempted request pays again when it comes back."""
        for request, paid in list(self._seen.items()):
            output = request.num_output_tokens
            if output > paid:
                self._charge(request, OUTPUT_WEIGHT * (output - paid))
                self._seen[request] = output
            if request.status.is_finished or request.status is RequestStatus.PREEMPTED:
                del self._seen[request]
