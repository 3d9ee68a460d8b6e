"""How vllm serve is started: its flags and what they mean to a replay."""
