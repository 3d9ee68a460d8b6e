"""A vLLM server without a GPU: the replay's engines on the wall clock, behind vLLM's HTTP surface."""
