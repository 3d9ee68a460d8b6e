"""``tokenyard report``: a trace in, what held its requests back out."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

from tokenyard.cli.support.console import print_json, results, write_text
from tokenyard.cli.support.flags.traces import ReportCommand
from tokenyard.explain.console import PlainConsole
from tokenyard.explain.recorded import report, report_by
from tokenyard.explain.render.report import print_report
from tokenyard.explain.report.classes import Classes
from tokenyard.explain.report.report import Report

_PICTURE_WIDTH = 100
"""Columns."""
_FONTS_FROM_AFAR = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)
"""Left out of the picture: it must look the same without a network."""


def execute(flags: ReportCommand) -> int:
    """Summarise, print, and draw if asked to; always 0 if the trace can be read."""
    classes = None
    if flags.by is None:
        found = report(flags.trace, slo=flags.slo)
    else:
        found, classes = report_by(flags.trace, flags.by, slo=flags.slo)
    if flags.svg is not None:
        _draw(found, classes, flags.svg, flags)
    if flags.json:
        print_json(found.to_dict() | ({} if classes is None else {"by": classes.by, "classes": classes.classes}))
    else:
        print_report(found, results(), full=flags.full, buckets=flags.buckets, header=flags.header, classes=classes)
    return 0


def _draw(found: Report, classes: Classes | None, path: Path, flags: ReportCommand) -> None:
    """The report as a terminal of 100 columns would show it."""
    console = PlainConsole(record=True, width=_PICTURE_WIDTH, file=StringIO(), force_terminal=True, highlight=False)
    print_report(found, console, buckets=flags.buckets, header=flags.header, classes=classes)
    write_text("svg", path, _FONTS_FROM_AFAR.sub("", console.export_svg(title="tokenyard report")))
