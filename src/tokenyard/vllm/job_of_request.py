"""Which job a request of vLLM's belongs to, and what its client says of the job.

Clients of the OpenAI API give ``vllm_xargs`` (``extra_body`` in the Python client), which vLLM puts into
``SamplingParams.extra_args``.
"""

from __future__ import annotations

from typing import Any

from tokenyard.vllm.versions import session_of

__all__ = ["extra_args", "job_of"]


def extra_args(request: Any) -> dict[str, Any]:
    """The extra arguments of a vLLM request; {} without any."""
    params = request.sampling_params
    given = None if params is None else params.extra_args
    return given if isinstance(given, dict) else {}


def job_of(request: Any) -> str | None:
    """Its job: ``job_id`` of the extra arguments, else its session; None if it has neither."""
    job = extra_args(request).get("job_id")
    return session_of(request) if job is None else str(job)
