"""From the extras of a model's answer to those of its requests' outputs, and the end of pooling requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tokenyard.request import Request, RequestStatus
from tokenyard.sched.extras import NO_EXTRAS, ModelExtras, OutputExtras
from tokenyard.sched.output import ModelOutput, SchedulerOutput
from tokenyard.sched.request_events import RequestEvents
from tokenyard.sched.routing import RoutedExperts
from tokenyard.table import IntArray

__all__ = ["PassThrough"]


class PassThrough:
    """Costs two questions in a step that has no extras."""

    def __init__(self, events: RequestEvents | None, routing: RoutedExperts | None) -> None:
        self._events = events
        self._routing = routing
        self._keeps_something = events is not None or routing is not None

    def run(
        self,
        output: SchedulerOutput,
        model: ModelOutput,
        counts: IntArray,
        endings: dict[int, RequestStatus],
        lost: Sequence[Request],
    ) -> Mapping[int, OutputExtras]:
        """Extras by row; pooling requests that have their result are added to ``endings``."""
        if model.extras is None and not self._keeps_something:
            return NO_EXTRAS
        given = model.extras if model.extras is not None else ModelExtras()
        pooled = self._end_pooled(output.requests, given, endings, lost) if given.pooler_output else {}
        experts = self._routing.arrived(output, given.routed_experts, counts) if self._routing is not None else {}
        events, nans = self._events, given.num_nans_in_logits
        if not (pooled or experts or nans or (events is not None and len(events))):
            return NO_EXTRAS
        told = {}
        for row in sorted({*counts.nonzero()[0].tolist(), *pooled}):
            request = output.requests[row]
            happened = events.take(request) if events is not None else ()
            corrupt = nans.get(request.request_id, 0)
            if row in pooled or row in experts or happened or corrupt:
                told[row] = OutputExtras(pooled.get(row), experts.get(row), corrupt, happened)
        return told

    @staticmethod
    def _end_pooled(
        requests: Sequence[Request], given: ModelExtras, endings: dict[int, RequestStatus], lost: Sequence[Request]
    ) -> dict[int, object]:
        """Results of pooling requests, by row: each ends with its result."""
        pooled = {}
        for row, (request, result) in enumerate(zip(requests, given.pooler_output, strict=True)):
            if request.pooling_params is None or result is None or request.status.is_finished or request in lost:
                continue
            if request.async_steps_to_discard:
                request.async_steps_to_discard -= 1  # made before a reset: with weights that may have changed
                continue
            pooled[row] = result
            endings[row] = RequestStatus.FINISHED_STOPPED
        return pooled
