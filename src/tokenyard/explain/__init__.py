"""Explanations: what a trace says about where the time went. Reads traces and their facts, never a scheduler."""
