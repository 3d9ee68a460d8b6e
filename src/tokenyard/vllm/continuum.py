"""CONTINUUM, or any policy of ours, as vLLM's scheduler: ``--scheduler-cls tokenyard.vllm.ContinuumScheduler``."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from typing import Any

from tokenyard.errors import ConfigError
from tokenyard.vllm.fast import FastScheduler
from tokenyard.vocabulary import known_policies


class ContinuumScheduler(FastScheduler):
    """FastScheduler with the policy that ``TOKENYARD_POLICY`` names: its queue, its victims, its pins, its estimator.

    vLLM's own loop has no place for pins and for an order of one's own, so the loop is ours. It refuses what
    FastScheduler refuses. What a request says of its job comes with its extra arguments: ``job_id`` (else the
    session), ``is_last_step``, ``this_func_call``.
    """

    def __init__(self, vllm_config: Any, *args: Any, **options: Any) -> None:
        super().__init__(with_policy(vllm_config, policy_of(vllm_config)), *args, **options)


class AsyncContinuumScheduler(ContinuumScheduler):
    """The same under the name of vLLM's twin: which kind of scheduling is meant, the configuration says."""


# ---------------------------------------------------------------------------------------------------------------------
# Which policy an engine gets, and a vLLM configuration that names it.

POLICY_VARIABLE = "TOKENYARD_POLICY"
_DEFAULT = "continuum"


def policy_of(vllm_config: Any, environ: Mapping[str, str] | None = None) -> str:
    """The policy that ``TOKENYARD_POLICY`` names, else ``continuum``.

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
