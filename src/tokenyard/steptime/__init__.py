"""Latency models: what a step, or a transfer to host memory, costs in time."""
