"""Vidur's scheduler of chunked prefills (Sarathi), or of whole prompts (`vllm`), as a side of `run.py`.

Runs where Vidur is installed. It drives the scheduler's own class, without the simulator around it: no step times are
needed. Vidur knows arrivals, lengths, a token budget, a batch size and blocks; what it knows nothing of is unsupported.
"""

# ruff: noqa: SLF001 - Vidur has no other way to its scheduler alone
from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

from vidur.entities import Request  # type: ignore[import-not-found]  # there alone
from vidur.scheduler.replica_scheduler.sarathi_replica_scheduler import SarathiReplicaScheduler
from vidur.scheduler.replica_scheduler.vllm_replica_scheduler import VLLMReplicaScheduler

PLAIN = {
    "policy": "fcfs",
    "enable_chunked_prefill": True,
    "long_prefill_token_threshold": 0,
    "scheduler_reserve_full_isl": True,
}
KNOWN = {"max_num_seqs", "max_num_batched_tokens", "max_model_len", "num_blocks", "block_size", "enable_prefix_caching"}


OF_A_REQUEST = {
    "id", "prompt", "max_tokens", "arrival_step", "arrival_time", "eos", "after", "min_tokens", "stop_token_ids",
}  # fmt: skip
"""What lengths tell already: a request's output is as long as it was."""


class Side:
    """One scenario."""

    def begin(self, config: dict[str, Any], uses: list[str], **_: Any) -> dict[str, Any]:
        """Make the scheduler, or say what it lacks."""
        for name in uses:
            if name not in OF_A_REQUEST:
                return {"unsupported": name}
        for name, value in config.items():
            if name not in KNOWN and value not in (None, False, PLAIN.get(name)):
                return {"unsupported": name}
        kind = VLLMReplicaScheduler if sys.argv[1:] == ["vllm"] else SarathiReplicaScheduler
        self.scheduler = scheduler = kind.__new__(kind)
        scheduler._config = SimpleNamespace(
            batch_size_cap=config["max_num_seqs"],
            chunk_size=config["max_num_batched_tokens"],
            max_tokens_in_batch=config["max_num_batched_tokens"],
        )
        self.num_blocks = config["num_blocks"] - 1  # vLLM never hands out its first
        scheduler._cache_config = SimpleNamespace(block_size=config["block_size"], num_blocks=self.num_blocks)
        scheduler._replica_config = SimpleNamespace(enable_sequence_pipeline_parallel=False)
        scheduler._replica_id = scheduler._num_allocated_blocks = 0
        scheduler._num_stages = 1
        scheduler._num_running_batches = scheduler._num_running_stages = scheduler._watermark_blocks = 0
        scheduler._max_micro_batch_size = config["max_num_seqs"]
        scheduler._request_queue, scheduler._preempted_requests, scheduler._allocation_map = [], [], {}
        self.names: dict[int, str] = {}
        self.restarts: dict[int, int] = {}
        self.requests: dict[int, Any] = {}
        self.time = 0.0
        self.batch: Any = None
        return {}

    def arrive(self, requests: list[dict[str, Any]], events: list[Any]) -> dict[str, Any]:
        """New requests; nothing else can happen to one."""
        for given in requests:
            request = Request(given["arrival_time"], len(given["prompt"]), given["output_tokens"])
            self.names[request.id], self.requests[request.id] = given["id"], request
            self.restarts[request.id] = 0
            self.scheduler.add_request(request)
        return {}

    def schedule(self) -> dict[str, Any]:
        """A batch."""
        self.time += 1
        self.batch = batch = self.scheduler.on_schedule(self.time)
        preempted = [rid for rid, request in self.requests.items() if request.num_restarts > self.restarts[rid]]
        for rid in preempted:
            self.restarts[rid] = self.requests[rid].num_restarts
        scheduled = [] if batch is None else list(zip(batch.request_ids, batch.num_q_tokens, strict=True))
        if batch is not None:
            batch.on_schedule(self.time)
        return {
            "scheduled": [[self.names[rid], tokens] for rid, tokens in scheduled],
            "preempted": sorted(self.names[rid] for rid in preempted),
            "free_blocks": self.num_blocks - self.scheduler._num_allocated_blocks,
        }

    def update(self, events: list[Any], **_: Any) -> dict[str, Any]:
        """The batch has run."""
        if self.batch is not None:
            for request, tokens in zip(self.batch.requests, self.batch.num_q_tokens, strict=True):
                request.on_batch_stage_end(self.time, 0, 0, 0, tokens)
            self.scheduler._num_running_stages -= 1
            self.batch.on_batch_end(self.time + 0.5)
            self.scheduler.on_batch_end(self.batch)
            self.batch = None
        return {}


def main() -> None:
    """Answer until the runner ends it."""
    side = Side()
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(getattr(side, asked.pop("op"))(**asked)), flush=True)


if __name__ == "__main__":
    main()
