"""What a class inside vLLM is asked to write, from the environment of the server."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tokenyard.trace.config import TraceConfig
from tokenyard.vllm.versions import data_parallel_rank

_log = logging.getLogger("tokenyard.vllm")

_MAX_IDS = 64
"""Ids named per list unless the environment says otherwise: as many as ``tokenyard run`` names."""


def trace_settings(vllm_config: Any, policy: str, environ: Mapping[str, str] | None = None) -> TraceConfig:
    """The ``SCHED_TRACE_*`` variables; without a path nothing is written.

    Per-request records hold token ids, so they are written only if asked for. The engines of a data-parallel server
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
    """Say that an engine runs without the trace that it was asked for, and why."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
    _log.warning("no trace is written to %s, vLLM goes on without: %s", settings.path, reason)
