"""Per-request records: the state of every queued request at every step (the requests file)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, islice
from typing import cast

import msgspec

from tokenyard.request import Request, RequestStatus
from tokenyard.sched.observer import SchedulerState
from tokenyard.trace.emit.detokenizer import Decoder
from tokenyard.trace.emit.writer import TraceWriter
from tokenyard.trace.format.schema import RequestRecord
from tokenyard.trace.format.step_facts import least_need

__all__ = ["STATUS_TEXT", "RequestRecords"]

_EDGE = 16
"""Token ids kept from either end of the prompt and from the end of the output."""

STATUS_TEXT = {status: f"RequestStatus.{status.name}" for status in RequestStatus}


class _Prompt(msgspec.Struct):
    """What never changes about a request, ready to be embedded."""

    prefix: list[int]
    suffix: list[int]
    text: str | None


class RequestRecords:
    """Writes the records of one step; costs time for every queued request."""

    def __init__(self, writer: TraceWriter, decoder: Decoder) -> None:
        self._writer = writer
        self._limit = writer.config.max_ids_per_step
        self._decoder = decoder
        self._prompts: dict[str, _Prompt] = {}

    def write(self, step: int, ts: float, state: SchedulerState) -> int | None:
        """One record per running and per waiting request, at most ``max_ids_per_step`` of each.

        Returns the least blocks that admit a waiting request; None where the records do not tell it.
        """
        self._write_queue(step, ts, "running", state.running, state)
        queue = chain(state.skipped_waiting, state.waiting)
        waiting = self._write_queue(step, ts, "waiting", queue, state)
        is_cut = next(queue, None) is not None
        return None if is_cut else least_need(waiting, state.block_size)

    def forget(self, request_id: str) -> None:
        """The request is gone."""
        self._prompts.pop(request_id, None)

    def _write_queue(
        self, step: int, ts: float, queue: str, requests: Iterable[Request], state: SchedulerState
    ) -> list[RequestRecord]:
        written = [
            self._record(step, ts, queue, request, state.num_blocks_of(request))
            for request in islice(requests, self._limit)
        ]
        for record in written:
            self._writer.append_request(record)
        return written

    def _record(self, step: int, ts: float, queue: str, request: Request, num_blocks: int) -> RequestRecord:
        prompt = self._prompts.get(request.request_id) or self._prompt(request)
        num_tokens = request.num_tokens
        num_prompt = request.num_prompt_tokens
        tail: list[int] = []
        if num_tokens > num_prompt:
            tail = request.token_slice(max(num_prompt, num_tokens - _EDGE), num_tokens).tolist()
        return RequestRecord(
            step=step,
            ts=ts,
            queue=queue,
            req_id=request.request_id,
            job_id=request.job_id,
            status=STATUS_TEXT[request.status],
            priority=request.priority,
            arrival_time=request.arrival_time,
            max_tokens=request.max_tokens,
            num_prompt_tokens=num_prompt,
            num_tokens=num_tokens,
            num_output_tokens=num_tokens - num_prompt,
            num_computed_tokens=request.num_computed_tokens,
            num_cached_tokens=max(request.num_cached_tokens, 0),
            num_preemptions=request.num_preemptions,
            num_external_computed_tokens=request.num_external_computed_tokens,
            is_prefill_chunk=request.is_prefill_chunk,
            resumable=request.resumable,
            prompt_prefix=prompt.prefix,
            prompt_suffix=prompt.suffix,
            output_tail=tail,
            prompt_prefix_text=prompt.text,
            output_tail_text=self._decoder.text(tail) if tail else None,
            block_hashes_count=len(request.block_hashes),
            num_blocks=num_blocks,
        )

    def _prompt(self, request: Request) -> _Prompt:
        num_prompt = request.num_prompt_tokens
        prefix = request.token_slice(0, min(_EDGE, num_prompt)).tolist()
        suffix = request.token_slice(max(0, num_prompt - _EDGE), num_prompt).tolist()
        prompt = _Prompt(_embedded(prefix), _embedded(suffix), self._decoder.text(prefix))
        self._prompts[request.request_id] = prompt
        return prompt


def _embedded(token_ids: list[int]) -> list[int]:
    return cast("list[int]", msgspec.Raw(msgspec.json.encode(token_ids)))
