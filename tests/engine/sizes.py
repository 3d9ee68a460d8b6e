"""Sizes of the tiny models."""

from __future__ import annotations

__all__ = ["BLOCK_SIZE", "FAMILIES", "MAX_MODEL_LEN", "VOCABULARY", "WINDOW"]

FAMILIES = ("llama", "qwen3", "mistral", "gemma2", "gemma3", "mixtral", "qwen3_moe")
VOCABULARY = 61
MAX_MODEL_LEN = 96
"""Most tokens of one request."""
WINDOW = 11
"""Tokens of a sliding window; no multiple of a block."""
BLOCK_SIZE = 4
