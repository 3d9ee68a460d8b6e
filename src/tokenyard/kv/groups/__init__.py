"""The block lists of one KV-cache group, one module per attention type."""
