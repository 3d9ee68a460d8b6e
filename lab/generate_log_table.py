"""Print the table of the page `logs.md` of the site: each log of tests/samples/logs, and what it was read as."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

from sample_logs.catalogue import CATALOGUE, Sample
from tokenyard.errors import WorkloadError
from tokenyard.workload.load import LoadShape, read_workload
from tokenyard.workload.logs.logged import LogOptions

REPO = Path(__file__).resolve().parent.parent
LOGS = REPO / "tests" / "samples" / "logs"
_HEADER = (
    "| file | written by | read as | requests | mean prompt | mean output | assumed | warnings |\n"
    "| --- | --- | --- | --: | --: | --: | --- | --- |"
)


def document() -> str:
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


if __name__ == "__main__":
    print(document())
