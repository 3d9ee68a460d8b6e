"""Variants: settings by name, changed in a deployment, on one side of a split or in a recorded run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import product
from math import inf
from typing import Any, NamedTuple, Protocol, TypeVar, get_args

import msgspec

from tokenyard.connectors.config import PREFILL_DECODE, KVTransferConfig
from tokenyard.core.profiles import decision_profile
from tokenyard.deploy.given import changed, settings_of_line
from tokenyard.deploy.serve_line import read_serve_line
from tokenyard.deploy.setting_values import as_value, did_you_mean, group_of, names_of, range_in
from tokenyard.deploy.settings import DeploymentSettings, LaunchSettings, SplitSettings
from tokenyard.deploy.spec import ReplaySpec, build_replay, resolve
from tokenyard.deploy.vllm_serve.defaults import known_version
from tokenyard.deploy.vllm_serve.flags import config_field, setting_name
from tokenyard.errors import ConfigError, NoStartError
from tokenyard.models.gpus import named_gpu
from tokenyard.models.named import MODELS, hub_id
from tokenyard.patterns import lazy_pattern
from tokenyard.questions.recorded.deployment import (
    GivenDeployment,
    RecordedDeployment,
    of_version,
    planned,
    recorded_deployment,
)
from tokenyard.questions.recorded.recorded_run import RecordedRun
from tokenyard.questions.recorded.variants import (
    CHANGEABLE,
    Variant,
    as_it_was,
    redeployed,
    setting_words,
    split_settings,
    variant_with,
)
from tokenyard.questions.scenario import Scenario, replay_spec
from tokenyard.questions.sweeping.rows import Setting, Settings
from tokenyard.redaction import hidden_setting
from tokenyard.sim.settings import MOST_ENGINES, DecodeSide, KVLink
from tokenyard.workload.record import Workload

# ---------------------------------------------------------------------------------------------------------------------
# Prefill and decode apart: what flags say of a split, and the deployments of its two sides.

NO_SPLIT = "none"
ENDS = (("prefill", "kv_producer"), ("decode", "kv_consumer"))
"""Sides, and their roles in vLLM."""
_FORM = lazy_pattern(r"([0-9]{1,5})\+([0-9]{1,5})")
_MOST_IN_A_RANGE = 1000
"""Largest number of values that one text may name."""


class Shape(NamedTuple):
    """Engines on each side."""

    prefill: int
    decode: int

    def __str__(self) -> str:
        return f"{self.prefill}+{self.decode}"


class SplitDeployment(msgspec.Struct, frozen=True):
    """The two deployments of a split."""

    prefill: ReplaySpec
    decode: ReplaySpec
    link: KVLink

    @property
    def recorded(self) -> tuple[ReplaySpec, ReplaySpec]:
        """Prefill and decode, each with a trace directory and a first record of its own."""
        prefill, decode = (_recorded(each, *ends) for each, ends in zip((self.prefill, self.decode), ENDS, strict=True))
        return prefill, decode

    @property
    def num_gpus(self) -> int:
        """GPUs of all engines."""
        return self.prefill.gpus_per_replica + self.decode.gpus_per_replica

    def decode_side(self, *, skip_refused: bool) -> DecodeSide:
        """What a replay has of the decode engines."""
        return DecodeSide(self.decode.replays(skip_refused=skip_refused), self.link)


def _recorded(setup: ReplaySpec, name: str, role: str) -> ReplaySpec:
    path = setup.trace.path
    config = KVTransferConfig(kv_connector=PREFILL_DECODE, kv_role=role, engine_id=name)
    section = {"kv_connector": config.kv_connector, "kv_role": role, "engine_id": name}
    return replace(
        setup,
        trace=replace(setup.trace, path=None if path is None else path / name),
        start=msgspec.structs.replace(setup.start, config={**(setup.start.config or {}), "kv_transfer": section}),
    )


def read_shape(text: str) -> Shape:
    """``2+1``: two engines that prefill, one that decodes. Raises ConfigError."""
    found = _FORM.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None or not all(1 <= int(number) <= MOST_ENGINES for number in found.groups()):
        fix = f"give the engines that prefill and those that decode, from 1 to {MOST_ENGINES} each: 2+1"
        raise ConfigError("split", text, fix)
    return Shape(int(found[1]), int(found[2]))


def read_shapes(texts: Iterable[str]) -> tuple[str | None, ...]:
    """Splits of texts like ``2+1``, ``1..3+1..2`` or ``1+1,none``, each once; None: no split. Raises ConfigError."""
    return tuple(dict.fromkeys(shape for text in texts for part in text.split(",") for shape in _shapes(part.strip())))


def _shapes(text: str) -> Iterator[str | None]:
    if text.lower() == NO_SPLIT:
        yield None
        return
    ends = [range_in(side if ".." in side else f"{side}..{side}") for side in text.split("+")]
    if len(ends) != 2 or None in ends:
        fix = "give engines that prefill and engines that decode, 2+1, a range of them, 1..3+1..2, or none"
        raise ConfigError("split", text, fix)
    ranges = [_counted("split", text, *each) for each in ends if each is not None]
    if len(ranges[0]) * len(ranges[1]) > _MOST_IN_A_RANGE:
        raise ConfigError("split", text, f"these are more than {_MOST_IN_A_RANGE:,} splits: give a smaller range")
    yield from (str(read_shape(f"{prefill}+{decode}")) for prefill, decode in product(*ranges))


def _counted(name: str, text: str, least: int, most: int) -> range:
    """Every number of a range. Raises ConfigError for one that is empty or has too many."""
    if most < least:
        raise ConfigError(name, text, f"a range goes from the fewest to the most: {most}..{least}")
    if most - least >= _MOST_IN_A_RANGE:
        fix = f"these are {most - least + 1:,} values: give at most {_MOST_IN_A_RANGE:,}, or some, with commas"
        raise ConfigError(name, text, fix)
    return range(least, most + 1)


def sides_of(run: Scenario, split: SplitSettings, workload: Workload | None = None) -> SplitDeployment:
    """Both deployments, settled; without a shape each has as many engines as ``run`` says. Raises TokenyardError."""
    check_split(run, split)
    size = run.parallel.data_parallel_size
    shape = Shape(size, size) if split.split is None else read_shape(split.split)
    prefill = replay_spec(_of_size(run, shape.prefill), workload)
    decode = prefill if shape.decode == shape.prefill else replay_spec(_of_size(run, shape.decode), prefill.workload)
    assert prefill.start.bytes_per_block is not None
    return SplitDeployment(prefill, decode, KVLink(prefill.start.bytes_per_block, split.kv_link_gb_per_s))


def _of_size(run: Scenario, size: int) -> Scenario:
    return replace(run, parallel=replace(run.parallel, data_parallel_size=size))


def check_split(run: Scenario, split: SplitSettings) -> None:
    """Raise ConfigError for a link that carries nothing, and naming what a split is not replayed with."""
    if not 0 < split.kv_link_gb_per_s < inf:
        raise ConfigError("kv_link_gb_per_s", split.kv_link_gb_per_s, "give a number above 0")
    parallel, transfer, speculation = run.parallel, run.transfer, run.speculation
    if split.split is not None and parallel.data_parallel_size > 1:
        fix = f"a split of {split.split} says how many engines each side has: give one of the two"
        raise ConfigError("data_parallel_size", parallel.data_parallel_size, fix)
    if parallel.has_replicas:
        fix = "a split is not replayed as several replicas: give §data_parallel_size for several engines on each side"
        name = "replicas" if parallel.autoscale is None else "autoscale"
        raise ConfigError(name, getattr(parallel, name), fix)
    if parallel.decode_context_parallel_size > 1:
        fix = "KV that is sent from engine to engine beside it is not modelled: give 1"
        raise ConfigError("decode_context_parallel_size", parallel.decode_context_parallel_size, fix)
    for name in ("kv_offloading_size", "kv_transfer_config"):
        if (value := getattr(transfer, name)) is not None:
            raise ConfigError(name, value, "is not modelled for prefill-decode disaggregation: leave it out")
    for name in ("speculative_config", "spec_method", "spec_tokens", "num_speculative_tokens"):
        if (value := getattr(speculation, name)) is not None:
            raise ConfigError(name, value, "is not modelled for prefill-decode disaggregation: leave it out")
    if run.arrivals.client_timeout is not None:
        fix = "clients of a split do not hang up in a replay: leave it out"
        raise ConfigError("client_timeout", run.arrivals.client_timeout, fix)


# ---------------------------------------------------------------------------------------------------------------------
# A shorter context than the model's own, where vLLM would not start with that one and no request needs it.

_LEAST = 1024


class _WithLaunch(Protocol):
    """Settings that know which of them were given."""

    @property
    def launch(self) -> LaunchSettings: ...


S = TypeVar("S", bound=_WithLaunch)
T = TypeVar("T")


class ShorterContext(msgspec.Struct, frozen=True):
    """The ``max_model_len`` that is taken, and why."""

    max_model_len: int
    default: int
    """What vLLM would take, and not start with."""
    longest_request: int
    """Tokens of the workload's longest request, prompt and answer."""

    @property
    def settings(self) -> dict[str, int]:
        """What to give beside the other settings."""
        return {"max_model_len": self.max_model_len}

    @property
    def sentence(self) -> str:
        """For the notes of an answer."""
        return (
            f"max_model_len {self.max_model_len:,} is taken, for none was given and vLLM would not start with the"
            f" model's own {self.default:,}, which need more KV cache than there is; the longest request has"
            f" {self.longest_request:,} tokens"
        )


