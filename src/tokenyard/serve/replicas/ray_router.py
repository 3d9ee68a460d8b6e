"""Ray Serve's seam for routing: it asks here which replica gets a request."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from tokenyard.core.request import Request
from tokenyard.serve.replicas.routing import Balance, RoutedPrompt, as_request
from tokenyard.sim.named_routers import router_maker
from tokenyard.sim.routers import Fleet, PrefixAffinity


class ReplicaRouter(RequestRouter):  # type: ignore[misc] # Ray has no types
    """A router of the replay, behind Ray's interface. A request without a prompt goes to the least busy replica."""

    def initialize_state(self, *, router: str, most_ahead: int, most_remembered: int) -> None:
        """Ray gives the keyword arguments of the deployment."""
        chosen = PrefixAffinity(most_ahead) if router == "prefix-affinity" else router_maker(router)(Fleet(1))
        self._balance = Balance(chosen, most_remembered, time.monotonic)

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """The one that is chosen, then the others: Ray asks them in this order whether they take it."""
        by_name = {each.replica_id.unique_id: each for each in candidate_replicas}
        if pending_request is None or len(by_name) < 2:
            return [candidate_replicas]
        request = _request(pending_request)
        name = self._balance.choose(request, list(by_name))
        # Counted at once: others are routed before this one has arrived.
        self._balance.sent(request, name)
        pending_request.future.add_done_callback(lambda future: self._given_up(future, request.request_id))
        return [[by_name.pop(name)], list(by_name.values())]

    def _given_up(self, future: asyncio.Future[Any], request_id: str) -> None:
        if future.cancelled():
            self._balance.ended(request_id)

    def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any) -> None:
        """A replica has taken it."""
        self._balance.sent(_request(pending_request), replica_id.unique_id)

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        """Its answer has ended, however."""
        self._balance.ended(internal_request_id)

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """Replicas have come or gone."""
        super().update_replicas(replicas)
        self._balance.keep(each.replica_id.unique_id for each in replicas)


def _request(pending: PendingRequest) -> Request:
    prompt = next((each for each in pending.args if isinstance(each, RoutedPrompt)), None)
    return as_request(pending.metadata.internal_request_id, prompt)
