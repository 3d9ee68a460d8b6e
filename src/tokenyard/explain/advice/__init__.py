"""Advice: what to change, and why, with the evidence in this trace."""
