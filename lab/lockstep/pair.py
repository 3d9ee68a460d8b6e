"""vLLM's scheduler and ours behind one set of methods; every answer is compared, and vLLM's is returned."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable
from random import Random
from typing import Any

from vllm.v1.core.sched.interface import PauseState
from vllm.v1.request import Request, RequestStatus

from lockstep.compare import DiffersError, compare_outputs, compare_plans, compare_values
from recorder.versions import PAUSES_COUNT_HOLDERS, second_queue

__all__ = ["EndedWaitsError", "NeverServedError", "Pair", "WaitsForEverError"]

_ARGUMENTS = {name for name in inspect.signature(Request.__init__).parameters if name not in ("self", "block_hasher")}


def _twin(request: Any) -> Any:
    """The same request once more, which no scheduler has touched."""
    given = {name: getattr(request, name) for name in _ARGUMENTS if hasattr(request, name)}
    for name in ("prompt_token_ids", "mm_features"):
        given[name] = list(given[name])
    made = Request(**given, block_hasher=request._block_hasher)  # noqa: SLF001
    made.structured_output_request = request.structured_output_request  # one grammar, which remembers nothing
    return made


class NeverServedError(Exception):
    """Ours refuses a request that can never be served; vLLM's accepts it, and waits for ever."""


class WaitsForEverError(Exception):
    """Nothing runs and waiting sessions hold the blocks: there ours has a way out, and vLLM none (docs/parity.md)."""


class EndedWaitsError(Exception):
    """0.22 leaves a request that has ended in its queue of those skipped (docs/parity.md)."""


class Pair:
    """A scheduler for the recorder's tick loop; what it asks beside calls, vLLM's answers."""

    def __init__(self, theirs: Any, ours: Any, seed: int) -> None:
        self._theirs = theirs
        self._ours = ours
        self._rng = Random(seed)
        self._flights: list[tuple[Any, Any]] = []
        self.steps = 0
        """Steps compared."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._theirs, name)

    def _both(self, name: str, *args: Any, **kwargs: Any) -> Any:
        theirs = getattr(self._theirs, name)(*args, **kwargs)
        compare_values(f"{name}()", theirs, getattr(self._ours, name)(*args, **kwargs))
        return theirs

    # ---- calls

    def add_request(self, request: Any) -> None:
        """Both get a request of their own."""
        twin = _twin(request)
        self._ours.add_request(twin)
        if refusal := self._ours.last_refusal:
            raise NeverServedError(refusal)
        self._theirs.add_request(request)
        self._compare_counts("add_request")

    def finish_requests(self, request_ids: str | Iterable[str] | None, status: Any) -> Any:
        """Requests that it ended, by id."""
        theirs = self._theirs.finish_requests(request_ids, status)
        ours = self._ours.finish_requests(request_ids, status)
        ids = [sorted(r[0] if isinstance(r, tuple) else r.request_id for r in each) for each in (theirs, ours)]
        compare_values("finish_requests()", *ids)
        self._compare_counts("finish_requests")
        return theirs

    def schedule(self) -> Any:
        """A step."""
        is_deadlocked = self._is_deadlocked()
        theirs, ours = self._theirs.schedule(), self._ours.schedule()
        try:
            compare_plans(theirs, ours)
        except DiffersError:
            if is_deadlocked:
                raise WaitsForEverError from None
            raise
        self._flights.append((theirs, ours))
        self.steps += 1
        self._compare_counts("schedule")
        return theirs

    def _is_deadlocked(self) -> bool:
        """Nothing runs, and sessions that wait hold blocks."""
        scheduler = self._theirs
        if scheduler.running or self._flights:
            return False
        waiting = [*scheduler.waiting, *second_queue(scheduler)]
        return any(request.resumable and request.num_computed_tokens for request in waiting)

    def update_from_output(self, output: Any, answer: Any) -> Any:
        """The output of the oldest step; to ours in another order: workers keep their batch in one of theirs."""
        (theirs, ours) = self._flights.pop(0)
        compare_values("the step taken in", output, theirs)
        answers = (answer, self._shuffled(answer))
        results = self._theirs.update_from_output(theirs, answers[0]), self._ours.update_from_output(ours, answers[1])
        if any(request.is_finished() for request in getattr(self._theirs, "skipped_waiting", ())):
            raise EndedWaitsError
        compare_outputs(*results)
        self._compare_counts("update_from_output")
        return results[0]

    def _shuffled(self, answer: Any) -> Any:
        made = copy.copy(answer)
        order = list(range(len(answer.req_ids)))
        if self._rng.random() < 0.5:
            self._rng.shuffle(order)
        made.req_ids = [answer.req_ids[row] for row in order]
        made.req_id_to_index = {request_id: row for row, request_id in enumerate(made.req_ids)}
        made.sampled_token_ids = [list(answer.sampled_token_ids[row]) for row in order]
        if answer.pooler_output:
            made.pooler_output = [answer.pooler_output[row] for row in order]
        return made

    def update_draft_token_ids(self, drafts: Any) -> None:
        """Drafts for the next step."""
        again = copy.deepcopy(drafts)
        self._theirs.update_draft_token_ids(drafts)
        self._ours.update_draft_token_ids(again)

    def update_draft_token_ids_in_output(self, drafts: Any, output: Any) -> None:
        """Drafts of a step that is about to run."""
        again, (theirs, ours) = copy.deepcopy(drafts), self._flights[-1]
        compare_values("the step made known", output, theirs)
        self._theirs.update_draft_token_ids_in_output(drafts, theirs)
        self._ours.update_draft_token_ids_in_output(again, ours)
        compare_plans(theirs, ours)

    def has_requests(self) -> bool:
        """Whether there is anything to do."""
        self._compare_counts("asking")
        return bool(self._theirs.has_requests())

    def set_pause_state(self, state: Any) -> None:
        """Pause or resume both."""
        self._both("set_pause_state", state)
        compare_values("pause_state", self._theirs.pause_state, self._ours.pause_state)

    def reset_prefix_cache(self, **kwargs: Any) -> bool:
        """Forget all cached content."""
        return bool(self._both("reset_prefix_cache", **kwargs))

    def reset_encoder_cache(self) -> None:
        """Forget all encoder outputs."""
        self._both("reset_encoder_cache")

    def _num_left_out(self) -> int:
        """Requests too few that vLLM counts while new ones are paused (docs/parity.md).

        0.33 takes sessions that wait for input off those that hold blocks, also one that a preemption has left without.
        """
        if not PAUSES_COUNT_HOLDERS or self._theirs.pause_state != PauseState.PAUSED_NEW:
            return 0
        return sum(request.status == RequestStatus.WAITING_FOR_STREAMING_REQ for request in self._theirs.waiting)

    def _compare_counts(self, after: str) -> None:
        for name in ("get_request_counts", "has_finished_requests"):
            compare_values(f"{name}() after {after}()", getattr(self._theirs, name)(), getattr(self._ours, name)())
        unfinished = self._theirs.get_num_unfinished_requests() + self._num_left_out()
        ended = self._theirs.has_finished_requests()
        ours = self._ours
        compare_values(f"get_num_unfinished_requests() after {after}()", unfinished, ours.get_num_unfinished_requests())
        compare_values(f"has_requests() after {after}()", unfinished > 0 or ended, ours.has_requests())
        free = self._theirs.kv_cache_manager.block_pool.get_num_free_blocks()
        compare_values(f"free blocks after {after}()", free, self._ours.core.num_free_blocks)
