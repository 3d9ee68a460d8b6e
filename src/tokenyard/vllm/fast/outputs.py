"""What clients are told, as vLLM's ``EngineCoreOutputs``.

Nearly every row is an id and a token. Whatever else vLLM tells belongs to few rows, and costs nothing where there are
none: how a request ended, what happened to it, statistics of its prompt, log-probabilities.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from vllm.v1.engine import EngineCoreEvent, EngineCoreEventType, EngineCoreOutput, EngineCoreOutputs, FinishReason

from tokenyard.kv.manager import KVCacheManager
from tokenyard.sched.steps.engine_outputs import EngineOutputs
from tokenyard.sched.steps.in_flight import StepInFlight
from tokenyard.vllm import versions
from tokenyard.vllm.fast.requests import FastRequest
from tokenyard.vllm.fast.statistics import FirstOutput

__all__ = ["OutputTranslation"]


class OutputTranslation:
    """Knows what its requests want to be told beside tokens."""

    def __init__(self, kv: KVCacheManager, monotonic: Callable[[float], float], *, include_finished_set: bool) -> None:
        """``kv`` knows what of a request is in the prefix cache, ``monotonic`` what vLLM's clock reads at a time."""
        self._kv = kv
        self._monotonic = monotonic
        self._later_hits_count = versions.counts_later_hits()
        self._particular: dict[str, FastRequest] = {}
        """Requests with log-probabilities or trace headers, whose every output is more than tokens."""
        self._silent: dict[str, FirstOutput] = {}
        """Admitted requests without an output so far."""
        self._num_nans: dict[str, int] = {}
        self._stopped_before: dict[str, int | str] = {}
        """Sessions -> what ended their last answer; vLLM's outputs go on saying it until something else does."""
        self._num_foreign = 0
        """Requests of clients other than number 0."""
        self._finished: dict[int, set[str]] | None = {} if include_finished_set else None

    # ---- the life of a request

    def added(self, request: FastRequest) -> None:
        """A request was added."""
        theirs, params = request.theirs, request.theirs.sampling_params
        told = params is not None and (params.num_logprobs is not None or params.prompt_logprobs is not None)
        if told or theirs.trace_headers is not None:
            self._particular[request.request_id] = request
        self._num_foreign += request.client_index != 0

    def scheduled(self, step: StepInFlight) -> None:
        """A step was decided: of requests without an output so far, note what their first output will tell."""
        plan = step.plan
        if plan.num_running < len(plan.req_ids):
            self._note_admitted(step)
        if not self._silent:
            return
        chunks = plan.is_prefill_chunk
        for row, request_id in enumerate(plan.req_ids):
            if request_id in self._silent and (chunks is None or not chunks[row]):
                self._silent[request_id].note_blocks(self._kv)

    def _note_admitted(self, step: StepInFlight) -> None:
        plan = step.plan
        for row in range(plan.num_running, len(plan.req_ids)):
            request = cast("FastRequest", step.requests[row])
            if request.theirs.prefill_stats is None:
                continue  # told already
            if request.request_id not in self._silent or self._later_hits_count:
                self._silent[request.request_id] = FirstOutput(request, int(plan.num_computed[row]))

    def ended(self, request: FastRequest) -> None:
        """A request has ended."""
        request_id = request.request_id
        self._particular.pop(request_id, None)
        self._silent.pop(request_id, None)
        self._num_nans.pop(request_id, None)
        self._stopped_before.pop(request_id, None)
        self._num_foreign -= request.client_index != 0
        if self._finished is not None:
            self._finished.setdefault(request.client_index, set()).add(request_id)

    # ---- a step

    def translated(self, result: EngineOutputs, answer: Any, errors: list[tuple[int, Any]]) -> dict[int, Any]:
        """The outputs by client; ``errors`` are further ones, each with its client."""
        records = self._records(result)
        if self._silent or self._particular or self._stopped_before or self._num_nans or answer.num_nans_in_logits:
            self._add_particulars(result, records, answer)
        for row, reason in result.finish_reasons.items():
            records[row].finish_reason = FinishReason[reason.name]
        for row, why in result.stop_reasons.items():
            records[row].stop_reason = why
            if result.requests[row].resumable:
                self._stopped_before[result.req_ids[row]] = why
        for row, extra in result.extras.items():
            records[row].pooling_output = extra.pooling_output
            if extra.events:
                records[row].events = [
                    EngineCoreEvent(EngineCoreEventType(each.type), self._monotonic(each.timestamp))
                    for each in extra.events
                ]
        by_client = self._by_client(result, records)
        for client, output in errors:
            by_client.setdefault(client, []).append(output)
        outputs = {client: EngineCoreOutputs(outputs=each) for client, each in by_client.items()}
        for row in result.finish_reasons:
            if result.requests[row].status.is_finished:
                self.ended(result.requests[row])  # type: ignore[arg-type]  # all of them are ours
        self._tell_finished(outputs)
        return outputs

    @staticmethod
    def _records(result: EngineOutputs) -> list[Any]:
        rows = result.tokens.tolist()
        if result.tokens.shape[1] > 1 or result.finish_reasons or result.extras:
            rows = [row[:count] for row, count in zip(rows, result.num_tokens.tolist(), strict=True)]
        return list(map(EngineCoreOutput, result.req_ids, rows))

    def _by_client(self, result: EngineOutputs, records: list[Any]) -> dict[int, list[Any]]:
        if not records:
            return {}
        if not self._num_foreign:
            return {0: records}
        by_client: dict[int, list[Any]] = {}
        for request, record in zip(result.requests, records, strict=True):
            by_client.setdefault(request.client_index, []).append(record)
        return by_client

    def _add_particulars(self, result: EngineOutputs, records: list[Any], answer: Any) -> None:
        if answer.num_nans_in_logits:
            self._num_nans.update(answer.num_nans_in_logits)
        for row, request_id in enumerate(result.req_ids):
            record = records[row]
            first = self._silent.pop(request_id, None)
            if first is not None:
                record.prefill_stats = first.stats(self._kv)
                first.request.theirs.prefill_stats = None
            if request_id in self._stopped_before:
                record.stop_reason = self._stopped_before[request_id]
            if request_id in self._num_nans:
                record.num_nans_in_logits = self._num_nans[request_id]
            if request_id in self._particular:
                self._add_wanted(self._particular[request_id], record, answer)

    @staticmethod
    def _add_wanted(request: FastRequest, record: Any, answer: Any) -> None:
        """Log-probabilities, and the headers that come back."""
        theirs = request.theirs
        record.trace_headers = theirs.trace_headers
        params = theirs.sampling_params
        if params is not None and params.num_logprobs is not None and answer.logprobs:
            at = answer.req_id_to_index[request.request_id]
            record.new_logprobs = answer.logprobs.slice_request(at, len(record.new_token_ids))
        record.new_prompt_logprobs_tensors = answer.prompt_logprobs_dict.get(request.request_id)
        scores = getattr(answer, "prompt_token_id_logprobs_dict", {}).get(request.request_id)
        if scores is not None:
            record.prompt_token_id_logprobs = scores

    def _tell_finished(self, outputs: dict[int, Any]) -> None:
        """Ids that have ended since the last outputs, for front ends that count requests."""
        if not self._finished:
            return
        for client, ids in self._finished.items():
            if client not in outputs:
                outputs[client] = EngineCoreOutputs()
            outputs[client].finished_requests = ids
        self._finished = {}
