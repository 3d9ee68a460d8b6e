"""Reports what a live scheduler does to statistics, in numbers: no list of ids is ever made for them."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from msgspec.structs import replace

from tokenyard.sched.observer import Counts, RepeatedSteps, SchedulerState
from tokenyard.sched.steps.engine_outputs import EngineOutputs
from tokenyard.sched.steps.outcomes import StepOutcomes
from tokenyard.sched.steps.scheduler_output import SchedulerOutput
from tokenyard.sched.steps.stats import SpecDecodingStats
from tokenyard.trace.emit.step_effects import StepEffects
from tokenyard.trace.format.step_facts import Drafts, FactSink, StepFacts, running_consumed

__all__ = ["STEPS_IN_FLIGHT", "FactEmitter", "num_sampled_tokens", "verified_drafts"]

STEPS_IN_FLIGHT = 64
"""Starts of steps remembered until they complete; hosts have one or two in flight."""


def num_sampled_tokens(outputs: EngineOutputs) -> int:
    """Tokens that a step brought."""
    if outputs.tokens.shape[1] > 1:
        return int(outputs.num_tokens.sum())
    return len(outputs.requests)  # a request is there because it has at least one token


def verified_drafts(stats: SpecDecodingStats) -> Drafts | None:
    """Draft tokens that a step verified; None if there were none."""
    if not stats.num_drafts:
        return None
    return Drafts(stats.num_drafts, stats.num_draft_tokens, stats.num_accepted_tokens_per_pos.tolist())


class FactEmitter:
    """Turns the events of steps into facts."""

    def __init__(self, sinks: Sequence[FactSink], policy: str | None, effects: StepEffects) -> None:
        self._sinks = sinks
        self._policy = policy
        self._effects = effects
        self._before = Counts(0, 0, 0, None)
        """Of the step that is being decided, before any decision."""
        self._last: StepFacts | None = None
        """The last step that was reported in full."""
        self._last_quiet: StepFacts | None = None
        """The last step that was reported in full, if it was quiet: the next one may equal it."""
        self._started: dict[int, float] = {}
        """Step in flight -> when it began."""
        self._last_end = -inf
        """When the last step that has completed did."""
        self.step = -1
        """Number of the last step that was begun."""

    def step_started(self, ts: float, step: int, state: SchedulerState) -> None:
        """Take the numbers that decisions will change."""
        self.step = step
        self._started[step] = float(ts)  # a clock of numpy's would not add up as fast
        self._before = state.counts()

    def step_decided(self, ts: float, output: SchedulerOutput, outcomes: StepOutcomes, state: SchedulerState) -> None:
        """Hand the facts of the step to the sinks."""
        free_blocks, running, waiting, cpu_blocks = self._before
        num_scheduled, total = len(output.req_ids), output.total_num_scheduled_tokens
        # Nearly every step: everybody decodes, nobody comes.
        is_quiet = total == num_scheduled == output.num_running == running and not waiting and cpu_blocks is None
        last = self._last_quiet
        if is_quiet and last is not None and last.num_running == running:
            for sink in self._sinks:
                sink.step_repeated(output.step, float(ts), free_blocks)
            return
        cpu_free, cpu_total = cpu_blocks or (None, None)
        recomputed, refused = self._effects.of(ts, output, outcomes)
        resumed = len(output.admitted_resumed)
        consumed = 0
        if total > num_scheduled:  # not one token each
            consumed = running_consumed(output.num_new_tokens[: output.num_running], state.block_size)
        facts = StepFacts(
            step=output.step,
            ts=float(ts),
            policy=self._policy,
            free_blocks=free_blocks,
            total_blocks=state.num_total_blocks,
            cpu_free_blocks=cpu_free,
            cpu_total_blocks=cpu_total,
            token_budget=state.max_num_scheduled_tokens,
            max_running=state.max_num_running_reqs,
            num_running=running,
            num_waiting=waiting,
            num_new=num_scheduled - output.num_running - resumed,
            num_resumed=resumed,
            num_preempted=len(output.preempted_req_ids),
            token_sum=total,
            running_consumed=consumed,
            min_need=self._effects.min_need,
            recomputed_tokens=recomputed,
            outcome=refused,
        )
        self._last, self._last_quiet = facts, facts if is_quiet else None
        for sink in self._sinks:
            sink.step_decided(facts)

    def steps_repeated(self, steps: RepeatedSteps) -> None:
        """Hand over the facts of steps that differ from the last one in moments and free blocks only."""
        assert self._last is not None, "a step was decided before"
        like, sampled, is_quiet = self._last, len(steps.like.req_ids), self._last_quiet is not None
        number, oldest, kv = steps.first, next(iter(self._started)), None
        refused = like.outcome
        if refused is not None:
            kv = refused.kv
        after = (*steps.free_blocks[1:], steps.free_in_the_end)
        for ts, free, left in zip(map(float, steps.moments), steps.free_blocks, after, strict=True):
            self._complete(oldest, ts, sampled)
            oldest += 1
            self._started[number] = ts
            if is_quiet:
                for sink in self._sinks:
                    sink.step_repeated(number, ts, free)
            else:
                if refused is not None:
                    numbers = kv if kv is None else replace(kv, free=left)
                    refused = replace(refused, step=number, ts=ts, kv=numbers)
                facts = replace(like, step=number, ts=ts, free_blocks=free, outcome=refused)
                for sink in self._sinks:
                    sink.step_decided(facts)
            number += 1
        self.step = number - 1

    def step_completed(self, ts: float, output: SchedulerOutput, outputs: EngineOutputs) -> None:
        """Report that the model ran."""
        ts = float(ts)
        sampled = num_sampled_tokens(outputs)
        stats = outputs.scheduler_stats.spec_decoding_stats
        drafts = verified_drafts(stats) if stats is not None else None
        self._complete(output.step, ts, sampled)
        if drafts is not None:
            for sink in self._sinks:
                sink.drafts_verified(drafts)

    def _complete(self, step: int, ts: float, sampled: int) -> None:
        seconds = ts - max(self._started.pop(step, ts), self._last_end)
        self._last_end = ts
        if len(self._started) > STEPS_IN_FLIGHT:
            self._started.pop(min(self._started))
        for sink in self._sinks:
            sink.step_completed(step, ts, seconds, sampled)
