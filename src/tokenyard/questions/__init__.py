"""Questions to a workload, or a recording, and a deployment: functions, each with one answer.

What this package offers beyond the functions: their answers.
"""

from __future__ import annotations

from tokenyard.lazy import lazy_names

OFFERED, __all__, __getattr__, __dir__ = lazy_names(__name__)
