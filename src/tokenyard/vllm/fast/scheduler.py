"""The border: vLLM's ``SchedulerInterface`` on one side, our scheduler on the other."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from typing import Any, cast

import msgspec
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.multimodal.encoder_budget import MultiModalBudget
from vllm.v1.core.sched.interface import PauseState, SchedulerInterface
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs, FinishReason

from tokenyard.core.config import PauseState as OurPauseState
from tokenyard.core.kv.groups import hash_block_size
from tokenyard.core.request import RequestStatus
from tokenyard.core.sched.in_flight import StepInFlight
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.errors import RequestError
from tokenyard.vllm import versions
from tokenyard.vllm.fast.inputs import (
    FastGrammar,
    FastRequest,
    VllmHashes,
    answer_rows,
    bitmask,
    translated_answer,
    translated_drafts,
    translated_request,
)
from tokenyard.vllm.fast.records import OutputTranslation, PlanTranslation, translated_stats
from tokenyard.vllm.fast.settings import EncoderRoom, translated_settings
from tokenyard.vllm.fast.tracing import CoreClock, attach_trace

logger = logging.getLogger(__name__)


class _Flight(msgspec.Struct, frozen=True):
    """A step whose output vLLM has not brought back."""

    theirs: Any
    step: StepInFlight


class FastScheduler(SchedulerInterface):  # type: ignore[misc]  # vLLM is in another environment
    """Our scheduler for vLLM's engine, with synchronous or asynchronous scheduling as it is configured."""

    connector = None
    ec_connector = None

    def __init__(  # noqa: PLR0917 - vLLM's signature
        self,
        vllm_config: Any,
        kv_cache_config: Any,
        structured_output_manager: Any,
        block_size: int,
        hash_block_size: int | None = None,
        mm_registry: Any = MULTIMODAL_REGISTRY,
        include_finished_set: bool = False,
        log_stats: bool = False,
    ) -> None:
        """Takes what vLLM's own takes; ConfigError, which ends the engine, for options that are not served."""
        room = self.encoder_room(vllm_config, mm_registry)
        settings = translated_settings(vllm_config, kv_cache_config, room, hash_block_size)
        self.vllm_config = vllm_config
        self.kv_cache_config = kv_cache_config
        self.structured_output_manager = structured_output_manager
        self.block_size = block_size
        self.log_stats = log_stats
        self.max_model_len = settings.scheduler.max_model_len
        self.max_num_running_reqs = settings.scheduler.max_num_seqs
        self.max_num_scheduled_tokens = settings.scheduler.max_num_batched_tokens
        drafts = settings.speculative
        clock = CoreClock.now()
        self.core = core = Scheduler(
            settings.scheduler,
            settings.cache,
            speculative_config=drafts,
            clock=clock,
            log_stats=log_stats,
            block_hasher=_hashes(settings.cache, vllm_config),
        )
        self._plans = PlanTranslation(
            vllm_config,
            num_drafts=drafts.num_speculative_tokens if drafts else 0,
            num_lookahead_tokens=drafts.num_lookahead_tokens if drafts else 0,
        )
        self._outputs = OutputTranslation(core.kv, clock.monotonic, include_finished_set=include_finished_set)
        self._flights: deque[_Flight] = deque()
        self._taken: StepInFlight | None = None
        """The step whose output was taken in last."""
        self._compile_errors: dict[str, Exception] = {}
        self._refused: list[tuple[Any, RequestError]] = []
        """Requests that can never be served: the next outputs say so."""
        self._trace = attach_trace(self)

    @staticmethod
    def encoder_room(vllm_config: Any, mm_registry: Any) -> EncoderRoom:
        """What the model's encoders may compute and keep."""
        if not versions.takes_media(vllm_config, mm_registry):
            return EncoderRoom()
        budget = MultiModalBudget(vllm_config, mm_registry)
        return EncoderRoom(budget.encoder_compute_budget, budget.encoder_cache_size)

    # ---- requests

    def add_request(self, request: Any) -> None:
        """Queue a vLLM request; one that can never be served ends with an error in the next outputs."""
        grammar = None
        if request.structured_output_request is not None:
            grammar = FastGrammar(self.structured_output_manager, request, self._compile_errors)
        try:
            ours = translated_request(request, grammar)
            session = self.core.requests.get(ours.request_id)
            self.core.add_request(ours)
        except RequestError as refused:
            logger.warning("refused: %s", refused)
            self._refused.append((request, refused))
            return
        if grammar is not None:
            grammar.ours = ours
        if session is None:
            self._outputs.added(ours)
        elif session.status.is_finished:  # its last piece has ended it
            self._outputs.ended(cast("FastRequest", session))

    def has_request(self, request_id: str) -> bool:
        """Whether the scheduler holds the request."""
        return request_id in self.core.requests

    def finish_requests(self, request_ids: str | Iterable[str] | None, finished_status: Any) -> list[Any]:
        """End requests from outside; those that are not there are ignored."""
        status = RequestStatus[finished_status.name]
        ended = [cast("FastRequest", each) for each in self.core.finish_requests(request_ids, status, missing_ok=True)]
        for request in ended:
            request.theirs.status = finished_status
            self._outputs.ended(request)
        return versions.finished([request.theirs for request in ended])

    # ---- the step

    def schedule(self, throttle_prefills: bool = False) -> Any:
        """Decide one step. ``throttle_prefills`` comes with an option that is refused."""
        try:
            plan = self.core.schedule()
            step = self.core._in_flight.of(plan)  # noqa: SLF001 - the plan with its live requests
            self._outputs.scheduled(step)
            theirs = self._plans.translated(step)
        except BaseException:
            self._flush_trace()
            raise
        self._flights.append(_Flight(theirs, step))
        return theirs

    def get_grammar_bitmask(self, scheduler_output: Any) -> Any:
        """The tokens that grammars allow in a step; None if no request samples by one."""
        if not scheduler_output.has_structured_output_requests:
            return None
        step = self._flight(scheduler_output).step
        chunks = step.plan.is_prefill_chunk
        requests = [
            cast("FastRequest", request)
            for row, request in enumerate(step.requests)
            if request.structured_output is not None
            and not request.status.is_finished
            and (chunks is None or not chunks[row])
        ]
        return bitmask(self.structured_output_manager, requests, scheduler_output.scheduled_spec_decode_tokens)

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> dict[int, Any]:
        """Take in what the workers returned for a step, the oldest in flight."""
        flight = self._flight(scheduler_output)
        plan = flight.step.plan
        try:
            rows = answer_rows(plan.req_ids, model_runner_output)
            result = self.core.update_from_output(plan, translated_answer(plan.req_ids, model_runner_output, rows))
        except BaseException:
            self._flush_trace()
            raise
        self._flights.popleft()
        self._taken = flight.step
        errors = self._errors() if self._refused or self._compile_errors else []
        outputs = self._outputs.translated(result, model_runner_output, errors)
        if self.log_stats:
            if not outputs:
                outputs[0] = EngineCoreOutputs()
            stats = translated_stats(result.scheduler_stats, model_runner_output.cudagraph_stats)
            next(iter(outputs.values())).scheduler_stats = stats
        return outputs

    @property
    def last_refusal(self) -> str | None:
        """Why the request that was refused last can never be served; None once clients got that error."""
        return str(self._refused[-1][1]) if self._refused else None

    def _flight(self, scheduler_output: Any) -> _Flight:
        for flight in self._flights:
            if flight.theirs is scheduler_output:
                return flight
        raise ValueError("this SchedulerOutput is not in flight: give the one that schedule() returned, once")

    def _errors(self) -> list[tuple[int, Any]]:
        """Outputs of requests that cannot go on: never served, or with a grammar that does not compile."""
        told = []
        for theirs, refused in self._refused:
            told.append((theirs, str(refused)))
        for request_id, error in self._compile_errors.items():
            if request_id in self.core.requests:
                theirs = cast("FastRequest", self.core.requests[request_id]).theirs
                self.finish_requests(request_id, RequestStatus.FINISHED_ERROR)
                told.append((theirs, f"Invalid structured outputs: {error}"))
        self._refused = []
        self._compile_errors.clear()
        return [(theirs.client_index, _error_output(theirs, message)) for theirs, message in told]

    def update_draft_token_ids(self, draft_token_ids: Any) -> None:
        """Drafts proposed after the step whose output was taken in last."""
        if self._taken is not None:
            plan = self._taken.plan
            self.core.update_draft_token_ids(plan, translated_drafts(plan.req_ids, draft_token_ids))

    def update_draft_token_ids_in_output(self, draft_token_ids: Any, scheduler_output: Any) -> None:
        """The drafts behind a step's -1, before it runs."""
        step = self._flight(scheduler_output).step
        plan = step.plan
        plan = self.core.update_draft_token_ids_in_output(plan, translated_drafts(plan.req_ids, draft_token_ids))
        known, named = plan.scheduled_spec_decode_tokens, set(draft_token_ids.req_ids)
        theirs = scheduler_output.scheduled_spec_decode_tokens
        theirs.update({request_id: known[request_id] for request_id in theirs if request_id in named})
        invalid = plan.num_invalid_spec_tokens
        counts = {} if invalid is None else dict(zip(plan.req_ids, invalid.tolist(), strict=True))
        scheduler_output.num_invalid_spec_tokens = {rid: n for rid, n in counts.items() if n and rid in named}

    # ---- questions and switches

    def get_num_unfinished_requests(self) -> int:
        """Requests that the next steps may serve."""
        return self.core.get_num_unfinished_requests()

    def has_unfinished_requests(self) -> bool:
        """Whether the next steps may serve any request."""
        return self.core.has_unfinished_requests()

    def has_finished_requests(self) -> bool:
        """Whether workers or clients have to be notified of an end."""
        return self.core.has_finished_requests() or bool(self._refused)

    def has_requests(self) -> bool:
        """Whether another step has anything to do or to report."""
        return self.core.has_requests() or bool(self._refused)

    def get_request_counts(self) -> tuple[int, int]:
        """(running, waiting)."""
        return self.core.get_request_counts()

    def get_kv_cache_usage(self) -> float:
        """Fraction of the KV cache in use."""
        return self.core.kv.usage

    @property
    def pause_state(self) -> PauseState:
        """What a paused scheduler still does."""
        return PauseState(int(self.core.pause_state))

    def set_pause_state(self, pause_state: PauseState) -> None:
        """Pause or resume."""
        self.core.set_pause_state(OurPauseState(int(pause_state)))

    def reset_prefix_cache(self, reset_running_requests: bool = False, reset_connector: bool = False) -> bool:
        """Forget all cached content; False if it is in use."""
        done = self.core.reset_prefix_cache(reset_running_requests=reset_running_requests)
        return done and (not reset_connector or versions.resets_without_connector())

    def reset_connector_cache(self) -> bool:
        """There is no connector."""
        return versions.resets_without_connector()

    def reset_encoder_cache(self) -> None:
        """Forget all encoder outputs."""
        self.core.reset_encoder_cache()

    def make_stats(self, *_: object) -> Any:
        """Gauges now, and counts since the last call; None without statistics."""
        self._flush_trace()  # vLLM asks when a worker has failed: the engine is killed before its shutdown()
        return translated_stats(self.core.make_stats()) if self.log_stats else None

    def _flush_trace(self) -> None:
        """Write what waits of a trace: after an error the engine may be killed before its ``shutdown()``."""
        if self._trace is not None:
            self._trace.flush()

    def shutdown(self) -> None:
        """The engine ends: write what waits of a trace."""
        self.core.shutdown()
        if self._trace is not None:
            self._trace.close()


class AsyncFastScheduler(FastScheduler):
    """The same under the name of vLLM's twin: which kind of scheduling is meant, the configuration says."""


def _hashes(cache: Any, vllm_config: Any) -> VllmHashes:
    ahead = getattr(vllm_config, "num_hash_lookahead_tokens", 0)
    return VllmHashes(hash_block_size(cache), ahead)


def _error_output(theirs: Any, message: str) -> Any:
    output = EngineCoreOutput(
        request_id=theirs.request_id,
        new_token_ids=[],
        finish_reason=FinishReason.ERROR,
        trace_headers=theirs.trace_headers,
    )
    error = versions.request_error(message)
    if error is not None:
        output.error = error
    return output
