"""Rows with different LoRA adapters: every request's tokens are those of transformers with its own weights merged."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import tests.engine.needs_torch  # noqa: F401 - before whatever imports torch
from tests.engine.adapters import ALL_LINEAR, make_adapter, merged
from tests.engine.drive import GREEDY, Run, load, serve
from tests.engine.tiny_models import Checkpoint

from tokenyard.core.request import Request, SamplingParams
from tokenyard.errors import ConfigError, RequestError

PREFIX = [7, 3, 9, 1, 4, 4, 8, 2, 6, 5, 50, 12, 33, 21, 17, 2]
PROMPTS = [[*PREFIX, 1, 2, 3], [*PREFIX, 9, 9], [5] * 23, [11, 12], [*PREFIX, 1, 2, 3, 60, 59]]
DRAFTER = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1, "prompt_lookup_max": 2}


class Adapted:
    """A model and its adapters ``a`` and ``b``."""

    def __init__(self, base: Checkpoint, folder: Path) -> None:
        self.base = base
        self.folders = {
            "a": make_adapter(base, folder / f"{base.family}-a"),
            "b": make_adapter(base, folder / f"{base.family}-b", targets=ALL_LINEAR, rank=3, use_rslora=True),
        }
        self.models: Mapping[str | None, Checkpoint] = {
            None: base,
            **{name: merged(base, each) for name, each in self.folders.items()},
        }

    def load(self, **options: Any) -> Any:
        settings: dict[str, Any] = {"enable_lora": True, "lora_modules": self.folders, "max_loras": 2}
        return load(self.base, **settings | options)

    def check(self, names: Sequence[str | None], max_tokens: int = 16, **options: Any) -> Run:
        """Serve every prompt with every one of ``names`` at once, and compare."""
        wanted = SamplingParams(max_tokens=max_tokens, **GREEDY)
        asked = [(name, prompt) for prompt in PROMPTS for name in names]
        core = self.load(**options)
        try:
            run = serve(core, [Request(f"r{i}", prompt, wanted, lora_name=n) for i, (n, prompt) in enumerate(asked)])
        finally:
            core.shutdown()
        for (name, prompt), tokens in zip(asked, run.tokens, strict=True):
            assert tokens == self.models[name].greedy(prompt, max_tokens), (name, prompt)
        return run


@pytest.fixture(scope="session")
def adapted(checkpoints: Callable[[str], Checkpoint], tmp_path_factory: pytest.TempPathFactory) -> Any:
    made: dict[str, Adapted] = {}
    folder = tmp_path_factory.mktemp("adapters")

    def of(family: str) -> Adapted:
        if family not in made:
            made[family] = Adapted(checkpoints(family), folder)
        return made[family]

    return of


@pytest.fixture
def llama(adapted: Callable[[str], Adapted]) -> Adapted:
    return adapted("llama")


def test_adapters_change_what_is_said(llama: Adapted) -> None:
    """Otherwise the comparisons below would say nothing."""
    told = {tuple(model.greedy(PROMPTS[0], 16)) for model in llama.models.values()}
    assert len(told) == 3


@pytest.mark.smoke
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_one_batch_with_several_adapters(llama: Adapted, is_async: bool) -> None:
    llama.check([None, "a", "b"], async_scheduling=is_async)


@pytest.mark.parametrize("family", ["qwen3", "mistral", "gemma2", "gemma3", "mixtral", "qwen3_moe"])
def test_other_families(adapted: Callable[[str], Adapted], family: str) -> None:
    adapted(family).check([None, "a", "b"], 8)


@pytest.mark.parametrize("name", ["a", "b"])
def test_everybody_asks_for_the_same(llama: Adapted, name: str) -> None:
    llama.check([name])


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_preempted_requests_keep_their_adapters(llama: Adapted, is_async: bool) -> None:
    blocks = llama.base.fewest_blocks
    run = llama.check([None, "a", "b"], 30, num_gpu_blocks_override=blocks, async_scheduling=is_async)
    assert run.num_preemptions > 0


@pytest.mark.parametrize("budget", [3, 7])
def test_chunked_prompts(llama: Adapted, budget: int) -> None:
    llama.check(["b", None, "a"], 6, max_num_batched_tokens=budget, max_num_seqs=3)


def test_the_prefix_cache_keeps_adapters_apart(llama: Adapted) -> None:
    assert llama.check(["a", "b", None], max_num_seqs=1).num_cached_tokens > 0


def test_drafts_change_no_token(llama: Adapted) -> None:
    assert llama.check(["a", "b", None], 24, speculative_config=DRAFTER).num_accepted > 0


def test_one_adapter_in_a_step(llama: Adapted) -> None:
    llama.check(["a", "b", None], max_loras=1)


def test_memory_is_found_with_adapters(llama: Adapted) -> None:
    llama.check(["a", None], 4, num_gpu_blocks_override=None, kv_cache_memory_bytes=None, max_num_seqs=4)


def test_names_as_texts(llama: Adapted) -> None:
    core = llama.load(lora_modules=[f"{name}={folder}" for name, folder in llama.folders.items()])
    core.shutdown()
    assert core.executor.model.adapters == ("a", "b")


# ---- refusals


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"use_dora": True}, "use_dora"),
        ({"bias": "all"}, "bias"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"rank_pattern": {"q_proj": 2}}, "rank_pattern"),
        ({"alpha_pattern": {"q_proj": 2}}, "alpha_pattern"),
        ({"fan_in_fan_out": True}, "fan_in_fan_out"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights"),
        ({"peft_type": "LOHA"}, "peft_type"),
        ({"r": 5}, "lora_A of shape"),
        ({"r": "4"}, "r = 4"),
        ({"r": 64}, "max_lora_rank"),
        ({"lora_alpha": None}, "lora_alpha"),
    ],
    ids=str,
)
def test_adapters_that_cannot_be_applied(llama: Adapted, tmp_path: Path, config: dict[str, Any], words: str) -> None:
    folder = make_adapter(llama.base, tmp_path / "x", rank=4)
    file = folder / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | config))
    with pytest.raises(ConfigError, match=words) as error:
        llama.load(lora_modules={"x": folder})
    assert error.value.field == "lora_modules.x"


def test_layers_that_are_not_adapted(llama: Adapted, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="lm_head"):
        llama.load(lora_modules={"x": make_adapter(llama.base, tmp_path / "head", targets=("lm_head",))})


def test_an_adapter_of_another_model(llama: Adapted, adapted: Callable[[str], Adapted]) -> None:
    with pytest.raises(ConfigError, match="is no linear layer"):
        llama.load(lora_modules={"x": adapted("gemma3").folders["a"]})


def test_files_that_cannot_be_read(llama: Adapted, tmp_path: Path) -> None:
    broken = make_adapter(llama.base, tmp_path / "broken")
    (broken / "adapter_model.safetensors").write_bytes(b"no tensors")
    for folder in (tmp_path / "absent", broken):
        with pytest.raises(ConfigError, match="cannot be read"):
            llama.load(lora_modules={"x": folder})


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"enable_lora": False}, "lora_modules"),
        ({"max_loras": 0}, "max_loras"),
        ({"max_lora_rank": 0}, "max_lora_rank"),
        ({"enable_lora": "yes"}, "enable_lora"),
        ({"lora_modules": "a=b"}, "lora_modules"),
        ({"lora_modules": ["a"]}, "lora_modules"),
        ({"lora_modules": ["a=b", "a=c"]}, "lora_modules"),
    ],
    ids=str,
)
def test_settings_that_cannot_work(llama: Adapted, options: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as error:
        llama.load(**options)
    assert error.value.field == field


def test_an_adapter_that_the_engine_does_not_have(llama: Adapted) -> None:
    core = llama.load()
    with pytest.raises(RequestError, match="a, b") as error:
        core.add_request(Request("r", PROMPTS[0], lora_name="c"))
    core.shutdown()
    assert error.value.field == "lora_name"
