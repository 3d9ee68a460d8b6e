"""From the command line to the variants of a run, for ``plan`` and ``sweep``."""
