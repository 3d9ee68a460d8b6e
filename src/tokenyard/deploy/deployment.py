"""A deployment: what ``vllm serve`` would start, as a value to change and to resolve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self, Unpack

import msgspec

from tokenyard.arguments import given_path
from tokenyard.deploy.given import changed, settings_by_name
from tokenyard.deploy.record import unusual
from tokenyard.deploy.serve_line import read_serve_line, read_serve_text
from tokenyard.deploy.setting_values import names_of, value_of, with_values
from tokenyard.deploy.settings import DeploymentSettings, LaunchSettings
from tokenyard.deploy.spec import ResolvedDeployment, resolve
from tokenyard.deploy.start_facts import HeaderNote, MeasuredKV
from tokenyard.deploy.vllm_serve.flags import GivenFlag, flag_table
from tokenyard.deploy.vllm_serve.given import GivenFlags
from tokenyard.errors import ConfigError, TokenyardError
from tokenyard.redaction import hidden

if TYPE_CHECKING:
    from tokenyard.deploy.keywords import DeploymentKeywords

FORMAT = 1
"""Raised when a field of what is written comes, goes or changes its meaning."""
_FIRST = ("model", "gpu")
_BESIDE = ("asked", "objects")
"""What is kept beside the settings."""
_READ_FIRST = ("serve", "config")
"""What others are read from."""


class Deployment:
    """What is served, on what, and how: settings by vLLM's names, an immutable value.

    Users get it as ``tokenyard.Deployment`` (:mod:`tokenyard.questions.run`), which adds the questions as
    methods and says how it is made.
    """

    __slots__ = ("_resolved", "_settings")
    _settings: DeploymentSettings
    _resolved: ResolvedDeployment | None

    def __init__(
        self,
        serve: str | PathLike[str] | None = None,
        /,
        *,
        config: str | PathLike[str] | None = None,
        **settings: Unpack[DeploymentKeywords],
    ) -> None:
        """``config``: a YAML file of flags, as for ``vllm serve --config``.

        Raises ConfigError for a name that there is not, with the nearest one, and for a value that cannot be read.
        """
        gpu = settings.get("gpu")
        line = None if serve is None else read_serve_line(str(serve), gpu=gpu if isinstance(gpu, str) else None)
        file = None if config is None else given_path("config", config)
        object.__setattr__(self, "_settings", settings_by_name(settings, line=line, config=file))
        object.__setattr__(self, "_resolved", None)

    @classmethod
    def from_serve(
        cls,
        serve: str | PathLike[str],
        /,
        *,
        config: str | PathLike[str] | None = None,
        **settings: Unpack[DeploymentKeywords],
    ) -> Self:
        """The deployment that a text starts: a command line, ``@FILE`` or the path of a file, as ``--serve`` takes it.

        ``gpu`` says on what, where the text does not. Raises ConfigError.
        """
        return cls(serve, config=config, **settings)

    @classmethod
    def from_settings(cls, settings: DeploymentSettings) -> Self:
        """A deployment with these groups of settings. Raises ConfigError for anything else."""
        if not isinstance(settings, DeploymentSettings):
            fix = "give the settings of a deployment; Deployment(model=..., gpu=...) takes them by name"
            raise ConfigError("settings", settings, fix)
        made = cls.__new__(cls)
        object.__setattr__(made, "_settings", settings)
        object.__setattr__(made, "_resolved", None)
        return made

    @property
    def settings(self) -> DeploymentSettings:
        """All settings, in their groups."""
        return self._settings

    def with_(self, **changes: Unpack[DeploymentKeywords]) -> Self:
        """The same deployment with other settings, as if they had been given; None takes one back.

        Raises ConfigError as the constructor does.
        """
        return self.from_settings(changed(self._settings, changes))

    def resolve(self) -> ResolvedDeployment:
        """What it comes to: limits, memory plan, latency model, header. Worked out once.

        Raises ConfigError, NoStartError where vLLM would not start, NotModelledError for flags that would change the
        result and are not modelled (``ignore_unmodelled=True`` lists them instead).
        """
        if self._resolved is None:
            object.__setattr__(self, "_resolved", resolve(self._settings))
        assert self._resolved is not None
        return self._resolved

    if not TYPE_CHECKING:  # a type checker would take every attribute for one that is there

        def __getattr__(self, name: str) -> NoReturn:
            if name in names_of(DeploymentSettings):
                fix = f"resolve() says what it comes to, with_({name}=...) sets it"
                raise AttributeError(f"a setting is no attribute of a deployment ({name}): {fix}")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    # ---- as a value

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a deployment does not change: use with_({name}=...)")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("a deployment does not change")

    def __eq__(self, other: object) -> bool:
        return (
            self._written(is_ordered=True) == other._written(is_ordered=True)
            if isinstance(other, Deployment)
            else NotImplemented
        )

    def __hash__(self) -> int:
        return hash(msgspec.json.encode(self._written(is_ordered=True), order="deterministic"))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_settings, (self._settings,)

    def __repr__(self) -> str:
        line = self._settings.launch.serve
        words = [] if line is None else [repr(line)]
        words += [f"{name}={value!r}" for name, value in _given_beside_line(self._settings).items()]
        return f"Deployment({', '.join(words)})"

    def __str__(self) -> str:
        try:
            return f"{self!r}\n{self.resolve()}"
        except TokenyardError as error:
            return f"{self!r}\n{error}"

    def to_json(self) -> str:
        """One JSON object, from which :meth:`from_json` makes an equal deployment; no secret is in it.

        ConfigError for one that objects decide in.
        """
        for name, value in self._settings.launch.objects.items():
            raise ConfigError(name, value, "is an object, which JSON cannot hold: name it as FILE.py:NAME")
        return msgspec.json.encode(self._written()).decode()

    def described(self) -> dict[str, Any]:
        """What it is, as JSON can hold it: objects in the place of names by what they are called."""
        written = msgspec.to_builtins(self._written())
        if objects := self._settings.launch.objects:
            written["objects"] = {
                name: getattr(each, "__name__", type(each).__name__) for name, each in objects.items()
            }
        return dict(written)

    def _written(self, *, is_ordered: bool = False) -> dict[str, Any]:
        """What JSON has of it; ``is_ordered``: the flags are sorted, as if given in one order."""
        asked = self._settings.launch.asked
        given = [[each.flag.name, each.value, list(each.words)] for each in asked.given]
        if is_ordered:
            given = sorted((each for each in given if each[0] not in _READ_FIRST), key=lambda each: str(each[0]))
        return {
            "deployment": FORMAT,
            "settings": _unusual(self._settings),
            "given": given,
            "named": sorted(asked.named.difference(_READ_FIRST) if is_ordered else asked.named),
            "environment": dict(sorted(asked.environment.items())),
            "found": [list(each) for each in asked.found],
            "logged": sorted(asked.logged),
            "logged_kv": list(asked.logged_kv),
            **({"objects": _objects(self._settings)} if self._settings.launch.objects else {}),
        }

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """The deployment that :meth:`to_json` wrote. Raises ConfigError for anything else."""
        if not isinstance(text, str | bytes | bytearray | memoryview):
            raise ConfigError("text", text, "give what Deployment.to_json() wrote, as str or bytes")
        try:
            written = msgspec.json.decode(text, type=_Numbered).deployment
            if written != FORMAT:
                fix = f"is another format than {FORMAT}, which this version reads: write it anew with to_json()"
                raise ConfigError("deployment", written, fix)
            said = msgspec.json.decode(text, type=_Written)
            given = tuple(_read_flag(*each) for each in said.given)
            asked = GivenFlags(
                given,
                said.environment,
                frozenset(said.named),
                tuple(HeaderNote(*each) for each in said.found),
                MeasuredKV(*said.logged_kv) if said.logged_kv else MeasuredKV(size_tokens=said.logged_kv_tokens),
                frozenset(said.logged),
            )
        except (msgspec.MsgspecError, KeyError, UnicodeDecodeError) as error:
            raise ConfigError("deployment", text, f"is none that Deployment.to_json() wrote: {error}") from None
        if said.settings.pop("no_async_scheduling", False):  # which was a setting of its own
            said.settings["async_scheduling"] = False
        unknown = set(said.settings) - set(names_of(DeploymentSettings))
        if unknown:
            raise ConfigError("deployment", min(unknown), "there is no such setting", code="unknown_setting")
        return cls.from_settings(with_values(DeploymentSettings(launch=LaunchSettings(asked=asked)), said.settings))


class _Numbered(msgspec.Struct, frozen=True):
    """Which format something is that JSON has of a deployment."""

    deployment: int


class _Written(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What JSON has of a deployment."""

    deployment: int
    settings: dict[str, Any]
    given: list[tuple[str, Any, tuple[str, ...]]]
    named: list[str]
    environment: dict[str, str]
    found: list[tuple[str, Any, str]]
    logged: list[str]
    logged_kv: list[Any] = []
    logged_kv_tokens: int | None = None
    """What earlier versions wrote in its place."""


