"""From a prefill engine to a decode engine: the scheduler half of both.

    client -> prefill   max_tokens=1, kv_transfer_params {"do_remote_decode": True}
    prefill -> client   the request ends; its blocks stay, and its outputs tell where they are
    client -> decode    the same prompt with those parameters: {"do_remote_prefill": True, "remote_...": ...}
    decode              blocks are allocated, filled by the worker while others run, then the last token is computed
    decode -> prefill   fetched, or not wanted any more: the blocks are freed

The names of the parameters are vLLM's (its NIXL connector's). An offer that no engine claims ends after a lease.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any

from tokenyard.connectors.tier_worker import BlockMemory, FinishedTransfer, Tensors, TierWorker
from tokenyard.connectors.tiered import require_one_full_group
from tokenyard.connectors.tiers import (
    Address,
    Load,
    Offer,
    RemoteRequest,
    Store,
    TransferPlan,
    require_amount,
    require_text,
)
from tokenyard.core.config import CacheConfig
from tokenyard.core.kv.allocation import Blocks
from tokenyard.core.request import Request, RequestStatus
from tokenyard.core.sched.connector import KVConnector, Match
from tokenyard.core.sched.outputs import ConnectorOutput
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.errors import RequestError

LEASE_SECONDS = 30.0
"""vLLM 0.22's ``kv_lease_duration``."""


