"""Make the checkpoint that all sides load: a Llama with random weights. FOLDER DTYPE [SIZES AS JSON]."""

from __future__ import annotations

import json
import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM

__all__ = ["SIZES", "main"]

SIZES = {
    "vocab_size": 32_000,
    "hidden_size": 768,
    "intermediate_size": 2048,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "max_position_embeddings": 2048,
}
"""124 million parameters; vLLM's attention on a CPU wants heads of at least 32."""


def main() -> None:
    """Write the folder, and how many parameters the model has."""
    folder, dtype, *given = sys.argv[1:]
    sizes = SIZES | json.loads(given[0]) if given else SIZES
    torch.manual_seed(0)
    config = LlamaConfig(**sizes, bos_token_id=None, eos_token_id=None, pad_token_id=None, initializer_range=0.05)
    model = LlamaForCausalLM(config).to(getattr(torch, dtype))
    model.save_pretrained(folder)
    print(sum(each.numel() for each in model.parameters()))


if __name__ == "__main__":
    main()
