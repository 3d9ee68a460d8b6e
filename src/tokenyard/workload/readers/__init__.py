"""Readers of recorded workloads."""
