"""Hostile inputs and random steps: see ``scripts/fuzz.py``."""