def shorter_context(settings: _WithLaunch, error: NoStartError, workload: Workload) -> ShorterContext | None:
    """The power of two that holds the longest request, or the most that fits; None where that is not what is wrong.

    It is not where a length was given, or the longest request does not fit either.
    """
    fits = error.details.get("longest")
    if error.field != "max_model_len" or not isinstance(fits, int) or settings.launch.asked.says(("max_model_len",)):
        return None
    longest = max((len(request.prompt) + request.max_tokens for request in workload), default=0)
    if longest > fits:
        return None
    rounded = max(_LEAST, 1 << (longest - 1).bit_length())
    return ShorterContext(min(rounded, fits), int(str(error.value)), longest)


def made_to_start(
    settings: S, workload: Callable[[], Workload], make: Callable[[S], T]
) -> tuple[T, ShorterContext | None]:
    """What ``make`` makes of the settings, or of them with a shorter context. Raises NoStartError if none helps."""
    try:
        return make(settings), None
    except NoStartError as error:
        shorter = shorter_context(settings, error, workload())
        if shorter is None:
            raise
    other: Any = changed(settings, shorter.settings)
    return make(other), shorter


# ---------------------------------------------------------------------------------------------------------------------
# Settings of a run by name: which there are, what they may hold, and a run with some of them changed.

