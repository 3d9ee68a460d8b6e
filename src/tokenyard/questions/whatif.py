"""A recorded run with other settings, beside itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from os import PathLike
from typing import Any, NamedTuple

import msgspec

from tokenyard.arguments import given_path, suggests_keywords
from tokenyard.deploy.deployment import Deployment
from tokenyard.errors import NO_START, SERVES_NONE, ConfigError, TokenyardError
from tokenyard.explain.slo import SLOs, slo_texts
from tokenyard.questions.by_class import read_bounds
from tokenyard.questions.recorded.answer import WhatIf
from tokenyard.questions.recorded.ask import Baseline, WhatIfOptions, answer, replay_as_it_was, with_extremes
from tokenyard.questions.recorded.deployment import GivenDeployment, RecordedDeployment
from tokenyard.questions.recorded.recorded_run import RecordedRun, read_run
from tokenyard.questions.recorded.variants import Variant
from tokenyard.questions.scenario import Bars, OnProgress, bars_of, deployment_settings
from tokenyard.questions.sweeping.rows import NotAnswered, quoted, read_values, text_of_settings
from tokenyard.questions.sweeping.variants import Grid
from tokenyard.questions.variants import (
    deployed,
    each_value,
    modelled,
    on_gpu,
    served_with,
    variant_of_text,
    with_changes,
)
from tokenyard.redaction import plain

Change = Mapping[str, Any] | Deployment | str
"""Settings by name, a whole deployment, or a text as for ``--set``."""
Changes = Change | Mapping[str, Mapping[str, Any] | Deployment]
"""The same, or several by what to call each."""
_NAMED = (Mapping, Deployment)
_CHANGES = "give settings by name, a Deployment, or a text: max_num_seqs=64,128"


def read_recorded(
    trace: str | PathLike[str], given: GivenDeployment | None = None
) -> tuple[RecordedRun, RecordedDeployment]:
    """The run of a trace, and what it ran on. Raises TokenyardError."""
    return modelled(read_run(given_path("trace", trace)), given or GivenDeployment())


@suggests_keywords()
def whatif(
    trace: str | PathLike[str],
    changes: Changes | Sequence[Changes] = (),
    *,
    recorded: Deployment | None = None,
    by: str | None = None,
    slo: SLOs = None,
    progress: OnProgress | bool | None = None,
) -> WhatIf:
    """What other settings would have done to a recorded run, and how far the replay of it repeats what was.

    ``changes``: one variant or several, each settings by vLLM's names (``{"max_num_seqs": 64, "gpu": "h200"}``), a
    whole :class:`tokenyard.Deployment`, or a text (``"max_num_seqs=64,128"``); several values of a setting
    (``{"max_num_seqs": [64, 128]}``) are a variant each; a mapping of
    mappings or deployments says what to call each (``{"kv": {"num_gpu_blocks_override": 20_000}}``). Nothing: only the
    check. ``recorded``: what the trace was recorded on, where it does not say. ``by``: a column of classes
    (``priority``, ``lora_name``, ``prompt_tokens`` in ranges ...), each of which is shown by itself too. ``slo``:
    bounds, of one class as ``0:ttft_p95=1s``, or of all. ``progress`` is called now and then; True shows a line.

    The answer's ``self_check`` says whether the replay of the run as it was holds; where it does not, the rest can be
    as far off. Raises TokenyardError.
    """
    run, deployment = read_recorded(
        trace, None if recorded is None else GivenDeployment(settings=deployment_settings(recorded, "recorded"))
    )
    variants = _asked_for(run, deployment, changes)
    require_any(variants)
    asked = WhatIfOptions(by, read_bounds(slo_texts(slo), by))
    bars = bars_of(progress)
    with bars(len(run.workload), "as it was") as on_progress:
        baseline = replay_as_it_was(run, on_progress, asked)
    return answered(run, baseline, variants, bars)


class Unstartable(NamedTuple):
    """What was asked about, and the error that says why vLLM would not start with it."""

    name: str
    error: TokenyardError


AskedVariant = Variant | Unstartable


def _asked_for(
    run: RecordedRun, recorded: RecordedDeployment, changes: Changes | Sequence[Changes]
) -> list[AskedVariant]:
    """The variants of changes. Raises ConfigError, which names ``changes`` where the command has ``--set``."""
    if not isinstance(changes, Iterable | Deployment):
        raise ConfigError("changes", changes, _CHANGES)
    several = [changes] if isinstance(changes, str | Mapping | Deployment) else changes
    try:
        return [variant for change in several for variant in _named(run, recorded, change)]
    except ConfigError as error:
        if error.field != "set":
            raise
        raise ConfigError("changes", error.value, error.marked_fix, code=error.code) from None


def answered(run: RecordedRun, baseline: Baseline, asked: Sequence[AskedVariant], bars: Bars) -> WhatIf:
    """The answer, with a bar for every replay; what cannot be answered is named, and the others are.

    Raises TokenyardError, also where nothing that was asked can be answered.
    """
    whole: WhatIf | None = None
    failed: list[Unstartable] = []
    if asked and run.known is not None:
        with bars(len(run.workload), "as it was, as far off as it may be") as on_progress:
            baseline = with_extremes(run, baseline, on_progress)
    for variant in asked:
        if isinstance(variant, Unstartable):
            failed.append(variant)
            continue
        try:
            with bars(len(run.workload), plain(variant.name)) as on_progress:
                one = answer(run, baseline, [variant], on_progress)
        except ConfigError as error:
            if error.code != SERVES_NONE:
                raise
            failed.append(Unstartable(variant.name, error))
            continue
        whole = one if whole is None else whole.with_more(one)
    if whole is None:
        if failed:
            raise _none_of(failed)
        return answer(run, baseline, [])
    return msgspec.structs.replace(whole, not_answered=[NotAnswered.by(*each) for each in failed])


def require_any(asked: Sequence[AskedVariant]) -> None:
    """Raise TokenyardError where vLLM would start with nothing of what was asked, before anything is replayed."""
    failed = [each for each in asked if isinstance(each, Unstartable)]
    if asked and len(failed) == len(asked):
        raise _none_of(failed)


def _none_of(failed: Sequence[Unstartable]) -> TokenyardError:
    """The one error, or one with all of them."""
    first = failed[0].error
    if len(failed) == 1:
        return first
    lines = "\n".join(f"  {name}: {error.marked or error}" for name, error in failed)
    return ConfigError(
        "set", ", ".join(each.name for each in failed), f"none can be answered:\n{lines}", code=first.code
    )


def _or_why(name: str, make: Callable[[], Variant]) -> AskedVariant:
    """The variant, or why vLLM would not start with it. Raises TokenyardError for any other mistake."""
    try:
        return make()
    except TokenyardError as error:
        if error.code != NO_START:
            raise
        return Unstartable(name, error)


def variants_of(
    run: RecordedRun,
    recorded: RecordedDeployment,
    *,
    changes: Iterable[str] = (),
    policies: Iterable[str] = (),
    serve: Sequence[str] = (),
    gpus: Sequence[str] = (),
) -> list[AskedVariant]:
    """What is asked about in texts, in this order; whole lines on each of ``gpus``.

    Raises TokenyardError for a mistake; what vLLM would not start with is among them, with the error.
    """
    named = [f"scheduling_policy={quoted(name)}" for name in policies]
    settings = (*(one for text in changes for one in _each_of(text)), *named)
    variants = [_or_why(text, partial(variant_of_text, run, recorded, text)) for text in settings]
    if serve:
        pairs = product(serve, gpus or (None,))
        variants += [
            _or_why(line if gpu is None else f"{line} on {gpu}", partial(served_with, run, recorded, line, gpu))
            for line, gpu in pairs
        ]
    else:
        variants += [_or_why(f"gpu={gpu}", partial(on_gpu, run, recorded, gpu)) for gpu in gpus]
    return variants


def _each_of(text: str) -> list[str]:
    """Texts of single variants: each combination of the values that ``text`` names.

    ``max_num_seqs=64,128,rate_scale=2`` is two of them. Raises ConfigError.
    """
    return [text_of_settings(each) for each in _combinations(read_values(text, "set"))]


def _combinations(several: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Every combination of the values of settings, each of a range among them."""
    spread = [
        (name, tuple(each for value in values for each in each_value(name, value))) for name, values in several.items()
    ]
    return Grid(spread).all()


