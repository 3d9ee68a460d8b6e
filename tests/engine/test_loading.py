"""What is loaded, how much memory it gets, and what is refused with one error that names the field."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.engine.drive import GREEDY, generate, load, serve
from tests.engine.needs_torch import torch, transformers
from tests.engine.sizes import FAMILIES, MAX_MODEL_LEN, VOCABULARY
from tests.engine.tiny_models import Checkpoint

from tokenyard.core.params import MultiModalItem
from tokenyard.core.request import Request, SamplingParams
from tokenyard.errors import ConfigError, RequestError
from tokenyard.serve import load_engine
from tokenyard.serve.torch import load as memory

PROMPT = [5, 4, 3, 2, 1, 6, 7, 8]


@pytest.fixture
def llama(checkpoints: Callable[[str], Checkpoint]) -> Checkpoint:
    return checkpoints("llama")


def test_what_was_loaded_is_told(llama: Checkpoint, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(llama.folder, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"eos_token_id": 9}))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [9, 11]}))
    core = load_engine(str(folder), dtype="float32", device="cpu", num_gpu_blocks_override=50)
    model = core.executor.model
    core.shutdown()
    assert (model.name, model.vocab_size, model.max_model_len) == (str(folder), VOCABULARY, 128)
    assert (model.eos_token_ids, model.tokenizer) == ((9, 11), folder)
    assert (model.dtype, model.device) == ("float32", "cpu")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_other_types_stay_near_the_model(llama: Checkpoint, dtype: str) -> None:
    """The likeliest token by transformers in the same type, or one as likely within the type's precision."""
    again = transformers.AutoModelForCausalLM.from_pretrained(llama.folder, dtype=getattr(torch, dtype)).eval()
    run = generate(llama, [PROMPT], 12, dtype=dtype)
    tokens = PROMPT + run.tokens[0]
    with torch.no_grad():
        logits = again(torch.tensor([tokens])).logits[0, len(PROMPT) - 1 : -1].float()
    chosen = logits[torch.arange(12), torch.tensor(run.tokens[0])]
    assert torch.allclose(chosen, logits.max(-1).values, atol={"float32": 1e-4}.get(dtype, 0.15))


# ---- memory


def test_blocks_fill_what_is_given(llama: Checkpoint) -> None:
    bytes_per_block = 2 * 2 * 4 * 2 * 8 * 8  # layers, K and V, tokens, heads, size, bytes
    core = load(llama, num_gpu_blocks_override=None, kv_cache_memory_bytes=60 * bytes_per_block + 5)
    blocks = core.scheduler.cache_config.num_gpu_blocks
    core.shutdown()
    assert blocks == 60


