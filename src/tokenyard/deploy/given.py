"""From what was given, by name, in a line or pasted, to settings."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from math import prod
from pathlib import Path
from typing import Any

import msgspec

from tokenyard.deploy.serve_line import ServeLine, read_config_file
from tokenyard.deploy.setting_values import default_of, did_you_mean, group_of, names_of, with_values
from tokenyard.deploy.settings import DeploymentSettings, LaunchSettings
from tokenyard.deploy.start_facts import NO_GPU, SEVERAL, SEVERAL_GPUS, HeaderNote, Nodes, Said
from tokenyard.deploy.vllm_serve.defaults import DEFAULT_VERSION, is_known, known_version
from tokenyard.deploy.vllm_serve.flags import (
    KNOWN,
    FlagEffect,
    FlagKind,
    GivenFlag,
    VLLMFlag,
    flag_table,
    read_value,
    setting_name,
)
from tokenyard.deploy.vllm_serve.given import GivenFlags, merged, spelled_out, words_of
from tokenyard.errors import ConfigError
from tokenyard.models.gpus import GPUS, named_gpu
from tokenyard.redaction import hidden, hidden_setting
from tokenyard.units import GIB

# ---------------------------------------------------------------------------------------------------------------------
# What a pasted text says beside flags, as settings: version, GPU, replicas, what a start-up log settled.

CHANGES_MEMORY: frozenset[str] = frozenset(KNOWN["changes_memory"])
"""Settings that, given beside a log, make another deployment of it than the one whose memory it tells."""
_SIZES = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
_INSTEAD = {"replicas": "autoscale", "autoscale": "replicas"}
"""Settings of which one, given later, takes the place of the other."""
_SPREADS = frozenset(("nnodes", "data_parallel_size_local"))


class Pasted(msgspec.Struct, frozen=True):
    """What there is beside flags."""

    values: dict[str, Any]
    """Settings by name."""
    found: tuple[HeaderNote, ...]
    """The same for a header, with what was not taken, and why."""
    logged: tuple[str, ...]
    """The settings that vLLM's log records and that hold for this deployment alone."""


def said_beside_flags(
    line: ServeLine,
    *,
    typed: Collection[str],
    gpu: str | None,
    has: Collection[str],
    one_deployment: bool,
    with_trace: bool,
) -> Pasted:
    """What ``line`` says of settings that the command ``has`` and that are not ``typed``; ``gpu`` if it was.

    ``one_deployment``: the command replays the deployment as it is, not variants of it, for which a log's memory and
    limits would not hold. Raises ConfigError for a GPU that is not known here.
    """
    values: dict[str, Any] = {}
    found: list[HeaderNote] = []
    logged: list[str] = []

    def take(name: str, value: object, why: str) -> None:
        values[name] = value
        found.append(HeaderNote(name.replace("_", "-"), value, why))

    if line.version is not None and "vllm_version" not in typed:
        take("vllm_version", *_version(line.version))
    if line.gpu is not None and "gpu" not in typed:
        take("gpu", _known_gpu(line.gpu), line.gpu.where)
    if line.replicas is not None and line.replicas.value != "1" and not _INSTEAD.keys() & set(typed):
        problem = _no_replicas(line, has=has, typed=typed, with_trace=with_trace)
        if problem is None:
            name = "autoscale" if ".." in line.replicas.value else "replicas"
            take(name, line.replicas.value, f"{line.replicas.where}; --replicas 1 if the log is of one of them")
        else:
            why = f"{line.replicas.where}; {problem}, so that one of them gets all the traffic here"
            found.append(HeaderNote("replicas", line.replicas.value, why))
    is_other_gpu = line.gpu is not None and gpu is not None and _is_other(gpu, line.gpu.value)
    if line.gpu is not None and is_other_gpu and line.gpu.value not in GPUS:
        found.append(HeaderNote("gpu", gpu, f"given; {line.gpu.where} says {line.gpu.value}"))
    other = sorted(CHANGES_MEMORY & set(typed)) + ["gpu"] * is_other_gpu
    for name, value, why in _logged(line):
        if name in typed or name not in has:
            continue
        if not one_deployment or other:
            because = f"not taken: {', '.join(other)} is given beside it" if other else "not taken for variants of it"
            found.append(HeaderNote(name.replace("_", "-"), value, f"{why}; {because}"))
        else:
            take(name, value, why)
            logged.append(name)
    notes = [note for note in line.notes if note != NO_GPU or gpu is None]
    return Pasted(values, (*found, *notes), tuple(logged))


