"""A policy by what a user types: a registered name, or ``FILE.py:CLASS``, so that trying an idea takes one file."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from tokenyard.errors import ConfigError, TokenyardError
from tokenyard.sched.policy import Policy, known_policies, make_policy

__all__ = ["PolicyMaker", "policy_label", "policy_maker"]

PolicyMaker = Callable[[], Policy]
"""Makes a policy that has seen nothing yet: every replay needs one of its own."""


def policy_maker(spec: str, field: str = "policy") -> PolicyMaker:
    """Makes the policy that ``spec`` names; a file is run now, and one policy made to see that it can be.

    Raises ConfigError, in the name of ``field``, if nobody knows the name or the file does not hold such a policy.
    """
    file, class_name = _split(spec)
    if file:
        make = _from_file(Path(file), class_name, field, spec)
    elif spec in known_policies():
        make = partial(make_policy, spec)
    else:
        known = ", ".join(known_policies())
        raise ConfigError(field, spec, f"use one of: {known}; or FILE.py:CLASS for one of your own")
    try:
        made = make()
    except ConfigError as error:
        raise (ConfigError(field, spec, error.fix) if error.field == "policy" else error) from error.__cause__
    except TokenyardError:
        raise
    except Exception as error:
        problem = f"it cannot be made without arguments: {type(error).__name__}: {error}"
        raise ConfigError(field, spec, problem) from error
    if file and not isinstance(made, Policy):
        raise ConfigError(field, spec, "derive the class from tokenyard.Policy")
    return make


def policy_label(spec: str) -> str:
    """A plain word for it, for names of files: the class, where ``spec`` names a file."""
    return _split(spec)[1] or spec


def _split(spec: str) -> tuple[str, str]:
    """File and class, both empty for a registered name."""
    file, _, class_name = spec.rpartition(":")
    if file.endswith(".py"):
        return file, class_name
    return (spec, "") if spec.endswith(".py") else ("", "")


def _from_file(path: Path, class_name: str, field: str, spec: str) -> PolicyMaker:
    module = _run(path, field, spec)
    made = getattr(module, class_name, None) if class_name else None
    if callable(made):
        make: PolicyMaker = made
        return make
    here = [
        name
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Policy) and value.__module__ == module.__name__
    ]
    choices = ", ".join(f"{path}:{name}" for name in here) or "a class derived from tokenyard.Policy"
    raise ConfigError(field, spec, f"the file holds no {class_name or 'class of that name'}: use {choices}")


def _run(path: Path, field: str, spec: str) -> ModuleType:
    name = f"tokenyard_policy_{path.stem}"
    found = spec_from_file_location(name, path)
    if found is None or found.loader is None or not path.is_file():
        raise ConfigError(field, spec, f"there is no file {path}")
    module = module_from_spec(found)
    sys.modules[name] = module  # dataclasses look their module up there
    try:
        found.loader.exec_module(module)
    except Exception as error:
        where = f"{path}:{_line(error, path)}"
        raise ConfigError(field, spec, f"{where} fails: {type(error).__name__}: {error}") from error
    return module


def _line(error: Exception, path: Path) -> int:
    """Line of the file at which it went wrong."""
    if isinstance(error, SyntaxError):
        return error.lineno or 1
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == path]
    return (lines[-1] if lines else None) or 1
