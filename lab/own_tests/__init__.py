"""vLLM's own tests of its scheduler, run against ours: see ``lab/vllm_own_tests.py``."""
