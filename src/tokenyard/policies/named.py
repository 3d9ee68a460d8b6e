"""A policy by what a user types: a registered name, or ``FILE.py:CLASS``, so that trying an idea takes one file."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tokenyard.errors import ConfigError
from tokenyard.policies.plugin_file import class_from_file, made_by, split_spec
from tokenyard.sched.policy import Policy, known_policies, make_policy

__all__ = ["PolicyMaker", "policy_label", "policy_maker"]

PolicyMaker = Callable[[], Policy]
"""Makes a policy that has seen nothing yet: every replay needs one of its own."""


def policy_maker(spec: str, field: str = "policy") -> PolicyMaker:
    """Makes the policy that ``spec`` names; a file is run now, and one policy made to see that it can be.

    Raises ConfigError, in the name of ``field``, if nobody knows the name or the file does not hold such a policy.
    """
    file, _ = split_spec(spec)
    if not file and spec not in known_policies():
        known = ", ".join(known_policies())
        raise ConfigError(field, spec, f"use one of: {known}; or FILE.py:CLASS for one of your own")
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
    return split_spec(spec)[1] or spec