class PrefillDecodeConnector(KVConnector):
    """Offers the blocks of requests that another engine will decode, fetches those that another one has computed.

    What it does for a request stands in the request's ``kv_transfer_params``; one without them is served as usual.
    """

    def __init__(
        self, cache: CacheConfig, engine_id: str, clock: Callable[[], float], *, lease_seconds: float = LEASE_SECONDS
    ) -> None:
        """``clock`` is the one its worker half reads. ConfigError if the model's KV cannot be transferred."""
        require_one_full_group(cache)
        require_text("engine_id", engine_id)
        require_amount("lease_seconds", lease_seconds)
        self._size = cache.groups[0].block_size or cache.block_size
        self._engine_id = engine_id
        self._clock = clock
        self._lease_seconds = lease_seconds
        self._num_jobs = 0
        self._unfetched: dict[str, RemoteRequest] = {}
        """Requests here whose KV still waits elsewhere."""
        self._loads: list[Load] = []
        self._offers: list[Offer] = []
        self._claims: list[RemoteRequest] = []
        self._releases: list[RemoteRequest] = []
        self._num_fetched = self._num_offered = 0

    # ---- decode

    def on_new_request(self, request: Request) -> None:
        params = request.kv_transfer_params or {}
        if params.get("do_remote_prefill"):
            remote = self._remote_of(request, params)
            self._unfetched[request.request_id] = remote
            self._claims.append(remote)

    def _remote_of(self, request: Request, params: Mapping[str, object]) -> RemoteRequest:
        """RequestError unless the parameters say where the KV of the whole prompt is."""
        for name in ("remote_engine_id", "remote_request_id"):
            if not isinstance(params.get(name), str):
                raise RequestError(request.request_id, f"kv_transfer_params.{name}", params.get(name), "give a text")
        blocks, wanted = params.get("remote_block_ids"), -(-request.num_prompt_tokens // self._size)
        if not isinstance(blocks, list | tuple) or len(blocks) != wanted or not all(type(b) is int for b in blocks):
            field, fix = "kv_transfer_params.remote_block_ids", f"give {wanted} block ids, as the prefill engine did"
            raise RequestError(request.request_id, field, blocks, fix)
        return RemoteRequest(str(params["remote_engine_id"]), str(params["remote_request_id"]))

    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> Match:
        if request.request_id not in self._unfetched:
            return Match(0)
        return Match(max(request.num_prompt_tokens - num_computed_tokens, 0), is_async=True)

    def update_state_after_alloc(self, request: Request, blocks: Blocks, num_external_tokens: int) -> None:
        remote = self._unfetched.pop(request.request_id, None)
        if remote is None:
            return
        if not num_external_tokens:
            self._releases.append(remote)
            return
        params: Mapping[str, Any] = request.kv_transfer_params or {}
        first = (request.num_prompt_tokens - num_external_tokens) // self._size
        sources = tuple(params["remote_block_ids"][first:])
        targets = tuple(blocks[0][first : first + len(sources)])
        self._num_jobs += 1
        self._num_fetched += len(sources)
        self._loads.append(Load(self._num_jobs, request.request_id, targets, sources, True, remote))

    # ---- prefill

    def request_finished(self, request: Request, blocks: Blocks) -> tuple[bool, Mapping[str, object] | None]:
        remote = self._unfetched.pop(request.request_id, None)
        if remote is not None:
            self._releases.append(remote)  # it ended before it got memory
        params = request.kv_transfer_params or {}
        if not params.get("do_remote_decode") or request.status is not RequestStatus.FINISHED_LENGTH_CAPPED:
            return False, None
        offered = tuple(blocks[0][: -(-request.num_prompt_tokens // self._size)])
        self._offers.append(Offer(request.request_id, offered, self._clock() + self._lease_seconds))
        self._num_offered += len(offered)
        return True, {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_engine_id": self._engine_id,
            "remote_request_id": request.request_id,
            "remote_block_ids": list(offered),
        }

    # ---- steps

    def build_connector_meta(self, output: SchedulerOutput) -> TransferPlan | None:
        plan = TransferPlan(
            loads=tuple(self._loads),
            offers=tuple(self._offers),
            claims=tuple(self._claims),
            releases=tuple(self._releases),
        )
        if not plan:
            return None
        self._loads, self._offers, self._claims, self._releases = [], [], [], []
        return plan

    def take_stats(self) -> Mapping[str, int] | None:
        stats = {"fetched_blocks": self._num_fetched, "offered_blocks": self._num_offered}
        self._num_fetched = self._num_offered = 0
        return stats


# ---------------------------------------------------------------------------------------------------------------------
# From a prefill engine to a decode engine: the worker half of both, and the place where they meet.
#
# :class:`OfferExchange` connects engines of one process. One that spans machines has the same four calls; its claims
# have to be renewed, so that the blocks of a decode engine that has died are freed in the end.

_MOST_EARLY = 10_000


class _OpenOffer:
    """An offer that stands."""

    __slots__ = ("claimed", "memory", "offer")

    def __init__(self, offer: Offer, memory: BlockMemory) -> None:
        self.offer = offer
        self.memory = memory
        self.claimed = False


class OfferExchange:
    """Open offers, by engine and request.

    The client of a prefill can be faster than the step that opens its offer: claims and releases of an offer that does
    not stand yet wait for it.
    """

    def __init__(self) -> None:
        self._open: dict[RemoteRequest, _OpenOffer] = {}
        self._early: OrderedDict[RemoteRequest, bool] = OrderedDict()
        """Offers that did not stand when they were claimed (False) or released (True)."""
        self._closed_requests: dict[str, set[str]] = {}
        """Engine -> requests of its own whose blocks are not needed any more."""
        self._lock = Lock()

    def offer(self, engine_id: str, offer: Offer, memory: BlockMemory) -> None:
        """Blocks of ``memory`` can be fetched."""
        remote = RemoteRequest(engine_id, offer.request_id)
        with self._lock:
            opened = self._open[remote] = _OpenOffer(offer, memory)
            opened.claimed = remote in self._early
            if self._early.pop(remote, False):
                self._close(remote)

    def claim(self, remote: RemoteRequest) -> None:
        """An engine will fetch or release it."""
        with self._lock:
            if remote in self._open:
                self._open[remote].claimed = True
            else:
                self._remember_early(remote, released=False)

    def _remember_early(self, remote: RemoteRequest, *, released: bool) -> None:
        self._early[remote] = released
        if len(self._early) > _MOST_EARLY:  # offers that had ended: they will not come
            self._early.popitem(last=False)

    def is_open(self, remote: RemoteRequest) -> bool:
        """Whether it can be fetched."""
        with self._lock:
            return remote in self._open

    def fetch(self, remote: RemoteRequest, block: int) -> Tensors:
        """A block's content. OSError if the offer does not stand, or not for this block."""
        with self._lock:
            found = self._open.get(remote)
        if found is None or block not in found.offer.blocks:
            raise OSError(f"engine {remote.engine_id} does not offer block {block} of {remote.request_id!r}")
        return found.memory.read(block)

    def release(self, remote: RemoteRequest) -> None:
        """An offer has been fetched, or will not be: its blocks are not needed any more."""
        with self._lock:
            if remote in self._open:
                self._close(remote)
            else:
                self._remember_early(remote, released=True)

    def _close(self, remote: RemoteRequest) -> None:
        del self._open[remote]
        self._closed_requests.setdefault(remote.engine_id, set()).add(remote.request_id)

    def take_closed(self, engine_id: str, now: float) -> set[str]:
        """Requests of an engine whose offers have ended since the last call, by themselves if none claimed them."""
        with self._lock:
            for remote, each in list(self._open.items()):
                if remote.engine_id == engine_id and not each.claimed and now >= each.offer.deadline:
                    self._close(remote)
            return self._closed_requests.pop(engine_id, set())


class _NoStore:
    """Nothing is stored on the way from prefill to decode."""

    def get(self, address: Address) -> Tensors:
        raise OSError("blocks on their way from prefill to decode are another engine's")

    def put(self, address: Address, tensors: Tensors) -> None:
        raise OSError("the way from prefill to decode stores nothing")


class PrefillDecodeWorker(TierWorker):
    """Opens offers, fetches those of others; with ``num_threads`` beside the model.

    A load whose offer does not stand yet waits for it, ``patience`` seconds at most; then it has failed.
    """

    def __init__(
        self,
        memory: BlockMemory,
        exchange: OfferExchange,
        engine_id: str,
        clock: Callable[[], float],
        *,
        patience: float = 5.0,
        num_threads: int = 0,
    ) -> None:
        """Raises ConfigError for a setting that cannot work."""
        require_text("engine_id", engine_id)
        require_amount("patience", patience, or_zero=True)
        super().__init__(memory, _NoStore(), num_threads=num_threads)
        self._patience = patience
        self._waiting_loads: list[tuple[Load, float]] = []
        """Loads without an offer, and how long they wait for it."""
        self._exchange = exchange
        self._engine_id = engine_id
        self._clock = clock

    def before_step(self, plan: TransferPlan | None) -> None:
        if plan is not None:
            for remote in plan.claims:
                self._exchange.claim(remote)
            for remote in plan.releases:
                self._exchange.release(remote)
        super().before_step(plan)

    def after_step(self, plan: TransferPlan | None) -> None:
        for offer in plan.offers if plan is not None else ():
            self._exchange.offer(self._engine_id, offer, self.memory)

    def begin(self, job: Load | Store) -> None:
        assert isinstance(job, Load), "the way from prefill to decode stores nothing"
        assert job.remote is not None
        if self._exchange.is_open(job.remote):
            super().begin(job)
        else:
            self._waiting_loads.append((job, self._clock() + self._patience))

    def _retry_waiting_loads(self) -> None:
        """Begin loads whose offers stand by now, and those that waited long enough: they fail."""
        now, waiting, self._waiting_loads = self._clock(), self._waiting_loads, []
        for load, until in waiting:
            if load.remote is not None and not self._exchange.is_open(load.remote) and now < until:
                self._waiting_loads.append((load, until))
            else:
                super().begin(load)

    def fetch(self, load: Load, source: Address) -> Tensors:
        assert load.remote is not None
        return self._exchange.fetch(load.remote, int(source))

    def _get_all(self, load: Load) -> FinishedTransfer:
        done = super()._get_all(load)
        assert load.remote is not None
        self._exchange.release(load.remote)
        return done

    def report(self) -> ConnectorOutput | None:
        self._retry_waiting_loads()
        own, sent = super().report(), frozenset(self._exchange.take_closed(self._engine_id, self._clock()))
        if not sent:
            return own
        if own is None:
            return ConnectorOutput(finished_sending=sent)
        return ConnectorOutput(
            finished_sending=sent,
            finished_receiving=own.finished_receiving,
            invalid_block_ids=own.invalid_block_ids,
            completed_jobs=own.completed_jobs,
        )
