"""Settings of the emitter, by hand and from the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tokenyard.errors import ConfigError
from tokenyard.trace.config import TraceConfig


def test_without_variables_tracing_is_off() -> None:
    config = TraceConfig.from_env({})
    assert config == TraceConfig()
    assert not config.enabled
    assert config.steps_path is None
    assert config.requests_path is None


def test_all_variables() -> None:
    config = TraceConfig.from_env(
        {
            "SCHED_TRACE_PATH": "logs/run",
            "SCHED_TRACE_POLICY": "cpu_offload",
            "SCHED_TRACE_EVERY_N": "10",
            "SCHED_TRACE_MAX_STEPS": "100000",
            "SCHED_TRACE_TOKENIZER": "models/llama",
        }
    )
    assert config == TraceConfig(
        path=Path("logs/run"), policy="cpu_offload", every_n=10, max_steps=100_000, tokenizer="models/llama"
    )
    assert config.steps_path == Path("logs/run/sched_trace.cpu_offload.steps.jsonl")
    assert config.requests_path == Path("logs/run/sched_trace.cpu_offload.requests.jsonl")


def test_defaults_are_the_formats() -> None:
    config = TraceConfig.from_env({"SCHED_TRACE_PATH": "logs"})
    assert (config.policy, config.every_n, config.max_steps, config.tokenizer) == ("unknown", 1, 1_000_000, None)
    assert config.request_records
    assert config.max_ids_per_step is None


def test_the_prefixed_path_is_read_and_the_plain_one_wins() -> None:
    assert TraceConfig.from_env({"VLLM_SCHED_TRACE_PATH": "a"}).path == Path("a")
    assert TraceConfig.from_env({"VLLM_SCHED_TRACE_PATH": "a", "SCHED_TRACE_PATH": "b"}).path == Path("b")
    assert TraceConfig.from_env({"VLLM_SCHED_TRACE_PATH": "a", "SCHED_TRACE_PATH": ""}).path == Path("a")


def test_the_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHED_TRACE_PATH", "from-env")
    assert TraceConfig.from_env().path == Path("from-env")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SCHED_TRACE_EVERY_N", "often"),
        ("SCHED_TRACE_EVERY_N", "0"),
        ("SCHED_TRACE_EVERY_N", "1_0"),
        ("SCHED_TRACE_EVERY_N", "9" * 5000),
        ("SCHED_TRACE_MAX_STEPS", "-3"),
        ("SCHED_TRACE_MAX_STEPS", str(2**53 + 1)),
        ("SCHED_TRACE_POLICY", "../elsewhere"),
        ("SCHED_TRACE_POLICY", "x" * 101),
    ],
)
def test_a_bad_variable_is_named(variable: str, value: str) -> None:
    with pytest.raises(ConfigError, match=variable):
        TraceConfig.from_env({variable: value})


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("policy", ""),
        ("policy", "../fcfs"),
        ("policy", "a%d"),
        ("every_n", 0),
        ("max_steps", 2**60),
        ("max_ids_per_step", -1),
        ("request_records", 1),
        ("path", "a text"),
        ("path", Path("a\0b")),
    ],
)
def test_a_bad_setting_is_refused(setting: str, value: Any) -> None:
    with pytest.raises(ConfigError):
        TraceConfig(**{setting: value})


def test_the_largest_values_of_the_environment_are_taken() -> None:
    most = str(2**53)
    config = TraceConfig.from_env({"SCHED_TRACE_EVERY_N": most, "SCHED_TRACE_MAX_STEPS": most})
    assert config.every_n == config.max_steps == 2**53
