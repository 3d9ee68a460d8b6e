"""Models that vLLM can serve within seconds on a CPU: a few random weights and a tokenizer, made here, offline.

``python tests/vllm/tiny_models.py DIRECTORY`` makes them all.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

__all__ = ["KINDS", "make_model"]

KINDS = ("llama", "one-layer", "sliding-window")
_VOCABULARY = 512
_BYTES = 256
_POSITIONS = 4096
_TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"
_SIZES = {
    "vocab_size": _VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,  # the smallest that vLLM's attention on CPUs takes
    "max_position_embeddings": _POSITIONS,
    "bos_token_id": _BYTES,
    "eos_token_id": _BYTES + 1,
    "pad_token_id": _BYTES + 2,
    "tie_word_embeddings": False,
}


def make_model(kind: str, directory: Path, **sizes: int) -> Path:
    """Make the model of ``kind`` in a folder of ``directory``, once; ``sizes`` replace its own. Returns the folder."""
    folder = directory / kind
    if (folder / "ready").exists():
        return folder
    import torch
    import transformers

    torch.manual_seed(7)
    if kind == "sliding-window":
        config: Any = transformers.MistralConfig(**(_SIZES | {"num_hidden_layers": 2} | sizes), sliding_window=64)
        model: Any = transformers.MistralForCausalLM(config)
    else:
        layers = {"num_hidden_layers": 1 if kind == "one-layer" else 2}
        config = transformers.LlamaConfig(**(_SIZES | layers | sizes))
        model = transformers.LlamaForCausalLM(config)
    # Logits far apart: then no rounding that depends on who shares a batch changes which one is largest.
    with torch.no_grad():
        model.lm_head.weight.mul_(20)
    model.to(torch.float32).save_pretrained(folder)
    _tokenizer().save_pretrained(folder)
    (folder / "ready").touch()
    return folder


def _tokenizer() -> Any:
    """One token per byte, and the three special ones."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>", "<pad>"])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>")
    fast.model_max_length = _POSITIONS
    fast.chat_template = _TEMPLATE
    return fast


if __name__ == "__main__":
    for each in KINDS:
        print(make_model(each, Path(sys.argv[1])))
