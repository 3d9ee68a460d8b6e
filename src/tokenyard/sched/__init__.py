"""Who runs and how many tokens: queues, policies, the two passes, outputs, update."""
