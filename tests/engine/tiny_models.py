"""Tiny random models of five families, and what transformers generates with them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from tests.engine.needs_torch import torch, transformers
from tests.engine.sizes import BLOCK_SIZE, MAX_MODEL_LEN, VOCABULARY, WINDOW

from tokenyard.memory.kv_plan import plan_kv_cache
from tokenyard.models.reading.read import read_model_file

__all__ = ["Checkpoint", "make_checkpoint"]

_COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
    "initializer_range": 0.3,
}
_MODELS: dict[str, tuple[Any, dict[str, Any]]] = {
    "llama": (transformers.LlamaConfig, {"num_hidden_layers": 2, "intermediate_size": 48}),
    "qwen3": (transformers.Qwen3Config, {"num_hidden_layers": 2, "intermediate_size": 48, "tie_word_embeddings": True}),
    "mistral": (
        transformers.MistralConfig,
        {"num_hidden_layers": 3, "intermediate_size": 48, "sliding_window": WINDOW},
    ),
    "gemma2": (
        transformers.Gemma2Config,
        {
            "num_hidden_layers": 4,
            "intermediate_size": 48,
            "sliding_window": WINDOW,
            "query_pre_attn_scalar": 8,
            "attn_logit_softcapping": 5.0,
            "final_logit_softcapping": 8.0,
        },
    ),
    "gemma3": (
        transformers.Gemma3TextConfig,
        {
            "num_hidden_layers": 5,
            "intermediate_size": 48,
            "sliding_window": WINDOW,
            "query_pre_attn_scalar": 8,
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 1
            + ["sliding_attention", "full_attention"],
        },
    ),
    "mixtral": (
        transformers.MixtralConfig,
        {"num_hidden_layers": 2, "intermediate_size": 32, "num_local_experts": 4, "num_experts_per_tok": 2},
    ),
    "qwen3_moe": (
        transformers.Qwen3MoeConfig,
        {
            "num_hidden_layers": 2,
            "intermediate_size": 48,
            "moe_intermediate_size": 16,
            "num_experts": 4,
            "num_experts_per_tok": 2,
        },
    ),
    "draft": (transformers.LlamaConfig, {"num_hidden_layers": 1, "intermediate_size": 48}),
}


class Checkpoint:
    """A model in a folder, in float64."""

    def __init__(self, family: str, folder: Path, model: Any) -> None:
        self.family, self.folder = family, folder
        self.model = model
        self.fewest_blocks = self._fewest_blocks()
        """Blocks with which an engine still starts: one request of the greatest length fits."""
        self._greedy = lru_cache(maxsize=None)(self._generate)

    def _fewest_blocks(self) -> int:
        plan = plan_kv_cache(
            read_model_file(self.folder, dtype="float32"),
            num_gpu_blocks=2,
            must_start=False,
            block_size=BLOCK_SIZE,
            max_model_len=MAX_MODEL_LEN,
        )
        return plan.blocks_per_request + 1

    def _generate(self, prompt: tuple[int, ...], max_tokens: int) -> list[int]:
        ids = torch.tensor([prompt])
        output = self.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=max_tokens,
            do_sample=False,
            use_cache=True,
        )
        found: list[int] = output[0, len(prompt) :].tolist()
        return found

    def greedy(self, prompt: Sequence[int], max_tokens: int) -> list[int]:
        """What ``generate`` of transformers continues ``prompt`` with."""
        return list(self._greedy(tuple(prompt), max_tokens))

    def logits(self, tokens: Sequence[int]) -> Any:
        """Scores of every position, by transformers alone; shape ``[tokens, vocabulary]``."""
        with torch.no_grad():
            return self.model(torch.tensor([list(tokens)])).logits[0]


def make_checkpoint(family: str, folder: Path) -> Checkpoint:
    """Random weights from a fixed seed, saved as float64's."""
    kind, own = _MODELS[family]
    torch.manual_seed(sum(family.encode()))
    config = kind(**{**_COMMON, **own})
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.save_pretrained(folder)
    options = {"dtype": torch.float64, "experts_implementation": "eager"}
    again = transformers.AutoModelForCausalLM.from_pretrained(folder, **options)
    return Checkpoint(family, folder, again.eval())
