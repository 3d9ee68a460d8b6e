"""What our schedulers inside vLLM share: twins, what they write, whose request it is, groups of the KV cache."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from tokenyard.core.config import GroupKind, KVCacheGroup
from tokenyard.errors import RequestError
from tokenyard.trace.config import TraceConfig
from tokenyard.vllm.versions import data_parallel_rank, session_of

# ---------------------------------------------------------------------------------------------------------------------
# The right one of two scheduler classes: vLLM has one for synchronous and one for asynchronous scheduling.
#
# An engine that schedules asynchronously counts on ``AsyncScheduler``, and vLLM does not check what a
# ``--scheduler-cls`` derives from. So our classes come in pairs, and whichever is named, the engine gets the one that
# it runs with. The asynchronous twin derives from the synchronous class, and its ``super()`` reaches vLLM's
# ``AsyncScheduler``.


def is_async(vllm_config: Any) -> bool:
    """Whether an engine with this ``VllmConfig`` schedules the next step before the last one's output is there."""
    return bool(vllm_config.scheduler_config.async_scheduling)


class Twins:
    """Put before vLLM's class among the bases; each class of a pair names both in ``twins``."""

    twins: tuple[type[Any], type[Any]]
    """For synchronous and for asynchronous scheduling."""

    def __new__(cls, vllm_config: Any, *args: Any, **options: Any) -> Any:
        """An instance of the twin that ``vllm_config`` asks for; a class of the user's own stays what it is."""
        pair = cls.__dict__.get("twins")
        if pair is None or cls not in pair:
            return super().__new__(cls)
        wanted = pair[is_async(vllm_config)]
        if issubclass(wanted, cls):  # then ``__init__`` is called by Python
            return super().__new__(wanted)
        return wanted(vllm_config, *args, **options)


# ---------------------------------------------------------------------------------------------------------------------
# What a class inside vLLM is asked to write, from the environment of the server.

_log = logging.getLogger("tokenyard.vllm")

_MAX_IDS = 64
"""Ids named per list unless the environment says otherwise: as many as ``tokenyard run`` names."""


def trace_settings(vllm_config: Any, policy: str, environ: Mapping[str, str] | None = None) -> TraceConfig:
    """The ``SCHED_TRACE_*`` variables; without a path nothing is written.

    Per-request records hold token ids, so they are written only if requested. The engines of a data-parallel server
    write into ``rank-1``, ``rank-2`` ... of the directory. Raises ConfigError that names the variable.
    """
    env = os.environ if environ is None else environ
    config = TraceConfig.from_env(env)
    if not config.enabled:
        return config
    if not env.get("SCHED_TRACE_POLICY"):
        config = replace(config, policy=policy)
    if not env.get("SCHED_TRACE_REQUEST_RECORDS"):
        config = replace(config, request_records=False)
    if not env.get("SCHED_TRACE_MAX_IDS"):
        config = replace(config, max_ids_per_step=_MAX_IDS)
    rank = data_parallel_rank(vllm_config)
    if rank is not None and config.path is not None:
        config = replace(config, path=config.path / f"rank-{rank}")
    return config


def warn_no_trace(settings: TraceConfig, error: Exception) -> None:
    """Say that an engine runs without the trace that was requested, and why."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
    _log.warning("no trace is written to %s, vLLM goes on without: %s", settings.path, reason)


# ---------------------------------------------------------------------------------------------------------------------
# Which job a request of vLLM's belongs to, and what its client says of the job.
#
# Clients of the OpenAI API give ``vllm_xargs`` (``extra_body`` in the Python client), which vLLM puts into
# ``SamplingParams.extra_args``.


class JobTurn(NamedTuple):
    """What a client says of the turn that a request is."""

    job_id: str | None = None
    is_last_step: bool = False
    """Its job ends with it: nothing of it need be kept."""
    this_func_call: str | None = None
    """Name of the tool that it will call."""


def _extra_args(request: Any) -> dict[str, Any]:
    """The extra arguments of a vLLM request; {} without any."""
    params = request.sampling_params
    given = None if params is None else params.extra_args
    return given if isinstance(given, dict) else {}


def job_of(request: Any) -> str | None:
    """Its job: ``job_id`` of the extra arguments, else its session; None if it has neither."""
    job = _extra_args(request).get("job_id")
    return session_of(request) if job is None else str(job)


def turn_of(request: Any) -> JobTurn:
    """The turn that a vLLM request is; RequestError for extra arguments that are none of ours."""
    given = _extra_args(request)
    last, tool = given.get("is_last_step", False), given.get("this_func_call")
    if last not in (True, False, 0, 1, "true", "false"):
        raise RequestError(request.request_id, "vllm_xargs is_last_step", last, "give true or false")
    if tool is not None and not isinstance(tool, str):
        raise RequestError(request.request_id, "vllm_xargs this_func_call", tool, "give the tool's name as text")
    return JobTurn(job_of(request), last in (True, 1, "true"), tool)


# ---------------------------------------------------------------------------------------------------------------------
# vLLM's KV-cache groups as ours.

KINDS = {
    "FullAttentionSpec": GroupKind.FULL,
    "MLAAttentionSpec": GroupKind.FULL,
    "TQFullAttentionSpec": GroupKind.FULL,
    "SlidingWindowSpec": GroupKind.SLIDING_WINDOW,
    "SlidingWindowMLASpec": GroupKind.SLIDING_WINDOW,
    "ChunkedLocalAttentionSpec": GroupKind.CHUNKED_LOCAL,
    "MambaSpec": GroupKind.MAMBA,
}
"""vLLM's class of a KV-cache spec -> ours; those that are absent have rules of their own."""


def known_group(group: Any) -> KVCacheGroup | None:
    """The group of a ``KVCacheConfig``; None if we have no rules for its kind."""
    spec = group.kv_cache_spec
    kind = KINDS.get(type(spec).__name__)
    if kind is None:
        return None
    window = getattr(spec, "sliding_window", None) if kind is GroupKind.SLIDING_WINDOW else None
    if kind is GroupKind.CHUNKED_LOCAL:
        window = spec.attention_chunk_size
    return KVCacheGroup(
        kind=kind,
        block_size=spec.block_size,
        window=window or 0,
        is_eagle=bool(getattr(group, "is_eagle_group", False)),
    )
