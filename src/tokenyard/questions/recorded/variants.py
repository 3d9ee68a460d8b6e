"""What may be changed in a what-if: settings by vLLM's names, and another deployment."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Protocol, get_type_hints, runtime_checkable

from tokenyard.core.config import CacheConfig, GroupKind, SchedulerConfig
from tokenyard.deploy.setting_values import as_value, did_you_mean
from tokenyard.deploy.vllm_serve.flags import config_field, flag_table, flag_words, setting_name
from tokenyard.errors import NO_START, ConfigError, NoStartError
from tokenyard.explain.assumed_drafts import AssumedAcceptance
from tokenyard.models.gpus import GPU
from tokenyard.models.spec import ModelSpec
from tokenyard.policies.named import policy_maker
from tokenyard.questions.recorded.recorded_run import RecordedRun
from tokenyard.questions.sweeping.rows import read_values
from tokenyard.quick_dataclass import dataclass
from tokenyard.sim.executor import SimulatedSpeculation
from tokenyard.sim.transfers import KVTransfer
from tokenyard.steptime.calibrated import CalibratedLatency
from tokenyard.steptime.carried import Ratios, ratios, scaled, stretched
from tokenyard.steptime.known_error import KnownError
from tokenyard.steptime.model import LatencyModel
from tokenyard.units import GIB
from tokenyard.workload.record import Workload

# ---------------------------------------------------------------------------------------------------------------------
# What may be changed in a what-if: settings by vLLM's names, applied to the run that was recorded.

_NOT_VLLMS = {"skip_oversized_prefill", "rolled_back_work_stays_cached"}
_SCHEDULER = (
    *("max_num_seqs", "max_num_batched_tokens", "max_model_len", "policy", "enable_chunked_prefill"),
    *("long_prefill_token_threshold", "scheduler_reserve_full_isl", "async_scheduling", "max_loras"),
    *("disable_chunked_mm_input", "skip_oversized_prefill", "rolled_back_work_stays_cached"),
)
_CACHE = ("num_gpu_blocks", "block_size", "enable_prefix_caching", "watermark")
_LOAD = ("rate_scale", "max_concurrency")
CHANGEABLE = tuple(sorted(map(setting_name, (*_SCHEDULER, *_CACHE, *_LOAD))))
"""Names of settings that may be changed; with dashes as well."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A recorded run with other settings."""

    name: str
    workload: Workload
    scheduler: SchedulerConfig
    cache: CacheConfig
    flags: tuple[str, ...]
    """Flags of ``vllm serve`` that make the changes."""
    is_vllms: bool
    """Whether vLLM has a flag for each of the changes to the engine."""
    keeps_time: bool
    """Whether requests arrive when they did: only then is it known how fast the machine was."""
    rate: float = 1.0
    """How many times as fast requests come."""
    latency: LatencyModel
    extremes: tuple[LatencyModel, LatencyModel] | None = None
    """Where ``latency`` is modelled: as short, and as long, as steps may be by what is known of the model's error."""
    speculation: SimulatedSpeculation | None
    kv_transfer: KVTransfer | None = None
    """KV kept elsewhere too."""
    drafts: AssumedAcceptance | None = None
    """What TPOT rests on, where the acceptance of drafts is neither given nor in the trace."""
    notes: tuple[str, ...] = ()
    """Sentences on what the answer rests on besides the trace."""


def as_it_was(run: RecordedRun) -> Variant:
    """The run with its own settings."""
    return Variant(
        name="as it was",
        workload=run.workload,
        scheduler=run.scheduler,
        cache=run.cache,
        flags=(),
        is_vllms=True,
        keeps_time=True,
        latency=run.latency,
        speculation=run.speculation,
    )


def variant_with(run: RecordedRun, settings: Mapping[str, Any], name: str) -> Variant:
    """``run`` with other settings, by vLLM's names or those of the configurations, and ``name`` for what comes of it.

    Raises ConfigError naming the setting that is unknown, or cannot have that value.
    """
    for own in map(setting_name, settings):
        if own not in CHANGEABLE:
            meant = did_you_mean(own, CHANGEABLE) or f"use one of: {', '.join(CHANGEABLE)}"
            raise ConfigError("set", own, meant, code="unknown_setting")
    return _variant(run, {config_field(own): value for own, value in settings.items()}, name)


