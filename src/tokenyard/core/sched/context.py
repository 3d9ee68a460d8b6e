"""What the parts of one scheduler share: the parts, its memory, and what must hold between calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import msgspec

from tokenyard.core.config import CacheConfig, GroupKind, SchedulerConfig, SpeculativeConfig
from tokenyard.core.kv.block_pool import EvictsFirst
from tokenyard.core.kv.groups import GroupBounds
from tokenyard.core.kv.hashing import RequestHasher
from tokenyard.core.kv.hybrid import HybridKVCacheManager
from tokenyard.core.kv.manager import KVCacheManager
from tokenyard.core.request import Request, RequestStatus
from tokenyard.core.sched.candidate import AdmissionLimit, FeatureHook, StepHooks
from tokenyard.core.sched.connector import KVConnector
from tokenyard.core.sched.eviction import EvictionOrder, Evictor
from tokenyard.core.sched.features.feature_set import Features
from tokenyard.core.sched.features.grammars import GrammarGate
from tokenyard.core.sched.features.sessions import PinBoard
from tokenyard.core.sched.in_flight import StepsInFlight
from tokenyard.core.sched.policy import PolicyGate
from tokenyard.core.sched.policy_context import PolicyContext
from tokenyard.core.sched.queues import HoldersFirstQueues, RunningList, WaitingQueues
from tokenyard.errors import ConfigError

# ---------------------------------------------------------------------------------------------------------------------
# The parts of one scheduler that several of its rooms need.


class SchedulerContext(msgspec.Struct, frozen=True):
    """Made once, when the scheduler is; none is replaced."""

    config: SchedulerConfig
    cache_config: CacheConfig
    kv: KVCacheManager
    policy: PolicyGate
    running: RunningList
    waiting_queues: WaitingQueues
    features: Features
    hooks: StepHooks
    in_flight: StepsInFlight
    grammars: GrammarGate
    clock: Callable[[], float]
    plugin_limits: Sequence[AdmissionLimit]
    """Asked of every request that would be admitted, beside the scheduler's own."""


def make_context(
    config: SchedulerConfig,
    cache_config: CacheConfig,
    speculative: SpeculativeConfig | None,
    clock: Callable[[], float],
    policy: PolicyGate,
    *,
    connector: KVConnector | None,
    hasher: RequestHasher | None,
    limits: Sequence[AdmissionLimit],
    hooks: Sequence[FeatureHook],
    eviction: EvictionOrder | type[EvictionOrder] | None,
    log_stats: bool,
) -> SchedulerContext:
    """The parts that a configuration asks for; ``limits`` and ``hooks`` are the plug-ins' own.

    What cannot be is a ConfigError. Policy and connector are not bound yet, so that they can be used after one.
    """
    _check_plugins(limits, hooks)
    if not config.profile.prefill_ranks_spread_kv:
        cache_config = replace(cache_config, prefill_context_parallel_size=1)
    in_flight, grammars = StepsInFlight(), GrammarGate()
    kv = make_kv_manager(
        config,
        cache_config,
        speculative,
        in_flight,
        has_connector=connector is not None,
        hasher=hasher,
        evicts_first=policy.evicts_first,
    )
    if eviction is not None:
        kv.pool.chooser = _chooser(eviction() if isinstance(eviction, type) else eviction, kv, policy, clock)
        kv.pool.unhashed_first = True
    features = Features.of(config, speculative, kv, connector, in_flight, grammars, log_stats=log_stats)
    return SchedulerContext(
        config,
        cache_config,
        kv,
        policy,
        RunningList(),
        _make_queues(config, cache_config, policy),
        features,
        features.hooks_with(hooks),
        in_flight,
        grammars,
        clock,
        limits,
    )


def bind_parts(context: SchedulerContext, given: PolicyContext) -> None:
    """Tell connector and policy, which is ``given`` this, whom they serve; neither does where one refuses."""
    transfers = context.features.transfers
    if transfers is not None:
        transfers.bind()
    chooser = context.kv.pool.chooser
    if isinstance(chooser, Evictor):
        chooser.order.bind(given)
    try:
        context.policy.bind(given)
    except Exception:
        if transfers is not None:
            transfers.connector.context = None
        if isinstance(chooser, Evictor):
            chooser.order.context = None
        raise


