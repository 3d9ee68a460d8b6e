"""A deployment: what the user says of ``vllm serve``, settled, and what a replay of it needs.

What this package offers beyond ``Deployment`` and ``ResolvedDeployment``: the groups of settings that they hold.
"""

from __future__ import annotations

from tokenyard.lazy import lazy_names

OFFERED, __all__, __getattr__, __dir__ = lazy_names(__name__)