_OF_REPLICAS = ("replicas", "autoscale", "startup", "scale_target")
"""What is around a deployment, and no flag of it."""
_NO_FLAGS_OF_VLLM = ("gpu", "latency", "skip_oversized_prefill", "running_index_drifts", "router")
_OF_A_SPLIT = ("split", "kv_link_gb_per_s")
_VLLM_POLICIES = ("fcfs", "priority")


_NO_CHOICES = ("trace", "record_requests", "max_ids_per_step", "vllm_version", "ignore_unmodelled", "serve", "config")
"""Settings that are no part of a variant."""


@cache
def _names() -> list[str]:
    return [name for name in names_of(Scenario) if name not in _NO_CHOICES]


def read_setting(given: str, value: Any, flag: str = "--set") -> tuple[str, Setting]:
    """A setting by its own name, and its value in its type. Raises ConfigError naming ``flag``, or the setting."""
    name = setting_name(given)
    value = hidden_setting(value) if isinstance(value, str) else value
    found = group_of(Scenario, name)
    if found is None or name not in _names():
        meant = did_you_mean(name, _names()) or f"use one of {', '.join(_names())}"
        raise ConfigError(flag, given, f"there is no such setting: {meant}", code="unknown_setting")
    if isinstance(value, str) and value.strip().lower() in ("none", "null", "default"):
        value = None
    if name == "split" and value is not None:
        return name, str(read_shape(str(value)))
    return name, as_value(name, value, found[1])


def each_value(given: str, value: Any) -> Iterable[Any]:
    """The values that one stands for: each of a range (``1..6``) of a setting that is a whole number, or of splits.

    Raises ConfigError for a range that is none.
    """
    name = setting_name(given)
    found = group_of(Scenario, name)
    if found is None or not isinstance(value, str):
        return (value,)
    if name == "split":
        return read_shapes([value])
    ends = range_in(value) if int in (found[1], *get_args(found[1])) else None
    return (value,) if ends is None else _counted(name, value, *ends)


