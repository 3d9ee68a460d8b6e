"""vLLM's own tests of its scheduler, run against ours: see ``scripts/vllm_own_tests.py``."""
