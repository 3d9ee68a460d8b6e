"""Requests that go on: streaming-input sessions, and pinned blocks of a finished turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator

import msgspec
import numpy as np

from tokenyard.core.config import GroupKind, SchedulerConfig
from tokenyard.core.kv.manager import KVCacheManager
from tokenyard.core.params import MultiModalItem, SamplingParams, TokenIds
from tokenyard.core.request import Request, RequestStatus
from tokenyard.core.sched.outcomes import EndedPin
from tokenyard.core.sched.queues import WaitingQueues
from tokenyard.core.sched.request_checks import most_blocks_of
from tokenyard.errors import TOO_LONG, RequestError

# ---------------------------------------------------------------------------------------------------------------------
# Pins: blocks of a finished turn that a policy keeps for the next turn of the same job.
#
# A pinned request has ended for its client and its workers; only its blocks stay, under its slot. The next turn finds
# them through the prefix index like any cached block, and its pin is dropped when it is admitted.


class PinBoard:
    """At most one pinned turn per job."""

    __slots__ = ("_clock", "_free", "_num_blocks_of", "_since", "by_job", "num_blocks", "tells_end")

    def __init__(
        self,
        free: Callable[[Request], None],
        num_blocks_of: Callable[[Request], int],
        clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """``num_blocks_of`` a request are those that it holds, over all groups; a pinned one gets and loses none."""
        self._free = free
        self._num_blocks_of = num_blocks_of
        self._clock = clock
        self._since: dict[str, float] = {}
        """Job -> when its pin was made."""
        self.tells_end: Callable[[EndedPin], None] | None = None
        """Called with every pin that is over."""
        self.by_job: dict[str, Request] = {}
        """Job -> its pinned turn, the one pinned first in front; for reading."""
        self.num_blocks = 0
        """Blocks that the pinned turns hold; one that several hold counts for each of them."""

    def __len__(self) -> int:
        return len(self.by_job)

    def __iter__(self) -> Iterator[Request]:
        """Pinned requests, the one pinned first in front."""
        return iter(list(self.by_job.values()))

    def __contains__(self, job_id: object) -> bool:
        return job_id in self.by_job

    def get(self, job_id: str | None) -> Request | None:
        """The pinned turn of a job."""
        return self.by_job.get(job_id) if job_id is not None else None

    def pin(self, request: Request) -> None:
        """Keep the blocks of a finished turn; an older pin of its job is dropped."""
        assert request.job_id is not None, "only a turn of a job can be pinned"
        self.unpin(request.job_id, "replaced")
        self.by_job[request.job_id] = request
        self._since[request.job_id] = self._clock()
        self.num_blocks += self._num_blocks_of(request)

    def unpin(self, job_id: str, why: str = "dropped") -> bool:
        """Free the blocks, ``why`` as the vocabulary says; False if the job has no pin."""
        request = self.by_job.pop(job_id, None)
        if request is None:
            return False
        ended = EndedPin(request, why, self._since.pop(job_id), self._num_blocks_of(request))
        self.num_blocks -= ended.num_blocks
        self._free(request)
        if self.tells_end is not None:
            self.tells_end(ended)
        return True

    def clear(self) -> None:
        """Drop every pin."""
        for job_id in list(self.by_job):
            self.unpin(job_id, "reset")

    def check_invariants(self) -> None:
        """Raise AssertionError if what is pinned is not the blocks of finished requests, or is counted wrongly."""
        for request in self:
            assert request.status.is_finished, f"pinned {request.request_id} is {request.status.name}"
            assert request.slot >= 0, f"pinned {request.request_id} holds no blocks"
        assert self.num_blocks == sum(map(self._num_blocks_of, self)), "blocks of pinned requests do not add up"


# ---------------------------------------------------------------------------------------------------------------------
# Streaming-input sessions: a request that goes on when more input arrives.
#
# At the end of each answer a session waits for its next piece of input with its blocks in hand. The last sampled
# token was never computed; it is dropped, and what was computed becomes prompt:
#
#     | prompt | output, computed | (last) |          before
#     | prompt                    | new input |       after: a WAITING request whose first part is computed already


class SessionInput(msgspec.Struct, frozen=True):
    """One further piece of input."""

    tokens: TokenIds
    sampling_params: SamplingParams
    arrival_time: float
    mm_features: tuple[MultiModalItem, ...]
    ends_after: int | None = None
    predicted_output_tokens: int | None = None

    @classmethod
    def of(cls, request: Request) -> SessionInput | None:
        """The input that a request with a session's id brings; None if it ends the session (it is not resumable)."""
        if not request.resumable:
            return None
        tokens = request.token_slice(0, request.num_prompt_tokens)
        return cls(
            tokens,
            request.sampling_params,
            request.arrival_time,
            request.mm_features,
            request.ends_after,
            request.predicted_output_tokens,
        )