def _variant(run: RecordedRun, given: Mapping[str, Any], text: str) -> Variant:
    scheduler = _changed(run.scheduler, SchedulerConfig, given, _SCHEDULER)
    cache = _with_block_size(
        run.cache, _changed(run.cache, CacheConfig, given, _CACHE), counts="num_gpu_blocks" in given
    )
    if "policy" in given:
        policy_maker(scheduler.policy, "scheduling_policy")
    check_prefixes(run.cache, cache)
    check_longest(run, scheduler, cache)
    workload, rate = run.workload, 1.0
    if "rate_scale" in given:
        rate = as_value("rate_scale", given["rate_scale"], float)
        workload = workload.with_rate(rate)
    if "max_concurrency" in given:
        workload = workload.with_max_concurrency(as_value("max_concurrency", given["max_concurrency"], int))
    engine = {name: value for name, value in given.items() if name not in _LOAD}
    return Variant(
        name=text,
        workload=workload,
        scheduler=scheduler,
        cache=cache,
        flags=tuple(
            word
            for name in engine
            for word in setting_words(setting_name(name), getattr(scheduler if name in _SCHEDULER else cache, name))
        ),
        is_vllms=not any(name in _NOT_VLLMS for name in engine) and scheduler.policy in ("fcfs", "priority"),
        keeps_time="rate_scale" not in given,
        rate=rate,
        latency=run.latency,
        speculation=run.speculation,
    )


def split_settings(text: str) -> dict[str, str]:
    """The settings of a text with their values; any name of a setting will do. Raises ConfigError."""
    found: dict[str, str] = {}
    for given, values in read_values(text, "set").items():
        name = setting_name(given)
        if len(values) > 1:
            raise ConfigError("set", text, f"{given} has several values: a variant has one of each setting")
        if name in found:
            raise ConfigError("set", text, f"{name} is given twice: give it once")
        found[name] = values[0]
    return found


def _changed(config: Any, kind: type, given: Mapping[str, Any], names: Sequence[str]) -> Any:
    """``config`` with those of the given settings that are its own."""
    types = get_type_hints(kind)
    changes = {name: as_value(setting_name(name), given[name], types[name]) for name in names if name in given}
    return replace(config, **changes) if changes else config


_SAID_BY_NO_FLAG = (("max_loras", 0),)
"""Settings that are off where no flag is given."""


def _with_block_size(recorded: CacheConfig, cache: CacheConfig, *, counts: bool) -> CacheConfig:
    """``cache`` with a changed block size for its groups as well, in the same memory unless the user ``counts`` blocks.

    ConfigError where the groups' sizes differ.
    """
    if cache.block_size == recorded.block_size:
        return cache
    sizes = {group.block_size or recorded.block_size for group in recorded.groups}
    if sizes != {recorded.block_size}:
        fix = f"the groups of this model have blocks of {', '.join(map(str, sorted(sizes)))} tokens: leave it as it is"
        raise ConfigError("block_size", cache.block_size, fix)
    blocks = cache.num_gpu_blocks if counts else recorded.num_gpu_blocks * recorded.block_size // cache.block_size
    groups = tuple(replace(group, block_size=0) for group in cache.groups)
    return replace(cache, groups=groups, num_gpu_blocks=blocks)


def check_prefixes(recorded: CacheConfig, cache: CacheConfig) -> None:
    """ConfigError where the trace does not know which prompts begin alike."""
    if cache.enable_prefix_caching and not recorded.enable_prefix_caching:
        fix = "it was off in the trace, so it is not known which prompts begin alike: record one with it on"
        raise ConfigError("enable_prefix_caching", value=True, fix=fix)


