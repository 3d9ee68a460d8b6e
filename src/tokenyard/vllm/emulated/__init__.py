"""A real vLLM without a GPU: an executor that computes nothing and takes the time that a GPU would."""
