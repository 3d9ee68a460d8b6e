"""A worker that believes nothing: it keeps a KV memory of its own and fails if a decision cannot be executed.

Every position of the memory holds a digest of (KV-cache group, adapter, salt, all tokens up to that position). Before a
request computes new positions, all positions that the scheduler calls computed and that its tokens attend to must hold
exactly its own prefix; so a wrong block id, a block shared by requests that differ, a block reused too early, a draft
taken for verified or a hit on stale content is found when it happens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tokenyard.core.config import CacheConfig, GroupKind, KVCacheGroup, MambaCacheMode
from tokenyard.core.request import Request
from tokenyard.core.sched.scheduler_output import NewRequestData, SchedulerOutput

__all__ = ["Sampler", "StatelessWorker", "Task", "Worker"]

WORTHLESS = -1
"""Stands where a digest would, after a computation that read blocks without valid content."""

Sampler = Callable[[str, list[int]], list[int]]
"""Request id and its drafts -> sampled tokens: accepted drafts, then one of the model's own."""


_WITHOUT_POSITIONS = (GroupKind.MAMBA, GroupKind.CROSS_ATTENTION)
_STATE = -1
"""Place of a state, or of an encoder's output, within its block."""


class Task(NamedTuple):
    """One request's part of a step, as a worker receives it."""

    name: str
    request: NewRequestData
    """The prompt when it was scheduled first."""
    blocks: list[list[int]]
    """All its blocks, per KV-cache group, in position order."""
    start: int
    num_new: int
    drafts: list[int]
    samples: bool
    """All known tokens are computed after this step."""

    @property
    def stop(self) -> int:
        return self.start + self.num_new


