"""What somebody gives, as settings: words of ``vllm serve`` that were read, and values by name."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from tokenyard.deploy.names import default_of, group_of, names_of, nearest, with_values
from tokenyard.deploy.pasted import CHANGES_MEMORY, said_beside_flags
from tokenyard.deploy.settings import DeploymentSettings, LaunchSettings
from tokenyard.errors import ConfigError
from tokenyard.launch.asked import Asked
from tokenyard.launch.compilation import spelled_out
from tokenyard.launch.flag import Effect, FlagKind, GivenFlag, VLLMFlag
from tokenyard.launch.flag_table import flag_table
from tokenyard.launch.names import setting_name
from tokenyard.launch.reading import merged, words_of
from tokenyard.launch.serve_line import ServeLine, read_config_file
from tokenyard.launch.values import read_value
from tokenyard.redaction import hidden, hidden_setting

__all__ = ["OURS", "Given", "changed", "given_by", "settings_by_name", "settings_of_line"]

OURS = ("seed",)
"""Names that vLLM has too, for something else."""
_NOT_GIVEN_SO = ("serve", "config")
"""Settings that are read before the others."""


class Given(NamedTuple):
    """What was given."""

    values: dict[str, Any]
    """Settings by name."""
    asked: Asked


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

    ``typed`` names the settings that somebody gave beside the line, ``gpu`` is that one's value, ``has`` names the
    settings that can be given. ``one_deployment`` and ``with_trace``: as for
    :func:`~tokenyard.deploy.pasted.said_beside_flags`. Raises TokenyardError.
    """
    pasted = said_beside_flags(
        line, typed=typed, gpu=gpu, has=has, one_deployment=one_deployment, with_trace=with_trace
    )
    given = spelled_out(merged(before, line.given, *readings))
    used = {each.flag.field: _plain(each) for each in given if _is_setting(each, has)}
    named = {each.flag.field for each in given} | set(typed) | set(pasted.values)
    asked = Asked(
        tuple(given), line.environment, frozenset(named), pasted.found, line.kv.size_tokens, frozenset(pasted.logged)
    )
    return Given(used | pasted.values, asked)


def _is_setting(each: GivenFlag, has: Collection[str]) -> bool:
    """Whether a flag sets something of ours; the header says so of one that does not."""
    return each.effect is Effect.USED and each.flag.field in has and each.flag.field not in OURS


def _plain(each: GivenFlag) -> Any:
    """The value of a flag; JSON as a text, since that is what settings hold."""
    return json.dumps(each.value) if each.value is None or isinstance(each.value, dict) else each.value


def settings_of_line(line: ServeLine, *, gpu: str | None = None) -> DeploymentSettings:
    """The deployment that a line starts, on ``gpu`` where somebody says so. Raises ConfigError."""
    return settings_by_name({} if gpu is None else {"gpu": gpu}, line=line)


def settings_by_name(
    values: Mapping[str, Any], *, line: ServeLine | None = None, config: str | Path | None = None
) -> DeploymentSettings:
    """A deployment by its settings, over what a line and a file of flags say. Raises ConfigError."""
    said = _by_name(values)
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
        serve=None if line is None else str(line), config=None if config is None else Path(config), asked=given.asked
    )
    return with_values(DeploymentSettings(launch=launch), {**given.values, **_ours(own)})


def changed(settings: Any, changes: Mapping[str, Any]) -> Any:
    """The same settings, or an object that has them, with others changed as if their flags had been given.

    None: as if it had not been given. Raises ConfigError for a name or a value that cannot be.
    """
    kind = type(settings)
    said = _by_name(changes, kind)
    asked: Asked = settings.launch.asked
    gone = {name for name, value in said.items() if value is None}
    values = {name: value for name, value in said.items() if value is not None}
    given = [each for each in asked.given if each.flag.field not in gone]
    given = spelled_out(merged(given, _flags(said, kind)))
    if (CHANGES_MEMORY | {"gpu"}) & said.keys():
        asked, unlogged = _without_log(asked, said)
        gone |= unlogged
    of_flags = {
        each.flag.field: _plain(each) for each in given if each.flag.field in said and group_of(kind, each.flag.field)
    }
    named = (asked.named | values.keys()) - gone
    launch = replace(settings.launch, asked=replace(asked, given=tuple(given), named=named))
    defaults = {name: default_of(kind, name) for name in gone if group_of(kind, name) is not None}
    return with_values(replace(settings, launch=launch), {**defaults, **_ours(values, kind), **of_flags})


def _without_log(asked: Asked, said: Collection[str]) -> tuple[Asked, set[str]]:
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
            meant = nearest(name, sorted(known))
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
    is_own = group_of(kind, name) is not None and flag.effect is not Effect.USED
    return None if is_own or name in OURS else flag


def _ours(values: Mapping[str, Any], kind: type = DeploymentSettings) -> dict[str, Any]:
    """Those that no flag of vLLM says."""
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
    """A value as :func:`~tokenyard.launch.reading.read_words` would have read it."""
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
