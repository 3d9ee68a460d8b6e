"""KV on its way from prefill engines to decode engines, in a replay: both worker halves on one clock.

The decode side knows when a transfer will be over as soon as it begins, and tells the prefill side, whose blocks are
free from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf

from tokenyard.connectors.plan import TransferPlan
from tokenyard.sched.steps.model_output import ConnectorOutput
from tokenyard.sim.transfers.link import Link, TransfersUnderWay

__all__ = ["DecodeTransfers", "PrefillTransfers"]


class PrefillTransfers:
    """Open offers, when each of them ends, and the wire that leads away from the engine."""

    def __init__(self, now: Callable[[], float], link: Link) -> None:
        self._now = now
        self.link = link
        self._open: dict[str, float] = {}
        self._early: dict[str, float] = {}
        """Ends of offers that the decode side knew before they were opened."""

    def begin(self, plan: TransferPlan | None) -> float:
        """Open a step's offers; nothing has to be waited for."""
        for offer in plan.offers if plan is not None else ():
            self._open[offer.request_id] = self._early.pop(offer.request_id, offer.deadline)
        return 0.0

    def ends(self, request_id: str, moment: float) -> None:
        """The blocks are not needed after ``moment``; infinity: until that is known."""
        known = self._open if request_id in self._open else self._early
        known[request_id] = moment

    @property
    def next_moment(self) -> float | None:
        """When the next offer ends, as far as is known; None if none does."""
        moment = min(self._open.values(), default=inf)
        return moment if moment < inf else None

    def report(self) -> ConnectorOutput | None:
        """Offers that have ended since the last call."""
        now = self._now()
        ended = frozenset(request_id for request_id, moment in self._open.items() if moment <= now)
        for request_id in ended:
            del self._open[request_id]
        return ConnectorOutput(finished_sending=ended) if ended else None


class DecodeTransfers(TransfersUnderWay):
    """Fetches over the wire of the engine that holds the blocks."""

    def __init__(
        self, now: Callable[[], float], bytes_per_block: int, prefills: Mapping[str, PrefillTransfers]
    ) -> None:
        """``prefills`` by the name of their engine; bytes are those of one GPU."""
        super().__init__(now, bytes_per_block)
        self._prefills = prefills

    def begin(self, plan: TransferPlan | None) -> float:
        """Begin a step's transfers; nothing has to be waited for."""
        if plan is None:
            return 0.0
        for remote in plan.claims:
            self._prefills[remote.engine_id].ends(remote.request_id, inf)
        for remote in plan.releases:
            self._prefills[remote.engine_id].ends(remote.request_id, self._now())
        for load in plan.loads:
            assert load.remote is not None
            source = self._prefills[load.remote.engine_id]
            source.ends(load.remote.request_id, self._send(source.link, load, self._now()))
        return 0.0
