"""Which job a request of vLLM's belongs to, and what its client says of the job.

Clients of the OpenAI API give ``vllm_xargs`` (``extra_body`` in the Python client), which vLLM puts into
``SamplingParams.extra_args``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tokenyard.errors import RequestError
from tokenyard.vllm.versions import session_of


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
