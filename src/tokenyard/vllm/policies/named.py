"""Which policy an engine gets, and a vLLM configuration that names it."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from typing import Any

from tokenyard.errors import ConfigError
from tokenyard.vocabulary import known_policies

POLICY_VARIABLE = "TOKENYARD_POLICY"
_DEFAULT = "continuum-ttl"


def policy_of(vllm_config: Any, environ: Mapping[str, str] | None = None) -> str:
    """The policy that ``TOKENYARD_POLICY`` names, else CONTINUUM with its time to live.

    ConfigError for a name that is not registered, and for ``--scheduling-policy priority`` beside another policy:
    the two orders cannot both hold.
    """
    env = os.environ if environ is None else environ
    name = env.get(POLICY_VARIABLE) or _DEFAULT
    if name not in known_policies():
        raise ConfigError(POLICY_VARIABLE, name, f"use one of: {', '.join(known_policies())}")
    theirs = str(vllm_config.scheduler_config.policy)
    if theirs not in ("fcfs", name):
        fix = f"{POLICY_VARIABLE} ({name}) orders the queue: leave it out"
        raise ConfigError("--scheduling-policy", theirs, fix)
    return name


def with_policy(vllm_config: Any, name: str) -> Any:
    """The same configuration with another policy; vLLM's own record, which knows two names only, stays as it is."""
    changed, limits = copy.copy(vllm_config), copy.copy(vllm_config.scheduler_config)
    object.__setattr__(limits, "policy", name)
    object.__setattr__(changed, "scheduler_config", limits)
    return changed
