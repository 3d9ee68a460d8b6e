"""Why vLLM did not schedule a request in a step: what was seen of its loop, in our words.

vLLM's loop decides and forgets. What it asked and what it was answered (``watch.py``), who is in which queue afterwards
and what is left of the budgets name the reason; where they do not, none is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tokenyard.core.kv.allocation import KVLimit, KVShortage
from tokenyard.core.sched.outcomes import (
    BLOCKED_REASONS,
    KV_REASONS,
    Outcome,
    OutcomeKind,
    Preemption,
    Reason,
    StepOutcomes,
)
from tokenyard.vllm.versions import (
    draft_slots,
    encoder_transfers,
    lookup_methods,
    max_batched,
    max_running,
    puts_off_prefills,
    status_name,
    waits_for_its_round,
)

_STATUS_REASONS = {status.name: reason for status, reason in BLOCKED_REASONS.items()}


class Reasons:
    """Finds the reasons of one scheduler's steps."""

    def __init__(self, scheduler: Any, queues: Sequence[Any], watch: Watch) -> None:
        self._scheduler = scheduler
        self._queues = queues
        self._watch = watch
        self._max_running = max_running(scheduler)
        self._max_tokens = int(scheduler.max_num_scheduled_tokens)
        config = scheduler.vllm_config
        self._draft_slots, self._max_batched = draft_slots(scheduler), max_batched(config)
        self._unpaused = type(scheduler.pause_state)["UNPAUSED"]
        self._chunked = bool(config.scheduler_config.enable_chunked_prefill)
        self._max_loras = config.lora_config.max_loras if config.lora_config is not None else 0
        self._aligned = bool(getattr(scheduler, "need_mamba_block_aligned_split", False))
        self._longest = int(scheduler.max_model_len) - int(getattr(scheduler, "num_sampled_tokens_per_step", 1))
        """Tokens of a request that can be computed."""
        self._padded = 1 + int(scheduler.num_spec_tokens)
        """Tokens of a request that is admitted with one left to compute: that one, and places for drafts."""
        self._num_blocks = int(scheduler.kv_cache_manager.block_pool.num_gpu_blocks)
        self.preempted: list[Preemption] = []
        """Preemptions in the step that is being decided."""
        self.clipped: dict[str, Reason] = {}
        """Request -> what left it no tokens in the step that is being decided."""
        self._puts_off_prefills = False
        self._none_waits = StepOutcomes()
        self._none_waits.admission = Outcome(OutcomeKind.LOOP_ENDED, Reason.QUEUES_EMPTY)

    def begin(self, *, throttled: bool) -> None:
        """A step is about to be decided; ``throttled``: the engine wants no prompts computed in it."""
        self._puts_off_prefills = puts_off_prefills(self._scheduler, throttled=throttled)
        self.preempted = []
        self.clipped.clear()

    def note_preemption(self, victim: Any) -> None:
        """A running request is about to lose its blocks."""
        refused = self._watch.refused
        self.preempted.append(
            Preemption(
                victim.request_id,
                refused.request.request_id if refused is not None else None,  # type: ignore[arg-type]
                int(victim.num_computed_tokens),
                self._watch.granted.get(victim.request_id, 0),
                self._shortage(refused)[0] if refused is not None else None,  # type: ignore[arg-type]
            )
        )

    def of(self, output: Any) -> StepOutcomes:
        """The reasons of the step that has just been decided."""
        scheduled, running = output.num_scheduled_tokens, self._scheduler.running
        num_waiting = sum(map(len, self._queues))
        if not (num_waiting or self.preempted) and len(scheduled) == len(running):
            return self._none_waits
        outcomes = StepOutcomes()
        outcomes.preemptions = self.preempted
        left = self._budget_left(output)
        outcomes.not_scheduled = self._not_scheduled(scheduled, left, outcomes.preemptions)
        outcomes.skipped = self._skipped(left)
        outcomes.admission = self._admission(num_waiting - len(outcomes.skipped), left, outcomes)
        return outcomes

    def _budget_left(self, output: Any) -> int:
        if self._is_paused("PAUSED_ALL"):
            return 0
        left: int = self._max_tokens - output.total_num_scheduled_tokens
        if self._draft_slots:
            requests = len(output.num_scheduled_tokens) + 1  # the next one wants its slots as well
            left = min(left, self._max_batched - output.total_num_scheduled_tokens - self._draft_slots * requests)
        return max(left, 0)

    def _is_paused(self, *states: str) -> bool:
        state = self._scheduler.pause_state
        return state is not self._unpaused and state.name in states

    # ---- those that wait

    def _admission(self, held: int, left: int, outcomes: StepOutcomes) -> Outcome | None:
        """Why the admission pass ended; None if nothing that was seen tells."""
        if outcomes.preemptions:
            return Outcome(OutcomeKind.NOT_ENTERED, Reason.PREEMPTED_THIS_STEP, None, held, budget_left=left)
        if self._is_paused("PAUSED_ALL", "PAUSED_NEW") and not self._watch.sightings:
            return Outcome(OutcomeKind.NOT_ENTERED, Reason.PAUSED, None, held)
        last = self._watch.sightings[-1] if self._watch.sightings else None
        if last is not None and not last.taken:
            return self._stopped(last, held, left)
        if not held:
            return Outcome(OutcomeKind.LOOP_ENDED, Reason.QUEUES_EMPTY, budget_left=left)
        if left <= 0:
            return Outcome(OutcomeKind.LOOP_ENDED, Reason.TOKEN_BUDGET, None, held)
        sessions = getattr(self._scheduler, "num_waiting_for_streaming_input", 0)
        if len(self._scheduler.running) + sessions >= self._max_running:
            return Outcome(OutcomeKind.STOPPED, Reason.MAX_NUM_SEQS, None, held, budget_left=left)
        if self._is_paused("PAUSED_NEW"):
            return Outcome(OutcomeKind.STOPPED, Reason.PAUSED, None, held)
        return None

    def _stopped(self, seen: Sighting, held: int, left: int) -> Outcome | None:
        """The pass ended at a request that stayed at the head of its queue."""
        request, refused = seen.request, seen.refused
        wanted = request.num_tokens - max(request.num_computed_tokens, seen.looked_up or 0)
        if refused is not None:
            shortage, reason = self._shortage(refused)
            return Outcome(
                OutcomeKind.STOPPED,
                reason,
                request.request_id,
                held,
                kv=shortage,
                wanted_tokens=refused.wanted_tokens,
                budget_left=left,
            )
        reason_or_none = self.clipped.get(request.request_id)
        if reason_or_none is None and self._puts_off_prefills and wanted > 1:  # with one token left it decodes
            reason_or_none = Reason.PREFILL_CADENCE
        if reason_or_none is None and not self._chunked and wanted > left:
            reason_or_none = Reason.PREFILL_EXCEEDS_BUDGET
        if reason_or_none is None and wanted == 1 and left < self._padded:  # since 0.28: the drafts come whole or not
            reason_or_none, wanted = Reason.TOKEN_BUDGET, self._padded
        if reason_or_none is None:
            return None
        return Outcome(
            OutcomeKind.STOPPED, reason_or_none, request.request_id, held, wanted_tokens=wanted, budget_left=left
        )

    def _skipped(self, left: int) -> list[Outcome]:
        """Waiting requests that were looked at and skipped, in order."""
        skipped: list[Outcome] = []
        for seen in self._watch.sightings:
            if seen.taken and status_name(seen.request) != "RUNNING":
                reason = self._why_skipped(seen)
                if reason is not None:
                    request_id = seen.request.request_id
                    skipped.append(Outcome(OutcomeKind.SKIPPED, reason, request_id, 1, budget_left=left))
        return skipped

    def _why_skipped(self, seen: Sighting) -> Reason | None:
        request = seen.request
        if seen.looked_up is not None and status_name(request) == "WAITING_FOR_REMOTE_KVS":
            return Reason.ASYNC_KV_LOAD_STARTED
        if (blocked := _STATUS_REASONS.get(status_name(request))) is not None:
            return blocked
        if getattr(request, "num_stale_output_tokens", 0):
            return Reason.NO_NEW_TOKENS
        if (clipped := self.clipped.get(request.request_id)) is not None:
            return clipped
        if seen.looked_up is None:
            return Reason.LORA_SLOTS if self._max_loras and request.lora_request else None
        return Reason.CONNECTOR_UNDECIDED if self._scheduler.connector is not None else None

    def _shortage(self, refused: RefusedAllocation) -> tuple[KVShortage | None, Reason]:
        """The numbers of a refusal, None if blocks were not the obstacle, and what it met."""
        needed = refused.needs[-1] if refused.needs else 0
        whole = refused.whole_first and len(refused.needs) == 1
        reserved = 0 if whole else refused.reserved
        limit, watermark = KVLimit.FULL_SEQUENCE if whole else KVLimit.BLOCKS, 0
        if self._aligned and needed > self._num_blocks:  # how vLLM says that the state is not there yet
            return None, Reason.MAMBA_STATE_NOT_READY
        if needed + reserved <= refused.free:
            limit = KVLimit.WATERMARK
            watermark = int(getattr(self._scheduler.kv_cache_manager, "watermark_blocks", 0))
        shortage = KVShortage(limit, needed, refused.free, refused.hits, reserved, watermark)
        return shortage, KV_REASONS[limit]

    # ---- those that run

    def _not_scheduled(self, scheduled: Any, left: int, preempted: Sequence[Preemption]) -> list[Outcome]:
        """Running requests that got no tokens, and those that gave way to themselves."""
        refused = [
            Outcome(OutcomeKind.NOT_SCHEDULED, Reason.SELF_PREEMPTED, each.request_id, 1, each.kv)
            for each in preempted
            if each.request_id == each.for_request_id
        ]
        running = self._scheduler.running
        if len(scheduled) == len(running):
            return refused
        last = max((i for i, request in enumerate(running) if request.request_id in scheduled), default=-1)
        for i, request in enumerate(running):
            if request.request_id in scheduled:
                continue
            wanted = self._wanted(request)
            reason = self._why_stalled(request, wanted, left)
            if reason is None and preempted:
                reason = Reason.PREEMPTED_THIS_STEP if i > last else Reason.RUNNING_INDEX_DRIFT
            if reason is not None:
                kind, request_id = OutcomeKind.NOT_SCHEDULED, request.request_id
                refused.append(Outcome(kind, reason, request_id, 1, wanted_tokens=wanted, budget_left=left))
        return refused

    def _wanted(self, request: Any) -> int:
        """Tokens that it could compute in this step."""
        computed = request.num_computed_tokens
        known = int(request.num_tokens_with_spec + request.num_output_placeholders)
        return max(min(known, self._longest) - int(computed), 0)

    def _why_stalled(self, request: Any, wanted: int, left: int) -> Reason | None:
        """Why a running request that was not preempted got no tokens, as far as this is seen of it alone."""
        if self._is_paused("PAUSED_ALL"):
            return Reason.PAUSED
        if (clipped := self.clipped.get(request.request_id)) is not None:
            return clipped
        if not wanted:
            return Reason.NO_NEW_TOKENS
        held = request.num_output_placeholders
        if held > 0 and request.num_computed_tokens + 2 - held >= request.num_prompt_tokens + request.max_tokens:
            return Reason.PLACEHOLDERS_COVER_LIMIT
        if waits_for_its_round(self._scheduler, request):
            return Reason.NO_NEW_TOKENS
        if self._puts_off_prefills and request.is_prefill_chunk:
            return Reason.PREFILL_CADENCE
        return Reason.TOKEN_BUDGET if left <= 0 else None


