"""A trace of a running vLLM: its own scheduler, watched from outside."""
