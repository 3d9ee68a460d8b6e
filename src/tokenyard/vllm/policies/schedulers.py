"""CONTINUUM, or any policy of ours, as vLLM's scheduler: ``--scheduler-cls tokenyard.vllm.ContinuumScheduler``."""

from __future__ import annotations

from typing import Any

from tokenyard.vllm.fast import FastScheduler
from tokenyard.vllm.policies.named import policy_of, with_policy


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