class Worker:
    """Executes steps in the order in which they were scheduled."""

    def __init__(self, config: CacheConfig) -> None:
        self.keeps_all_states = config.mamba_cache_mode is MambaCacheMode.ALL
        self.groups = list(zip(config.groups, config.group_block_sizes, strict=True))
        self.memory: dict[tuple[int, int], int] = {}
        """(block, place within it) -> digest."""
        self.requests: dict[str, NewRequestData] = {}
        """Requests that were sent to it and have not been called finished."""
        self.tokens: dict[str, list[int]] = {}
        """The worker's own copy of every request's tokens."""
        self.blocks: dict[str, list[list[int]]] = {}
        """Its own copy of every block table, grown by deltas."""
        self.bad: set[int] = set()
        """Blocks whose load failed in this step: what is computed from them is worthless, and so is what is sampled."""
        self.encoded: set[str] = set()
        """Hashes of the items whose encoder output it keeps."""
        self.guess: Callable[[], int] = lambda: 0
        """A draft of its own, where the scheduler has only been told that there is one."""
        self.starts_over = False
        """Requests that read such blocks are preempted; until they come back, all they compute is worthless."""
        self.void: set[str] = set()

    # ---- what arrives with a step

    def _receive(self, output: SchedulerOutput) -> list[Task]:
        """Forget finished requests, keep new ones in full, change the others by their deltas."""
        for request_id in output.finished_req_ids:
            self.requests.pop(request_id, None)
            self.tokens.pop(request_id, None)
            self.blocks.pop(request_id, None)
            self.void.discard(request_id)
        for new in output.scheduled_new_reqs:
            # Only a session is sent again: its prompt goes on where the one before ended.
            before = self.requests[new.req_id].prompt_token_ids if new.req_id in self.requests else []
            longer = len(new.prompt_token_ids) > len(before)
            assert longer, f"{new.req_id} is new twice"
            assert new.prompt_token_ids[: len(before)] == before, f"{new.req_id} is new twice"
            self.requests[new.req_id] = new
            self.tokens[new.req_id] = list(new.prompt_token_ids)
            self.blocks[new.req_id] = [list(blocks) for blocks in new.block_ids]
        cached = output.scheduled_cached_reqs
        for request_id, blocks in zip(cached.req_ids, cached.new_block_ids, strict=True):
            if request_id in cached.resumed_req_ids:
                assert blocks is not None, f"{request_id} is resumed without blocks"
                self.void.discard(request_id)
                self.blocks[request_id] = [list(group) for group in blocks]
                self.tokens[request_id] = list(cached.all_token_ids[request_id])
            elif blocks is not None:
                for held, more in zip(self.blocks[request_id], blocks, strict=True):
                    held.extend(more)
        self.encoded -= set(output.free_encoder_mm_hashes)
        for request_id, numbers in output.scheduled_encoder_inputs.items():
            self.encoded |= {self.requests[request_id].mm_features[number].mm_hash for number in numbers}
        drafts, chunks = output.scheduled_spec_decode_tokens, output.is_prefill_chunk
        if output.num_invalid_spec_tokens is None:
            drafts = {name: [self.guess() if draft < 0 else draft for draft in each] for name, each in drafts.items()}
        return [
            Task(
                request_id,
                self.requests[request_id],
                self.blocks[request_id],
                # Drafts may have been rejected that the scheduler, a step ahead, still counted as computed.
                min(int(output.num_computed[i]), len(self.tokens[request_id]) - 1),
                int(output.num_new_tokens[i]),
                drafts.get(request_id, []),
                chunks is None or not chunks[i],
            )
            for i, request_id in enumerate(output.req_ids)
        ]

    # ---- what a step does

    def execute(self, output: SchedulerOutput, sample: Sampler) -> list[list[int]]:
        """Compute a step's positions and sample; returns the sampled tokens per request."""
        tasks = self._receive(output)
        self._check_places(tasks)
        self._check_states(tasks)
        return [self._compute(task, sample) for task in tasks]

    def _check_places(self, tasks: Sequence[Task]) -> None:
        """Every position that is read or written has a block, and none is written twice."""
        written: dict[tuple[int, int], str] = {}
        for task in tasks:
            for (group, size), blocks in zip(self.groups, task.blocks, strict=True):
                if group.kind in _WITHOUT_POSITIONS:
                    continue
                assert len(blocks) * size >= task.stop, f"{task.name} has no place for position {task.stop - 1}"
                used = blocks[_first_read(group, task.start) // size : -(-task.stop // size)]
                assert 0 not in used, f"{task.name} needs a position that has no block"
                assert len(set(used)) == len(used), f"{task.name} holds a block twice"
                for position in range(task.start, task.stop):
                    cell = (blocks[position // size], position % size)
                    assert cell not in written, f"{task.name} and {written[cell]} write the same place"
                    written[cell] = task.name

    def _check_states(self, tasks: Sequence[Task]) -> None:
        """Layers without KV of their own positions find what they read before anything of this step is computed."""
        for task in tasks:
            for number, ((group, size), blocks) in enumerate(zip(self.groups, task.blocks, strict=True)):
                if group.kind is GroupKind.CROSS_ATTENTION:
                    self._check_encoder_blocks(task, size, blocks)
                elif group.kind is GroupKind.MAMBA and task.start:
                    expected = self._digests(task.request, number, self.tokens[task.name][: task.start])[-1]
                    found = self.memory.get((blocks[(task.start - 1) // size], _STATE))
                    assert found == expected, f"{task.name} reads another's state after {task.start} tokens"

    def _check_encoder_blocks(self, task: Task, size: int, blocks: list[int]) -> None:
        length = sum(item.num_embeds for item in task.request.mm_features)
        assert len(blocks) == -(-length // size), f"{task.name} has no place for what its encoder has read"
        for block in blocks:
            if task.start == 0:
                self.memory[block, _STATE] = hash(task.name)
            assert self.memory[block, _STATE] == hash(task.name), f"{task.name} reads another's encoder output"

    def _write_states(self, task: Task, size: int, blocks: list[int], digests: list[int]) -> None:
        """The state after the step; in cache mode "all" also those at the ends of the blocks it has filled."""
        ends = {task.stop}
        if self.keeps_all_states:
            ends |= {end for end in range(size, task.stop, size) if end > task.start}
        for end in ends:
            block = blocks[(end - 1) // size]
            assert block, f"{task.name} has no place for its state after {end} tokens"
            self.memory[block, _STATE] = digests[end - 1]

    def _is_worthless(self, task: Task) -> bool:
        worthless = task.name in self.void or any(not self.bad.isdisjoint(blocks) for blocks in task.blocks)
        if worthless and self.starts_over:
            self.void.add(task.name)
        return worthless

    def _compute(self, task: Task, sample: Sampler) -> list[int]:
        name, stop = task.name, task.stop
        stream = [*self.tokens[name], *task.drafts]
        assert stop <= len(stream), f"{name} computes position {stop - 1} of {len(stream)} tokens"
        for item in task.request.mm_features:
            needed = not item.cross and item.has_embeds(task.start - item.offset, stop - item.offset)
            assert not needed or item.mm_hash in self.encoded, f"{name} computes {item.mm_hash} before it is encoded"
        worthless = self._is_worthless(task)
        for number, ((group, size), blocks) in enumerate(zip(self.groups, task.blocks, strict=True)):
            if group.kind is GroupKind.CROSS_ATTENTION:
                continue
            digests = self._digests(task.request, number, stream[:stop])
            if group.kind is GroupKind.MAMBA:
                self._write_states(task, size, blocks, digests)
                continue
            for position in range(_first_read(group, task.start), task.start):
                found = self.memory.get((blocks[position // size], position % size))
                assert worthless or found == digests[position], f"{name} reads another's KV at {position}"
            for position in range(task.start, stop):
                self.memory[blocks[position // size], position % size] = WORTHLESS if worthless else digests[position]
        if not task.samples:
            assert stop < len(self.tokens[name]), f"{name} could have been sampled from"
            return []
        assert stop == len(stream), f"{name} samples before position {len(stream) - 1} is computed"
        if task.request.pooling_params is not None:
            return []
        tokens = sample(name, task.drafts)
        if not worthless or self.starts_over:
            self.tokens[name] += tokens
        return tokens

    def load(self, request: Request, blocks: Sequence[int], start: int, stop: int) -> None:
        """KV from elsewhere: positions ``start..stop-1`` of a request in a model with one KV-cache group."""
        size = self.groups[0][1]
        digests = self._digests(request, 0, request.all_token_ids[:stop])
        for position in range(start, stop):
            self.memory[blocks[position // size], position % size] = digests[position]

    @staticmethod
    def _digests(request: Request | NewRequestData, group: int, tokens: Sequence[int]) -> list[int]:
        digest, digests = hash((group, request.lora_name, request.cache_salt)), []
        items = {item.offset: item.mm_hash for item in request.mm_features}
        for position, token in enumerate(tokens):
            digest = hash((digest, token, items.get(position)))
            digests.append(digest)
        return digests


def _first_read(group: KVCacheGroup, start: int) -> int:
    """The first position that a token at ``start`` attends to."""
    if group.kind is GroupKind.SLIDING_WINDOW:
        return max(0, start - group.window + 1)
    if group.kind is GroupKind.CHUNKED_LOCAL:
        return start // group.window * group.window
    return 0


class StatelessWorker(Worker):
    """For recurrent layers with drafts: which of a draft's states is the right one is the model's business."""

    def _check_states(self, tasks: Sequence[Task]) -> None:
        pass

    def _write_states(self, task: Task, size: int, blocks: list[int], digests: list[int]) -> None:
        pass
