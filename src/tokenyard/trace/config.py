"""Settings of the trace emitter: a frozen record, made by hand or from the environment variables of the trace format.

The variables are those of the format's specification; the path may also be given as ``VLLM_SCHED_TRACE_PATH``, the name
that vLLM forks use.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from tokenyard.core.config import require_bool, require_int
from tokenyard.errors import ConfigError
from tokenyard.quick_dataclass import dataclass

_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,99}")
_DIGITS = re.compile(r"[0-9]{1,18}")
_POLICY_FIX = "use letters, digits, '_', '-', '.' and '+', the first a letter or a digit, 100 at most"
_DEFAULT_POLICY = "unknown"
_DEFAULT_MAX_STEPS = 1_000_000
_MOST_STEPS = 2**53
"""Largest step limit: beyond it a JSON reader in another language no longer counts exactly."""


def _env_int(env: Mapping[str, str], name: str, default: int, *, least: int = 1) -> int:
    text = env.get(name)
    if not text:
        return default
    value = int(text) if _DIGITS.fullmatch(text.strip()) else -1
    if not least <= value <= _MOST_STEPS:
        raise ConfigError(name, text, f"give a whole number from {least} to {_MOST_STEPS}")
    return value


def _env_switch(env: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = (env.get(name) or "").strip()
    if text not in ("", "0", "1"):
        raise ConfigError(name, text, "give 1 or 0")
    return text == "1" if text else default


def _check_policy(field: str, value: object) -> None:
    if not isinstance(value, str) or not _PLAIN_NAME.fullmatch(value):
        raise ConfigError(field, value, _POLICY_FIX)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceConfig:
    """Where a trace goes and how much of it is written."""

    path: Path | None = None
    """Directory for the two files; None = tracing is off."""
    policy: str = _DEFAULT_POLICY
    """Policy name stamped into every record and used in the file names."""
    every_n: int = 1
    """Write only every n-th step."""
    max_steps: int = _DEFAULT_MAX_STEPS
    """Stop after this many steps of the scheduler, counted from the first one seen."""
    tokenizer: str | None = None
    """Tokenizer file or directory; adds ``prompt_prefix_text`` and ``output_tail_text`` to per-request records."""
    request_records: bool = True
    """Write the requests file: one record per queued request and step, so its cost grows with the queues."""
    max_ids_per_step: int | None = None
    """Most request ids named per list and most per-request records per queue and step; None = all of them."""

    def __post_init__(self) -> None:
        if self.path is not None and not isinstance(self.path, Path):
            raise ConfigError("trace path", self.path, "give a directory")
        if self.path is not None and "\0" in str(self.path):
            raise ConfigError("trace path", str(self.path), "give a directory without a NUL character")
        _check_policy("trace policy", self.policy)
        require_int("trace every_n", self.every_n, 1, _MOST_STEPS)
        require_int("trace max_steps", self.max_steps, 1, _MOST_STEPS)
        require_bool("trace request_records", self.request_records)
        if self.max_ids_per_step is not None:
            require_int("max_ids_per_step", self.max_ids_per_step, 0)

    @property
    def enabled(self) -> bool:
        return self.path is not None

    @property
    def steps_path(self) -> Path | None:
        return None if self.path is None else self.path / f"sched_trace.{self.policy}.steps.jsonl"

    @property
    def requests_path(self) -> Path | None:
        return None if self.path is None else self.path / f"sched_trace.{self.policy}.requests.jsonl"

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> TraceConfig:
        """From ``SCHED_TRACE_*`` variables; an unset or empty one keeps its default.

        ``SCHED_TRACE_PATH`` wins over ``VLLM_SCHED_TRACE_PATH``. Raises ConfigError that names the variable.
        """
        env = os.environ if environ is None else environ
        path = env.get("SCHED_TRACE_PATH") or env.get("VLLM_SCHED_TRACE_PATH")
        policy = env.get("SCHED_TRACE_POLICY") or _DEFAULT_POLICY
        _check_policy("SCHED_TRACE_POLICY", policy)
        return cls(
            path=Path(path) if path else None,
            policy=policy,
            every_n=_env_int(env, "SCHED_TRACE_EVERY_N", 1),
            max_steps=_env_int(env, "SCHED_TRACE_MAX_STEPS", _DEFAULT_MAX_STEPS),
            tokenizer=env.get("SCHED_TRACE_TOKENIZER") or None,
            request_records=_env_switch(env, "SCHED_TRACE_REQUEST_RECORDS", default=True),
            max_ids_per_step=_env_int(env, "SCHED_TRACE_MAX_IDS", 0, least=0)
            if env.get("SCHED_TRACE_MAX_IDS")
            else None,
        )
