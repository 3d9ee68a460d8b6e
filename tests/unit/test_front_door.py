"""The front door: which names users may rely on, that each is there and documented, and that asking costs little."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import tokenyard

NAMES = """
ArrayMemory BlockFiles CacheConfig ConfigError ConnectorContext DiskTier DoneStep DraftTokens EngineCore EngineOutputs
Executor FinishReason KVCacheGroup KVConnector KVLink KVTransferConfig KeyedPolicy LatencyModel ModelOutput Outcome
Policy PolicyContext Preemption Reason ReplayResult ReplaySettings Report ReportBuilder Request RequestError
RequestOutput SamplingParams Scheduler SchedulerConfig SchedulerOutput SchedulerState SpeculativeConfig StepObserver
StepOutcomes StepShape TierWorker TieredConnector TokenyardError ToolReader TraceConfig TraceError TraceReader
TraceRecorder TraceWriter Why Workload WorkloadError WorkloadRequest __version__ compare compare_traces
continuum_fixed continuum_share continuum_ttl describe_run known_policies load_latency load_workload make_policy
policy_maker print_report replay replay_split summarize why
"""
"""A name that is added here is a promise, one that is taken away breaks programs: both belong into the changelog."""

SOURCE = Path(tokenyard.__file__)


def test_these_names_are_offered() -> None:
    assert sorted(tokenyard.__all__) == sorted(NAMES.split())
    assert set(tokenyard.__all__) <= set(dir(tokenyard))


@pytest.mark.parametrize("name", tokenyard.__all__)
def test_an_offered_name_is_there_and_documented(name: str) -> None:
    offered = getattr(tokenyard, name)
    if name == "__version__":
        assert offered == version("tokenyard")
        return
    assert inspect.isclass(offered) or inspect.isfunction(offered)
    assert offered.__name__ == name
    assert inspect.getdoc(offered)


def test_what_is_loaded_and_what_type_checkers_see_are_the_same() -> None:
    seen = {
        alias.name: node.module
        for block in ast.parse(SOURCE.read_text(encoding="utf-8")).body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    loaded = {name: module for group in tokenyard.OFFERED.values() for module, names in group.items() for name in names}
    assert seen == loaded
    assert set(loaded) == set(tokenyard.__all__)


def test_any_other_name_is_refused_and_submodules_still_import() -> None:
    with pytest.raises(AttributeError, match="module 'tokenyard' has no attribute 'Schedulr'"):
        tokenyard.Schedulr  # type: ignore[attr-defined]  # noqa: B018
    from tokenyard import errors  # noqa: PLC0415

    assert errors.TokenyardError is tokenyard.TokenyardError


@pytest.mark.parametrize(
    ("asked", "stays_out"),
    [
        ("", "numpy msgspec rich tyro typing tokenyard.errors"),
        ("tokenyard.__version__", "numpy msgspec rich tyro tokenyard.cli"),
        ("tokenyard.TraceReader, tokenyard.summarize", "rich tyro tokenyard.cli tokenyard.sched tokenyard.kv"),
        ("tokenyard.Scheduler", "rich tyro tokenyard.cli tokenyard.sim tokenyard.explain"),
    ],
)
def test_what_is_not_asked_for_is_not_loaded(asked: str, stays_out: str) -> None:
    program = f"""
import sys
before = set(sys.modules)
import tokenyard
{asked}
print(*sorted(set(sys.modules) - before))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "tokenyard" in loaded
    assert not loaded & set(stays_out.split())
