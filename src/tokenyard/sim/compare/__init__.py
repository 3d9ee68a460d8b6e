"""Policies side by side: the same workloads replayed under each of them."""
