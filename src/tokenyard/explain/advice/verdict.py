"""Which of the changes that were tried help: those that are shown."""

from __future__ import annotations

from collections.abc import Sequence

from tokenyard.explain.advice.candidates import Change, objective_of
from tokenyard.explain.advice.trial import Cost, Effect, Trial
from tokenyard.explain.report.report import Report

__all__ = ["best_of", "gain_of", "trial_of", "worth_their_cost"]

FIGURES = ("ttft_ms.p90", "tpot_ms.p90", "tpot_ms.p99", "e2e_ms.mean", "throughput.output_tokens_per_s")
LEAST_GAIN = 0.03
"""Share by which the objective has to fall for a change to help."""
MOST_LOSS = 0.03
"""Share by which the mean time of a request may grow at the same time."""
_ALIKE = 0.02


def trial_of(change: Change, before: Report, after: Report | None, problem: str | None = None) -> Trial:
    """The change with its effects; none of them if the replay with it came to nothing."""
    effects = []
    for figure in FIGURES:
        old, new = _figure(before, figure), None if after is None else _figure(after, figure)
        if old is not None and new is not None:
            effects.append(Effect(figure=figure, before=old, after=new))
    return Trial(
        setting=change.setting,
        now=change.now,
        then=change.then,
        flag=change.flag,
        is_vllm=change.is_vllm,
        cost=change.cost,
        effects=effects,
        problem=problem,
    )


def best_of(rule: str, trials: Sequence[Trial]) -> Trial | None:
    """The trial that lowers the rule's objective most, the smallest change of those alike; None if none helps."""
    helping = [each for each in trials if _helps(each, objective_of(rule))]
    if not helping:
        return None
    best = min(_change(each, objective_of(rule)) for each in helping)
    return next(each for each in helping if _change(each, objective_of(rule)) <= best + _ALIKE)


def worth_their_cost(rule: str, trials: Sequence[Trial]) -> list[Trial]:
    """Of each cost the trial that helps most, the cheapest first; a dearer one if it helps more than they do."""
    kept: list[Trial] = []
    for cost in Cost:
        best = best_of(rule, [each for each in trials if each.cost is cost])
        if best is not None and all(gain_of(rule, best) >= gain_of(rule, each) + LEAST_GAIN for each in kept):
            kept.append(best)
    return kept


def gain_of(rule: str, trial: Trial) -> float:
    """Share by which it lowers the rule's objective."""
    return -_change(trial, objective_of(rule))


def _helps(trial: Trial, objective: str) -> bool:
    return _change(trial, objective) <= -LEAST_GAIN and _change(trial, "e2e_ms.mean") <= MOST_LOSS


def _change(trial: Trial, figure: str) -> float:
    effect = trial.effect(figure)
    return 0.0 if effect is None else effect.change


def _figure(report: Report, path: str) -> float | None:
    section, name = path.split(".")
    value = getattr(getattr(report, section), name)
    return None if value is None else float(value)
