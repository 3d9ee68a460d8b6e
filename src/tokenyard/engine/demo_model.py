"""A tiny model with random weights: it has learnt nothing, and everything else about it is real."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

from tokenyard.errors import MissingExtraError

__all__ = ["DEMO", "make_demo_model"]

DEMO = "demo"
"""The name of the model that is made on the spot."""

_TEMPLATE = (
    "{{ bos_token }}{% if tools %}[tools] {{ tools | tojson }}\n{% endif %}"
    "{% for message in messages %}[{{ message.role }}] {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant] {% endif %}"
)


def make_demo_model(
    folder: Path, *, layers: int = 2, width: int = 64, max_model_len: int = 2048, seed: int = 0
) -> Path:
    """Write a Llama checkpoint with a byte-level tokenizer and a chat template into ``folder``, which is returned.

    Raises MissingExtraError without torch and transformers.
    """
    torch, transformers = _module("torch", "torch"), _module("transformers", "torch")
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=258,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=max_model_len,
        bos_token_id=256,
        eos_token_id=257,
        tie_word_embeddings=False,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    _byte_tokenizer().save(str(folder / "tokenizer.json"))
    settings = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": _TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


def _module(name: str, extra: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise MissingExtraError(name, extra) from None


def _byte_tokenizer() -> Any:
    """A token per byte, in GPT-2's alphabet, and two special ones."""
    tokenizers = _module("tokenizers", "torch")
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [each for each in range(256) if each not in printable]
    letters = {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(rest)}
    vocab = {letters[byte]: byte for byte in range(256)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    return tokenizer
