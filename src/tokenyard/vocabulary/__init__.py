"""Every word with which a decision is explained, once: reasons, buckets, waits, families; the viewer reads the same."""
