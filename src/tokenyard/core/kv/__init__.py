"""Is there memory: blocks, hashing, the pool, groups per attention type, the manager."""

from tokenyard.compiled import prefer_compiled

__all__: list[str] = []

prefer_compiled("core/kv", __path__)
