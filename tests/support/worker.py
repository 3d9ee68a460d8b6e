"""A worker that believes nothing: it keeps a KV memory of its own and fails if a decision cannot be executed.

Every position of the memory holds a digest of (adapter, salt, all tokens up to that position). Before a request
computes new positions, all positions that the scheduler calls computed must hold exactly its own prefix; so a wrong
block id, a block shared by requests that differ, a block reused too early, a draft taken for verified or a hit on stale
content is found when it happens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tokenyard.request import Request
from tokenyard.sched.output import SchedulerOutput

__all__ = ["Sampler", "Task", "Worker"]

Sampler = Callable[[str, list[int]], list[int]]
"""Request id and its drafts -> sampled tokens: accepted drafts, then one of the model's own."""


class Task(NamedTuple):
    """One request's part of a step, as a worker receives it."""

    request: Request
    blocks: list[int]
    """All its blocks, in position order."""
    start: int
    num_new: int
    drafts: list[int]
    samples: bool
    """All known tokens are computed after this step."""


class Worker:
    """Executes steps in the order in which they were scheduled."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.memory: dict[int, list[int | None]] = {}
        self.tokens: dict[str, list[int]] = {}
        """The worker's own copy of every request's tokens."""
        self.blocks: dict[str, list[int]] = {}
        """Its own copy of every block table, grown by deltas."""

    # ---- what arrives with a step

    def _receive(self, output: SchedulerOutput) -> list[Task]:
        """Forget finished requests, keep new ones in full, change the others by their deltas."""
        for request_id in output.finished_req_ids:
            self.tokens.pop(request_id, None)
            self.blocks.pop(request_id, None)
        for new in output.scheduled_new_reqs:
            assert new.req_id not in self.tokens, f"{new.req_id} is new twice"
            self.tokens[new.req_id] = list(new.prompt_token_ids)
            self.blocks[new.req_id] = list(new.block_ids[0])
        cached = output.scheduled_cached_reqs
        for request_id, blocks in zip(cached.req_ids, cached.new_block_ids, strict=True):
            if request_id in cached.resumed_req_ids:
                assert blocks is not None, f"{request_id} is resumed without blocks"
                self.blocks[request_id] = list(blocks[0])
                self.tokens[request_id] = list(cached.all_token_ids[request_id])
            elif blocks is not None:
                self.blocks[request_id] += blocks[0]
        drafts, chunks = output.scheduled_spec_decode_tokens, output.is_prefill_chunk
        return [
            Task(
                request,
                self.blocks[request.request_id],
                int(output.num_computed[i]),
                int(output.num_new_tokens[i]),
                drafts.get(request.request_id, []),
                chunks is None or not chunks[i],
            )
            for i, request in enumerate(output.requests)
        ]

    # ---- what a step does

    def execute(self, output: SchedulerOutput, sample: Sampler) -> list[list[int]]:
        """Compute a step's positions and sample; returns the sampled tokens per request."""
        tasks = self._receive(output)
        written: dict[tuple[int, int], str] = {}
        for task in tasks:
            self._check_blocks(task)
            for position in range(task.start, task.start + task.num_new):
                cell = (task.blocks[position // self.block_size], position % self.block_size)
                assert cell not in written, f"{task.request.request_id} and {written[cell]} write the same place"
                written[cell] = task.request.request_id
        return [self._compute(task, sample) for task in tasks]

    def _check_blocks(self, task: Task) -> None:
        name, stop = task.request.request_id, task.start + task.num_new
        assert 0 not in task.blocks, f"{name} was given the null block"
        assert len(set(task.blocks)) == len(task.blocks), f"{name} holds a block twice"
        assert len(task.blocks) * self.block_size >= stop, f"{name} has no place for position {stop - 1}"

    def _compute(self, task: Task, sample: Sampler) -> list[int]:
        name = task.request.request_id
        stream = [*self.tokens[name], *task.drafts]
        stop = task.start + task.num_new
        assert stop <= len(stream), f"{name} computes position {stop - 1} of {len(stream)} tokens"
        digests = self._digests(task.request, stream[:stop])
        for position in range(task.start):
            assert self._cell(task, position)[0] == digests[position], f"{name} reads another's KV at {position}"
        for position in range(task.start, stop):
            self._write(task, position, digests[position])
        if not task.samples:
            assert stop < len(self.tokens[name]), f"{name} could have been sampled from"
            return []
        assert stop == len(stream), f"{name} samples before position {len(stream) - 1} is computed"
        tokens = sample(name, task.drafts)
        self.tokens[name] += tokens
        return tokens

    @staticmethod
    def _digests(request: Request, tokens: Sequence[int]) -> list[int]:
        digest, digests = hash((request.lora_name, request.cache_salt)), []
        for token in tokens:
            digest = hash((digest, token))
            digests.append(digest)
        return digests

    def _cell(self, task: Task, position: int) -> tuple[int | None, list[int | None]]:
        block = self.memory.setdefault(task.blocks[position // self.block_size], [None] * self.block_size)
        return block[position % self.block_size], block

    def _write(self, task: Task, position: int, digest: int) -> None:
        _, block = self._cell(task, position)
        block[position % self.block_size] = digest
