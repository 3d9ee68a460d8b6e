"""Texts that say how vLLM is started: command lines, manifests, units, logs."""
