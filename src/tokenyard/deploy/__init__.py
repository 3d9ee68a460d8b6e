"""A deployment: what somebody says of ``vllm serve``, settled, and what a replay of it needs."""
