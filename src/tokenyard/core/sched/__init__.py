"""WHO runs and HOW MANY tokens: queues, policies, limits, the two passes, outputs, the update."""
