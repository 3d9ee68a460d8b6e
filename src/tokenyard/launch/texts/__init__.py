"""Texts that say how vLLM is started: command lines, manifests, values, units, start-up logs; kinds.py lists them."""