# ---------------------------------------------------------------------------------------------------------------------
# What vLLM's loop does with each waiting request, seen from outside.
#
# The loop looks at the head of a queue, asks for cached blocks, asks for new ones, and takes the request from its queue
# or stops. Each of these is a call of a small object; while a step in which a request waits is decided, those calls
# pass through here. Nothing is answered differently, and none of it costs anything in a step in which none waits.


class RefusedAllocation:
    """An allocation that was refused."""

    __slots__ = ("free", "hits", "needs", "request", "reserved", "wanted_tokens", "whole_first")

    def __init__(
        self, request: Any, wanted_tokens: int, needs: Sequence[int], free: int, asked: dict[str, Any]
    ) -> None:
        self.request = request
        self.wanted_tokens = wanted_tokens
        self.needs = tuple(needs)
        """Blocks that it needed, each time the manager counted them: for the whole sequence, then for the step."""
        self.free = free
        """Blocks that were free."""
        self.reserved = int(asked.get("reserved_blocks") or 0)
        self.whole_first = bool(asked.get("full_sequence_must_fit"))
        found = asked.get("new_computed_blocks")
        self.hits = 0 if found is None else sum(block.ref_cnt == 0 for group in found.blocks for block in group)
        """Cached blocks of its own among the free ones."""


