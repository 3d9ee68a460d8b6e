"""The package for schedulers inside vLLM, where there is no vLLM."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tokenyard.errors import ConfigError
from tokenyard.vllm.versions import Twins, data_parallel_rank, trace_settings


def config(index: int = 0, size: int = 1, *, is_async: bool = False) -> Any:
    parallel = SimpleNamespace(data_parallel_index=index, data_parallel_size=size)
    return SimpleNamespace(
        parallel_config=parallel, scheduler_config=SimpleNamespace(async_scheduling=is_async, policy="fcfs")
    )


def test_loads_nothing_of_vllm() -> None:
    code = "import sys, tokenyard.vllm; dir(tokenyard.vllm); print([name for name in sys.modules if name == 'vllm'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_unset_variables_trace_nothing() -> None:
    assert not trace_settings(config(), "fcfs", {}).enabled


def test_defaults_of_a_server() -> None:
    settings = trace_settings(config(), "priority", {"SCHED_TRACE_PATH": "/traces"})
    assert (settings.policy, settings.request_records, settings.max_ids_per_step) == ("priority", False, 64)
    assert str(settings.path) == "/traces"


def test_variables_win() -> None:
    env = {
        "SCHED_TRACE_PATH": "/traces",
        "SCHED_TRACE_POLICY": "mine",
        "SCHED_TRACE_REQUEST_RECORDS": "1",
        "SCHED_TRACE_MAX_IDS": "0",
    }
    settings = trace_settings(config(), "fcfs", env)
    assert (settings.policy, settings.request_records, settings.max_ids_per_step) == ("mine", True, 0)


@pytest.mark.parametrize(
    ("name", "value"),
    [("SCHED_TRACE_REQUEST_RECORDS", "yes"), ("SCHED_TRACE_MAX_IDS", "-1"), ("SCHED_TRACE_EVERY_N", "0")],
)
def test_bad_variable_is_named(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        trace_settings(config(), "fcfs", {"SCHED_TRACE_PATH": "/traces", name: value})


@pytest.mark.parametrize(("index", "size", "rank"), [(0, 1, None), (0, 2, 0), (1, 2, 1), (3, 1, 3)])
def test_rank(index: int, size: int, rank: int | None) -> None:
    assert data_parallel_rank(config(index, size)) == rank
    folder = trace_settings(config(index, size), "fcfs", {"SCHED_TRACE_PATH": "/traces"}).path
    assert str(folder) == ("/traces" if rank is None else f"/traces/rank-{rank}")


class _Base:
    def __init__(self, vllm_config: Any) -> None:
        self.made_with = vllm_config


class _Plain(Twins, _Base):
    pass


class _Later(_Plain):
    pass


_Plain.twins = _Later.twins = (_Plain, _Later)


class _Own(_Plain):
    pass


@pytest.mark.parametrize("named", [_Plain, _Later])
@pytest.mark.parametrize("is_async", [False, True])
def test_twin_of_the_engine(named: type[Any], is_async: bool) -> None:
    made = named(vllm_config=config(is_async=is_async))
    assert type(made) is (_Later if is_async else _Plain)
    assert made.made_with.scheduler_config.async_scheduling == is_async


def test_class_of_a_user_stays() -> None:
    assert type(_Own(config(is_async=True))) is _Own