def _chooser(order: EvictionOrder, kv: KVCacheManager, policy: PolicyGate, clock: Callable[[], float]) -> Evictor:
    """ConfigError where blocks cannot be ranked."""
    if policy.evicts_first is not None:
        fix = "the policy chooses by evicts_first what is given up: give one of the two"
        raise ConfigError("eviction", type(order).__name__, fix)
    if isinstance(kv, HybridKVCacheManager):
        fix = "takes a model with one KV-cache group of full attention, and prefix caching: leave it out"
        raise ConfigError("eviction", type(order).__name__, fix)
    return Evictor(order, kv.pool, kv.block_size, clock)


def _check_plugins(limits: Sequence[object], hooks: Sequence[object]) -> None:
    for limit in limits:
        if not callable(getattr(limit, "ask", None)):
            raise ConfigError("limits", limit, "give objects with ask(candidate, budget, queues)")
    for hook in hooks:
        if not isinstance(hook, FeatureHook):
            raise ConfigError("hooks", hook, "give objects of classes derived from tokenyard.core.FeatureHook")


def _make_queues(config: SchedulerConfig, cache_config: CacheConfig, policy: PolicyGate) -> WaitingQueues:
    profile, size = config.profile, cache_config.tokens_per_block
    if profile.requests_with_blocks_first:
        return HoldersFirstQueues(policy.new_queue, size, go_on=profile.pauses_spare_blocks)
    return WaitingQueues(policy.new_queue, size)


# ---------------------------------------------------------------------------------------------------------------------
# The memory of a scheduler: the KV-cache manager that its configuration wants.


def make_kv_manager(
    config: SchedulerConfig,
    cache_config: CacheConfig,
    speculative: SpeculativeConfig | None,
    in_flight: StepsInFlight,
    *,
    has_connector: bool,
    hasher: RequestHasher | None = None,
    evicts_first: EvictsFirst | None = None,
) -> KVCacheManager:
    """The manager for the groups of the model."""
    profile = config.profile
    num_drafts = speculative.num_speculative_tokens if speculative else 0
    ahead = speculative.num_lookahead_tokens if speculative else 0
    most = config.max_steps_in_flight
    counts_in_flight = profile.windows_free_processed_only and most > 1
    bounds = GroupBounds(
        config.max_num_batched_tokens, config.max_model_len, num_drafts, ahead, most if counts_in_flight else 1
    )
    use_eagle = speculative is not None and speculative.use_eagle
    # Connectors know blocks by the hashes of what is in them.
    look_ahead = use_eagle and profile.hashes_look_ahead and not has_connector
    is_single = len(cache_config.groups) == 1 and cache_config.groups[0].kind is GroupKind.FULL
    make = KVCacheManager if is_single else HybridKVCacheManager
    return make(
        cache_config,
        bounds,
        use_eagle=use_eagle and not look_ahead,
        profile=profile,
        hashes_look_ahead=look_ahead,
        in_flight=in_flight.tokens_of if counts_in_flight else None,
        hasher=hasher,
        evicts_first=evicts_first,
    )


# ---------------------------------------------------------------------------------------------------------------------
# What must hold of the queues between any two calls.
#
#     requests     those that run, wait or were skipped, each in one of the three
#     running      status RUNNING, a slot each, at most max_num_seqs
#     waiting      no slot, no blocks, unless it is a session or its KV is being loaded
#     pinned       finished, a slot each; the sum of their blocks


def check_queues(
    requests: Mapping[str, Request], running: RunningList, queues: WaitingQueues, pins: PinBoard, max_num_seqs: int
) -> None:
    """Raise AssertionError if a request is lost, doubled or in the wrong place."""
    places = [r.request_id for queue in (running.requests, queues) for r in queue]
    assert queues.occupied or not any(True for _ in queues), "a request waits in queues that look empty"
    assert len(places) == len(set(places)), "a request is in two places"
    assert set(places) == set(requests), "a request is in no queue"
    assert all(r.slot >= 0 for r in running.requests), "a running request holds no blocks"
    assert len(running) <= max_num_seqs, "too many requests run"
    assert all(r.status is RequestStatus.RUNNING for r in running.requests), "a running request has another status"
    for request in queues:
        loading = request.status is RequestStatus.WAITING_FOR_REMOTE_KVS or request.num_computed_tokens > 0
        assert request.slot < 0 or request.resumable or loading, f"waiting {request.request_id} holds blocks"
        waiting = request.status in (RequestStatus.WAITING, RequestStatus.PREEMPTED)
        assert waiting or request.status.is_blocked, f"waiting {request.request_id} is {request.status.name}"
    pins.check_invariants()
