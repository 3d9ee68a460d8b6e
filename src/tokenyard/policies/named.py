"""A policy by what a user types: a registered name, or ``FILE.py:CLASS``, so that trying an idea takes one file."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tokenyard.errors import ConfigError
from tokenyard.policies.plugin_file import class_from_file, made_by
from tokenyard.sched.policy import Policy, make_policy
from tokenyard.vocabulary.policy_names import file_and_class, is_known_policy, policy_hint

__all__ = ["PolicyMaker", "policy_label", "policy_maker"]

PolicyMaker = Callable[[], Policy]
"""Makes a policy that has seen nothing yet: every replay needs one of its own."""


def policy_maker(spec: str, field: str = "policy") -> PolicyMaker:
    """Makes the policy that ``spec`` names; a file is run now, and one policy made to see that it can be.

    Raises ConfigError, in the name of ``field``, if nobody knows the name or the file does not hold such a policy.
    """
    file, _ = file_and_class(spec)
    if not is_known_policy(spec):
        raise ConfigError(field, spec, policy_hint(spec))
    try:
        if file:
            return class_from_file(spec, Policy, field, "tokenyard.Policy")
        make = partial(make_policy, spec)
        made_by(make, field, spec)
    except ConfigError as error:
        raise (ConfigError(field, spec, error.fix) if error.field == "policy" else error) from error.__cause__
    return make


def policy_label(spec: str) -> str:
    """A plain word for it, for names of files: the class, where ``spec`` names a file."""
    return file_and_class(spec)[1] or spec
