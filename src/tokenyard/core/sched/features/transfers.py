"""Transfers in flight: loads that requests wait for, and blocks that outlive their request until they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar, TypeVarTuple

import msgspec

from tokenyard.core.config import GroupKind
from tokenyard.core.kv.allocation import Blocks, PrefixCacheStats
from tokenyard.core.kv.block_pool import NULL_BLOCK
from tokenyard.core.kv.manager import KVCacheManager
from tokenyard.core.request import Request, RequestStatus
from tokenyard.core.sched.calls import asked
from tokenyard.core.sched.candidate import FeatureHook
from tokenyard.core.sched.connector import ConnectorContext, KVConnector, Match, checked_end, checked_match
from tokenyard.core.sched.in_flight import StepInFlight
from tokenyard.core.sched.outputs import ConnectorOutput
from tokenyard.errors import ConfigError, ConnectorError, RequestError

_Given = TypeVarTuple("_Given")
_Answer = TypeVar("_Answer")


class Lost(msgspec.Struct, frozen=True):
    """The requests that relied on blocks whose load failed."""

    loading: list[Request]
    """Requests that wait for the very load."""
    rewound: list[Request]
    """Running requests that had loaded them."""
    sharing: list[Request]
    """Running requests that had found them in the prefix cache since, or that have to start over."""
    blocks: list[int]
    """Blocks of running requests that hold nothing valid."""


class Transfers(FeatureHook):
    """Book-keeping of one connector."""

    def __init__(self, connector: KVConnector, kv: KVCacheManager) -> None:
        """ConfigError if it is no connector at all."""
        if not isinstance(connector, KVConnector):
            fix = "give an object of a class derived from tokenyard.KVConnector"
            raise ConfigError("kv_connector", connector, fix)
        self.connector = connector
        self._kv = kv
        self._received: set[str] = set()
        """Loads complete, whose requests have not been looked at since."""
        self._failed: set[str] = set()
        """Loads of which a part failed."""
        self._failed_before = False
        """A load failed in the step before."""
        self.delayed: dict[str, Request] = {}
        """Ended requests whose blocks are still being read or written."""
        self._unheard: set[str] = set()
        """Ended requests of which a further report may come: they waited for a load, and the connector keeps their
        blocks all the same."""
        self.local_hits: dict[str, int] = {}
        """Local prefix hit, in tokens, of requests that wait for a load or have just got it."""
        self._params: dict[str, Mapping[str, object]] = {}
        """What clients are to be notified of requests that have ended since the last call of :meth:`take_params`."""
        self.stats = PrefixCacheStats()
        """Hits of the connector, in tokens beyond the local hit."""

    def bind(self) -> None:
        """Tell the connector whom it serves, once."""
        connector, context = self.connector, ConnectorContext(self._kv.pool, self._kv.max_model_len)
        self.ask("bind", connector.bind, context)
        if not connector.is_bound or connector.context is not context:
            raise ConfigError("kv_connector", type(connector).__name__, "its bind must call super().bind(context)")

    def ask(self, method: str, call: Callable[[*_Given], _Answer], *given: *_Given) -> _Answer:
        """What a method of the connector answers; ConnectorError if it raises."""
        return asked(ConnectorError, self.connector, method, call, *given)

    def match(self, request: Request, num_local: int) -> Match:
        """What the connector can bring beyond the local hit."""
        answer = self.ask("get_num_new_matched_tokens", self.connector.get_num_new_matched_tokens, request, num_local)
        return checked_match(self.connector, answer)

    def allocated(self, request: Request, blocks: Blocks, num_external: int) -> None:
        """The request has got these blocks, and external tokens belong into some of them."""
        self.ask("update_state_after_alloc", self.connector.update_state_after_alloc, request, blocks, num_external)

    def preempted(self, request: Request) -> None:
        """The request is about to lose its blocks."""
        self.ask("request_preempted", self.connector.request_preempted, request, self._kv.get_block_ids(request))

    def take_stats(self) -> PrefixCacheStats:
        """Hits since the last call."""
        stats, self.stats = self.stats, PrefixCacheStats()
        return stats

    def take_params(self) -> Mapping[str, Mapping[str, object]]:
        """Request id -> parameters for its client, since the last call."""
        params, self._params = self._params, {}
        return params

    def take_hits(self, request: Request) -> tuple[int, int]:
        """Local and external hit, in tokens, of a request that has been loaded and is admitted now."""
        computed = request.num_computed_tokens
        local = min(self.local_hits.pop(request.request_id, computed), computed)
        return local, computed - local

    # ---- loads

    def step_planned(self, step: StepInFlight) -> None:
        metadata = self.ask("build_connector_meta", self.connector.build_connector_meta, step.plan)
        step.plan = step.plan.replace(kv_connector_metadata=metadata)

    def check_request(self, request: Request) -> None:
        """RequestError if blocks of an earlier request with its id are still in use, or the connector refuses it."""
        if request.request_id in self.delayed:
            fix = "its blocks are still being transferred: use another id, or wait until they are freed"
            raise RequestError(request.request_id, "request_id", request.request_id, fix)
        self.ask("on_new_request", self.connector.on_new_request, request)

    def has_received(self, request: Request) -> bool:
        """The request's load is complete, and admission has not looked at it since."""
        return request.request_id in self._received

    def promote(self, request: Request) -> bool:
        """If the request's load is complete, make it ready to be scheduled."""
        if request.request_id not in self._received:
            return False
        self._received.remove(request.request_id)
        computed = request.num_computed_tokens
        if request.request_id in self._failed:
            self._failed.remove(request.request_id)
            if not computed:
                # Nothing valid was loaded: there may be a local hit when it is tried again.
                self._kv.free(request)
        if request.slot >= 0:
            self._kv.publish(request, computed)
            if computed == request.num_tokens:
                # The last token has to be computed again: its logits are needed.
                request.num_computed_tokens = computed - 1
        request.status = RequestStatus.PREEMPTED if request.num_preemptions else RequestStatus.WAITING
        return True

    def knows(self, request_id: str) -> bool:
        """Whether the workers may report that blocks of this ended request are not needed any more."""
        return request_id in self.delayed or request_id in self._unheard

    def report(self, output: ConnectorOutput, requests: Mapping[str, Request]) -> list[Request]:
        """Take in what the workers report; returns ended requests whose blocks they do not need any more."""
        self.ask("update_connector_output", self.connector.update_connector_output, output)
        over = []
        if self._unheard:
            reported = output.finished_receiving | output.finished_sending
            self._unheard -= {request_id for request_id in reported if request_id not in self.delayed}
        for request_id in sorted(output.finished_receiving):
            if request_id in requests:
                self._received.add(request_id)
            else:
                over.append(self.delayed.pop(request_id, None))
        over += [self.delayed.pop(request_id, None) for request_id in sorted(output.finished_sending)]
        return [request for request in over if request is not None]

    def blocks_will_come(self, waiting: Iterable[Request]) -> bool:
        """Blocks of an ended request are still being read, or a load is under way: an event will change things."""
        return bool(self.delayed) or any(
            request.status is RequestStatus.WAITING_FOR_REMOTE_KVS and not self.has_received(request)
            for request in waiting
        )

    # ---- ends

    def keeps_blocks(self, request: Request, status: RequestStatus) -> bool:
        """A request ends with ``status``, its own is still that of its last moment: True if its blocks must stay."""
        request_id = request.request_id
        loading = request.status is RequestStatus.WAITING_FOR_REMOTE_KVS and request_id not in self._received
        self._received.discard(request_id)
        self._failed.discard(request_id)
        self.local_hits.pop(request_id, None)
        request.status = status
        answer = self.ask("request_finished", self.connector.request_finished, request, self._kv.get_block_ids(request))
        needed, params = checked_end(self.connector, answer)
        if params is not None:
            self._params[request_id] = params
        if loading or needed:
            self.delayed[request_id] = request
        if loading and needed:
            self._unheard.add(request_id)
        return loading or needed

    # ---- failures

    def forget_doubtful(self, step: StepInFlight, report: ConnectorOutput | None) -> None:
        """If a load failed, forget what requests computed that have left since the step was made (a step before, under
        async scheduling): their blocks are not theirs any more, so nothing else would look after them.
        """
        failed = report is not None and bool(report.invalid_block_ids)
        if failed or self._failed_before:
            for request, slot in zip(step.requests, step.plan.slots.tolist(), strict=True):
                if request.slot != slot or request.status.is_finished:
                    self._kv.forget_content_of(request)
        self._failed_before = failed
        if report is not None:
            self._kv.evict_blocks(report.invalid_block_ids)

    def invalidate(
        self,
        invalid: frozenset[int],
        loading: Iterable[Request],
        running: Iterable[Request],
        granted: Mapping[str, int],
    ) -> Lost:
        """Rewind every request that relied on a block whose load failed to its longest valid prefix.

        ``granted`` has the tokens of the step just run. Of running requests that share an invalid block the first, who
        loaded it, is rewound; the others are only named, as are those who no longer hold what they would go on from.
        """
        lost = Lost([], [], [], [])
        for request in loading:
            if self._rewind(request, invalid, 0):
                lost.loading.append(request)
                self._failed.add(request.request_id)
        rewound: set[int] = set()
        for request in running:
            before = request.num_computed_tokens
            bad = self._rewind(request, invalid, granted.get(request.request_id, 0))
            if bad and (bad[0] in rewound or self._needs_forgotten(request, request.num_computed_tokens)):
                request.num_computed_tokens = before
                lost.sharing.append(request)
            elif bad:
                rewound.update(bad)
                lost.rewound.append(request)
            lost.blocks.extend(bad)
        return lost

    def _rewind(self, request: Request, invalid: frozenset[int], granted: int) -> list[int]:
        """Set computed tokens back to before the first invalid block; returns that block and those after it.

        In every KV-cache group: the tokens before the first invalid one are valid in all of them.
        """
        held = self._held(request)
        bad = self._relied_on(request, held, invalid, granted)
        if not bad:
            return []
        first, culprit = min(bad)
        if self._needs_forgotten(request, first):
            first = 0
        request.num_computed_tokens = first
        after = [
            block for size, blocks in held for block in blocks[first // size :] if block not in (culprit, NULL_BLOCK)
        ]
        return [culprit, *after]

    def relies_on(self, request: Request, invalid: frozenset[int], granted: int) -> bool:
        """Whether a block whose load failed holds tokens before the ``granted`` ones of the step just run."""
        return bool(self._relied_on(request, self._held(request), invalid, granted))

    def _held(self, request: Request) -> list[tuple[int, list[int]]]:
        """Block size and blocks of the request in each KV-cache group."""
        return list(zip(self._kv.config.group_block_sizes, self._kv.get_block_ids(request), strict=True))

    @staticmethod
    def _relied_on(
        request: Request, held: list[tuple[int, list[int]]], invalid: frozenset[int], granted: int
    ) -> list[tuple[int, int]]:
        """First position and id of every invalid block among those of the computed tokens."""
        computed = request.num_computed_tokens - granted
        return [
            (i * size, block)
            for size, blocks in held
            for i, block in enumerate(blocks[: -(-computed // size)])
            if block in invalid and block != NULL_BLOCK
        ]

    def _needs_forgotten(self, request: Request, num_computed: int) -> bool:
        """Whether going on from there takes KV that a group has given up: behind a window, or a state passed."""
        groups = zip(self._kv.config.groups, self._kv.get_block_ids(request), strict=True)
        return any(
            group.kind is GroupKind.MAMBA or NULL_BLOCK in blocks[self._kv.num_skipped_blocks(i, num_computed) :]
            for i, (group, blocks) in enumerate(groups)
        )
