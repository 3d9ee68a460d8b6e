"""What hosts and observers may read of a scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tokenyard.core.config import CacheConfig, PauseState, SchedulerConfig
from tokenyard.core.kv.encoder_cache import EncoderCache
from tokenyard.core.kv.manager import KVCacheManager
from tokenyard.core.request import Request
from tokenyard.core.sched.calls import CallState, one_call
from tokenyard.core.sched.connector import KVConnector
from tokenyard.core.sched.context import Parts
from tokenyard.core.sched.features.feature_set import Features
from tokenyard.core.sched.features.grammars import GrammarGate, GrammarOutput
from tokenyard.core.sched.features.sessions import PinBoard
from tokenyard.core.sched.lifecycle import Lifecycle
from tokenyard.core.sched.observer import Counts, Gauges, ObserverGate
from tokenyard.core.sched.outputs import Held
from tokenyard.core.sched.policy import Policy, PolicyGate
from tokenyard.core.sched.queues import RequestQueue, RunningList, WaitingQueues
from tokenyard.core.sched.scheduler_output import SchedulerOutput, StepsInFlight
from tokenyard.errors import ConfigError

__all__ = ["SchedulerView", "StateView"]


# ---------------------------------------------------------------------------------------------------------------------
# What observers see of a scheduler: read-only, and the same object for its whole life.


class _Queue:
    """One of the waiting queues, to be looked at."""

    __slots__ = ("_queue",)

    def __init__(self, queue: Callable[[], RequestQueue]) -> None:
        self._queue = queue

    def __len__(self) -> int:
        return len(self._queue())

    def __iter__(self) -> Iterator[Request]:
        return iter(self._queue())


class StateView:
    """A ``SchedulerState``: it hands out numbers, copies and iterators, and no part of the scheduler."""

    __slots__ = (
        "_kv",
        "_pins",
        "_policy",
        "_room",
        "_running",
        "_transfers",
        "block_size",
        "max_num_running_reqs",
        "max_num_scheduled_tokens",
        "num_total_blocks",
        "skipped_waiting",
        "waiting",
    )

    def __init__(self, parts: Parts, pins: PinBoard) -> None:
        self._kv = parts.kv
        self._policy = parts.policy
        self._running = parts.running
        self._room = room = parts.waiting_queues
        self._pins = pins
        self._transfers = parts.features.transfers
        self.block_size = parts.cache_config.tokens_per_block
        self.max_num_running_reqs = parts.config.max_num_seqs
        self.max_num_scheduled_tokens = parts.config.max_num_batched_tokens
        self.num_total_blocks = parts.kv.num_total_blocks
        self.waiting = _Queue(lambda: room.waiting)
        self.skipped_waiting = _Queue(lambda: room.skipped)

    @property
    def running(self) -> Sequence[Request]:
        """In running order."""
        return self._running.rows()[0]

    @property
    def running_version(self) -> int:
        """Changes with the running list."""
        return self._running.version

    @property
    def pinned(self) -> Sequence[Request]:
        """Finished turns whose blocks are kept."""
        return tuple(self._pins)

    @property
    def waiting_reorders(self) -> bool:
        """The waiting order may change by itself."""
        return self._policy.reorders

    @property
    def num_free_blocks(self) -> int:
        """Blocks in the free queue."""
        return self._kv.num_free_blocks

    @property
    def num_cached_blocks(self) -> int:
        """Distinct hashes in the prefix index."""
        return self._kv.num_cached_blocks

    @property
    def cpu_blocks(self) -> tuple[int, int] | None:
        """Free and total blocks of a tier in CPU memory."""
        return self._transfers.cpu_blocks if self._transfers is not None else None

    def num_blocks_of(self, request: Request) -> int:
        """Blocks the request holds."""
        return self._kv.num_blocks_of(request)

    def counts(self) -> Counts:
        """What statistics take of every step."""
        room = self._room
        return Counts(
            self._kv.num_free_blocks,
            len(self._running.requests),
            len(room) if room.occupied else 0,
            None if self._transfers is None else self._transfers.cpu_blocks,
        )

    def gauges(self) -> Gauges:
        """What may change with every step."""
        kv, room = self._kv, self._room
        in_turn, num_skipped = room.counts
        return Gauges(
            self._running.version,
            kv.num_free_blocks,
            kv.num_cached_blocks,
            in_turn + num_skipped,
            num_skipped,
            len(self._pins),
            None if self._transfers is None else self._transfers.cpu_blocks,
        )


# ---------------------------------------------------------------------------------------------------------------------
# What hosts and observers may read of a scheduler; see ``SchedulerState`` for the part that observers get.


class SchedulerView:
    """Read-only properties over the parts that the scheduler owns."""

    config: SchedulerConfig
    cache_config: CacheConfig
    kv: KVCacheManager
    clock: Callable[[], float]
    observer: ObserverGate | None
    pause_state: PauseState
    policy: Policy
    _policy_gate: PolicyGate
    _running: RunningList
    _waiting_queues: WaitingQueues
    _lifecycle: Lifecycle
    _in_flight: StepsInFlight
    _features: Features
    _grammars: GrammarGate
    _held: Held
    _calls: CallState

    @property
    def running(self) -> list[Request]:
        """Requests in the running list, in running order."""
        return self._running.requests

    @property
    def requests(self) -> dict[str, Request]:
        """Every unfinished request, by id."""
        return self._lifecycle.requests

    @property
    def pins(self) -> PinBoard:
        """Finished turns whose blocks the policy keeps."""
        return self._lifecycle.pins

    @property
    def waiting(self) -> RequestQueue:
        return self._waiting_queues.waiting

    @property
    def skipped_waiting(self) -> RequestQueue:
        return self._waiting_queues.skipped

    @property
    def num_free_blocks(self) -> int:
        return self.kv.num_free_blocks

    @property
    def num_total_blocks(self) -> int:
        return self.kv.num_total_blocks

    @property
    def num_cached_blocks(self) -> int:
        return self.kv.num_cached_blocks

    @property
    def cpu_blocks(self) -> tuple[int, int] | None:
        """Free and total blocks of a connector's tier in CPU memory; None without one."""
        return self._features.transfers.connector.cpu_blocks if self._features.transfers is not None else None

    @property
    def encoder_cache(self) -> EncoderCache | None:
        """Outputs of multi-modal encoders; None for a text model."""
        return self._features.encoder.cache if self._features.encoder is not None else None

    @property
    def num_speculative_tokens(self) -> int:
        """Most draft tokens per request and step; 0 without speculative decoding."""
        return self._features.speculation.max_drafts if self._features.speculation is not None else 0

    @property
    def max_num_scheduled_tokens(self) -> int:
        return self.config.max_num_batched_tokens

    @property
    def max_num_running_reqs(self) -> int:
        return self.config.max_num_seqs

    @property
    def block_size(self) -> int:
        return self.cache_config.tokens_per_block

    @property
    def running_version(self) -> int:
        return self._running.version

    @property
    def waiting_reorders(self) -> bool:
        return self.policy.reorders

    def next_moment(self, now: float) -> float | None:
        """When, after ``now``, the policy changes something by itself, in seconds; None: nothing does."""
        return self._policy_gate.next_moment(now)

    def num_blocks_of(self, request: Request) -> int:
        """Blocks the request holds."""
        return self.kv.num_blocks_of(request)

    def get_grammar_bitmask(self, output: SchedulerOutput) -> GrammarOutput | None:
        """Tokens that grammars allow in a step; None if nobody samples by one.

        Ask while the step is in flight (else ValueError), when no earlier one is whose tokens advance its grammars.
        GrammarError for a grammar that fails: its request will end as an error, and the same call once more gives the
        masks of the others.
        """
        if not output.has_structured_output_requests:
            return None
        mask = self._grammars.bitmask(self._in_flight.of(output))
        self.kv.failures.raise_first("the same call once more gives the masks of the others")
        return mask

    def get_request_counts(self) -> tuple[int, int]:
        """(running, waiting)."""
        return len(self._running), len(self._waiting_queues)

    def get_num_unfinished_requests(self) -> int:
        """Requests that the next steps may serve: a pause leaves some or all of them out."""
        if self.pause_state is PauseState.PAUSED_ALL:
            return 0
        if self.pause_state is PauseState.PAUSED_NEW:
            return len(self._running) + self._waiting_queues.num_going_on
        return len(self._running) + len(self._waiting_queues) - self._lifecycle.sessions.num_waiting

    def has_unfinished_requests(self) -> bool:
        """Whether the next steps may serve anybody."""
        if self._running.requests and self.pause_state is not PauseState.PAUSED_ALL:
            return True  # they are part of every other sum
        return self.get_num_unfinished_requests() > 0

    def get_kv_connector(self) -> KVConnector | None:
        """The scheduler's half of the KV connector."""
        return self._features.transfers.connector if self._features.transfers is not None else None

    @one_call
    def set_pause_state(self, state: PauseState) -> None:
        """Pause or resume; takes effect with the next step. Raises ConfigError for what is no ``PauseState``."""
        if state not in tuple(PauseState):
            raise ConfigError("pause_state", state, f"give one of: {', '.join(each.name for each in PauseState)}")
        self.pause_state = PauseState(state)
        if self.observer is not None:
            self.observer.pause_changed(self.clock(), self.pause_state)

    def has_finished_requests(self) -> bool:
        """Finished ids have not been reported to the workers, or a connector still reads a finished one's blocks."""
        transfers = self._features.transfers
        return bool(self._lifecycle.finished_req_ids) or (transfers is not None and bool(transfers.delayed))

    def has_requests(self) -> bool:
        """Whether another step has anything to do or to report."""
        return self.has_unfinished_requests() or self.has_finished_requests() or self._held.step is not None
