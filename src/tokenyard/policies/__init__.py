"""Policies beyond vLLM's two, each behind the plug-in interface of :mod:`tokenyard.core.sched.policy`.

What this package offers beyond ``Policy`` and ``KeyedPolicy``: what a policy of your own is given, and CONTINUUM's.
"""

from __future__ import annotations

from tokenyard.lazy import lazy_names

OFFERED, __all__, __getattr__, __dir__ = lazy_names(__name__)
