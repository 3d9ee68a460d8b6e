"""Predictions against measured points."""
