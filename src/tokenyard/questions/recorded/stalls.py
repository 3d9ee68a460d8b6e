"""Steps of a trace that something else than their work held: kept out of the fit, repeated in every replay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np

from tokenyard.questions.recorded.answer import StalledStep
from tokenyard.steptime.fitted import FEATURES, STALL, MeasuredStep, fit_steps, predicted_by_features, stalled
from tokenyard.steptime.pace import MachineSpeed, Stall

# ---------------------------------------------------------------------------------------------------------------------
# A kernel is compiled at its first use, a hypervisor gives the cores to somebody else: one step of a thousand takes a
# second. Who waits for it waits a second longer, whatever the settings; so it belongs to every replay, at its moment,
# and to no step time.

_PREFILLS = FEATURES.index("prefills")
_TOKENS = (FEATURES.index("prefill_tokens"), FEATURES.index("decodes"))


class PartedSteps(msgspec.Struct, frozen=True):
    """The steps of a trace, apart."""

    ran: list[MeasuredStep]
    """The steps that took the time of their work."""
    stalls: tuple[StalledStep, ...]
    """The others, in order."""


def parted(steps: Sequence[MeasuredStep], untold: Sequence[MeasuredStep], began: float, source: str) -> PartedSteps:
    """Steps that stalled apart from the others; ``began``: the moment of the first arrival, on their clock.

    ``untold``: steps of which it is not known what they computed; who took many times as long as the largest of the
    others has stalled. Raises TraceError if there are too few steps.
    """
    fitted = fit_steps(steps, source)
    expected = predicted_by_features(fitted, steps)
    seconds = np.array([step.seconds for step in steps])
    is_prompt = np.array([step.features[_PREFILLS] > 0 for step in steps])
    held = stalled(seconds, expected, is_prompt) & ~np.array([step.may_encode for step in steps])
    ran = [step for step, is_held in zip(steps, held.tolist(), strict=True) if not is_held]
    if len(ran) < len(FEATURES):
        return PartedSteps(list(steps), ())
    expected = predicted_by_features(fit_steps(ran, source), steps)
    found = [
        _told(steps[place], float(expected[place]), began, is_cold=_is_first(steps, place))
        for place in np.flatnonzero(held).tolist()
    ]
    longest, usual = float(expected.max()), float(np.median([step.seconds for step in ran]))
    others = [step for step in untold if step.seconds > STALL * max(longest, usual)]
    found += [_told(step, usual, began, is_cold=False) for step in others]
    return PartedSteps(ran, tuple(sorted(found, key=lambda each: each.at_s)))


def _is_first(steps: Sequence[MeasuredStep], place: int) -> bool:
    """Whether no step before was of its kind, or as large."""
    this, before = steps[place], steps[:place]
    of_its_kind = [each for each in before if (each.features[_PREFILLS] > 0) == (this.features[_PREFILLS] > 0)]
    return _tokens(this) > max(map(_tokens, of_its_kind), default=0.0)


def _tokens(step: MeasuredStep) -> float:
    return sum(step.features[each] for each in _TOKENS)


def _told(step: MeasuredStep, expected: float, began: float, *, is_cold: bool) -> StalledStep:
    return StalledStep(
        step=step.number, at_s=step.ts - began, seconds=step.seconds, expected_s=expected, is_cold=is_cold
    )


def with_stalls(pace: MachineSpeed | None, stalls: Sequence[StalledStep], rate: float) -> MachineSpeed | None:
    """A machine's speed and its stalls, where requests come ``rate`` times as fast as they did; None: it ran evenly."""
    if not stalls:
        return pace
    moments = tuple(Stall(each.at_s / rate, each.seconds - each.expected_s) for each in stalls)
    return MachineSpeed.even(moments) if pace is None else replace(pace, stalls=moments)
