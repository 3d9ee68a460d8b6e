"""Variants of a recorded run that are made of flags."""
