"""Variants of a recorded run: settings by name, a line of ``vllm serve``, another GPU.

What they make of the deployment is planned as for a ``run``; what becomes of the recorded run then is said by
:mod:`tokenyard.sim.whatif.redeployed`.
"""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cache
from typing import cast, get_type_hints

from tokenyard.cli.support.flags import Run
from tokenyard.cli.support.parsing import parse
from tokenyard.cli.support.planning.settings import changed as changed_run
from tokenyard.cli.support.planning.settings import convert
from tokenyard.cli.support.planning.sides import Planned
from tokenyard.cli.support.setup import prepare
from tokenyard.cli.support.variants.recorded import RecordedDeployment, Told, of_version, planned, recorded_deployment
from tokenyard.errors import ConfigError
from tokenyard.kv.sizing.gpus import named_gpu
from tokenyard.launch.hub_ids import hub_id
from tokenyard.sim.sweep.row import Setting
from tokenyard.sim.sweep.values import quoted
from tokenyard.sim.whatif.recorded_run import RecordedRun
from tokenyard.sim.whatif.redeployed import redeployed
from tokenyard.sim.whatif.settings import CHANGEABLE, FLAGS, Variant, as_it_was, read_variant, split_settings

__all__ = ["modelled", "on_gpu", "served_with", "with_settings"]

_GROUPS = ("hardware", "scheduler", "parallel", "adapters", "transfer", "speculation")
_NOT_ONE_ENGINES = ("api_server_count", "router", "replicas", "startup", "scale_target", "latency")
"""Settings of several engines, or of the replay."""
_NO_FLAGS = ("gpu",)
"""Settings of a deployment that no flag of vLLM says."""


def modelled(run: RecordedRun, told: Told) -> tuple[RecordedRun, RecordedDeployment]:
    """The run with step times that take into account what is known of its deployment, and the deployment."""
    recorded = recorded_deployment(run, told)
    if recorded.planned is None:
        return run, recorded
    return run.modelled_by(recorded.planned.latency, recorded.planned.name), recorded


def with_settings(run: RecordedRun, recorded: RecordedDeployment, text: str) -> Variant:
    """``run`` with the settings of ``text``, which may be of its limits, its load or its deployment.

    Raises ConfigError for a setting that is unknown, cannot have that value, or needs a deployment that is not known.
    """
    given = split_settings(text)
    flagged = {name: FLAGS.get(name, name) for name in given}
    others = [name for name in given if flagged[name] not in CHANGEABLE]
    for name in others:
        if name not in _of_a_deployment():
            known = sorted({*CHANGEABLE, *_of_a_deployment()})
            raise ConfigError("set", name, f"use one of: {', '.join(known)}")
    limits = ",".join(f"{name}={quoted(value)}" for name, value in given.items() if name not in others)
    base = replace(read_variant(run, limits) if limits else as_it_was(run), name=text)
    if recorded.planned is None and not others:
        return base
    flags, before = recorded.known
    settings = dict(convert(name, given[name]) for name in given if flagged[name] in _of_a_deployment())
    asked = cast(Run, changed_run(cast(Planned, flags), settings))  # a run has all groups of flags that are changed
    after = planned(prepare(asked, run.workload))
    words = [word for name in others for word in _words(name, settings[name])]
    theirs = replace(base, flags=(*base.flags, *words))
    return redeployed(run, theirs, before, after, asked=(*given, *settings))


def on_gpu(run: RecordedRun, recorded: RecordedDeployment, gpu: str) -> Variant:
    """The recorded run on another GPU, as the same line of ``vllm serve`` is there.

    Raises ConfigError for an unknown GPU, or a trace that does not say on what it ran; NoStartError if nothing fits.
    """
    return with_settings(run, recorded, f"gpu={named_gpu(gpu).name}")


def served_with(run: RecordedRun, recorded: RecordedDeployment, line: str, gpu: str | None) -> Variant:
    """The recorded traffic on what ``line`` starts, on ``gpu`` or else that of the trace.

    Raises TokenyardError naming what of the line, or of the trace, is not modelled.
    """
    own, before = recorded.known
    device = before.gpu if gpu is None else named_gpu(gpu)
    flags = parse(["run", "chat", "--serve", line, "--gpu", device.name])
    assert isinstance(flags, Run), "the words of a run"
    flags = of_version(run, replace(flags, hardware=replace(flags.hardware, latency=own.hardware.latency)))
    pasted = flags.launch.serve or ""
    after = planned(prepare(flags, run.workload))
    base = replace(as_it_was(run), name=pasted if gpu is None else f"{pasted} on {device.name}")
    return redeployed(run, base, before, after)


@cache
def _of_a_deployment() -> frozenset[str]:
    """Names of settings of one engine and what it runs on."""
    kinds = get_type_hints(Run)
    names = {field.name for group in _GROUPS for field in fields(kinds[group])}
    return frozenset(names - set(_NOT_ONE_ENGINES) - {"no_async_scheduling"})


def _words(name: str, value: Setting) -> list[str]:
    """By which ``vllm serve`` is told."""
    if name in _NO_FLAGS:
        return []
    if name == "model":
        value = hub_id(str(value)) or value
    flag = name.replace("_", "-")
    return [f"--{flag}" if value else f"--no-{flag}"] if isinstance(value, bool) else [f"--{flag}", str(value)]
