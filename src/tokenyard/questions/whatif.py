"""A recorded run with other settings, beside itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from os import PathLike
from typing import Any

from tokenyard.arguments import given_path, suggests_keywords
from tokenyard.deploy.deployment import Deployment
from tokenyard.errors import ConfigError
from tokenyard.explain.slo import SLOs, slo_texts
from tokenyard.questions.by_class import read_bounds
from tokenyard.questions.recorded.answer import WhatIf
from tokenyard.questions.recorded.ask import Baseline, WhatIfOptions, answer, replay_as_it_was, with_extremes
from tokenyard.questions.recorded.deployment import GivenDeployment, RecordedDeployment
from tokenyard.questions.recorded.recorded_run import RecordedRun, read_run
from tokenyard.questions.recorded.variants import Variant, each_of
from tokenyard.questions.scenario import Bars, OnProgress, bars_of, deployment_settings
from tokenyard.questions.sweeping.rows import quoted, text_of_settings
from tokenyard.questions.variants import deployed, modelled, on_gpu, served_with, variant_of_text, with_changes
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
    asked = WhatIfOptions(by, read_bounds(slo_texts(slo), by))
    bars = bars_of(progress)
    with bars(len(run.workload), "as it was") as on_progress:
        baseline = replay_as_it_was(run, on_progress, asked)
    return answered(run, baseline, variants, bars)


def _asked_for(run: RecordedRun, recorded: RecordedDeployment, changes: Changes | Sequence[Changes]) -> list[Variant]:
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


def answered(run: RecordedRun, baseline: Baseline, asked: Sequence[Variant], bars: Bars) -> WhatIf:
    """The answer, with a bar for every replay. Raises TokenyardError."""
    whole: WhatIf | None = None
    if asked and run.known is not None:
        with bars(len(run.workload), "as it was, as far off as it may be") as on_progress:
            baseline = with_extremes(run, baseline, on_progress)
    for variant in asked:
        with bars(len(run.workload), plain(variant.name)) as on_progress:
            one = answer(run, baseline, [variant], on_progress)
        whole = one if whole is None else whole.with_more(one)
    return whole if whole is not None else answer(run, baseline, [])


def variants_of(
    run: RecordedRun,
    recorded: RecordedDeployment,
    *,
    changes: Iterable[str] = (),
    policies: Iterable[str] = (),
    serve: Sequence[str] = (),
    gpus: Sequence[str] = (),
) -> list[Variant]:
    """What is asked about in texts, in this order; whole lines on each of ``gpus``. Raises TokenyardError."""
    named = [f"scheduling_policy={quoted(name)}" for name in policies]
    settings = (*(one for text in changes for one in each_of(text)), *named)
    variants = [variant_of_text(run, recorded, text) for text in settings]
    if not serve:
        return variants + [on_gpu(run, recorded, gpu) for gpu in gpus]
    return variants + [served_with(run, recorded, line, gpu) for line in serve for gpu in gpus or (None,)]


def _named(run: RecordedRun, recorded: RecordedDeployment, change: Changes) -> list[Variant]:
    """The variants of a change, each by its name where one is given."""
    if not isinstance(change, Mapping) or not change or not all(isinstance(each, _NAMED) for each in change.values()):
        return _variants_of(run, recorded, change)
    found = {name: _variants_of(run, recorded, each) for name, each in change.items()}
    return [
        replace(variant, name=name if len(several) == 1 else f"{name}: {variant.name}")
        for name, several in found.items()
        for variant in several
    ]


def _variants_of(run: RecordedRun, recorded: RecordedDeployment, change: Change) -> list[Variant]:
    if isinstance(change, Deployment):
        return [deployed(run, recorded, change.settings, repr(change))]
    if isinstance(change, str):
        return variants_of(run, recorded, changes=[change])
    if not isinstance(change, Mapping):
        raise ConfigError("changes", change, _CHANGES)
    several = [value if isinstance(value, list | tuple) else [value] for value in change.values()]
    variants = [dict(zip(change, values, strict=True)) for values in product(*several)]
    return [with_changes(run, recorded, each, text_of_settings(each)) for each in variants]
