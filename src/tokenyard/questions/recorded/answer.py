"""The answer of a what-if, and how far it reaches."""

from __future__ import annotations

import msgspec

from tokenyard.explain.assumed_drafts import AssumedAcceptance
from tokenyard.explain.compare.comparison import Figure
from tokenyard.explain.slo import Goodput
from tokenyard.explain.table import Printable, RowTable, table_from
from tokenyard.questions.sweeping.rows import NotAnswered

# ---------------------------------------------------------------------------------------------------------------------
# The answer of a what-if: one object, which ``tokenyard whatif --json`` prints; ``docs/whatif.md`` explains it.

ANSWER_VERSION = 1

FIGURES = (
    *("ttft_ms.mean", "ttft_ms.p50", "ttft_ms.p90", "ttft_ms.p99"),
    *("tpot_ms.mean", "tpot_ms.p90", "tpot_ms.p99"),
    *("e2e_ms.mean", "e2e_ms.p90", "e2e_ms.p99"),
    *("queue_ms.mean", "queue_ms.p90"),
    *("prefix_hit_rate.local", "preemptions", "recomputed_tokens"),
    *("outcomes.served", "throughput.output_tokens_per_s", "duration_s"),
)
"""Figures of a report that are answered, by the names that they have in its JSON."""


OF_CLASSES = ("ttft_ms.p50", "ttft_ms.p95", "tpot_ms.p95", "e2e_ms.p95")
"""Figures of each class, where they are requested."""


_MUCH = 0.05
"""A change of that share may be for the better or the worse: it is said with the word for that."""


def change_of(before: float | None, after: float | None) -> float | None:
    """``after`` against ``before``, as a share of it; None if that cannot be computed."""
    if before is None or after is None:
        return None
    if before == 0:
        return 0.0 if after == 0 else None
    return after / before - 1


class FitQuality(msgspec.Struct, frozen=True, kw_only=True):
    """How well the fitted step times predict steps that the fit has not seen."""

    steps: int
    """Steps of the trace that tell what they computed and how long they took."""
    held_out: int
    """Steps that were predicted from the others; 0: there are too few."""
    median_error: float | None = None
    """Half of those are predicted better than this share of their duration."""
    p90_error: float | None = None
    mean_error: float | None = None
    """The errors of all of those, added up without their signs, over the time that they took."""
    total_error: float | None = None
    """The error of their durations together: above 0 means predicted too long."""
    fastest: float | None = None
    """Duration of the fastest stretch of steps, over what is fitted; None: the machine ran evenly."""
    slowest: float | None = None
    leans_on: str | None = None
    """The deployment whose modelled step times decide where the trace has no steps like those asked about; None: the
    fit goes on as it began."""
    leans_on_error: float | None = None
    """Half of the trace's steps are within this share of what that model says, scaled to them."""
    terms_of: str | None = None
    """The deployment whose modelled terms of a step are fitted, each with a scale of its own; None: what is fitted
    knows nothing of the deployment."""
    scales: dict[str, float] = {}
    """Term -> times as long as that model says."""


class StalledStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step that something else than its work held: no step time follows from it, and every replay repeats it."""

    step: int
    """Its number in the trace."""
    at_s: float
    """Seconds from the first arrival to its beginning."""
    seconds: float
    """How long it took."""
    expected_s: float
    """How long steps like it take."""
    is_cold: bool
    """No step before it was of its kind (with a prompt, or without) or as large: kernels may have been compiled."""


class TracePrediction(msgspec.Struct, frozen=True, kw_only=True):
    """A trace in whose steps no machine computed anything: what follows from it is a prediction of a prediction."""

    step_time: str | None = None
    """Where its step times come from, as ``--latency`` names it; None: it does not say."""
    error: str | None = None
    """Their error in words, as the header of its report has it; None: not known."""
    ttft_low: float | None = None
    """Nine measurements of ten lay from so many times what is predicted of such a deployment; None: not known."""
    ttft_high: float | None = None
    """To so many times."""
    tpot_low: float | None = None
    tpot_high: float | None = None


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One figure, as it was and as the replay of what was has it."""

    name: str
    """Name of the figure, as in :data:`FIGURES`."""
    recorded: float | None
    replayed: float | None

    error: float | None
    """Share of the recorded value: above 0 means that the replay has more; None if there is nothing to compare with."""
    censored: tuple[bool, bool] = (False, False)
    """Whether ``recorded``, and ``replayed``, is a lower bound: it rests on requests that were not served."""

    @classmethod
    def of(cls, figure: Figure) -> Check:
        """The figure of both reports with its error worked out."""
        was, now = figure.a, figure.b
        return cls(name=figure.name, recorded=was, replayed=now, error=change_of(was, now), censored=figure.censored)


