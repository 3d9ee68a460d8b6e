"""Speculative decoding: drafts enter a step like any other tokens; those the model rejects are taken back.

| num_tokens (verified) | drafts |          computed and granted positions may reach into the drafts
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tokenyard.columns import IntArray
from tokenyard.request import Request
from tokenyard.sched.features.grammars import GrammarGate
from tokenyard.sched.steps.in_flight import StepInFlight
from tokenyard.sched.steps.model_output import DraftTokens, ModelOutput
from tokenyard.sched.steps.scheduler_output import ScheduledDrafts, SchedulerOutput
from tokenyard.sched.steps.stats import SpecDecodingStats
from tokenyard.table import NO_TOKEN, RequestTable

__all__ = ["Speculation"]


class Speculation:
    """The life of drafts in the request table: proposed, scheduled, verified."""

    def __init__(self, table: RequestTable, max_drafts: int, grammars: GrammarGate) -> None:
        self._table = table
        self._grammars = grammars
        self.max_drafts = max_drafts
        self._stats = SpecDecodingStats(max_drafts)

    def schedule(self, slots: IntArray, ends: IntArray) -> ScheduledDrafts | None:
        """Take the drafts that positions up to ``ends`` cover; drafts beyond are dropped, new ones will be proposed."""
        table = self._table
        waiting = table.num_drafts[slots]
        if not np.count_nonzero(waiting):
            return None
        covered = ends - table.num_tokens[slots] - table.placeholders[slots]
        scheduled = ScheduledDrafts(table.drafts[slots], np.minimum(np.maximum(covered, 0), waiting))
        table.clear_drafts(slots)
        return scheduled

    def propose(self, slots: IntArray, drafts: IntArray, counts: IntArray) -> None:
        """New drafts for tenants; a request in the middle of its prompt takes none."""
        table = self._table
        counts = np.where(table.prefilling[slots], 0, counts)
        table.set_drafts(slots, drafts, counts)

    def pad(self, request: Request) -> None:
        """Placeholders for the most drafts that an admitted request could have: there are none yet."""
        unknown = np.full((1, self.max_drafts), NO_TOKEN, np.int64)
        self._table.set_drafts(np.array([request.slot]), unknown, np.array([self.max_drafts]))

    def update(self, step: StepInFlight, drafts: DraftTokens) -> None:
        """New drafts from the model runner, aligned with the step's requests; ended requests are passed over."""
        slots = np.fromiter((r.slot for r in step.requests), np.int64, len(step.requests))
        here = slots >= 0
        counts = self._allowed(step.requests, drafts) if self._table.num_with_grammar else drafts.counts
        self.propose(slots[here], drafts.tokens[here], counts[here])

    def drafts_known(self, step: StepInFlight, drafts: DraftTokens) -> SchedulerOutput:
        """The step with the drafts behind its placeholders, aligned with its requests; -1 stays where a grammar
        forbids one.
        """
        scheduled = step.plan.drafts
        if scheduled is None:
            return step.plan
        known = DraftTokens(drafts.tokens, np.minimum(drafts.counts, scheduled.counts))
        valid = self._allowed(step.requests, known) if self._table.num_with_grammar else known.counts
        tokens = np.full_like(scheduled.tokens, NO_TOKEN)
        width = min(tokens.shape[1], drafts.tokens.shape[1])
        tokens[:, :width] = drafts.tokens[:, :width]
        tokens[np.arange(tokens.shape[1]) >= valid[:, None]] = NO_TOKEN
        ended = np.fromiter((request.status.is_finished for request in step.requests), np.bool_, len(valid))
        tokens[ended], valid[ended] = scheduled.tokens[ended], scheduled.counts[ended]
        return step.plan.replace(
            drafts=ScheduledDrafts(tokens, scheduled.counts), num_invalid_spec_tokens=scheduled.counts - valid
        )

    def _allowed(self, requests: Sequence[Request], drafts: DraftTokens) -> IntArray:
        """Drafts per request that its grammar allows."""
        counts = drafts.counts.copy()
        for row, request in enumerate(requests):
            if request.structured_output is not None and counts[row]:
                tokens = drafts.tokens[row, : counts[row]].tolist()
                counts[row] = self._grammars.num_valid(request, tokens)
        return counts

    def claw_back(
        self,
        slots: IntArray,
        scheduled: ScheduledDrafts,
        model: ModelOutput,
        counts: IntArray,
        num_invalid: IntArray | None = None,
    ) -> IntArray:
        """Rows whose drafts were verified give back what was rejected; returns the rejected tokens per row.

        The last sampled token is the model's own, so one fewer than sampled was accepted. ``slots`` may be negative for
        requests that lost theirs: their computed tokens are gone anyway. ``num_invalid`` drafts per row were never
        proposed to the model, so statistics leave them out.
        """
        verified = (scheduled.counts > 0) & (counts > 0)
        accepted = np.where(verified, model.num_sampled - 1, 0)
        rejected = np.where(verified, scheduled.counts - accepted, 0)
        proposed = scheduled.counts if num_invalid is None else scheduled.counts - num_invalid
        self._stats.record(proposed[verified], accepted[verified])
        here = slots >= 0
        self._table.take_back(slots[here], rejected[here])
        return rejected

    def take_stats(self) -> SpecDecodingStats:
        """Acceptance since the last call."""
        stats, self._stats = self._stats, SpecDecodingStats(self.max_drafts)
        return stats
