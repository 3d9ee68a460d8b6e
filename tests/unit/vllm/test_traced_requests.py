"""A request of vLLM's has all that the recorder of traces asks of a request, without vLLM."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from tokenyard.core.request import Request
from tokenyard.record.recorder import TraceRecorder
from tokenyard.record.writer import TraceWriter
from tokenyard.trace.config import TraceConfig
from tokenyard.vllm.tracing.views import TracedRequest

Status = Enum("Status", ["WAITING", "FINISHED_LENGTH_CAPPED"])


def vllms(extra_args: dict[str, Any] | None) -> Any:
    """The fields of vLLM's ``Request`` that are read, under the names that all versions have."""
    return SimpleNamespace(
        request_id="r0",
        sampling_params=SimpleNamespace(min_tokens=0, ignore_eos=True, extra_args=extra_args),
        lora_request=None,
        mm_features=[],
        status=Status.FINISHED_LENGTH_CAPPED,
        arrival_time=100.0,
        priority=0,
        num_prompt_tokens=40,
        num_tokens=44,
        num_output_tokens=4,
        num_computed_tokens=43,
        num_preemptions=0,
        max_tokens=4,
        cache_salt=None,
        resumable=False,
        block_hashes=[b"a" * 32, b"b" * 32],
    )


def arrival(tmp_path: Path, extra_args: dict[str, Any] | None) -> Any:
    """How a request's arrival is recorded; its lookup and its end are recorded as well."""
    sink = MagicMock()
    with TraceWriter(TraceConfig(path=tmp_path)) as writer:
        recorder = TraceRecorder(writer, sink)
        request = TracedRequest(vllms(extra_args))
        recorder.request_arrived(100.0, cast("Request", request))
        local, external = request.first_scheduled(100.5, 16)
        recorder.prefix_looked_up(100.5, 0, cast("Request", request), local, external)
        recorder.request_finished(101.0, cast("Request", request))
    assert sink.request_finished.call_args.args[0].num_cached_tokens == 16
    return sink.request_arrived.call_args.args[0]


def test_a_request_without_extra_arguments(tmp_path: Path) -> None:
    arrived = arrival(tmp_path, None)
    assert (arrived.req_id, arrived.job_id, arrived.is_last_step, arrived.this_func_call) == ("r0", None, None, None)


def test_what_a_client_says_of_its_turn(tmp_path: Path) -> None:
    arrived = arrival(tmp_path, {"job_id": "agent", "is_last_step": True, "this_func_call": "pytest"})
    assert (arrived.job_id, arrived.is_last_step, arrived.this_func_call) == ("agent", True, "pytest")


@pytest.mark.parametrize("extra", [{"is_last_step": "perhaps"}, {"this_func_call": 7}])
def test_extra_arguments_of_somebody_else_end_nothing(tmp_path: Path, extra: dict[str, Any]) -> None:
    arrived = arrival(tmp_path, {"job_id": "agent", **extra})
    assert (arrived.job_id, arrived.is_last_step, arrived.this_func_call) == ("agent", None, None)
