"""Workloads: what arrives when, from built-in generators or recorded traces."""
