"""vLLM's own scheduler under test (runs inside .venv-vllm)."""

from __future__ import annotations

from typing import Any

from recorder.host import build_host, draft_tokens, make_request, model_output
from recorder.plan import Engine as EngineConfig
from recorder.plan import Planned
from worker import serve
from workload import VOCAB, EngineShape, RequestSpec, num_right

__all__ = ["VllmEngine"]


class VllmEngine:
    """The calls of ``measure.Engine``; making a request hashes its prompt."""

    def __init__(self, shape: EngineShape) -> None:
        host = build_host(EngineConfig(**shape._asdict()), log_stats=False)
        self._scheduler = host.scheduler
        self._hasher = host.block_hasher
        self._drafts = shape.num_speculative_tokens or 0
        self._proposes = bool(self._drafts) and not shape.async_scheduling
        self._step = 0

    def make(self, spec: RequestSpec) -> Any:
        planned = Planned(
            id=spec.id, prompt=spec.prompt, max_tokens=spec.max_tokens, arrival_time=spec.arrival_time, arrival_step=0
        )
        return make_request(planned, self._hasher)

    def hash(self, request: Any) -> None:
        request.block_hashes = []
        request.update_block_hashes()

    def add(self, request: Any) -> None:
        self._scheduler.add_request(request)

    def schedule(self) -> Any:
        return self._scheduler.schedule()

    def answer(self, output: Any) -> Any:
        self._step += 1
        requests = self._scheduler.requests
        ids = list(output.num_scheduled_tokens)
        drafts = output.scheduled_spec_decode_tokens
        sampled = []
        for row, each in enumerate(ids):
            right = num_right(self._step, row, len(drafts.get(each, ()))) if drafts else 0
            tokens = [(self._step * 31 + row) % VOCAB] * (1 + right)
            sampled.append([] if requests[each].is_prefill_chunk else tokens)
        return model_output(ids, sampled)

    def update(self, output: Any, answer: Any) -> None:
        self._scheduler.update_from_output(output, answer)
        if self._proposes:
            ids = answer.req_ids
            self._scheduler.update_draft_token_ids(draft_tokens(ids, [[1] * self._drafts for _ in ids]))

    def look_up(self, request: Any) -> int:
        return int(self._scheduler.kv_cache_manager.get_computed_blocks(request)[1])

    def scheduled_tokens(self, output: Any) -> int:
        return int(output.total_num_scheduled_tokens)

    def background_seconds(self) -> float:
        return 0.0

    def close(self) -> None:
        self._scheduler.shutdown()

    @property
    def num_running(self) -> int:
        return len(self._scheduler.running)

    @property
    def num_waiting(self) -> int:
        return len(self._scheduler.waiting)

    @property
    def all_decode(self) -> bool:
        return all(request.num_output_tokens for request in self._scheduler.running)


if __name__ == "__main__":
    serve({"plain": VllmEngine})
