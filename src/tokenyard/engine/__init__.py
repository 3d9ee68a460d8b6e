"""The step loop over a scheduler and an executor, for every host but vLLM."""
