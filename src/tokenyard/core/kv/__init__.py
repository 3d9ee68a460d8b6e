"""Is there memory: blocks, hashing, the pool, groups per attention type, the manager."""

__all__: list[str] = []
