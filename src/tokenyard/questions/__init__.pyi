# What the package offers, in the order of the API page; the module beside it loads these names when they are asked for.
# isort: skip_file

from tokenyard.questions.accuracy.comparison import AccuracyReport as AccuracyReport, AccuracyRow as AccuracyRow
from tokenyard.questions.split import SplitReport as SplitReport, BusyShares as BusyShares
from tokenyard.questions.compare import Comparison as Comparison, Cell as Cell, Interval as Interval, Metric as Metric
from tokenyard.questions.agents import Agents as Agents, AgentsCell as AgentsCell
from tokenyard.questions.study import Study as Study, StudyCell as StudyCell
from tokenyard.questions.regret import Regret as Regret, RouteRegret as RouteRegret
from tokenyard.questions.chart import line_chart as line_chart
from tokenyard.questions.sweep import SweepResult as SweepResult
from tokenyard.questions.planning.answer import Plan as Plan
from tokenyard.questions.sweeping.rows import Row as Row
from tokenyard.questions.recorded.answer import (
    SelfCheck as SelfCheck,
    VariantAnswer as VariantAnswer,
    ClassAnswer as ClassAnswer,
    GoodputAnswer as GoodputAnswer,
    WhatIf as WhatIf,
)
from tokenyard.questions.upgrade import Upgrade as Upgrade
from tokenyard.explain.report.classes import Classes as Classes, ClassFigures as ClassFigures
from tokenyard.explain.measured import (
    MeasuredBeside as MeasuredBeside,
    MeasuredLatency as MeasuredLatency,
    MeasuredPair as MeasuredPair,
    MeasuredVerdict as MeasuredVerdict,
    Calibration as Calibration,
)
from tokenyard.questions.metrics import read_metrics as read_metrics, ServedHour as ServedHour, Finding as Finding
from tokenyard.questions.doctor.diagnosis import Diagnosis as Diagnosis
from tokenyard.questions.doctor.treatment import Treatment as Treatment, Beside as Beside
from tokenyard.questions.doctor.verdict import Seen as Seen
from tokenyard.questions.headroom import (
    HeadRoom as HeadRoom,
    Part as Part,
    RiskyStep as RiskyStep,
    SettingLimit as SettingLimit,
)
