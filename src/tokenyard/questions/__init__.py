"""What may be asked of a workload, or a recording, and a deployment: functions, each with one answer.

What this package offers beyond the functions: their answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenyard.lazy import lazy_names

__all__ = [
    "Plan",
    "Row",
    "SelfCheck",
    "SweepResult",
    "VariantAnswer",
    "WhatIf",
]

OFFERED = {
    "tokenyard.questions.sweep": ("SweepResult",),
    "tokenyard.sim.plan.answer": ("Plan",),
    "tokenyard.sim.sweep.row": ("Row",),
    "tokenyard.sim.whatif.answer": (
        "SelfCheck",
        "VariantAnswer",
        "WhatIf",
    ),
}

if TYPE_CHECKING:
    from tokenyard.questions.sweep import SweepResult
    from tokenyard.sim.plan.answer import Plan
    from tokenyard.sim.sweep.row import Row
    from tokenyard.sim.whatif.answer import SelfCheck, VariantAnswer, WhatIf
else:
    __getattr__, __dir__ = lazy_names(__name__, OFFERED)
