"""Attention over blocks: their memory, which of them a step reads and writes, and the attention itself."""
