"""What ``plan`` and ``sweep`` were asked: the subject, prices, and what makes rows of theirs comparable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from hashlib import blake2s
from math import inf
from pathlib import Path
from typing import Any

from tokenyard.cli.support.console import warn
from tokenyard.cli.support.flags import Plan, SplitFlags, Sweep
from tokenyard.cli.support.planning.sides import Planned
from tokenyard.cli.support.planning.subjects import RecordedSubject, WorkloadSubject, is_trace
from tokenyard.errors import ConfigError
from tokenyard.explain.report.slo import read_slos
from tokenyard.kv.sizing.gpus import named_gpu
from tokenyard.sim.sweep.journal import TRACES
from tokenyard.sim.sweep.measuring import Measuring
from tokenyard.sim.workload.policy_doubts import doubt_of_policy
from tokenyard.version import __version__

__all__ = ["Subject", "identity_of", "measuring_for", "say_idle_policies", "subject_of"]

Subject = WorkloadSubject | RecordedSubject
_CHUNK = 1 << 20


def subject_of(flags: Plan | Sweep) -> Subject:
    """The trace, or the workload with the deployment that the flags say."""
    if is_trace(flags.workload):
        return RecordedSubject(flags.workload)
    return WorkloadSubject(
        Planned(
            workload=flags.workload,
            launch=flags.launch,
            arrivals=flags.arrivals,
            hardware=flags.hardware,
            scheduler=flags.scheduler,
            parallel=flags.parallel,
            adapters=flags.adapters,
            transfer=flags.transfer,
            speculation=flags.speculation,
            apart=flags.apart if isinstance(flags, Sweep) else SplitFlags(kv_link_gb_per_s=flags.kv_link_gb_per_s),
        )
    )


def measuring_for(flags: Plan | Sweep, subject: Subject) -> Measuring:
    """The worker. Raises ConfigError for a bound or a price that is none."""
    traces = flags.output / TRACES if isinstance(flags, Sweep) and flags.traces else None
    return Measuring(
        subject=subject,
        slos=read_slos(flags.slo),
        prices=_prices(flags.price),
        traces=None if traces is None else traces.absolute(),
    )


def say_idle_policies(subject: Subject, policies: Iterable[Any]) -> None:
    """Warn of policies that find nothing in the workload to go by: those asked for, or else the subject's own."""
    for policy in dict.fromkeys(map(str, policies)) or (subject.policy,):
        doubt = doubt_of_policy(policy, subject.workload)
        if doubt is not None:
            warn(f"{policy} has nothing to go by: {doubt}")


def _prices(given: Iterable[Iterable[str]]) -> dict[str, float]:
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


def identity_of(flags: Sweep) -> Mapping[str, Any]:
    """All that rows of a sweep depend on, apart from their own settings; JSON can hold it."""
    groups = ("arrivals", "hardware", "scheduler", "parallel", "adapters", "transfer", "speculation", "apart")
    return {
        "tokenyard": __version__,
        "workload": flags.workload,
        "contents": _contents(Path(flags.workload)),
        "vllm_version": flags.launch.vllm_version,
        "ignore_unmodelled": flags.launch.ignore_unmodelled,
        "vllm_flags": sorted(str(each) for each in flags.launch.asked.given),
        "environment": dict(sorted(flags.launch.asked.environment.items())),
        **{group: asdict(getattr(flags, group)) for group in groups},
        "slo": [str(slo) for slo in read_slos(flags.slo)],
        "price": _prices(flags.price),
        "traces": flags.traces,
    }


def _contents(path: Path) -> str | None:
    """A digest of the file, or of all files of a directory; None where there is none."""
    digest = blake2s(digest_size=16)
    if not path.exists():
        return None
    for each in sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]:
        digest.update(each.name.encode())
        with each.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    return digest.hexdigest()