class Sighting:
    """One turn of a waiting request at the head of a queue."""

    __slots__ = ("looked_up", "refused", "request", "taken")

    def __init__(self, request: Any) -> None:
        self.request = request
        self.looked_up: int | None = None
        """Tokens found in the prefix cache; None: not looked up."""
        self.refused: RefusedAllocation | None = None
        """Memory was requested, and refused."""
        self.taken = False
        """It left its queue: it was admitted or skipped."""


class Watch:
    """Sees one step at a time; ``failed`` is notified of an error of its own, which goes no further."""

    def __init__(
        self,
        scheduler: Any,
        queues: Sequence[Any],
        failed: Callable[[Exception], None],
        no_encoder_output: Callable[[Any], None],
    ) -> None:
        """``no_encoder_output`` gets the request that is left out because an encoder's output has not come."""
        self._manager = manager = scheduler.kv_cache_manager
        self._pool = manager.block_pool
        self._coordinator = manager.coordinator
        self._queues = queues
        self._failed = failed
        self._transfers = encoder_transfers(scheduler)
        self._no_encoder_output = no_encoder_output
        self._needs: list[int] = []
        self._admissions = False
        """Whatever happens to a waiting request in this step passes through here; ``_allocations``: to anybody."""
        self._allocations = False
        self._lookups = lookup_methods(manager)
        self.sightings: list[Sighting] = []
        """Requests in the order in which they were looked at."""
        self.refused: RefusedAllocation | None = None
        """The last refusal of the step, of a running or a waiting request."""
        self.granted: dict[str, int] = {}
        """Request -> tokens it was given blocks for, once allocations are watched."""
        self._replaced: list[tuple[Any, str, Any]] = []
        """What stands in front of a call, and what stood there before: vLLM's method, or another's replacement."""

    def begin(self, *, waiting: bool, short_of_memory: bool) -> None:
        """A step is about to be decided; allocations of running requests are watched if memory may be refused."""
        self.sightings.clear()
        self.refused = None
        self.granted.clear()
        if waiting:
            for queue in self._queues:
                self._replace(queue, "peek_request", self._seen(queue.peek_request, self._looked_at))
        if self._transfers is not None:
            self._replace(self._transfers, "ensure_cache_available", self._arrival(self._transfers))
        if short_of_memory:
            self._watch_allocations()

    def end(self) -> None:
        """The step is decided, or was not: everything is as it was."""
        for owner, name, before in reversed(self._replaced):
            if before is None:
                owner.__dict__.pop(name, None)
            else:
                setattr(owner, name, before)
        self._replaced.clear()
        self._admissions = self._allocations = False

    def _replace(self, owner: Any, name: str, watched: Callable[..., Any]) -> None:
        self._replaced.append((owner, name, owner.__dict__.get(name)))
        setattr(owner, name, watched)

    # ---- what is put in front of vLLM's own

    def _seen(self, call: Callable[[], Any], note: Callable[[Any], None]) -> Callable[[], Any]:
        def watched() -> Any:
            request = call()
            try:
                note(request)
            except Exception as error:  # noqa: BLE001 - vLLM's loop goes on
                self._failed(error)
            return request

        return watched

    def _looked_at(self, request: Any) -> None:
        if not self._admissions:
            self._watch_admissions()
        if not self.sightings or self.sightings[-1].request is not request or self.sightings[-1].taken:
            self.sightings.append(Sighting(request))

    def _watch_admissions(self) -> None:
        """A request is looked at: in most steps in which one waits none is, since there is no seat."""
        self._admissions = True
        for queue in self._queues:
            self._replace(queue, "pop_request", self._seen(queue.pop_request, self._took))
        for name in self._lookups:
            self._replace(self._manager, name, self._lookup(getattr(self._manager, name)))
        if not self._allocations:
            self._watch_allocations()

    def _took(self, request: Any) -> None:
        for sighting in reversed(self.sightings):
            if sighting.request is request:
                sighting.taken = True
                return

    def _lookup(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(request: Any, *args: Any, **options: Any) -> Any:
            found = call(request, *args, **options)
            try:
                self._note_lookup(request, found)
            except Exception as error:  # noqa: BLE001 - as above
                self._failed(error)
            return found

        return watched

    def _note_lookup(self, request: Any, found: Any) -> None:
        if self.sightings and self.sightings[-1].request is request:
            self.sightings[-1].looked_up = int(found[1])

    def _arrival(self, transfers: Any) -> Callable[..., bool]:
        ask = transfers.ensure_cache_available

        def ensure_cache_available(request: Any, *args: Any, **options: Any) -> bool:
            has_come: bool = ask(request, *args, **options)
            if not has_come:
                try:
                    self._no_encoder_output(request)
                except Exception as error:  # noqa: BLE001 - as above
                    self._failed(error)
            return has_come

        return ensure_cache_available

    def _watch_allocations(self) -> None:
        needs, granted = self._needs, self.granted
        count, allocate = self._coordinator.get_num_blocks_to_allocate, self._manager.allocate_slots

        def get_num_blocks_to_allocate(*args: Any, **options: Any) -> int:
            needed: int = count(*args, **options)
            needs.append(needed)
            return needed

        def allocate_slots(request: Any, num_new_tokens: int, *args: Any, **options: Any) -> Any:
            needs.clear()
            blocks = allocate(request, num_new_tokens, *args, **options)
            if blocks is not None:
                granted[request.request_id] = num_new_tokens
                return blocks
            try:
                self._note_refusal(request, num_new_tokens, options)
            except Exception as error:  # noqa: BLE001 - as above
                self._failed(error)
            return blocks

        self._replace(self._coordinator, "get_num_blocks_to_allocate", get_num_blocks_to_allocate)
        self._replace(self._manager, "allocate_slots", allocate_slots)
        self._allocations = True

    def _note_refusal(self, request: Any, num_new_tokens: int, asked: dict[str, Any]) -> None:
        free = int(self._pool.get_num_free_blocks())
        self.refused = RefusedAllocation(request, num_new_tokens, self._needs, free, asked)
        if self.sightings and self.sightings[-1].request is request:
            self.sightings[-1].refused = self.refused
