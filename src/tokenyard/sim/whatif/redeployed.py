"""A recorded run on another deployment: what its steps take there, and how many blocks it has.

step times   those of the trace, times the ratio that the model of step times gives between the two deployments;
             whether there is any is what the model says of a fixed set of steps, whatever was changed
blocks       as they are planned for the new deployment. Where the recorded engine had more memory for KV than is
             planned for its own deployment, or less, the new one has as much more or less on every GPU: what takes
             it beside the model (another process, the driver, an estimate that is off) does so there as well
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol, runtime_checkable

from tokenyard.config import CacheConfig, SchedulerConfig
from tokenyard.errors import NoStartError
from tokenyard.kv.sizing.gpus import GPU
from tokenyard.models.spec import ModelSpec
from tokenyard.sim.drafts import SimulatedSpeculation
from tokenyard.sim.latency.model import LatencyModel
from tokenyard.sim.latency.scaled import Ratios, ScaledLatency, StretchedLatency, ratios
from tokenyard.sim.latency.steptime.known_error import KnownError
from tokenyard.sim.latency.steptime.model import CalibratedLatency
from tokenyard.sim.transfers.offload import KVTransfer
from tokenyard.sim.whatif.recorded_run import RecordedRun
from tokenyard.sim.whatif.settings import Variant, check_longest, check_prefixes

__all__ = ["PlannedDeployment", "redeployed"]

_GIB = float(1 << 30)
_NOT_SAID = ("num_gpu_blocks", "groups", "profile")
"""Settings whose change is said otherwise, or follows from others that are said."""


@dataclass(frozen=True, kw_only=True)
class PlannedDeployment:
    """What is served on what, as it is planned."""

    model: ModelSpec
    gpu: GPU
    scheduler: SchedulerConfig
    cache: CacheConfig
    bytes_per_block: int
    """On the GPU with the most layers."""
    counts_blocks: bool
    """Somebody said how many blocks there are, or how many bytes they have."""
    latency: LatencyModel
    speculation: SimulatedSpeculation | None
    kv_transfer: KVTransfer | None

    @property
    def name(self) -> str:
        """For sentences."""
        return f"{self.model.name} on {self.gpu.name}"


@runtime_checkable
class _WithGraphs(Protocol):
    """A model of step times that knows how large the largest CUDA graph is."""

    @property
    def capture_size(self) -> int: ...

    def captured(self, capture_size: int) -> LatencyModel: ...


def redeployed(
    run: RecordedRun,
    base: Variant,
    before: PlannedDeployment,
    after: PlannedDeployment,
    *,
    asked: Collection[str] | None = None,
) -> Variant:
    """``base``, a variant of ``run``, on ``after`` instead of ``before``, which is what was recorded.

    ``asked``: the settings that were changed, by the names of their fields; all others stay as recorded unless they
    follow from these. None: ``after`` is whole, and nothing is inherited.
    Raises ConfigError or NoStartError where vLLM would not start, or the trace does not tell.
    """
    scheduler, cache = after.scheduler, after.cache
    notes: list[str] = []
    if asked is not None:
        scheduler, moved = _changed(base.scheduler, before.scheduler, after.scheduler, asked)
        cache, also_moved = _changed(base.cache, before.cache, after.cache, asked)
        if moved or also_moved:
            notes.append(f"what nobody set follows: {', '.join((*moved, *also_moved))}")
    blocks, said = _blocks(run, before, after)
    cache = replace(cache, num_gpu_blocks=blocks)
    check_prefixes(run.cache, cache)
    check_longest(run, scheduler, cache)
    drafts = run.speculation if _drafts(before) == _drafts(after) else after.speculation
    if drafts is not None:
        right = "as often as in the trace" if drafts is run.speculation else "by a guess, for the trace cannot tell"
        notes.append(f"drafts: which are right is drawn anew, {right}")
    variant = replace(
        base,
        scheduler=scheduler,
        cache=cache,
        speculation=drafts,
        kv_transfer=after.kv_transfer,
        notes=(*base.notes, *notes),
    )
    return _with_said(_with_times(run, variant, before, after), said)


def _with_said(variant: Variant, said: str | None) -> Variant:
    return variant if said is None else replace(variant, notes=(*variant.notes, said))


def _with_times(run: RecordedRun, variant: Variant, before: PlannedDeployment, after: PlannedDeployment) -> Variant:
    """With the step times of ``after``."""
    found = ratios(before.latency, after.latency)
    if found.are_one:
        return variant
    latency = ScaledLatency(run.latency, before.latency, after.latency)
    variant = replace(variant, latency=latency, keeps_time=variant.keeps_time and before.gpu == after.gpu)
    graphs = _other_graphs(before.latency, after.latency)
    if graphs is not None:
        said = f"{graphs}: steps take {_words(found)} as long, by the model"
        return replace(variant, notes=(*variant.notes, said)) if _words(found) != _UNCHANGED else variant
    known = _known(before.latency, after.latency)
    notes = [_ratio(before, after, found, known)]
    extremes = None
    if known is not None:
        notes.append(_range(known))
        extremes = (
            StretchedLatency(latency, known.ttft.low, known.tpot.low),
            StretchedLatency(latency, known.ttft.high, known.tpot.high),
        )
    return replace(variant, extremes=extremes, notes=(*variant.notes, *notes))


def _known(before: LatencyModel, after: LatencyModel) -> KnownError | None:
    """Of the ratio of two modelled deployments: what both have, and nobody measured, is in the trace."""
    if isinstance(before, CalibratedLatency) and isinstance(after, CalibratedLatency):
        return after.known_error(beside=before)
    return None


def _other_graphs(before: LatencyModel, after: LatencyModel) -> str | None:
    """What to say where nothing but the largest CUDA graph is another: the model is as far off in both."""
    if not (isinstance(before, _WithGraphs) and isinstance(after, _WithGraphs)):
        return None
    if not ratios(before, after.captured(before.capture_size)).are_one:
        return None
    return f"CUDA graphs are captured up to {after.capture_size:,} tokens a step instead of {before.capture_size:,}"


def _ratio(before: PlannedDeployment, after: PlannedDeployment, found: Ratios, known: KnownError | None) -> str:
    error = "the error of that model is not known" if known is None else known.sentence
    what = f"{after.name} to {before.name}" if after.name != before.name else f"{after.name} as asked to as recorded"
    return f"step times: those of the trace, times the modelled ratio of {what}: {_words(found)} as long; {error}"


def _words(found: Ratios) -> str:
    return f"{found.least:.2f} to {found.most:.2f} times"


_UNCHANGED = _words(Ratios(1.0, 1.0))
"""As far as anybody is shown."""


def _range(known: KnownError) -> str:
    prefill, decode = (f"{each.low:.2f} and {each.high:.2f} times" for each in (known.ttft, known.tpot))
    return (
        f"range: the least and the most of three replays; in the others steps that compute prompts take {prefill}, and"
        f" steps that only decode {decode}, as long, as far as nine measurements of ten lay from the model"
    )


def _blocks(run: RecordedRun, before: PlannedDeployment, after: PlannedDeployment) -> tuple[int, str | None]:
    """How many there are, and what is to be said of it. Raises NoStartError if there are none."""
    planned, recorded = after.cache.num_gpu_blocks, run.cache.num_gpu_blocks
    if after.counts_blocks:
        return planned, None if planned == recorded else f"{planned:,} KV blocks instead of {recorded:,}, as given"
    theirs = recorded * (run.start.bytes_per_block or before.bytes_per_block)
    surplus = theirs - before.cache.num_gpu_blocks * before.bytes_per_block
    blocks = (planned * after.bytes_per_block + surplus) // after.bytes_per_block
    if abs(surplus) < before.bytes_per_block:  # the same blocks, counted in bytes that were rounded
        blocks, surplus = planned, 0
    if blocks < 2:
        raise NoStartError(
            f"{after.name}: {planned:,} KV blocks are planned, and the recorded engine had {-surplus / _GIB:.2f} GiB"
            " less on each GPU than is planned for it: nothing is left"
        )
    if blocks == recorded and not surplus:
        return blocks, None
    said = f"{blocks:,} KV blocks instead of {recorded:,}, as planned for {after.name}"
    if surplus:
        more = "more" if surplus > 0 else "less"
        said += (
            f" ({planned:,}), and with {abs(surplus) / _GIB:.2f} GiB {more} on each GPU, as the recorded engine had"
            f" {more} than is planned for it ({before.cache.num_gpu_blocks:,} blocks)"
        )
    return blocks, said


def _drafts(planned: PlannedDeployment) -> object:
    return None if planned.speculation is None else planned.speculation.config


def _changed(recorded: Any, before: Any, after: Any, asked: Collection[str]) -> tuple[Any, list[str]]:
    """``recorded`` with what ``after`` has otherwise than ``before``, and words of what of it nobody asked for."""
    changes = {
        each.name: getattr(after, each.name)
        for each in fields(after)
        if getattr(after, each.name) != getattr(before, each.name) and each.name != "num_gpu_blocks"
    }
    said = [
        f"{name} {_shown(value)} instead of {_shown(getattr(recorded, name))}"
        for name, value in _unasked(changes, asked)
        if value != getattr(recorded, name)
    ]
    return (replace(recorded, **changes) if changes else recorded), said


def _unasked(changes: dict[str, Any], asked: Collection[str]) -> Iterator[tuple[str, Any]]:
    for name, value in changes.items():
        if name not in asked and name not in _NOT_SAID and isinstance(value, bool | int | float | str):
            yield name, value


def _shown(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