def check_longest(run: RecordedRun, scheduler: SchedulerConfig, cache: CacheConfig) -> None:
    """ConfigError where blocks or lengths were changed so that vLLM would not start.

    A request of ``max_model_len`` tokens must fit; groups that forget (windows, states) are counted as nothing.
    """
    longest, blocks, size = scheduler.max_model_len, cache.num_gpu_blocks, cache.block_size
    if (longest, blocks, size) == (run.scheduler.max_model_len, run.cache.num_gpu_blocks, run.cache.block_size):
        return
    sizes = zip(cache.groups, cache.group_block_sizes, strict=True)
    needed = 1 + sum(-(-longest // each) for group, each in sizes if group.kind is GroupKind.FULL)
    if blocks < needed:
        fix = (
            f"vLLM would not start: a request of §max_model_len = {longest:,} tokens takes {needed - 1:,} blocks, and"
            f" one block is never given out: give at least {needed:,} blocks, or a smaller §max_model_len"
        )
        raise ConfigError("num_gpu_blocks_override", blocks, fix, code=NO_START)


def setting_words(name: str, value: object) -> list[str]:
    """The words of ``vllm serve`` that set it; none where vLLM has no flag for it, or for this value."""
    flag = f"--{name.replace('_', '-')}"
    if flag_table().named(flag, prefixes=False) is None or (name, value) in _SAID_BY_NO_FLAG:
        return []
    return flag_words(flag, value)


# ---------------------------------------------------------------------------------------------------------------------
# A recorded run on another deployment: what its steps take there, and how many blocks it has.
#
# step times   those of the trace, times the ratio that the model of step times gives between the two deployments;
#              whether there is any is what the model says of a fixed set of steps, whatever was changed
# blocks       as they are planned for the new deployment. Where the recorded engine had more memory for KV than is
#              planned for its own deployment, or less, the new one has as much more or less on every GPU: what takes
#              it beside the model (another process, the driver, an estimate that is off) does so there as well

_NOT_SAID = ("num_gpu_blocks", "groups", "profile")
"""Settings whose change is described otherwise, or follows from others that are described."""


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
    """The user gave the number of KV blocks, or their bytes."""
    latency: LatencyModel
    speculation: SimulatedSpeculation | None
    kv_transfer: KVTransfer | None
    drafts: AssumedAcceptance | None
    """What TPOT rests on, where the acceptance of drafts is not given."""

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
    Raises ConfigError or NoStartError where vLLM would not start, or the trace does not record it.
    """
    scheduler, cache = after.scheduler, after.cache
    notes: list[str] = []
    if asked is not None:
        scheduler, moved = _redeployed_changed(base.scheduler, before.scheduler, after.scheduler, asked)
        cache, also_moved = _redeployed_changed(base.cache, before.cache, after.cache, asked)
        if moved or also_moved:
            notes.append(f"settings that were not given follow: {', '.join((*moved, *also_moved))}")
    blocks, said = _blocks(run, before, after)
    cache = replace(cache, num_gpu_blocks=blocks)
    check_prefixes(run.cache, cache)
    check_longest(run, scheduler, cache)
    drafts = run.speculation if _drafts(before) == _drafts(after) else after.speculation
    if drafts is not None:
        notes.append(f"drafts: {_of_drafts(drafts, is_recorded=drafts is run.speculation)}")
    variant = replace(
        base,
        scheduler=scheduler,
        cache=cache,
        speculation=drafts,
        kv_transfer=after.kv_transfer,
        drafts=None if drafts is run.speculation else after.drafts,
        notes=(*base.notes, *notes),
    )
    return _with_said(_with_times(run, variant, before, after), said)


def _of_drafts(drafts: SimulatedSpeculation, *, is_recorded: bool) -> str:
    if not is_recorded:
        return "which are right is drawn anew, by a guess, for the trace cannot tell"
    if drafts.recorded is None:
        return "which are right is drawn anew, as often as in the trace"
    return "which there are and which are right is as in the trace at each position of a text"


def _with_said(variant: Variant, said: str | None) -> Variant:
    return variant if said is None else replace(variant, notes=(*variant.notes, said))


def _with_times(run: RecordedRun, variant: Variant, before: PlannedDeployment, after: PlannedDeployment) -> Variant:
    """The variant with the step times of ``after``."""
    found = ratios(before.latency, after.latency)
    if found.are_one:
        return variant
    latency = scaled(run.latency, before.latency, after.latency)
    variant = replace(variant, latency=latency, keeps_time=variant.keeps_time and before.gpu == after.gpu)
    graphs = _other_graphs(before.latency, after.latency)
    if graphs is not None:
        said = f"{graphs}: steps take {_least_to_most(found)} as long, by the model"
        return replace(variant, notes=(*variant.notes, said)) if _least_to_most(found) != _UNCHANGED else variant
    known = _error_of_ratio(run, before.latency, after.latency)
    notes = [_ratio(before, after, found, known)]
    extremes = None
    if known is not None:
        notes.append(range_in_words(known))
        extremes = extremes_of(latency, known)
    return replace(variant, extremes=extremes, notes=(*variant.notes, *notes))


def extremes_of(latency: LatencyModel, known: KnownError) -> tuple[LatencyModel, LatencyModel]:
    """Step times as short, and as long, as they may be by what is known of their error."""
    return (
        stretched(latency, prefill=known.ttft.low, decode=known.tpot.low),
        stretched(latency, prefill=known.ttft.high, decode=known.tpot.high),
    )


def _error_of_ratio(run: RecordedRun, before: LatencyModel, after: LatencyModel) -> KnownError | None:
    """The error of the ratio of two modelled deployments: what both have and was not measured is in the trace. Of a
    trace that is itself a prediction the error is the whole one: it measured nothing.
    """
    if isinstance(before, CalibratedLatency) and isinstance(after, CalibratedLatency):
        return after.known_error(run.load) if run.is_prediction else after.known_error(beside=before)
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
    return (
        f"step times: those of the trace, times the modelled ratio of {what}: {_least_to_most(found)} as long; {error}"
    )


def _least_to_most(found: Ratios) -> str:
    return f"{found.least:.2f} to {found.most:.2f} times"


_UNCHANGED = _least_to_most(Ratios(1.0, 1.0))
"""The words for step times that do not differ, at the precision that is shown."""


def range_in_words(known: KnownError) -> str:
    """What the range of every figure is made of."""
    prefill, decode = (f"{each.low:.2f} and {each.high:.2f} times" for each in (known.ttft, known.tpot))
    return (
        f"range: the least and the most of three replays; in the others steps that compute prompts take {prefill}, and"
        f" steps that only decode {decode}, as long, as far as nine measurements of ten lay from the model"
    )


def _blocks(run: RecordedRun, before: PlannedDeployment, after: PlannedDeployment) -> tuple[int, str | None]:
    """How many blocks there are, and the notes about it. Raises NoStartError if there are none."""
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
            f"{after.name}: {planned:,} KV blocks are planned, and the recorded engine had {-surplus / GIB:.2f} GiB"
            " less on each GPU than is planned for it: nothing is left",
            "num_gpu_blocks_override",
            None,
            "give a number of blocks, or settings that leave the engine more memory",
            details={"planned_blocks": planned, "lacking_bytes": -surplus},
        )
    if blocks == recorded and not surplus:
        return blocks, None
    said = f"{blocks:,} KV blocks instead of {recorded:,}, as planned for {after.name}"
    if surplus:
        more = "more" if surplus > 0 else "less"
        said += (
            f" ({planned:,}), and with {abs(surplus) / GIB:.2f} GiB {more} on each GPU, as the recorded engine had"
            f" {more} than is planned for it ({before.cache.num_gpu_blocks:,} blocks)"
        )
    return blocks, said


def _drafts(planned: PlannedDeployment) -> object:
    return None if planned.speculation is None else planned.speculation.config


def _redeployed_changed(recorded: Any, before: Any, after: Any, asked: Collection[str]) -> tuple[Any, list[str]]:
    """``recorded`` with what ``after`` has otherwise than ``before``, and words of what of it was not asked for."""
    changes = {
        each.name: getattr(after, each.name)
        for each in fields(after)
        if getattr(after, each.name) != getattr(before, each.name) and each.name != "num_gpu_blocks"
    }
    said = [
        f"{name} {_with_commas(value)} instead of {_with_commas(getattr(recorded, name))}"
        for name, value in _unasked(changes, asked)
        if value != getattr(recorded, name)
    ]
    return (replace(recorded, **changes) if changes else recorded), said


def _unasked(changes: dict[str, Any], asked: Collection[str]) -> Iterator[tuple[str, Any]]:
    for name, value in changes.items():
        if name not in asked and name not in _NOT_SAID and isinstance(value, bool | int | float | str):
            yield name, value


def _with_commas(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