def _version(said: Said) -> tuple[str, str]:
    """The version whose decisions are known here that is nearest, and why it was taken."""
    try:
        nearest = known_version(said.value)
    except ConfigError:
        problem = "differ" if said.value == SEVERAL else "names no version"
        return DEFAULT_VERSION, f"{said.where} {problem}: the newest that is known here"
    if is_known(said.value):
        return nearest, f"{said.value}, {said.where}"
    return nearest, f"decisions of {said.value} ({said.where}) are not known here: the nearest that are"


def _spread(pasted: Pasted, nodes: Nodes, num_gpus: int, *, one_deployment: bool) -> Pasted:
    """The settings with the machines over which ``num_gpus``, those of all engines, are spread, or why that is not
    taken.
    """
    least = -(-num_gpus // nodes.gpus) if nodes.gpus else nodes.machines
    number = next((each for each in (least, nodes.machines) if each <= nodes.machines and num_gpus % each == 0), None)
    if number is not None and number > 1 and one_deployment:
        found = HeaderNote("nnodes", number, nodes.where)
        return msgspec.structs.replace(pasted, values={**pasted.values, "nnodes": number}, found=(*pasted.found, found))
    problem = "not taken for variants of it (--nnodes)"
    if one_deployment and number == 1:
        problem = f"its GPUs, {num_gpus}, fit on one of them, and what the others run is not read"
    elif one_deployment:
        problem = f"not taken: {num_gpus} GPUs do not divide by it (--nnodes)"
    return msgspec.structs.replace(
        pasted, found=(*pasted.found, HeaderNote("nnodes", nodes.machines, f"{nodes.where}; {problem}"))
    )


def _checked(pasted: Pasted, gpus: Said, used: Mapping[str, Any]) -> Pasted:
    """The settings with notes about GPUs that the text gives and the flags do not use, or need beside them."""
    needed = prod(size for name, size in used.items() if name in _SIZES and isinstance(size, int))
    if int(gpus.value) == needed:
        return pasted
    if int(gpus.value) > needed:
        why = f"{gpus.where}: the flags use {needed} of them"
    elif used.get("distributed_executor_backend") == "ray":
        why = f"{gpus.where}: the flags need {needed}, the others of other machines (--nnodes)"
    else:
        why = f"{gpus.where}: the flags need {needed}: vLLM would not start"
    return msgspec.structs.replace(pasted, found=(*pasted.found, HeaderNote("GPUs", gpus.value, why)))


def _known_gpu(said: Said) -> str:
    if SEVERAL_GPUS in said.value:
        raise ConfigError("gpu", said.value, f"{said.where}: these are several kinds: --gpu says which it is")
    try:
        return named_gpu(said.value).name
    except ConfigError:
        known = ", ".join(GPUS)
        raise ConfigError("gpu", said.value, f"{said.where}: is not known here: --gpu names one of {known}") from None


def _no_replicas(line: ServeLine, *, has: Collection[str], typed: Collection[str], with_trace: bool) -> str | None:
    """Why replicas cannot be replayed; None if they can."""
    sizes = [each.value for each in line.given if each.flag.field == "data_parallel_size"]
    if "replicas" not in has:
        return "this command replays one deployment"
    if with_trace or os.environ.get("SCHED_TRACE_PATH"):
        return "a replay with replicas writes no trace"
    if "data_parallel_size" in typed or any(size != 1 for size in sizes):
        return "replicas of several engines each are not replayed"
    return None


def _logged(line: ServeLine) -> Iterator[tuple[str, object, str]]:
    """What a start-up log says of settings that were not given."""
    given = {each.flag.field for each in line.given}
    for name, value in line.resolved.items():
        if name not in given:
            yield name, value, "as vLLM settled it, by the start-up log"
    memory = line.kv.memory_bytes
    if memory is not None and not given & {"kv_cache_memory_bytes", "num_gpu_blocks_override"}:
        yield "kv_cache_memory_bytes", memory, f"{memory / GIB:.2f} GiB, available by the start-up log"


# ---------------------------------------------------------------------------------------------------------------------
# What the user gives, as settings: words of ``vllm serve`` that were read, and values by name.

OURS = ("seed",)
"""Names that vLLM has too, for something else."""
_METHOD_OF = {"latency": "step_seconds", "router": "choose", "scheduling_policy": "victim", "eviction": "rank"}
OBJECTS = tuple(_METHOD_OF)
"""Settings that an object, a class or a function may take the place of, and what tells one."""
_NOT_GIVEN_SO = ("serve", "config")
"""Settings that are read before the others."""


class Given(msgspec.Struct, frozen=True):
    """What was given."""

    values: dict[str, Any]
    """Settings by name."""
    asked: GivenFlags


def given_by(
    line: ServeLine,
    readings: Sequence[Sequence[GivenFlag]] = (),
    *,
    before: Sequence[GivenFlag] = (),
    typed: Collection[str] = (),
    gpu: str | None = None,
    has: Collection[str],
    one_deployment: bool = True,
    with_trace: bool = False,
) -> Given:
    """What a line says and what ``readings`` give over it, a file's flags ``before`` it being the weakest.

    ``typed`` names the settings that the user gave beside the line, ``gpu`` is that one's value, ``has`` names the
    settings that can be given. ``one_deployment`` and ``with_trace``: as for
    :func:`~tokenyard.deploy.given.said_beside_flags`. Raises TokenyardError.
    """
    given = spelled_out(merged(before, line.given, *readings))
    used = {each.flag.field: _setting_of(each) for each in given if _is_setting(each, has)}
    if line.given and not any("model" in names for names in (used, typed)):
        raise ConfigError("serve", str(line), "names no model: give it in the text, or by §model", code="no_model")
    pasted = said_beside_flags(
        line, typed=typed, gpu=gpu, has=has, one_deployment=one_deployment, with_trace=with_trace
    )
    if line.nodes is not None and not _SPREADS & {*typed, *used}:
        num_gpus = prod(size for name, size in used.items() if name in _SIZES and isinstance(size, int))
        pasted = _spread(pasted, line.nodes, num_gpus, one_deployment=one_deployment)
    elif line.gpus is not None and one_deployment and not _SPREADS & {*typed, *used}:
        pasted = _checked(pasted, line.gpus, used)
    named = {each.flag.field for each in given} | set(typed) | set(pasted.values)
    asked = GivenFlags(
        tuple(given),
        line.environment,
        frozenset(named),
        (*pasted.found, *line.passed_over),
        line.kv,
        frozenset(pasted.logged),
    )
    return Given(used | pasted.values, asked)


def _is_setting(each: GivenFlag, has: Collection[str]) -> bool:
    """Whether a flag sets something of ours; the header says so of one that does not."""
    return each.effect is FlagEffect.USED and each.flag.field in has and each.flag.field not in OURS


def _setting_of(each: GivenFlag) -> Any:
    """The value of a flag; JSON as a text, since that is what settings hold."""
    return json.dumps(each.value) if each.value is None or isinstance(each.value, dict) else each.value


def taken_out(values: Mapping[str, Any], objects: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings that are said by texts and numbers, and the objects, those of before included.

    None takes one back, and so does a name. A latency model is called ``own:NAME`` beside it.
    """
    rest: dict[str, Any] = {}
    held = dict(objects)
    for given, value in values.items():
        name = setting_name(given)
        if name not in OBJECTS:
            rest[given] = value
            continue
        held.pop(name, None)
        if name == "eviction" and value is not None:
            held[name] = _checked_eviction(value)
        elif name != "eviction" and not (callable(value) or hasattr(value, _METHOD_OF[name])):
            rest[given] = value
        elif name == "latency":
            from tokenyard.sim.choices import latency_of  # noqa: PLC0415 - only where one is given

            held[name] = latency_of(value)
            rest[given] = f"own:{type(held[name]).__name__}"
        elif value is not None:
            held[name] = value
    return rest, held


def _checked_eviction(choice: Any) -> Any:
    """The choice itself. Raises ConfigError for what makes no order."""
    from tokenyard.policies.eviction import eviction_of  # noqa: PLC0415 - only where one is given

    eviction_of(choice)
    return choice


def settings_of_line(line: ServeLine, *, gpu: str | None = None) -> DeploymentSettings:
    """The deployment that a line starts, on ``gpu`` where one is given. Raises ConfigError."""
    return settings_by_name({} if gpu is None else {"gpu": gpu}, line=line)


def settings_by_name(
    values: Mapping[str, Any], *, line: ServeLine | None = None, config: str | Path | None = None
) -> DeploymentSettings:
    """A deployment by its settings, over what a line and a file of flags say. Raises ConfigError."""
    texts, objects = taken_out(values, {})
    said = _by_name(texts)
    own, flags = {name: value for name, value in said.items() if value is not None}, _flags(said)
    before = [] if config is None else read_config_file(Path(config))
    given = given_by(
        line or ServeLine(),
        [flags],
        before=before,
        typed=[*own, *(each.flag.field for each in before)],
        gpu=None if own.get("gpu") is None else str(own["gpu"]).lower(),
        has=names_of(DeploymentSettings),
    )
    launch = LaunchSettings(
        serve=None if line is None else str(line),
        config=None if config is None else Path(config),
        asked=given.asked,
        objects=objects,
    )
    return with_values(DeploymentSettings(launch=launch), {**given.values, **_ours(own)})


def changed(settings: Any, changes: Mapping[str, Any]) -> Any:
    """The same settings, or an object that has them, with others changed as if their flags had been given.

    None: as if it had not been given. Raises ConfigError for a name or a value that cannot be.
    """
    kind = type(settings)
    texts, objects = taken_out(changes, settings.launch.objects)
    said = _by_name(texts, kind)
    said |= {other: None for name, other in _INSTEAD.items() if said.get(name) is not None and other not in said}
    asked: GivenFlags = settings.launch.asked
    gone = {name for name, value in said.items() if value is None}
    values = {name: value for name, value in said.items() if value is not None}
    given = [each for each in asked.given if each.flag.field not in gone]
    given = spelled_out(merged(given, _flags(said, kind)))
    asked = replace(asked, found=tuple(each for each in asked.found if not _is_replaced(each, said)))
    if (CHANGES_MEMORY | {"gpu"}) & said.keys():
        asked, unlogged = _without_log(asked, said)
        gone |= unlogged
    of_flags = {
        each.flag.field: _setting_of(each)
        for each in given
        if each.flag.field in said and group_of(kind, each.flag.field)
    }
    named = (asked.named | values.keys()) - gone
    launch = replace(settings.launch, asked=replace(asked, given=tuple(given), named=named), objects=objects)
    defaults = {name: default_of(kind, name) for name in gone if group_of(kind, name) is not None}
    return with_values(replace(settings, launch=launch), {**defaults, **_ours(values, kind), **of_flags})


def _is_replaced(found: HeaderNote, said: Collection[str]) -> bool:
    """Whether what a text holds beside flags counts no more, since it is among the settings that are ``said``."""
    return found.name.replace("-", "_") in said or (found == NO_GPU and "gpu" in said)


def _without_log(asked: GivenFlags, said: Collection[str]) -> tuple[GivenFlags, set[str]]:
    """A log tells of the memory of another deployment than this one: what was taken from it is not any more."""
    gone = set(asked.logged) - set(said)
    why = f"not taken: {', '.join(sorted((CHANGES_MEMORY | {'gpu'}) & set(said)))} is given beside it"
    names = {name.replace("_", "-") for name in gone}
    found = tuple(each._replace(why=f"{each.why}; {why}") if each.name in names else each for each in asked.found)
    return replace(asked, found=found, logged=frozenset()), gone


def _by_name(values: Mapping[str, Any], kind: type = DeploymentSettings) -> dict[str, Any]:
    """The same by the settings' own names. Raises ConfigError for one that there is not, with the nearest."""
    found: dict[str, Any] = {}
    for given, value in values.items():
        name = setting_name(given)
        if name in _NOT_GIVEN_SO or (group_of(kind, name) is None and _flag_of(name, kind) is None):
            known = {*names_of(kind), *(each.field for each in flag_table())} - set(_NOT_GIVEN_SO)
            meant = did_you_mean(name, sorted(known))
            raise ConfigError(
                given, value, f"there is no such setting{': ' + meant if meant else ''}", code="unknown_setting"
            )
        if name in found:
            raise ConfigError(given, value, f"{name} is given twice: give it once")
        found[name] = hidden_setting(value) if isinstance(value, str) else value
    return found


def _flag_of(name: str, kind: type = DeploymentSettings) -> VLLMFlag | None:
    """The flag of vLLM's that a setting is; None for one of ours."""
    try:
        flag = flag_table()[name.replace("_", "-")]
    except KeyError:
        return None
    is_own = group_of(kind, name) is not None and flag.effect is not FlagEffect.USED
    return None if is_own or name in OURS else flag


def _ours(values: Mapping[str, Any], kind: type = DeploymentSettings) -> dict[str, Any]:
    """The settings that are no flags of vLLM."""
    return {
        name: value
        for name, value in values.items()
        if _flag_of(name, kind) is None and group_of(kind, name) is not None
    }


def _flags(values: Mapping[str, Any], kind: type = DeploymentSettings) -> list[GivenFlag]:
    """The flags of vLLM's among the settings, with their values. Raises ConfigError for a value of another kind."""
    flags = []
    for name, value in values.items():
        flag = _flag_of(name, kind)
        if flag is not None and value is not None:
            read = hidden(flag.name, _flag_value(flag, value))
            flags.append(GivenFlag(flag=flag, value=read, words=words_of(flag, read)))
    return flags


def _flag_value(flag: VLLMFlag, value: Any) -> Any:
    """A value as :func:`~tokenyard.deploy.vllm_serve.given.read_words` would have read it."""
    if isinstance(value, list | tuple) and (flag.values or flag.repeats):
        return [_flag_value_of(flag, each) for each in value]
    return _flag_value_of(flag, value)


def _flag_value_of(flag: VLLMFlag, value: Any) -> Any:
    kind = flag.kind
    if isinstance(value, Enum):
        value = value.value
    if not kind.has_value:
        if isinstance(value, str) and value.strip().lower() in ("true", "false"):
            value = value.strip().lower() == "true"
        if isinstance(value, bool):
            return value
        raise ConfigError(flag.field, value, "give true or false")
    if kind is FlagKind.JSON and isinstance(value, dict | list):
        return value
    if kind is FlagKind.JSON_OR_TEXT and isinstance(value, dict):
        return value
    if kind is FlagKind.TEXT and isinstance(value, int | float | Path) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, bool) or not isinstance(value, str | int | float | Path):
        return read_value(flag, json.dumps(value) if isinstance(value, bool) else repr(value), flag.field)
    if kind is FlagKind.FLOAT and isinstance(value, int | float):
        return float(value) if isinstance(value, float) else value
    return read_value(flag, str(value), flag.field)


def _is_other(gpu: str, named: str) -> bool:
    """Whether a GPU that was given is none of those that a text names."""
    from tokenyard.deploy.texts.manifests import gpu_named  # noqa: PLC0415 - only where there is a text

    return (gpu_named(gpu) or gpu) != named
