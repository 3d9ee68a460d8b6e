"""Code of others by what a user types: ``FILE.py:NAME``, or a name that an installed package registers.

    [project.entry-points."tokenyard.latency"]
    mine = "my_package:MyLatency"

Here the code is found, loaded and called; the caller checks what it is. Errors name the setting and what was typed.
"""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tokenyard.errors import LOADED_FROM_FILE, ConfigError, TokenyardError
from tokenyard.vocabulary import file_and_class

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUPS = {
    "latency": "tokenyard.latency",
    "gpu": "tokenyard.gpus",
    "model": "tokenyard.models",
    "workload": "tokenyard.workloads",
    "format": "tokenyard.formats",
    "kv_connector": "tokenyard.connectors",
    "router": "tokenyard.routers",
}
"""Setting -> group of entry points; that of policies stands in ``vocabulary.py``, beside those that are shipped."""


def installed(field: str) -> Sequence[EntryPoint]:
    """What packages register for a setting."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - it loads zip files and e-mail, and is rarely needed

    return list(entry_points(group=GROUPS[field]))


def is_foreign(field: str, spec: str) -> bool:
    """Whether ``spec`` is ``FILE.py:NAME`` (the file is not looked at), or registered."""
    return bool(file_and_class(spec)[0]) or any(point.name == spec for point in installed(field))


def foreign(field: str, spec: str) -> Any:
    """What ``spec`` names; None if it is neither a file nor registered. Raises ConfigError if it cannot be loaded."""
    file, name = file_and_class(spec)
    if file:
        made = getattr(run_file(Path(file), field, spec), name, None) if name else None
        if made is None:
            raise ConfigError(field, spec, f"the file holds no {name or 'name: write FILE.py:NAME'}")
        return made
    for point in installed(field):
        if point.name == spec:
            return _loaded(point, field)
    return None


def made_of_package(point: EntryPoint, field: str, kind: type[Any], base: str) -> Any:
    """What an installed package registers, made anew: whatever is wrong with it is its author's to mend.

    ``base``: the name by which users know ``kind``. Raises ConfigError.
    """
    make = _loaded(point, field)
    try:
        made = make()
    except TokenyardError:
        raise
    except Exception as error:
        problem = f"cannot be called without arguments: {type(error).__name__}: {error}"
        raise _unusable(point, field, problem) from error
    if not isinstance(made, kind):
        raise _unusable(point, field, f"makes a {type(made).__name__}: derive it from {base}")
    return made


def _loaded(point: EntryPoint, field: str) -> Any:
    try:
        return point.load()
    except Exception as error:
        raise _unusable(point, field, f"cannot be loaded: {type(error).__name__}: {error}") from error


def _unusable(point: EntryPoint, field: str, problem: str) -> ConfigError:
    return ConfigError(field, point.name, f"its entry point {point.value} {problem}")


def called(make: Callable[..., Any], field: str, spec: str, **given: Any) -> Any:
    """Call ``make`` with those of ``given`` that its signature has. Raises ConfigError if it raises."""
    try:
        parameters = inspect.signature(make).parameters.values()
        takes_all = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters)
        names = {each.name for each in parameters}
        return make(**{name: value for name, value in given.items() if takes_all or name in names})
    except TokenyardError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(field, spec, f"it fails: {type(error).__name__}: {error}") from error


def run_file(path: Path, field: str, spec: str) -> ModuleType:
    """The module that a file makes. Raises ConfigError in the name of ``field``."""
    name = f"{LOADED_FROM_FILE}{path.stem}"
    found = spec_from_file_location(name, path)
    if found is None or found.loader is None or not path.is_file():
        raise ConfigError(field, spec, f"there is no file {path}")
    module = module_from_spec(found)
    sys.modules[name] = module  # dataclasses look their module up there
    try:
        found.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # exit() in a script is its failure, not ours
        where = f"{path}:{_line(error, path)}"
        raise ConfigError(field, spec, f"{where} fails: {type(error).__name__}: {error}") from error
    return module


def _line(error: BaseException, path: Path) -> int:
    """Line of the file at which it went wrong."""
    if isinstance(error, SyntaxError):
        return error.lineno or 1
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == path]
    return (lines[-1] if lines else None) or 1
