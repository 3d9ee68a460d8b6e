"""From a prefill engine to a decode engine: the scheduler half of both.

    client -> prefill   max_tokens=1, kv_transfer_params {"do_remote_decode": True}
    prefill -> client   the request ends; its blocks stay, and its outputs tell where they are
    client -> decode    the same prompt with those parameters: {"do_remote_prefill": True, "remote_...": ...}
    decode              blocks are allocated, filled by the worker while others run, then the last token is computed
    decode -> prefill   fetched, or not wanted any more: the blocks are freed

The names of the parameters are vLLM's (its NIXL connector's). An offer that no engine claims ends after a lease.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tokenyard.connectors.plan import Load, Offer, RemoteRequest, TransferPlan
from tokenyard.connectors.tiered import require_one_full_group
from tokenyard.connectors.tiers import require_amount, require_text
from tokenyard.core.config import CacheConfig
from tokenyard.core.kv.allocation import Blocks
from tokenyard.core.request import Request, RequestStatus
from tokenyard.core.sched.connector import KVConnector, Match
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
