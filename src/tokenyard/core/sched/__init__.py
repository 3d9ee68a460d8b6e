"""Which requests run, with how many tokens: queues, policies, limits, the two passes, outputs, the update."""

__all__: list[str] = []