def test_blocks_fill_what_the_largest_step_leaves(
    checkpoints: Callable[[str], Checkpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def left(device: str, share: float) -> int:
        asked.append((device, share))
        return 1_000_000

    monkeypatch.setattr("tokenyard.serve.torch.load.left_for_blocks", left)
    for family in FAMILIES:
        target = checkpoints(family)
        run = generate(target, [PROMPT], 5, num_gpu_blocks_override=None, gpu_memory_utilization=0.3, max_num_seqs=4)
        assert run.tokens == [target.greedy(PROMPT, 5)]
    assert asked == [("cpu", 0.3)] * len(FAMILIES)


def test_memory_is_measured() -> None:
    whole, half = memory.left_for_blocks("cpu", 1.0), memory.left_for_blocks("cpu", 0.5)
    assert whole - half > 0
    ballast = np.ones(1 << 26, np.uint8)
    assert memory.left_for_blocks("cpu", 1.0) <= whole
    assert len(ballast) == 1 << 26


def test_no_more_blocks_than_requests_can_use(llama: Checkpoint) -> None:
    core = load(llama, num_gpu_blocks_override=None, max_num_seqs=2)
    blocks = core.scheduler.cache_config.num_gpu_blocks
    core.shutdown()
    assert blocks == 2 * MAX_MODEL_LEN // 4 + 1


# ---- refusals


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"dtype": "int8"}, "dtype"),
        ({"max_model_len": 129}, "max_model_len"),
        ({"max_model_len": 0}, "max_model_len"),
        ({"block_size": 0}, "block_size"),
        ({"num_gpu_blocks_override": 1}, "num_gpu_blocks_override"),
        ({"num_gpu_blocks_override": 5}, "max_model_len"),
        ({"num_gpu_blocks_override": None, "kv_cache_memory_bytes": 100}, "kv_cache_memory_bytes"),
        ({"num_gpu_blocks_override": None, "gpu_memory_utilization": 1e-9}, "gpu_memory_utilization"),
        ({"gpu_memory_utilization": 1.5}, "gpu_memory_utilization"),
        ({"seed": -1}, "seed"),
        ({"tensor_parallel_size": 2}, "tensor_parallel_size"),
        ({"pipeline_parallel_size": 2}, "pipeline_parallel_size"),
        ({"rolled_back_work_stays_cached": True}, "rolled_back_work_stays_cached"),
        ({"device": "nowhere"}, "device"),
        ({"speculative_config": "ngram"}, "speculative_config"),
        ({"speculative_config": {"method": "eagle", "num_speculative_tokens": 1}}, "speculative_config.method"),
        ({"speculative_config": {"method": "ngram"}}, "speculative_config.num_speculative_tokens"),
        ({"speculative_config": {"method": "draft_model", "num_speculative_tokens": 1}}, "speculative_config.model"),
        ({"speculative_config": {"num_speculative_tokens": 2, "tokens": 1}}, "speculative_config.tokens"),
        (
            {"speculative_config": {"num_speculative_tokens": 2, "prompt_lookup_min": 3, "prompt_lookup_max": 2}},
            "speculative_config.prompt_lookup_min",
        ),
        ({"speculative_config": {"num_speculative_tokens": 2}, "async_scheduling": True}, "async_scheduling"),
    ],
    ids=str,
)
def test_settings_that_cannot_work(llama: Checkpoint, options: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(llama, **options)
    assert error.value.field == field


def _changed(checkpoint: Checkpoint, folder: Path, **fields: Any) -> Path:
    shutil.copytree(checkpoint.folder, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | fields))
    return folder


def test_models_that_cannot_be_run(llama: Checkpoint, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    broken = _changed(llama, tmp_path / "broken")
    (broken / "model.safetensors").write_bytes(b"no tensors")
    bare = _changed(llama, tmp_path / "bare")
    (bare / "model.safetensors").unlink()
    for folder, words in (
        (tmp_path / "absent", "give a folder"),
        (tmp_path / "empty", "config.json"),
        (broken, "cannot load"),
        (bare, "cannot load"),
    ):
        with pytest.raises(ConfigError, match=words) as error:
            load_engine(folder, num_gpu_blocks_override=50)
        assert error.value.field == "model"


def test_a_draft_model_shares_the_vocabulary(llama: Checkpoint, tmp_path: Path) -> None:
    other = _changed(llama, tmp_path / "other", vocab_size=60)
    with pytest.raises(ConfigError) as error:
        load(llama, speculative_config={"model": str(other), "num_speculative_tokens": 2})
    assert error.value.field == "speculative_config.model"


def test_requests_that_cannot_be_run_are_refused_and_others_go_on(llama: Checkpoint) -> None:
    wanted = SamplingParams(max_tokens=4, **GREEDY)
    refused = [
        (Request("b", PROMPT, wanted, lora_name="x"), "lora_name"),
        (Request("c", PROMPT, wanted, mm_features=[MultiModalItem(mm_hash="h", offset=0, length=1)]), "mm_features"),
        (Request("d", PROMPT, wanted, prompt_embeds=np.zeros((8, 2))), "prompt_embeds"),
        (Request("e", PROMPT, wanted, resumable=True), "resumable"),
        (Request("f", [VOCABULARY], wanted), "prompt_token_ids"),
    ]
    core = load(llama)
    try:
        for request, field in refused:
            with pytest.raises(RequestError) as error:
                core.add_request(request)
            assert error.value.field == field
            core.submit(request)
        (tokens,) = serve(core, [Request("good", PROMPT, wanted)]).tokens
        assert len(core.take_refused()) == len(refused)
    finally:
        core.shutdown()
    assert tokens == llama.greedy(PROMPT, 4)


def test_an_error_of_the_model_leaves_step(llama: Checkpoint) -> None:
    core = load(llama, async_scheduling=False)

    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("out of memory")

    core.executor.runner.model.logits = broken
    core.add_request(Request("a", PROMPT, SamplingParams(max_tokens=4)))
    with pytest.raises(RuntimeError, match="out of memory"):
        core.step()
    core.shutdown()