def is_load(name: str) -> bool:
    """Whether a setting is about what arrives."""
    found = group_of(Scenario, name)
    return found is not None and found[0] == "arrivals"


def serve_words(run: Scenario, settings: Settings) -> tuple[list[str], list[str]]:
    """The words behind ``vllm serve``, and sentences about what no flag of vLLM says."""
    words, said = changed_words(run, settings)
    given = [each for each in run.launch.asked.given if each.flag.field not in (*settings, "model")]
    model = run.hardware.model
    if hub_id(model) is None and model.lower() in MODELS:
        said = [f"{model} is Tokenyard's name: put the path of your weights there, or their name on the hub", *said]
    return [hub_id(model) or model, *(word for each in given for word in each.words), *words], said


def changed_words(run: Scenario, settings: Settings) -> tuple[list[str], list[str]]:
    """The flags of ``vllm serve`` that say these settings, and sentences about what no flag of vLLM says."""
    words: list[str] = []
    said: list[str] = []
    for name, value in settings.items():
        if is_load(name) or name in ("gpu", *_OF_A_SPLIT, *_OF_REPLICAS) or value is None:
            continue
        if name == "router" and changed(run, settings).parallel.has_replicas:
            continue
        if name in _NO_FLAGS_OF_VLLM or (name == "scheduling_policy" and value not in _VLLM_POLICIES):
            said.append(f"{name}={value} is Tokenyard's: vLLM has no flag for it (docs/vllm.md)")
            continue
        words += setting_words(name, value)
    return words, said


def words_of_split(run: Scenario, settings: Settings, shape: Shape) -> tuple[list[str], list[str]]:
    """The words behind ``vllm serve`` for the prefill engines of a split, and for its decode engines."""
    sides = []
    for size, (_, role) in zip(shape, ENDS, strict=True):
        transfer = msgspec.json.encode({"kv_connector": PREFILL_DECODE, "kv_role": role}).decode()
        own = {"data_parallel_size": size} if size > 1 else {}
        words, _ = serve_words(run, {**settings, **own, "kv_transfer_config": transfer})
        sides.append(words)
    return sides[0], sides[1]


# ---------------------------------------------------------------------------------------------------------------------
# Variants of a recorded run: settings by name, a line of ``vllm serve``, another GPU.
#
# What they make of the deployment is planned as for a ``run``; what becomes of the recorded run then is decided by
# :mod:`tokenyard.questions.recorded.variants`.

_NOT_ONE_ENGINES = ("api_server_count", "router", *_OF_REPLICAS, "latency")
"""Settings of several engines, or of the replay."""
_OF_THE_START = ("serve", "config", "vllm_version", "ignore_unmodelled")
_VERSION = "vllm_version"
"""Changes decisions, and where the deployment is known defaults and memory too."""
_NO_FLAGS = ("gpu",)
"""Settings of a deployment that no flag of vLLM says."""


def modelled(run: RecordedRun, given: GivenDeployment) -> tuple[RecordedRun, RecordedDeployment]:
    """The run with step times that take into account what is known of its deployment, and the deployment."""
    recorded = recorded_deployment(run, given)
    if recorded.planned is None:
        return run, recorded
    return run.modelled_by(recorded.planned.latency, recorded.planned.name), recorded


def variant_of_text(run: RecordedRun, recorded: RecordedDeployment, text: str) -> Variant:
    """``run`` with the settings of ``text``: ``max_num_seqs=512,gpu=h200``. Raises as :func:`with_changes`."""
    return with_changes(run, recorded, split_settings(text), text)