def _read_flag(name: str, value: Any, words: tuple[str, ...]) -> GivenFlag:
    flag = flag_table()[name]
    return GivenFlag(flag=flag, value=hidden(flag.name, value), words=words)


def _objects(settings: DeploymentSettings) -> dict[str, str]:
    """Objects in the place of names, each by what it is: two deployments are equal if they have the same ones."""
    return {name: f"{value!r} {id(value)}" for name, value in sorted(settings.launch.objects.items())}


def _unusual(settings: DeploymentSettings) -> dict[str, Any]:
    """The settings that are not as by default, as JSON has them."""
    parts = (unusual(getattr(settings, group.name)) for group in fields(settings))
    return {name: _as_json(value) for part in parts for name, value in part.items() if name not in _BESIDE}


def _as_json(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, Path) else value


def _given_beside_line(settings: DeploymentSettings) -> Mapping[str, Any]:
    """What was given beside a line, by name, in the order in which people say it."""
    asked = settings.launch.asked
    in_line = _of_line(settings.launch.serve)
    flags = {each.flag.field: each.value for each in asked.given}
    known = names_of(DeploymentSettings)
    found = {
        name: _as_json(value_of(settings, name))
        for name in asked.named
        if name in known and name not in (*flags, *_READ_FIRST)
    }
    found |= {name: value for name, value in flags.items() if name not in in_line or in_line[name] != value}
    if settings.launch.ignore_unmodelled:
        found["ignore_unmodelled"] = True
    found |= settings.launch.objects
    if settings.launch.config is not None:
        found["config"] = str(settings.launch.config)
    first = [name for name in _FIRST if name in found]
    names = [*first, *sorted(set(found) - set(first))]
    return {name: found[name] for name in names}


def _of_line(line: str | None) -> dict[str, Any]:
    """The flags of a line, by name."""
    try:
        return {} if line is None else {each.flag.field: each.value for each in read_serve_text(line).given}
    except ConfigError:
        return {}
