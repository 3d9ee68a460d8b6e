"""Is there memory: blocks, hashing, the pool, per-attention-type managers, the coordinator."""
