"""Which requests run, with how many tokens: queues, policies, limits, the two passes, outputs, the update."""

from tokenyard.compiled import prefer_compiled

__all__: list[str] = []

prefer_compiled("core/sched", __path__)