class DecisionCheck(msgspec.Struct, frozen=True, kw_only=True):
    """Every step decided anew, with arrivals and ends where the trace has them: no step time is in it."""

    equal: int
    """Steps that schedule the same tokens of the same requests."""
    steps: int
    """Steps that were compared: those that schedule anything."""
    first_difference: int | None = None
    """Number of the first step that is another; None: there is none."""
    difference: str | None = None
    """What is different there."""
    stopped_by: str | None = None
    """Why steps behind these were not compared: ``most_steps`` (there are more than are compared), ``host`` (it paused
    the scheduler or had a cache forgotten), ``request`` (one of which the trace has no whole record is scheduled, or
    waits), ``drafts`` (with async scheduling it does not show which drafts were right), ``stuck`` (nothing can be
    scheduled); None: all were."""


class SelfCheck(msgspec.Struct, frozen=True, kw_only=True):
    """How well a replay of the recorded run repeats it: what every answer rests on."""

    checks: list[Check]
    equal_steps: int
    """Leading steps in which the replay schedules the same tokens of the same requests."""
    recorded_steps: int
    """Steps of the trace that scheduled anything."""
    parting: str | None
    """The step in which they part, and how; None if they never do."""
    decisions: DecisionCheck
    failed: list[str] = []
    """Figures that are further off than a good answer allows."""

    @property
    def holds(self) -> bool:
        """Whether the replay is close enough to go on."""
        return not self.failed

    def error_of(self, name: str) -> float | None:
        """The error of a figure, as a share; None if it is not known."""
        return next((check.error for check in self.checks if check.name == name), None)


class FigureAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One figure under a variant."""

    name: str
    recorded: float | None
    """Its value in the trace."""
    baseline: float | None
    """Its value in the replay with the recorded settings."""
    variant: float | None
    """Its value in the replay with the changed settings."""
    uncertainty: float | None
    """Share of ``variant`` by which it may be off, as far as is known: the self-check's error of this figure. None
    where ``low`` and ``high`` say it, and where the trace is itself a prediction: to repeat one proves nothing.
    """

    change: float | None
    """Share of the baseline: below 0 is less; None if there is nothing to compare with."""

    low: float | None = None
    """Least of ``variant`` and of what it is if step times are as far off as the model's known error allows; None where
    step times are those of a machine, and where their error is not known."""
    high: float | None = None
    """Most of the same."""
    change_low: float | None = None
    """Least of ``change`` and of what it is where the steps of both replays are as much shorter, or longer; None where
    only one of them is modelled, or the error is not known."""
    change_high: float | None = None
    """Most of the same."""

    censored: tuple[bool, bool] = (False, False)
    """Whether ``baseline``, and ``variant``, is a lower bound: it rests on requests that were not served."""

    is_sure: bool = False
    """Whether the change is beyond what is known of its error: whether it has one direction all over its range, or is
    little; whether the baseline lies outside of the figure's range; else whether it is more than ``uncertainty``. A
    change of a lower bound never is."""

    def judged(self) -> FigureAnswer:
        """The same with ``is_sure`` worked out."""
        if self.baseline is None or self.change is None or any(self.censored):
            return self
        if self.change_low is not None and self.change_high is not None:
            turns = self.change_low < 0 < self.change_high
            is_sure = not turns or max(-self.change_low, self.change_high) < _MUCH
        elif self.low is not None and self.high is not None:
            is_sure = not self.low <= self.baseline <= self.high
        else:
            is_sure = self.uncertainty is not None and abs(self.change) > self.uncertainty
        return msgspec.structs.replace(self, is_sure=is_sure)


class Mover(msgspec.Struct, frozen=True, kw_only=True):
    """A request that the variant serves faster or slower, end to end."""

    request_id: str
    baseline_s: float
    variant_s: float


class ReasonAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A reason that held requests back, and what it cost."""

    reason: str
    baseline_s: float
    """Request-seconds."""
    variant_s: float


class ClassAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One class of requests under a variant."""

    name: str
    requests: int
    baseline: dict[str, float | None]
    """``ttft_ms.p50`` and so on, in the replay of what was."""
    variant: dict[str, float | None]
    """The same with the changed settings."""
    baseline_good: float | None = None
    """Share of its requests within its bounds, in the replay of what was; None without any."""
    variant_good: float | None = None


class GoodputAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What comes of bounds; those of a class are named ``interactive:ttft_p95``."""

    baseline: Goodput
    """The report of the replay with the recorded settings."""
    variant: Goodput


class VariantAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What would have been with other settings."""

    name: str
    """The settings, as they were given."""
    figures: list[FigureAnswer]
    faster: int
    """Requests that end sooner by more than a twentieth of their time."""
    slower: int
    winners: list[Mover]
    """The requests that gain most, first."""
    losers: list[Mover]
    reasons: list[ReasonAnswer]
    """Most time lost first, in either replay."""
    refused: int
    """Requests that these settings cannot serve, and turns after them: figures count them as not served."""
    serve_flags: list[str]
    """What to add to ``vllm serve``, or to change there; empty where a setting is none of vLLM's."""
    notes: list[str] = []
    """What the answer rests on besides the trace."""
    drafts: AssumedAcceptance | None = None
    """What its TPOT rests on, where the acceptance of drafts was neither recorded nor given."""
    by: str | None = None
    """Column that ``classes`` are of."""
    classes: list[ClassAnswer] = []
    goodput: GoodputAnswer | None = None
    """None without bounds."""


class WhatIf(Printable, msgspec.Struct, frozen=True, kw_only=True):
    """What other settings would have done to a recorded run, and how far its replay repeats what was."""

    printer = "tokenyard.questions.printing.whatif:print_whatif"

    answer_version: int = ANSWER_VERSION
    source: str
    model: str | None
    gpu: str | None
    requests: int
    notes: list[str]
    """What of the trace is left out or not repeated."""
    fit: FitQuality
    stalls: list[StalledStep] = []
    """Steps that are kept out of the fit, in order; every replay is held up by each at its moment."""
    self_check: SelfCheck
    prediction: TracePrediction | None = None
    """What is known of the trace's own error; None: a machine has taken its steps."""
    variants: list[VariantAnswer]
    not_answered: list[NotAnswered] = []
    """What was asked about and cannot be; the others are answered."""

    def summary(self) -> str:
        fit = "holds" if self.self_check.holds else "is poor: what follows can be as far off"
        names = ", ".join(each.name for each in self.variants) or "as it was"
        left = f", {len(self.not_answered):,} not answered" if self.not_answered else ""
        of_what = "" if self.prediction is None else ", which is itself a prediction"
        return f"{self.requests:,} requests, {names}{left}; the replay of the run{of_what} {fit}"

    def as_table(self) -> RowTable:
        """One row per figure of each variant: ``variant``, ``figure``, ``as_it_was`` and ``then`` (both replayed),
        ``change`` (a share), ``low`` and ``high`` (where step times are modelled), ``change_low`` and ``change_high``
        (where those of both are), ``off_by`` (the check's own error).
        """
        return table_from(
            "figures",
            [
                {
                    "variant": variant.name,
                    "figure": each.name,
                    "as_it_was": each.baseline,
                    "then": each.variant,
                    "change": each.change,
                    "low": each.low,
                    "high": each.high,
                    "change_low": each.change_low,
                    "change_high": each.change_high,
                    "off_by": each.uncertainty,
                }
                for variant in self.variants
                for each in variant.figures
            ],
            numbers=("as_it_was", "then", "change", "low", "high", "change_low", "change_high", "off_by"),
        )

    def with_more(self, other: WhatIf) -> WhatIf:
        """This answer with the variants of another one on the same run."""
        return msgspec.structs.replace(self, variants=[*self.variants, *other.variants])
