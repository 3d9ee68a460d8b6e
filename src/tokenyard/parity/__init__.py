"""Parity: replaying decisions recorded from real vLLM and comparing every one of them."""
