"""The table of docs/logs.md: each log of tests/samples/logs, what it was read as, and what was said of it.

``--check``: nothing is written; 1 if the page is not what would be.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import fmean
from typing import Any

from sample_logs.catalogue import CATALOGUE, Sample
from tokenyard.errors import WorkloadError
from tokenyard.workload.load import LoadShape, read_workload
from tokenyard.workload.logs.logged import LogOptions

REPO = Path(__file__).resolve().parent.parent
PAGE = REPO / "docs" / "logs.md"
LOGS = REPO / "tests" / "samples" / "logs"
_BEGIN, _END = "<!-- begin table -->", "<!-- end table -->"
_HEADER = (
    "| file | written by | read as | requests | mean prompt | mean output | assumed | warnings |\n"
    "| --- | --- | --- | --: | --: | --: | --- | --- |"
)


def table() -> str:
    """All rows, in the order of names."""
    return "\n".join([_HEADER, *(_row(name, CATALOGUE[name]) for name in sorted(CATALOGUE))])


def _row(name: str, sample: Sample) -> str:
    file = f"`{name}`" + f" with `{sample.flags}`" * bool(sample.flags)
    options: dict[str, Any] = sample.options
    try:
        workload = read_workload(
            LOGS / name,
            log=LogOptions(model_name=options.get("model_name")),
            load=LoadShape(request_rate=options.get("request_rate")),
        )
    except WorkloadError as error:
        why = error.problem.partition(". ")[0]
        return f"| {file} | {sample.written_by} | refused | | | | | {_cell(why)} |"
    assumed = [_short(each.text) for each in workload.remarks if not each.warning]
    warnings = [each.text for each in workload.remarks if each.warning]
    prompt, output = (
        fmean(values) for values in zip(*((r.num_prompt_tokens, r.max_tokens) for r in workload), strict=True)
    )
    cells = [file, sample.written_by, f"`{workload.kind}`", f"{len(workload)}", f"{prompt:.1f}", f"{output:.1f}"]
    return f"| {' | '.join([*cells, _cell('; '.join(assumed)), _cell('; '.join(warnings))])} |"


def _short(text: str) -> str:
    """A remark without what another column says."""
    return text.partition(": ")[2] if text.startswith("read as ") else text


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("_", "\\_")


def page(text: str) -> str:
    """The page with today's table."""
    before, _, rest = text.partition(_BEGIN)
    after = rest.partition(_END)[2]
    return f"{before}{_BEGIN}\n{table()}\n{_END}{after}"


def main(arguments: list[str]) -> int:
    """Write or check."""
    text = PAGE.read_text()
    made = page(text)
    if "--check" not in arguments:
        PAGE.write_text(made)
    elif made != text:
        print("docs/logs.md is not up to date: run lab/generate_log_table.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
