"""What may be asked of a workload, or a recording, and a deployment: functions, each with one answer.

What this package offers beyond the functions: their answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenyard.lazy import lazy_names

__all__ = [
    "AccuracyReport",
    "AccuracyRow",
    "BusyShares",
    "Cell",
    "Comparison",
    "Interval",
    "Metric",
    "Plan",
    "Row",
    "SelfCheck",
    "SplitReport",
    "Study",
    "StudyCell",
    "SweepResult",
    "VariantAnswer",
    "WhatIf",
]

OFFERED = {
    "tokenyard.questions.accuracy.comparison": ("AccuracyReport", "AccuracyRow"),
    "tokenyard.questions.split": ("SplitReport", "BusyShares"),
    "tokenyard.questions.compare": ("Comparison", "Cell", "Interval", "Metric"),
    "tokenyard.questions.study": ("Study", "StudyCell"),
    "tokenyard.questions.sweep": ("SweepResult",),
    "tokenyard.questions.planning.answer": ("Plan",),
    "tokenyard.questions.sweeping.rows": ("Row",),
    "tokenyard.questions.recorded.answer": (
        "SelfCheck",
        "VariantAnswer",
        "WhatIf",
    ),
}

if TYPE_CHECKING:
    from tokenyard.questions.accuracy.comparison import AccuracyReport, AccuracyRow
    from tokenyard.questions.compare import Cell, Comparison, Interval, Metric
    from tokenyard.questions.planning.answer import Plan
    from tokenyard.questions.recorded.answer import SelfCheck, VariantAnswer, WhatIf
    from tokenyard.questions.split import BusyShares, SplitReport
    from tokenyard.questions.study import Study, StudyCell
    from tokenyard.questions.sweep import SweepResult
    from tokenyard.questions.sweeping.rows import Row
else:
    __getattr__, __dir__ = lazy_names(__name__, OFFERED)
