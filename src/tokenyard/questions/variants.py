"""Variants of a recorded run: settings by name, a line of ``vllm serve``, another GPU.

What they make of the deployment is planned as for a ``run``; what becomes of the recorded run then is said by
:mod:`tokenyard.sim.whatif.redeployed`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from tokenyard.deploy.given import changed, settings_of_line
from tokenyard.deploy.names import names_of
from tokenyard.deploy.recorded import RecordedDeployment, Told, of_version, planned, recorded_deployment
from tokenyard.deploy.settings import DeploymentSettings
from tokenyard.deploy.spec import prepare, resolve
from tokenyard.errors import ConfigError
from tokenyard.kv.sizing.gpus import named_gpu
from tokenyard.launch.hub_ids import hub_id
from tokenyard.launch.serve_line import read_serve_line
from tokenyard.questions.changes import convert
from tokenyard.sim.sweep.row import Setting
from tokenyard.sim.whatif.recorded_run import RecordedRun
from tokenyard.sim.whatif.redeployed import redeployed
from tokenyard.sim.whatif.settings import CHANGEABLE, FLAGS, Variant, as_it_was, split_settings, variant_with

__all__ = ["deployed", "modelled", "on_gpu", "served_with", "with_changes", "with_settings"]

_NOT_ONE_ENGINES = ("api_server_count", "router", "replicas", "startup", "scale_target", "latency")
"""Settings of several engines, or of the replay."""
_FIELDS = {flag: name for name, flag in FLAGS.items()}
_OF_THE_START = ("serve", "config", "vllm_version", "ignore_unmodelled")
_NO_FLAGS = ("gpu",)
"""Settings of a deployment that no flag of vLLM says."""


def modelled(run: RecordedRun, told: Told) -> tuple[RecordedRun, RecordedDeployment]:
    """The run with step times that take into account what is known of its deployment, and the deployment."""
    recorded = recorded_deployment(run, told)
    if recorded.planned is None:
        return run, recorded
    return run.modelled_by(recorded.planned.latency, recorded.planned.name), recorded


def with_settings(run: RecordedRun, recorded: RecordedDeployment, text: str) -> Variant:
    """``run`` with the settings of ``text``: ``max_num_seqs=512,gpu=h200``. Raises as :func:`with_changes`."""
    return with_changes(run, recorded, split_settings(text), text)


def with_changes(run: RecordedRun, recorded: RecordedDeployment, given: Mapping[str, Any], name: str) -> Variant:
    """``run`` with other settings, by name, which may be of its limits, its load or its deployment.

    ``name`` is what people call it. Raises ConfigError for a setting that is unknown, cannot have that value, or needs
    a deployment that is not known.
    """
    settings = {FLAGS.get(own, own): value for own, value in given.items()}
    others = [own for own in settings if own not in CHANGEABLE]
    for own in others:
        if own not in _of_a_deployment():
            known = sorted({*CHANGEABLE, *_of_a_deployment()})
            raise ConfigError("set", own, f"use one of: {', '.join(known)}", code="unknown_setting")
    limits = {own: value for own, value in settings.items() if own not in others}
    base = replace(variant_with(run, limits, name) if limits else as_it_was(run), name=name)
    if recorded.planned is None and not others:
        return base
    own_settings, before = recorded.known
    typed = dict(convert(own, value) for own, value in settings.items() if own in _of_a_deployment())
    after = planned(prepare(resolve(changed(own_settings, typed)), run.workload))
    words = [word for own in others for word in _words(own, typed[own])]
    theirs = replace(base, flags=(*base.flags, *words))
    fields = (_FIELDS.get(own, own) for own in settings)
    return redeployed(run, theirs, before, after, asked=(*settings, *fields))


def on_gpu(run: RecordedRun, recorded: RecordedDeployment, gpu: str) -> Variant:
    """The recorded run on another GPU, as the same line of ``vllm serve`` is there.

    Raises ConfigError for an unknown GPU, or a trace that does not say on what it ran; NoStartError if nothing fits.
    """
    device = named_gpu(gpu).name
    return with_changes(run, recorded, {"gpu": device}, f"gpu={device}")


def served_with(run: RecordedRun, recorded: RecordedDeployment, line: str, gpu: str | None) -> Variant:
    """The recorded traffic on what ``line`` starts, on ``gpu`` or else that of the trace.

    Raises TokenyardError naming what of the line, or of the trace, is not modelled.
    """
    _, before = recorded.known
    device = before.gpu if gpu is None else named_gpu(gpu)
    settings = settings_of_line(read_serve_line(line), gpu=device.name)
    pasted = settings.launch.serve or ""
    return deployed(run, recorded, settings, pasted if gpu is None else f"{pasted} on {device.name}")


def deployed(run: RecordedRun, recorded: RecordedDeployment, settings: DeploymentSettings, name: str) -> Variant:
    """The recorded traffic on another deployment, whole, with step times by the model of the trace's.

    Raises TokenyardError naming what of it, or of the trace, is not modelled.
    """
    own, before = recorded.known
    settings = replace(settings, hardware=replace(settings.hardware, latency=own.hardware.latency))
    after = planned(prepare(resolve(of_version(run, settings)), run.workload))
    return redeployed(run, replace(as_it_was(run), name=name), before, after)


@cache
def _of_a_deployment() -> frozenset[str]:
    """Names of settings of one engine and what it runs on."""
    return frozenset(names_of(DeploymentSettings)) - {*_NOT_ONE_ENGINES, *_OF_THE_START}


def _words(name: str, value: Setting) -> list[str]:
    """By which ``vllm serve`` is told."""
    if name in _NO_FLAGS:
        return []
    if name == "model":
        value = hub_id(str(value)) or value
    flag = name.replace("_", "-")
    return [f"--{flag}" if value else f"--no-{flag}"] if isinstance(value, bool) else [f"--{flag}", str(value)]
