"""The scheduler half of every connector that keeps blocks by content in a tier: CPU memory, a disk.

    a request waits      the tier holds the blocks after its local hit: promise them, load them once it has memory
    a request ends       what the tier lacks of its cached blocks is stored; they stay on the GPU until that is done
    a block is evicted   (``store_on="eviction"``) it is stored instead, in the step that gives it away
    a request is preempted   (``store_on="preemption"``) its blocks alone are stored, in that step: it is swapped out

What can be stored is what the GPU's prefix cache can find: full blocks whose content is known to be good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from tokenyard.connectors.tiers import Address, Load, Store, Tier, TransferPlan
from tokenyard.core.config import CacheConfig, GroupKind
from tokenyard.core.kv.allocation import Blocks
from tokenyard.core.kv.block_pool import PoolListener
from tokenyard.core.kv.events import KVEvent
from tokenyard.core.kv.hashing import digests
from tokenyard.core.request import Request, RequestStatus
from tokenyard.core.sched.connector import ConnectorContext, KVConnector, Match
from tokenyard.core.sched.outputs import ConnectorOutput
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.errors import ConfigError

STORE_ON = ("finish", "eviction", "preemption")


def require_one_full_group(cache: CacheConfig) -> None:
    """ConfigError unless the model has one full-attention group, the only kind whose blocks connectors move."""
    if len(cache.groups) > 1 or cache.groups[0].kind is not GroupKind.FULL:
        kinds = [str(group.kind) for group in cache.groups]
        fix = (
            "connectors need a model with one full-attention KV-cache group here: later versions of vLLM also move"
            " the windows and states of others, which is not modelled: leave the connector out"
        )
        raise ConfigError("kv_connector", kinds, fix)


class _Saver(PoolListener):
    """Has blocks stored when they are given away."""

    def __init__(self, save: Callable[[bytes, int], None]) -> None:
        self._save = save

    def block_evicted(self, block_hash: bytes, group_id: int, block: int) -> None:
        self._save(block_hash, block)


class TieredConnector(KVConnector):
    """Keeps blocks in ``tier``.

    ``load_async``: requests wait while their blocks are loaded and others go on; else the load is part of the step.
    """

    def __init__(self, cache: CacheConfig, tier: Tier, *, store_on: str = "finish", load_async: bool = True) -> None:
        """Raises ConfigError if the cache or a setting does not go with it."""
        require_one_full_group(cache)
        if not cache.enable_prefix_caching:
            raise ConfigError("enable_prefix_caching", False, "a KV connector finds blocks by their hashes: turn it on")
        if store_on not in STORE_ON:
            raise ConfigError("store_on", store_on, f"use one of: {', '.join(STORE_ON)}")
        self.tier = tier
        self._size = cache.groups[0].block_size or cache.block_size
        self._store_on = store_on
        self._load_async = load_async
        self._promised: tuple[str, int, Sequence[bytes]] | None = None
        """Request asked about last, blocks it has, hashes kept for it until it is known whether it gets memory."""
        self._num_jobs = 0
        self._saves: list[Store] = []
        self._loads: list[Load] = []
        self._stores: list[Store] = []
        self.being_read: dict[int, Load] = {}
        self._held: dict[int, Sequence[bytes]] = {}
        """Loading job -> hashes it holds."""
        self.being_written: dict[int, Sequence[bytes]] = {}
        """Storing job -> hashes that can be found once it is over."""

    def bind(self, context: ConnectorContext) -> None:
        super().bind(context)
        if self._store_on == "eviction":
            context.pool.subscribe(_Saver(self._save))

    # ---- loads

    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> Match:
        self._withdraw()
        if request.sampling_params.skip_reading_prefix_cache:
            return Match(0)
        first = num_computed_tokens // self._size
        # One token is left to compute logits from.
        wanted = digests(request.block_hashes[first : (request.num_tokens - 1) // self._size])
        found = self.tier.find(wanted)
        if found.undecided:
            return Match(None)
        if not found.num_blocks:
            return Match(0)
        hashes = wanted[: found.num_blocks]
        self.tier.promise(hashes)
        self._promised = request.request_id, first, hashes
        return Match(len(hashes) * self._size, self._load_async)

    def _withdraw(self) -> None:
        """The request asked about last did not get memory."""
        if self._promised is not None:
            self.tier.promise(())
            self._promised = None

    def update_state_after_alloc(self, request: Request, blocks: Blocks, num_external_tokens: int) -> None:
        if num_external_tokens:
            assert self._promised is not None
            assert self._promised[0] == request.request_id, "memory for a request that was promised nothing"
            _, first, hashes = self._promised
            self.tier.hold(hashes)
            self._withdraw()
            job, targets = self._next_job(), tuple(blocks[0][first : first + len(hashes)])
            load = Load(job, request.request_id, targets, self.tier.sources(hashes), self._load_async)
            self._loads.append(load)
            self.being_read[job], self._held[job] = load, hashes
        self.tier.touch(digests(request.block_hashes[: (request.num_tokens - 1) // self._size]))

    def _next_job(self) -> int:
        self._num_jobs += 1
        return self._num_jobs

    # ---- stores

    def request_finished(self, request: Request, blocks: Blocks) -> tuple[bool, Mapping[str, object] | None]:
        if self._store_on != "finish" or self._is_doubtful(request):
            return False, None
        targets: list[Address] = []
        sources, hashes = [], []
        for block, block_hash in self._hashed(blocks):
            target = self.tier.reserve(block_hash)
            if target is not None:
                sources.append(block)
                hashes.append(block_hash)
                targets.append(target)
        if not sources:
            return False, None
        job = self._next_job()
        self.being_written[job] = hashes
        self._stores.append(Store(job, request.request_id, tuple(sources), tuple(targets)))
        return True, None

    def request_preempted(self, request: Request, blocks: Blocks) -> None:
        if self._store_on != "preemption":
            return
        for block, block_hash in self._hashed(blocks):
            self._save(block_hash, block)

    def _hashed(self, blocks: Blocks) -> Iterator[tuple[int, bytes]]:
        """The leading blocks that are full, each with the hash of its content."""
        content = self.context.pool.content
        for block in blocks[0]:
            known = content[block]
            if known is None:
                return
            yield block, digests([known])[0]

    def _is_doubtful(self, request: Request) -> bool:
        """Its blocks wait for its load; or it left before it was known whether the loads of its step succeeded."""
        left = request.status is RequestStatus.FINISHED_ABORTED
        return any(
            load.request_id == request.request_id if load.is_async else left for load in self.being_read.values()
        )

    def _save(self, block_hash: bytes, block: int) -> None:
        """A cached block of the GPU is given away in this step."""
        target = self.tier.reserve(block_hash)
        if target is not None:
            job = self._next_job()
            self.being_written[job] = (block_hash,)
            self._saves.append(Store(job, None, (block,), (target,)))

    # ---- steps

    def build_connector_meta(self, output: SchedulerOutput) -> TransferPlan | None:
        self._withdraw()
        plan = TransferPlan(tuple(self._saves), tuple(self._loads), tuple(self._stores))
        if not plan:
            return None
        self._saves, self._loads, self._stores = [], [], []
        return plan

    def update_connector_output(self, output: ConnectorOutput) -> None:
        if output.invalid_block_ids:
            self._forget_lost(output.invalid_block_ids)
        for job in sorted(output.completed_jobs):
            if job in self._held:
                del self.being_read[job]
                self.tier.release(self._held.pop(job))
            else:
                for block_hash in self.being_written.pop(job):
                    self.tier.complete(block_hash)

    def _forget_lost(self, invalid: frozenset[int]) -> None:
        for job, load in self.being_read.items():
            for block, block_hash in zip(load.blocks, self._held[job], strict=True):
                if block in invalid:
                    self.tier.lost(block_hash)

    # ---- the rest

    def reset_cache(self) -> bool:
        self._withdraw()
        return not (self._held or self.being_written) and self.tier.reset()

    def take_events(self) -> Sequence[KVEvent]:
        return self.tier.take_events()

    def take_stats(self) -> Mapping[str, int] | None:
        return self.tier.take_stats()

    @property
    def cpu_blocks(self) -> tuple[int, int] | None:
        return self.tier.cpu_blocks
