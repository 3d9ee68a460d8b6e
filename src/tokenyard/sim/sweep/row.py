"""What one replay of many came to: a record without clocks of ours, so that the same variant gives the same bytes."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tokenyard.explain.compare.figures import figures
from tokenyard.explain.report.report import Report

__all__ = ["FIGURES", "Row", "Setting", "Settings", "figures_of", "key_of", "word_of", "words_of"]

Setting = bool | int | float | str | None
Settings = Mapping[str, Setting]
"""Of a variant, by name."""

_STATISTICS = ("mean", "p50", "p90", "p95", "p99", "max")
FIGURES = (
    *(f"{name}_ms.{statistic}" for name in ("ttft", "tpot", "itl", "e2e", "queue") for statistic in _STATISTICS),
    *("goodput.requests_per_s", "goodput.share", "throughput.requests_per_s", "throughput.output_tokens_per_s"),
    *("prefix_hit_rate.local", "preemptions", "recomputed_tokens", "peak_kv_use", "running.mean", "waiting.mean"),
    *("output_tokens", "duration_s", "steps"),
    *("clients.given_up", "clients.retried", "clients.answered_late", "clients.unanswered", "clients.answer_ms.p90"),
    *("replicas.mean_held", "replicas.max_held", "replicas.started"),
    *("split.prefill", "split.decode", "split.link"),
)
"""Figures that are kept, by the names that they have in a report's JSON; those of ``split`` are how busy its prefill
engines, its decode engines and its links are, each on average, as shares of the run."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One variant, and what its replay came to."""

    settings: dict[str, Setting]
    load: float = 1.0
    """Arrivals were so many times as fast as the workload's."""
    problem: str | None = None
    """Why it could not be replayed: vLLM would not start with it, or refuse a request."""
    stopped: str | None = None
    """Why its replay was ended early; figures are then missing. None: it ran to its end."""
    requests: int = 0
    refused: int = 0
    """Requests that were refused, and turns left out after them."""
    met: bool | None = None
    """Whether every bound on a statistic holds; None where there is none or it was not measured."""
    tightness: float | None = None
    """The figure nearest to its bound, as a share of it: above 1 it is missed. None without bounds, and where the
    replay was ended early: nobody knows what it would have come to."""
    tightness_above: float | None = None
    """Where it was ended early because a bound is missed for certain: its ``tightness`` would be more than this."""
    tightest: str | None = None
    """Name of that bound; where the replay was ended early, of one that is missed for certain."""
    figures: dict[str, float | None] = {}
    held_by: str | None = None
    """What most waiting time was lost to; None: nobody was held back."""
    held_s: float = 0.0
    """Request-seconds lost to it."""
    held_at: str | None = None
    """On which side of a split: ``prefill`` or ``decode``."""
    gpu: str | None = None
    gpus: int | None = None
    """How many, at most where replicas come and go; None where a trace does not tell."""
    cost_per_hour: float | None = None
    """Of all GPUs, on average where replicas come and go; None without prices."""
    cost_per_million_tokens: float | None = None
    """Of output, over the whole run; None without prices."""
    replays: int = 1
    """It took: none where it was known beforehand, several where a load was searched for."""
    traces: list[str] = []
    """Steps files of its engines, those that decode first, as seen from the folder of the sweep's traces."""

    @property
    def is_measured(self) -> bool:
        """Whether there are figures."""
        return self.problem is None and self.stopped is None


def key_of(settings: Settings) -> str:
    """The same text for the same settings, in whatever order they stand."""
    return msgspec.json.encode(dict(sorted(settings.items()))).decode()


def words_of(settings: Settings) -> str:
    """Settings for people: ``max_num_seqs=256 enable_prefix_caching=true split=none``; "as it is" for no setting."""
    return " ".join(f"{name}={word_of(value)}" for name, value in settings.items()) or "as it is"


def word_of(value: Setting) -> str:
    """A value as people write it: ``none``, ``true``, 256."""
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def figures_of(report: Report) -> dict[str, float | None]:
    """Those of :data:`FIGURES` that the report has."""
    known = {figure.name: figure.a for figure in figures(report, report)}
    return {name: None if (value := known.get(name)) is None else float(value) for name in FIGURES}
