"""The scheduler: a conductor. It owns the requests and calls, in order, the running pass, the admission pass and the
output; what each of them decides is decided there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tokenyard.config import CacheConfig, PauseState, SchedulerConfig, SpeculativeConfig
from tokenyard.errors import RequestError
from tokenyard.kv.hybrid import GroupLimits, hash_block_size
from tokenyard.kv.manager import KVCacheManager
from tokenyard.request import Request, RequestStatus
from tokenyard.sched.acceptance import Acceptance
from tokenyard.sched.admission import AdmissionPass
from tokenyard.sched.budget import StepBudget
from tokenyard.sched.features import Features
from tokenyard.sched.intake import check_encodable, check_servable
from tokenyard.sched.invariants import check_queues
from tokenyard.sched.limits import (
    Candidate,
    EncoderLimit,
    Limit,
    LoraLimit,
    MemoryLimit,
    PrefillLimit,
    PrefixLookup,
    ReadyLimit,
)
from tokenyard.sched.observer import StepObserver
from tokenyard.sched.output import DraftTokens, EngineOutputs, ModelOutput, SchedulerOutput
from tokenyard.sched.output_builder import OutputBuilder
from tokenyard.sched.pins import PinBoard
from tokenyard.sched.policy import Policy, make_policy
from tokenyard.sched.queues import RequestQueue, WaitingRoom
from tokenyard.sched.reasons import Outcome, OutcomeKind, Reason, StepOutcomes
from tokenyard.sched.running import RunningList
from tokenyard.sched.running_pass import RunningPass
from tokenyard.sched.sessions import Sessions
from tokenyard.sched.stats import SchedulerStats
from tokenyard.sched.update import OutputUpdate
from tokenyard.table import RequestTable

__all__ = ["Scheduler"]


class Scheduler:
    """Decides, step by step, which requests run and how many tokens each computes.

        output = scheduler.schedule()
        result = scheduler.update_from_output(output, model(output))

    ``clock`` gives seconds; it is only read to stamp requests and observations. ``policy`` overrides the one named in
    ``config``.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        cache_config: CacheConfig,
        *,
        speculative_config: SpeculativeConfig | None = None,
        clock: Callable[[], float] = lambda: 0.0,
        observer: StepObserver | None = None,
        policy: Policy | None = None,
    ) -> None:
        self.config = config
        self.cache_config = cache_config
        self.clock = clock
        self.observer = observer
        self.policy = policy or make_policy(config.policy)
        self.requests: dict[str, Request] = {}
        """Every unfinished request."""
        self.pause_state = PauseState.UNPAUSED
        self.step = 0
        """Number of the next step."""
        num_drafts = speculative_config.num_speculative_tokens if speculative_config else 0
        table = RequestTable(config.max_num_seqs, hash_block_size(cache_config), num_drafts)
        limits = GroupLimits(config.max_num_batched_tokens, config.max_model_len)
        use_eagle = speculative_config is not None and speculative_config.use_eagle
        self.kv = KVCacheManager(cache_config, table, limits, use_eagle=use_eagle)
        self._features = Features.of(config, speculative_config, table)
        self.pins = self.policy.pins = PinBoard(self.kv.free)
        self._room = WaitingRoom(self.policy.new_queue, cache_config.block_size)
        self._sessions = Sessions(self.kv, self._room)
        self._running = RunningList(config.max_num_seqs)
        self._finished_req_ids: set[str] = set()
        self._running_pass = RunningPass(config, self.kv, self._running, self.policy, self._features, self._preempt)
        self._admission_pass = AdmissionPass(
            self.policy, self._room, self._running, self._limits(), config.max_num_seqs
        )
        self._output_builder = OutputBuilder(self.kv, self._running, self._features)
        acceptance = Acceptance(table, config.max_model_len, self.kv.on_seal)
        self._update = OutputUpdate(self.kv, acceptance, self._features, self._stop)

    def _limits(self) -> list[Limit]:
        """In the order in which vLLM asks."""
        lora: list[Limit] = [LoraLimit(self.config.max_loras)] if self.config.max_loras else []
        encoder: list[Limit] = [EncoderLimit(self._features.encoder)] if self._features.encoder is not None else []
        return [
            ReadyLimit(),
            *lora,
            PrefixLookup(self.kv),
            PrefillLimit(self.config),
            *encoder,
            MemoryLimit(self.config, self.kv, self._running, self._features, self.pins),
        ]

    # ---- state that hosts and observers read

    @property
    def running(self) -> list[Request]:
        """Requests in the running list, in running order."""
        return self._running.requests

    @property
    def waiting(self) -> RequestQueue:
        return self._room.waiting

    @property
    def skipped_waiting(self) -> RequestQueue:
        return self._room.skipped

    @property
    def num_free_blocks(self) -> int:
        return self.kv.num_free_blocks

    @property
    def num_total_blocks(self) -> int:
        return self.kv.pool.num_blocks

    @property
    def num_cached_blocks(self) -> int:
        return self.kv.pool.num_cached

    @property
    def max_num_scheduled_tokens(self) -> int:
        return self.config.max_num_batched_tokens

    @property
    def max_num_running_reqs(self) -> int:
        return self.config.max_num_seqs

    @property
    def block_size(self) -> int:
        return self.cache_config.block_size

    @property
    def running_version(self) -> int:
        return self._running.version

    def num_blocks_of(self, request: Request) -> int:
        """Blocks the request holds."""
        return self.kv.num_blocks_of(request)

    def get_request_counts(self) -> tuple[int, int]:
        """(running, waiting)."""
        return len(self._running), len(self._room)

    def get_num_unfinished_requests(self) -> int:
        """Requests that the next steps may serve: a pause leaves some or all of them out."""
        if self.pause_state is PauseState.PAUSED_ALL:
            return 0
        if self.pause_state is PauseState.PAUSED_NEW:
            return len(self._running)
        return len(self._running) + len(self._room) - self._sessions.num_waiting

    def set_pause_state(self, state: PauseState) -> None:
        """Pause or resume; takes effect with the next step."""
        self.pause_state = state

    def has_finished_requests(self) -> bool:
        """Finished ids have not been reported to the workers yet."""
        return bool(self._finished_req_ids)

    def has_requests(self) -> bool:
        """Whether another step has anything to do or to report."""
        return self.get_num_unfinished_requests() > 0 or self.has_finished_requests()

    # ---- arrivals

    def add_request(self, request: Request) -> None:
        """Queue a request; RequestError, and nothing changes, if it can never be served.

        A request with the id of a streaming-input session continues it, or ends it if it is not resumable.
        """
        if request.request_id in self._sessions:
            session = self.requests[request.request_id]
            if not self._sessions.feed(session, request):
                self._finish([(session, RequestStatus.FINISHED_ABORTED)], self.clock())
            return
        check_servable(request, self.requests, self.config, self.kv)
        check_encodable(request, self._features.encoder)
        self.requests[request.request_id] = request
        if request.resumable:
            self._sessions.open(request)
        self._room.add(request)
        self.policy.request_arrived(self.clock(), request)
        if self.observer is not None:
            self.observer.request_arrived(self.clock(), request)

    # ---- the step

    def schedule(self) -> SchedulerOutput:
        """Decide one step."""
        observer = self.observer
        now = self.clock()
        if observer is not None:
            observer.step_started(now, self.step, self)
        self.kv.new_step_starts()
        self.policy.step_begins(now, self._room)
        paused = self.pause_state is PauseState.PAUSED_ALL
        budget = StepBudget(
            0 if paused else self.config.max_num_batched_tokens,
            self.config.max_num_seqs,
            self.config.max_num_encoder_input_tokens,
        )
        outcomes = StepOutcomes()
        rows = self._running_pass.run(budget, outcomes)
        if self.config.max_loras:
            budget.loras = {r.lora_name for r in rows.requests if r.lora_name}
        admitted = self._admit(budget, outcomes, now)
        finished, self._finished_req_ids = frozenset(self._finished_req_ids), set()
        output = self._output_builder.build(self.step, rows, admitted, budget, outcomes, finished)
        output.scheduled_encoder_inputs = budget.encoder_items
        if self._features.encoder is not None:
            output.free_encoder_mm_hashes = self._features.encoder.cache.take_evicted()
        for i in output.admitted:
            output.requests[i].status = RequestStatus.RUNNING
        if self._features.placeholders is not None:
            self._features.placeholders.after_schedule(output)
        self.step += 1
        if observer is not None:
            observer.step_decided(now, output, outcomes, self)
        return output

    def _admit(self, budget: StepBudget, outcomes: StepOutcomes, now: float) -> list[Candidate]:
        if outcomes.preemptions:
            # Admitting into memory that was just taken from someone would thrash.
            outcomes.admission = Outcome(
                OutcomeKind.NOT_ENTERED, Reason.PREEMPTED_THIS_STEP, None, len(self._room), budget_left=budget.tokens
            )
            return []
        if self.pause_state is not PauseState.UNPAUSED:
            outcomes.admission = Outcome(OutcomeKind.NOT_ENTERED, Reason.PAUSED, None, len(self._room))
            return []
        admitted = self._admission_pass.run(budget, outcomes)
        for candidate in admitted:
            self._start(candidate, now)
        return admitted

    def _start(self, candidate: Candidate, now: float) -> None:
        """Bring an admitted request's own state up to date."""
        request = candidate.request
        num_computed = candidate.num_computed_tokens
        request.num_computed_tokens = num_computed
        self._update.expect_first_token(request)
        self.policy.request_admitted(now, request)
        if request.times.first_scheduled is None:
            request.times.first_scheduled = now
            request.num_cached_tokens = num_computed
            request.num_external_computed_tokens = candidate.num_external_computed_tokens
            if self.observer is not None:
                self.observer.prefix_looked_up(
                    now, self.step, request, candidate.num_local_hit_tokens, candidate.num_external_computed_tokens
                )

    def _preempt(self, request: Request) -> None:
        """Take everything from a request that has just left the running list; it will be computed again."""
        self.kv.free(request)
        if self._features.encoder is not None:
            self._features.encoder.cache.free(request)
        request.status = RequestStatus.PREEMPTED
        request.num_computed_tokens = 0
        request.num_preemptions += 1
        self._room.put_back(request)

    # ---- after the model

    def update_from_output(self, output: SchedulerOutput, model_output: ModelOutput) -> EngineOutputs:
        """Take in the sampled tokens of a step: append, stop, finish, free.

        Requests that finished or were aborted since the step was made are passed over.
        """
        now = self.clock()
        accepted = self._update.run(output, model_output, now)
        outputs = EngineOutputs(
            step=output.step,
            requests=accepted.requests,
            tokens=accepted.tokens,
            num_tokens=accepted.num_tokens,
            finish_reasons=accepted.finish_reasons,
            stop_reasons=accepted.stop_reasons,
            scheduler_stats=self.make_stats(),
        )
        if self.observer is not None:
            self.observer.step_completed(now, output, outputs)
        return outputs

    def update_draft_token_ids(self, output: SchedulerOutput, drafts: DraftTokens) -> None:
        """Drafts proposed after a step, to be verified in the next one (speculative decoding without async)."""
        if self._features.speculation is None:
            raise ValueError("drafts were given to a scheduler without a SpeculativeConfig")
        self._features.speculation.update(output, drafts)

    def make_stats(self) -> SchedulerStats:
        """Gauges now, and prefix-cache statistics since the last call."""
        return SchedulerStats(
            len(self._running),
            len(self._room.waiting),
            len(self._room.skipped),
            self.kv.pool.usage,
            self.kv.take_stats(),
            self._features.speculation.take_stats() if self._features.speculation is not None else None,
        )

    # ---- the end of requests

    def finish_requests(
        self,
        request_ids: str | Iterable[str] | None,
        status: RequestStatus = RequestStatus.FINISHED_ABORTED,
        *,
        missing_ok: bool = False,
    ) -> list[Request]:
        """End requests from outside, at any moment and in any state; None means all.

        Returns those that were ended. An id without an unfinished request raises RequestError before anything changes,
        unless ``missing_ok`` (a host whose aborts race with finishes).
        """
        if not status.is_finished:
            raise ValueError(f"{status!r} is not a finished status")
        if request_ids is None:
            ids = list(self.requests)
        else:
            ids = [request_ids] if isinstance(request_ids, str) else list(dict.fromkeys(request_ids))
        unknown = [rid for rid in ids if rid not in self.requests]
        if unknown and not missing_ok:
            raise RequestError(unknown[0], "request_id", unknown[0], "no unfinished request has this id")
        ended = [self.requests[rid] for rid in ids if rid in self.requests]
        now = self.clock()
        self._finish([(request, status) for request in ended], now)
        return ended

    def _stop(self, stopped: list[tuple[Request, RequestStatus]], now: float) -> None:
        """Requests have sampled their last token; those that are sessions may go on."""
        waiting_again: dict[Request, bool] = {}
        for request, _ in stopped:
            if request.request_id in self._sessions:
                ran = request.status is RequestStatus.RUNNING
                self._room.discard(request)
                if self._sessions.goes_on(request):
                    waiting_again[request] = ran
        self._running.remove_all([session for session, ran in waiting_again.items() if ran])
        self._finish([(request, status) for request, status in stopped if request not in waiting_again], now)

    def _finish(self, ended: list[tuple[Request, RequestStatus]], now: float) -> None:
        """Take requests out of wherever they are and free what they hold."""
        self._running.remove_all([r for r, _ in ended if r.status is RequestStatus.RUNNING])
        for request, status in ended:
            if request.status is not RequestStatus.RUNNING:
                self._room.discard(request)
            self._sessions.close(request)
            request.status = status
            request.times.finished = now
            if status is not RequestStatus.FINISHED_ABORTED and self._keeps_blocks(now, request):
                self.pins.pin(request)
            else:
                self.kv.free(request)
            if self._features.encoder is not None:
                self._features.encoder.cache.free(request)
            del self.requests[request.request_id]
            self._finished_req_ids.add(request.request_id)
            if self.observer is not None:
                self.observer.request_finished(now, request)

    def _keeps_blocks(self, now: float, request: Request) -> bool:
        return request.slot >= 0 and request.job_id is not None and self.policy.keeps_blocks(now, request)

    # ---- resets

    def reset_prefix_cache(self, *, reset_running_requests: bool = False) -> bool:
        """Forget all cached content.

        Refused (False) while blocks are in use, unless ``reset_running_requests``: then every running request is
        preempted first and starts again.
        """
        if reset_running_requests:
            while self.running:
                request = self._running.pop(len(self._running) - 1)
                self._preempt(request)
                if self._features.placeholders is not None:
                    self._features.placeholders.discard(request)
            self.pins.clear()
        return self.kv.reset_prefix_cache()

    def reset_encoder_cache(self) -> None:
        """Forget all encoder outputs (the encoder's weights have changed)."""
        if self._features.encoder is not None:
            self._features.encoder.cache.reset()

    def check_invariants(self) -> None:
        """Raise AssertionError if queues, table and blocks disagree (tests call it after every step)."""
        self.kv.check_invariants()
        if self._features.encoder is not None:
            self._features.encoder.cache.check_invariants()
        check_queues(self.requests, self._running, self._room, self.pins, self.config.max_num_seqs)
