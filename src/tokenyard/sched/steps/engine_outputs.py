"""What goes on to the clients after a step: columns over the requests that have news, records on demand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from tokenyard.columns import IntArray
from tokenyard.request import FinishReason, Request
from tokenyard.sched.steps.aux_output import NO_AUX, NO_AUX_OUTPUT, RequestAuxOutput
from tokenyard.sched.steps.stats import SchedulerStats

__all__ = ["EngineOutputs", "RequestOutput"]


class RequestOutput(msgspec.Struct, frozen=True, gc=False):  # made by the dozen in every step, and in no cycle
    """News about one request after a step."""

    request_id: str
    """The request that the news is about."""
    new_token_ids: list[int]
    """Tokens accepted in this step, in order."""
    finish_reason: FinishReason | None = None
    """Why it has ended; None: it has not."""
    stop_reason: int | str | None = None
    """The stop token or text that ended it; None: something else did, or nothing."""
    extras: RequestAuxOutput = NO_AUX_OUTPUT
    """What there is beside tokens."""
    kv_transfer_params: Mapping[str, object] | None = None
    """What the client has to hand to the engine that goes on with the request."""


class EngineOutputs(msgspec.Struct, kw_only=True, eq=False):
    """Result of ``update_from_output``: columns over the requests that produced something."""

    step: int
    requests: Sequence[Request]
    req_ids: Sequence[str]
    """Their ids."""
    tokens: IntArray
    """Shape ``[m, width]``."""
    num_tokens: IntArray
    """Accepted tokens per request, shape ``[m]``."""
    finish_reasons: dict[int, FinishReason]
    """Row -> reason, for requests that ended."""
    stop_reasons: dict[int, int | str]
    scheduler_stats: SchedulerStats
    extras: Mapping[int, RequestAuxOutput] = NO_AUX
    """Row -> what there is beside tokens, for the few requests that have any."""
    kv_transfer_params: Mapping[str, Mapping[str, object]] = {}
    """Request id -> a connector's parameters for the client, for requests that have ended."""

    def by_client(self) -> dict[int, list[RequestOutput]]:
        """The records per ``client_index``, for hosts with several front ends."""
        clients: dict[int, list[RequestOutput]] = {}
        for request, news in zip(self.requests, self, strict=True):
            clients.setdefault(request.client_index, []).append(news)
        return clients

    def apart(self) -> EngineOutputs:
        """The same with dictionaries of its own, for those who may look and not change."""
        own = {name: dict(getattr(self, name)) for name in ("finish_reasons", "stop_reasons", "kv_transfer_params")}
        return msgspec.structs.replace(self, **own)

    def without_aborted(self) -> EngineOutputs:
        """The same without news of requests that were ended from outside since."""
        rows = [i for i, each in enumerate(self.requests) if i in self.finish_reasons or not each.status.is_finished]
        if len(rows) == len(self.requests):
            return self
        return msgspec.structs.replace(
            self,
            requests=[self.requests[i] for i in rows],
            req_ids=[self.req_ids[i] for i in rows],
            tokens=self.tokens[rows],
            num_tokens=self.num_tokens[rows],
            finish_reasons={i: self.finish_reasons[row] for i, row in enumerate(rows) if row in self.finish_reasons},
            stop_reasons={i: self.stop_reasons[row] for i, row in enumerate(rows) if row in self.stop_reasons},
            extras={i: self.extras[row] for i, row in enumerate(rows) if row in self.extras},
        )

    def __len__(self) -> int:
        return len(self.requests)

    def __iter__(self) -> Iterator[RequestOutput]:
        """One record per request, in scheduling order."""
        rows = self.tokens.tolist()
        if not (self.finish_reasons or self.extras or self.kv_transfer_params) and self.tokens.shape[1] == 1:
            # Nearly every step: a token each, and nothing else to tell.
            return map(RequestOutput, self.req_ids, rows)
        return self._records(rows)

    def _records(self, rows: list[list[int]]) -> Iterator[RequestOutput]:
        counts = self.num_tokens.tolist()
        for i, request in enumerate(self.requests):
            yield RequestOutput(
                self.req_ids[i],
                rows[i][: counts[i]],
                self.finish_reasons.get(i),
                self.stop_reasons.get(i),
                self.extras.get(i, NO_AUX_OUTPUT),
                self.kv_transfer_params.get(request.request_id),
            )