def _named(run: RecordedRun, recorded: RecordedDeployment, change: Changes) -> list[AskedVariant]:
    """The variants of a change, each by its name where one is given."""
    if not isinstance(change, Mapping) or not change or not all(isinstance(each, _NAMED) for each in change.values()):
        return _variants_of(run, recorded, change)
    found = {name: _variants_of(run, recorded, each) for name, each in change.items()}
    return [
        _called(variant, name if len(several) == 1 else f"{name}: {variant.name}")
        for name, several in found.items()
        for variant in several
    ]


def _called(variant: AskedVariant, name: str) -> AskedVariant:
    return variant._replace(name=name) if isinstance(variant, Unstartable) else replace(variant, name=name)


def _variants_of(run: RecordedRun, recorded: RecordedDeployment, change: Change) -> list[AskedVariant]:
    if isinstance(change, Deployment):
        name = repr(change)
        return [_or_why(name, partial(deployed, run, recorded, change.settings, name))]
    if isinstance(change, str):
        return variants_of(run, recorded, changes=[change])
    if not isinstance(change, Mapping):
        raise ConfigError("changes", change, _CHANGES)
    several = {name: value if isinstance(value, list | tuple) else [value] for name, value in change.items()}
    return [
        _or_why(text_of_settings(each), partial(with_changes, run, recorded, each, text_of_settings(each)))
        for each in _combinations(several)
    ]
