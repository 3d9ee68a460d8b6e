"""A policy by what a user types: a registered name, or FILE.py:CLASS."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tokenyard.arguments import given_text, suggests_keywords
from tokenyard.core.sched.policy import Policy, make_policy
from tokenyard.errors import ConfigError, TokenyardError
from tokenyard.plugins import run_file
from tokenyard.vocabulary import file_and_class, is_known_policy, policy_hint

# ---------------------------------------------------------------------------------------------------------------------
# A class of a user's own, from a file: so that trying an idea takes one file.

T = TypeVar("T")


def class_from_file(spec: str, kind: type[Any], field: str, base: str) -> Callable[[], Any]:
    """The class that ``spec`` names, a ``kind``; the file is run, and one object made to see that it can be.

    Raises ConfigError in the name of ``field``; ``base`` is what the class is to be derived from, in words.
    """
    file, class_name = file_and_class(spec)
    make = _class_of(Path(file), class_name, kind, field, spec, base)
    if not isinstance(made_by(make, field, spec), kind):
        raise ConfigError(field, spec, f"derive the class from {base}")
    return make


def made_by(make: Callable[[], T], field: str, spec: str) -> T:
    """What ``make`` makes; ConfigError in the name of ``field`` if it cannot."""
    try:
        return make()
    except TokenyardError:
        raise
    except (Exception, SystemExit) as error:
        problem = f"it cannot be made without arguments: {type(error).__name__}: {error}"
        raise ConfigError(field, spec, problem) from error


def _class_of(path: Path, class_name: str, kind: type[Any], field: str, spec: str, base: str) -> Callable[[], Any]:
    module = run_file(path, field, spec)
    made = getattr(module, class_name, None) if class_name else None
    if callable(made):
        make: Callable[[], Any] = made
        return make
    here = [
        name
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, kind) and value.__module__ == module.__name__
    ]
    choices = ", ".join(f"{path}:{name}" for name in here) or f"a class derived from {base}"
    raise ConfigError(field, spec, f"the file holds no {class_name or 'class of that name'}: use {choices}")


# ---------------------------------------------------------------------------------------------------------------------
# A policy by what a user types: a registered name, or ``FILE.py:CLASS``, so that trying an idea takes one file.

PolicyMaker = Callable[[], Policy]
"""Makes a policy that has seen nothing yet: every replay needs one of its own."""


@suggests_keywords()
def policy_maker(spec: str, field: str = "policy") -> PolicyMaker:
    """Makes the policy that ``spec`` names; a file is run now, and one policy made to see that it can be.

    Raises ConfigError, in the name of ``field``, if the name is not known or the file does not hold such a policy.
    """
    file, _ = file_and_class(given_text(field, spec, "give the name of a policy, or FILE.py:CLASS, as a text"))
    if not is_known_policy(spec):
        raise ConfigError(field, spec, policy_hint(spec))
    try:
        if file:
            return class_from_file(spec, Policy, field, "tokenyard.Policy")
        make = partial(make_policy, spec)
        made_by(make, field, spec)
    except ConfigError as error:
        raise (ConfigError(field, spec, error.marked_fix) if error.field == "policy" else error) from error.__cause__
    return make


def policy_label(spec: str) -> str:
    """A plain word for it, for names of files: the class, where ``spec`` names a file."""
    return file_and_class(spec)[1] or spec