class Sessions:
    """Inputs that wait for their session, and sessions that wait for input."""

    def __init__(
        self,
        config: SchedulerConfig,
        kv: KVCacheManager,
        queues: WaitingQueues,
        num_lookahead_tokens: int,
        on_continued: Callable[[Request], None],
    ) -> None:
        """``on_continued`` is called when a session has got its next input."""
        self._config = config
        self._num_lookahead_tokens = num_lookahead_tokens
        self._kv = kv
        self._on_continued = on_continued
        self._waiting_queues = queues
        self._inputs: dict[str, deque[SessionInput | None]] = {}
        """Session id -> inputs that came before its current answer was complete; None ends it."""
        self._between: set[str] = set()
        """Ids of sessions whose answer is complete, while a load still writes into their blocks: they go on when it is
        over."""
        self.num_waiting = 0
        """Sessions in WAITING_FOR_STREAMING_REQ: no step can do anything for them."""
        has_states = any(group.kind is GroupKind.MAMBA for group in kv.config.groups)
        self._loses_states = config.async_scheduling and has_states

    def __contains__(self, request_id: object) -> bool:
        return request_id in self._inputs

    def check_request(self, request: Request) -> None:
        """RequestError for a session that would compute nonsense.

        When an answer ends, a step in flight has moved the state of a Mamba layer past the token that the session then
        drops, and nothing moves a state back. A pooling request has no answer to go on from.
        """
        if request.resumable and request.pooling_params is not None:
            fix = "a pooling request ends with its prompt: add a request for each prompt"
            raise RequestError(request.request_id, "resumable", request.resumable, fix)
        if request.resumable and self._loses_states:
            fix = "with Mamba layers the state would be one token ahead after an answer: turn §async_scheduling off"
            raise RequestError(request.request_id, "resumable", request.resumable, fix)

    def open(self, request: Request) -> None:
        """A resumable request was added."""
        self._inputs[request.request_id] = deque()

    def close(self, request: Request) -> None:
        """A request has ended."""
        self._between.discard(request.request_id)
        if self._inputs.pop(request.request_id, None) is not None:
            self.num_waiting -= request.status is RequestStatus.WAITING_FOR_STREAMING_REQ

    def feed(self, session: Request, update: SessionInput | None) -> bool:
        """``update`` continues ``session``; False if it ends a session that has nothing left to do."""
        queue = self._inputs[session.request_id]
        if self._is_answering(session):
            queue.append(update)
            return True
        if update is None:
            return False
        if session.request_id in self._between:
            queue.append(update)
            return True
        self.num_waiting -= 1
        self._continue(session, update)
        self._waiting_queues.arrived_anew(session)
        return True

    def _is_answering(self, session: Request) -> bool:
        """Whether its current answer is not complete."""
        waits = session.status is RequestStatus.WAITING_FOR_STREAMING_REQ
        return not waits and session.request_id not in self._between

    def take_loaded(self, loaded: Iterable[str]) -> list[str]:
        """Return the ids whose sessions wanted nothing but the end of this load to go on; asked once."""
        if not self._between:
            return []
        ready = sorted(self._between.intersection(loaded))
        self._between.difference_update(ready)
        return ready

    def goes_on(self, session: Request, *, is_loading: bool) -> bool:
        """A session's answer is complete and it is in no queue: True if it is waiting again.

        ``is_loading``: a load still writes into its blocks (it lost its own while its last token was in flight, and was
        admitted anew). It keeps them and goes on waiting for the load, with which :meth:`take_loaded` names it.
        """
        queue = self._inputs.get(session.request_id)
        if queue is None:
            return False
        if is_loading and (not queue or queue[0] is not None):
            self._between.add(session.request_id)
        elif queue:
            update = queue.popleft()
            if update is None:
                return False
            self._continue(session, update)
        else:
            session.status = RequestStatus.WAITING_FOR_STREAMING_REQ
            self.num_waiting += 1
        self._waiting_queues.add(session)
        return True

    def check_invariants(self, requests: Collection[Request]) -> None:
        """Raise AssertionError if sessions that wait, for input or for a load, are counted wrongly."""
        wait = RequestStatus.WAITING_FOR_STREAMING_REQ, RequestStatus.WAITING_FOR_REMOTE_KVS
        for_input, for_loads = ({each.request_id for each in requests if each.status is status} for status in wait)
        assert self.num_waiting == len(for_input), f"{self.num_waiting} sessions wait, and these are: {for_input}"
        assert self._between <= for_loads, f"no load: {self._between - for_loads}"

    def check_input(self, session: Request, update: SessionInput | None) -> None:
        """RequestError for an input behind the session's end, or one with which the session could become too long."""
        if update is None:
            return
        rid, queued = session.request_id, self._inputs[session.request_id]
        if None in queued:
            fix = "an earlier request has ended this session, whose answers are not complete: open one with another id"
            raise RequestError(rid, "request_id", rid, fix)
        pieces = [each for each in queued if each is not None] + [update]
        length = session.num_tokens + session.max_tokens * self._is_answering(session)
        length += sum(len(each.tokens) + each.sampling_params.max_tokens for each in pieces)
        value, limit = f"{len(update.tokens)} tokens", self._config.max_model_len
        with_it = f"with it the session can reach {length} tokens"
        if length >= limit:
            fix = f"{with_it}, and §max_model_len is {limit}: end the session and open another"
            raise RequestError(rid, "prompt_token_ids", value, fix, code=TOO_LONG)
        needed = most_blocks_of(length, self._config, self._kv, self._num_lookahead_tokens)
        if needed > (usable := self._kv.num_usable_blocks):
            fix = f"{with_it} and need {needed} blocks, and the pool has {usable}: end the session and open another"
            raise RequestError(rid, "prompt_token_ids", value, fix)

    def _continue(self, session: Request, update: SessionInput) -> None:
        """Give a session that has no step in flight its next input."""
        self._extend(session, update)
        self._on_continued(session)

    def _extend(self, session: Request, update: SessionInput) -> None:
        known = session.num_tokens - 1
        # Steps in flight may have counted further, and a preemption resets the computed tokens but keeps the output.
        session.num_computed_tokens = min(session.num_computed_tokens, known)
        # A hash over the dropped token would promise KV that was never computed.
        self._kv.forget_hashes(session, known)
        moved = tuple(item.moved(known) for item in update.mm_features)
        session.mm_features += moved
        session.has_extra_keys = session.has_extra_keys or bool(moved)
        session.sampling_params, session.ends_after = update.sampling_params, update.ends_after
        session.replace_tokens(np.concatenate((session.token_slice(0, known), update.tokens)))
        session.spec_token_ids = []
        session.is_prefill_chunk = False
        session.predicted_output_tokens = update.predicted_output_tokens
        session.arrival_time = update.arrival_time
        session.stop_reason = None
        session.status = RequestStatus.WAITING