def with_changes(run: RecordedRun, recorded: RecordedDeployment, given: Mapping[str, Any], name: str) -> Variant:
    """``run`` with other settings, by name, which may be of its limits, its load or its deployment.

    ``name`` is what people call it. Raises ConfigError for a setting that is unknown, cannot have that value, or needs
    a deployment that is not known.
    """
    settings = {setting_name(own): value for own, value in given.items()}
    version = settings.pop(_VERSION, None)
    if version is not None:
        version = known_version(str(version), or_nearest=False)
    others = [own for own in settings if own not in CHANGEABLE]
    for own in others:
        if own not in _of_a_deployment():
            known = sorted({*CHANGEABLE, *_of_a_deployment(), _VERSION})
            meant = did_you_mean(own, known) or f"use one of: {', '.join(known)}"
            raise ConfigError("set", own, meant, code="unknown_setting")
    limits = {own: value for own, value in settings.items() if own not in others}
    base = replace(variant_with(run, limits, name) if limits else as_it_was(run), name=name)
    if version is not None:
        base = replace(base, scheduler=replace(base.scheduler, profile=decision_profile(version)))
    if recorded.planned is None and not others:
        return base
    own_settings, before = recorded.known
    typed = dict(read_setting(own, value) for own, value in settings.items() if own in _of_a_deployment())
    if version is not None:
        own_settings = replace(own_settings, launch=replace(own_settings.launch, vllm_version=version))
    after, shorter = made_to_start(
        changed(own_settings, typed), lambda: run.workload, lambda of: planned(build_replay(resolve(of), run.workload))
    )
    if shorter is not None:
        base = replace(base, notes=(*base.notes, shorter.sentence))
        typed |= shorter.settings
        others = [*others, *shorter.settings]
    words = [word for own in others for word in _flag_words(own, typed[own])]
    theirs = replace(base, flags=(*base.flags, *words))
    fields = map(config_field, settings)
    return redeployed(
        run, theirs, before, after, asked=(*settings, *fields, *(() if version is None else ("profile",)))
    )


def on_gpu(run: RecordedRun, recorded: RecordedDeployment, gpu: str) -> Variant:
    """The recorded run on another GPU, as the same line of ``vllm serve`` is there.

    Raises ConfigError for an unknown GPU, or a trace that does not say on what it ran; NoStartError if nothing fits.
    """
    device = named_gpu(gpu).name
    return with_changes(run, recorded, {"gpu": device}, f"gpu={device}")


def served_with(run: RecordedRun, recorded: RecordedDeployment, line: str, gpu: str | None) -> Variant:
    """The recorded traffic on what ``line`` starts, on ``gpu``, or else what the line names, or that of the trace.

    Raises TokenyardError naming what of the line, or of the trace, is not modelled.
    """
    _, before = recorded.known
    read = read_serve_line(line, gpu=gpu)
    device = named_gpu(gpu).name if gpu is not None else None if read.gpu is not None else before.gpu.name
    settings = settings_of_line(read, gpu=device)
    pasted = settings.launch.serve or ""
    return deployed(run, recorded, settings, pasted if gpu is None else f"{pasted} on {device}")


def deployed(run: RecordedRun, recorded: RecordedDeployment, settings: DeploymentSettings, name: str) -> Variant:
    """The recorded traffic on another deployment, whole, with step times by the model of the trace's.

    Raises TokenyardError naming what of it, or of the trace, is not modelled.
    """
    own, before = recorded.known
    settings = replace(settings, hardware=replace(settings.hardware, latency=own.hardware.latency))
    setup, shorter = made_to_start(
        of_version(run, settings), lambda: run.workload, lambda of: build_replay(resolve(of), run.workload)
    )
    notes = _taken(settings, setup) if shorter is None else (shorter.sentence, *_taken(settings, setup))
    base = replace(as_it_was(run), name=name, notes=tuple(notes))
    return redeployed(run, base, before, planned(setup))


def _taken(settings: DeploymentSettings, setup: ReplaySpec) -> Iterator[str]:
    """What a text says beside flags, and what of a deployment is not taken, in sentences."""
    for each in settings.launch.asked.found:
        if each.name not in _OF_REPLICAS:
            yield f"{each.name} {each.value}: {each.why}"
    if (replicas := settings.parallel.replicas_in_words) is not None:
        yield f"replicas {replicas}: not taken; a trace is of one engine, and all of its traffic goes to one here"
    yield from (f"ignored: {each}" for each in settings.launch.asked.ignored(setup.settled.version))


@cache
def _of_a_deployment() -> frozenset[str]:
    """Names of settings of one engine and what it runs on."""
    return frozenset(names_of(DeploymentSettings)) - {*_NOT_ONE_ENGINES, *_OF_THE_START}


def _flag_words(name: str, value: Setting) -> list[str]:
    """The flag of ``vllm serve`` that sets it."""
    if name in _NO_FLAGS:
        return []
    return setting_words(name, (hub_id(str(value)) or value) if name == "model" else value)
