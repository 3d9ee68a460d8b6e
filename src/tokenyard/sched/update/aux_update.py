"""From the extras of a model's answer to those of its requests' outputs, and the end of pooling requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tokenyard.columns import IntArray
from tokenyard.request import Request, RequestStatus
from tokenyard.sched.features.routed_experts import RoutedExperts
from tokenyard.sched.steps.aux_output import NO_AUX, ModelAuxOutput, RequestAuxOutput, TokenLogprobs
from tokenyard.sched.steps.in_flight import StepInFlight
from tokenyard.sched.steps.model_output import ModelOutput

__all__ = ["AuxUpdate"]


def _cut(logprobs: TokenLogprobs, count: int) -> TokenLogprobs:
    """Of the accepted tokens alone: a stop may come before the last one."""
    return TokenLogprobs(logprobs.token_ids[:count], logprobs.logprobs[:count], logprobs.ranks[:count])


class AuxUpdate:
    """Costs two questions in a step that has no extras."""

    def __init__(self, routing: RoutedExperts | None, *, resets_drop_pooled: bool = False) -> None:
        """``resets_drop_pooled``: a pooler's result in flight when a reset preempts its request is dropped."""
        self._routing = routing
        self._resets_drop_pooled = resets_drop_pooled

    def run(
        self,
        step: StepInFlight,
        model: ModelOutput,
        counts: IntArray,
        endings: dict[int, RequestStatus],
        lost: Sequence[Request],
    ) -> Mapping[int, RequestAuxOutput]:
        """Extras by row; pooling requests that have their result are added to ``endings``."""
        if model.extras is None and self._routing is None:
            return NO_AUX
        given = model.extras if model.extras is not None else ModelAuxOutput()
        pooled = self._end_pooled(step.requests, given, endings, lost) if given.pooler_output else {}
        experts = self._routing.arrived(step, given.routed_experts, counts) if self._routing is not None else {}
        nans = given.num_nans_in_logits
        corrupt = {row for row in counts.nonzero()[0].tolist() if step.requests[row].request_id in nans} if nans else ()
        logprobs = {row: _cut(each, int(counts[row])) for row, each in given.logprobs.items() if counts[row]}
        prompts = {row: each for row, each in given.prompt_logprobs.items() if counts[row]}
        return {
            row: RequestAuxOutput(
                pooled.get(row),
                experts.get(row),
                nans.get(step.requests[row].request_id, 0),
                logprobs=logprobs.get(row),
                prompt_logprobs=prompts.get(row),
            )
            for row in sorted({*pooled, *experts, *corrupt, *logprobs, *prompts})
        }

    def _end_pooled(
        self,
        requests: Sequence[Request],
        given: ModelAuxOutput,
        endings: dict[int, RequestStatus],
        lost: Sequence[Request],
    ) -> dict[int, object]:
        """Results of pooling requests, by row: each ends with its result."""
        pooled = {}
        for row, (request, result) in enumerate(zip(requests, given.pooler_output, strict=True)):
            if request.pooling_params is None or result is None or request.status.is_finished or request in lost:
                continue
            if request.async_steps_to_discard:
                request.async_steps_to_discard -= 1
                if self._resets_drop_pooled:  # made before the reset: with weights that may have changed
                    continue
            pooled[row] = result
            endings[row] = RequestStatus.FINISHED_STOPPED
        return pooled
