"""The pool of KV blocks: reference counts, the free queue, the prefix index."""
