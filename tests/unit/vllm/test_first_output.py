"""What a first output tells of the prompt, with stand-ins for vLLM's records."""

from __future__ import annotations

import importlib
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tokenyard.core.config import CacheConfig, SchedulerConfig, SpeculativeConfig, SpeculativeMethod
from tokenyard.core.profiles import decision_profile
from tokenyard.core.request import Request, SamplingParams
from tokenyard.core.sched.outputs import ModelOutput
from tokenyard.core.sched.scheduler import Scheduler


class PrefillStats(SimpleNamespace):
    """vLLM's, as far as it is asked for."""

    def set(self, **fields: int) -> None:
        self.__dict__.update(fields)

    def finalize(self, num_cached_tokens: int) -> None:
        self.num_cached_tokens = num_cached_tokens


class _StandIn(ModuleType):
    """A module of vLLM's that has whatever class is asked for."""

    __path__: list[str] = []  # noqa: RUF012

    def __getattr__(self, name: str) -> Any:
        if not name[0].isupper():
            raise AttributeError(name)  # a module within it, perhaps
        return PrefillStats if name == "PrefillStats" else type(name, (), {})


class _StandsIn(MetaPathFinder, Loader):
    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname.partition(".")[0] == "vllm" else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None: ...


@pytest.fixture
def statistics(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "meta_path", [_StandsIn(), *sys.meta_path])
    before = set(sys.modules)
    for name in [name for name in before if name.partition(".")[0] == "vllm" or name.startswith("tokenyard.vllm")]:
        monkeypatch.delitem(sys.modules, name)
    yield importlib.import_module("tokenyard.vllm.fast.records")
    for name in set(sys.modules) - before:
        if name.partition(".")[0] == "vllm" or name.startswith("tokenyard.vllm"):
            del sys.modules[name]


@pytest.mark.parametrize("max_tokens", [1, 5])
@pytest.mark.parametrize("length", range(7, 11))
@pytest.mark.parametrize("version", ["0.22", "0.33"])
def test_the_output_itself_makes_the_last_block_findable(
    statistics: Any, version: str, length: int, max_tokens: int
) -> None:
    """A hash that covers the next token is known with the first output, also where that ends the request."""
    scheduler = Scheduler(
        SchedulerConfig(max_num_batched_tokens=64, max_model_len=64, profile=decision_profile(version)),
        CacheConfig(num_gpu_blocks=41, block_size=4),
        speculative_config=SpeculativeConfig(num_speculative_tokens=2, method=SpeculativeMethod.EAGLE),
    )
    request = Request("a", list(range(length)), SamplingParams(max_tokens=max_tokens, ignore_eos=True))
    scheduler.add_request(request)
    output = scheduler.schedule()
    first = statistics.FirstOutput(request)
    first.note_blocks(scheduler.kv)
    scheduler.update_from_output(output, ModelOutput.from_lists([[3]]))
    assert request.status.is_finished == (max_tokens == 1)
    assert first.stats(scheduler.kv, later_hits_count=False).num_cached_tokens == length // 4 * 4
