"""Readers of recorded workloads, one file format each."""
