"""What ``plan`` and ``sweep`` were asked: the subject, prices, and what makes rows of theirs comparable."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from glob import glob
from hashlib import blake2s
from math import inf
from pathlib import Path
from typing import Any

from tokenyard.errors import ConfigError
from tokenyard.explain.report.slo import read_slos
from tokenyard.kv.sizing.gpus import named_gpu
from tokenyard.questions.bars import Say
from tokenyard.questions.scenario import Scenario
from tokenyard.questions.subjects import RecordedSubject, WorkloadSubject, is_trace
from tokenyard.sim.sweep.measuring import Measuring
from tokenyard.sim.sweep.variants import Grid
from tokenyard.sim.workload.policy_doubts import doubt_of_policy
from tokenyard.sim.workload.record import Workload
from tokenyard.version import __version__

__all__ = ["Subject", "identity_of", "measuring_for", "read_prices", "say_idle_policies", "subject_of"]

Subject = WorkloadSubject | RecordedSubject
_CHUNK = 1 << 20


def subject_of(scenario: Scenario) -> Subject:
    """The trace, or the workload with the deployment."""
    if isinstance(scenario.workload, str) and is_trace(scenario.workload):
        return RecordedSubject(scenario.workload)
    return WorkloadSubject(scenario)


def measuring_for(
    scenario: Scenario, subject: Subject, prices: Mapping[str, float], traces: Path | None = None
) -> Measuring:
    """The worker. Raises ConfigError for a bound that is none."""
    return Measuring(
        subject=subject,
        slos=read_slos(scenario.slo),
        prices=prices,
        traces=None if traces is None else traces.absolute(),
    )


def say_idle_policies(subject: Subject, policies: Iterable[Any], say: Say) -> None:
    """Warn of policies that find nothing in the workload to go by: those asked for, or else the subject's own."""
    for policy in dict.fromkeys(map(str, policies)) or (subject.policy,):
        doubt = doubt_of_policy(policy, subject.workload)
        if doubt is not None:
            say(f"{policy} has nothing to go by: {doubt}")


def read_prices(given: Iterable[Iterable[str]]) -> dict[str, float]:
    """GPU -> price of an hour, of texts: ``h100=2.5``. Raises ConfigError."""
    prices: dict[str, float] = {}
    for part in (part for texts in given for text in texts for part in text.split(",")):
        name, _, number = part.partition("=")
        try:
            price = float(number)
        except ValueError:
            price = -1.0
        if not 0 <= price < inf:
            raise ConfigError("price", part, "give GPU=PRICE of an hour, for example h100=2.5")
        prices[named_gpu(name.strip()).name] = price
    return prices


def identity_of(
    scenario: Scenario, prices: Mapping[str, float], around: Mapping[str, Any], grid: Grid | None = None
) -> Mapping[str, Any]:
    """All that rows of a sweep depend on, apart from their own settings; JSON can hold it.

    ``around`` is what else they depend on. Whether a variant of a plan is replayed to its end depends on the others, so
    a plan's ``grid`` belongs to it.
    """
    groups = ("arrivals", "hardware", "scheduler", "parallel", "adapters", "transfer", "speculation")
    asked = scenario.launch.asked
    workload = scenario.workload
    known: dict[str, Any] = {
        "tokenyard": __version__,
        "workload": scenario.name,
        "contents": _made(workload) if isinstance(workload, Workload) else _contents(Path(workload)),
        **{f"contents of {each}": _contents(Path(each)) for each in scenario.more},
        "vllm_version": scenario.launch.vllm_version,
        "ignore_unmodelled": scenario.launch.ignore_unmodelled,
        "vllm_flags": sorted(str(each) for each in asked.given),
        "environment": dict(sorted(asked.environment.items())),
        **{group: asdict(getattr(scenario, group)) for group in groups},
        "slo": [str(slo) for slo in read_slos(scenario.slo)],
        "price": dict(prices),
        **around,
    }
    if grid is not None:
        known["grid"] = [[name, list(values)] for name, values in grid.dimensions]
    return known | {"files": _files(known)}


def _made(workload: Workload) -> str:
    """A digest of a workload that was made in Python."""
    return blake2s(pickle.dumps(list(workload)), digest_size=16).hexdigest()


def _files(known: Any) -> dict[str, str | None]:
    """Digests of the files that are named in it: a model's config.json, a policy's FILE.py:CLASS, a trace to fit to."""
    if isinstance(known, Mapping):
        return _files(list(known.values()))
    if isinstance(known, list | tuple):
        return {name: digest for each in known for name, digest in _files(each).items()}
    if not isinstance(known, str):
        return {}
    before, colon, behind = known.rpartition(":")
    path = next((path for path in (known, before) if os.path.isfile(path)), behind if colon else "")  # noqa: PTH113
    return {known: _contents(Path(path))} if path and os.path.exists(path) else {}  # noqa: PTH110 - never raises


def _contents(path: Path) -> str | None:
    """A digest of the file, or of all files of a directory or a pattern; None where there is none."""
    digest = blake2s(digest_size=16)
    fitting = [path] if path.exists() else [Path(each) for each in glob(str(path))]  # noqa: PTH207 - as it is read
    if not fitting:
        return None
    for each in sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else sorted(fitting):
        digest.update(each.name.encode())
        with each.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    return digest.hexdigest()
