"""Replay: the scheduler on a virtual clock, fed by a workload, with a latency model in place of a GPU."""
