"""A policy of ours inside vLLM, by name."""
