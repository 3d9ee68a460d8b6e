"""Which requests run, with how many tokens: queues, policies, the two passes, outputs, update.

What this package offers are the values that a scheduler takes and tells, beyond those of ``import tokenyard``.
"""

from __future__ import annotations

from tokenyard.lazy import lazy_names

OFFERED, __all__, __getattr__, __dir__ = lazy_names(__name__)
