"""Write the table of docs/reasons.md: how often the ten buckets agree with the recorded reasons, on real workloads.

    python scripts/generate_agreement.py FOLDER

FOLDER holds the files of ``WORKLOADS``, from the public repositories named there. Each is replayed with its trace on,
one record per queued request and step included, since the classifier needs them; then the trace is read.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tokenyard.cli.main import main as tokenyard
from tokenyard.explain.classifier import BUCKETS, Disagreements
from tokenyard.explain.report.summary import summarize

__all__ = ["Workload", "main", "tables"]

TARGET = Path(__file__).resolve().parent.parent / "docs/reasons.md"
BEGIN, END = "<!-- scripts/generate_agreement.py -->\n", "<!-- end -->\n"
_CONFUSIONS = 5


class Workload(NamedTuple):
    """A public recording, and the replay of its first requests."""

    name: str
    file: str
    flags: str


WORKLOADS = (
    Workload("Mooncake, conversations", "mooncake_conversation.jsonl.gz", "--limit 150 --gpu h100"),
    Workload("Mooncake, arXiv agents", "mooncake_arxiv_head1000.jsonl.gz", "--limit 200 --gpu h100"),
    Workload("Azure 2023, conversations", "azure2023_conv.csv.gz", "--limit 600 --gpu h100 --max-num-seqs 16"),
    Workload("Azure 2023, code", "azure2023_code.csv.gz", "--limit 300 --gpu l4 --max-model-len 16384"),
    Workload(
        "LMCache, coding agents",
        "lmcache_agent_hash64.jsonl.gz",
        "--limit 12 --gpu l4 --max-model-len 32768 --skip-refused --rate-scale 50",
    ),
)
_ALWAYS = "--model llama-3.1-8b --record-requests --max-ids-per-step 0 --advice none --json"


def agreement(file: Path, flags: str) -> Disagreements:
    """Replay the workload and compare, step by step. SystemExit if it cannot be replayed."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["run", str(file), *flags.split(), *_ALWAYS.split(), "--trace", f"{folder}/trace"]
        with contextlib.redirect_stdout(io.StringIO()):
            code = tokenyard(words)
        if code:
            raise SystemExit(f"{file}: the replay ended with {code}")
        return summarize(f"{folder}/trace").disagreements


def tables(found: Mapping[str, Disagreements]) -> str:
    """Markdown: agreement by bucket and workload, and the commonest confusions."""
    return "\n".join([*_by_bucket(found), "", *_confusions(found)]) + "\n"


def _by_bucket(found: Mapping[str, Disagreements]) -> Iterator[str]:
    yield f"| bucket | {' | '.join(found)} | all |"
    yield "| --- |" + " ---: |" * (len(found) + 1)
    columns = [_counts(each) for each in found.values()]
    columns.append(_added(columns))
    for bucket in BUCKETS:
        cells = [column.get(bucket.value, (0, 0)) for column in columns]
        if any(compared for _, compared in cells):
            yield f"| `{bucket}` | {' | '.join(_share(*cell) for cell in cells)} |"
    totals = [(sum(a for a, _ in column.values()), sum(n for _, n in column.values())) for column in columns]
    yield f"| all | {' | '.join(_share(*total) for total in totals)} |"


def _counts(found: Disagreements) -> dict[str, tuple[int, int]]:
    """Bucket -> (steps that agree, steps)."""
    return _added([{pair.bucket: (pair.steps * pair.agrees, pair.steps)} for pair in found.pairs])


def _added(parts: Sequence[Mapping[str, tuple[int, int]]]) -> dict[str, tuple[int, int]]:
    agreeing, steps = Counter[str](), Counter[str]()
    for part in parts:
        for bucket, (right, of) in part.items():
            agreeing[bucket] += right
            steps[bucket] += of
    return {bucket: (agreeing[bucket], steps[bucket]) for bucket in steps}


def _share(agreeing: int, steps: int) -> str:
    return f"{100 * agreeing / steps:.1f} % of {steps:,}" if steps else "-"


def _confusions(found: Mapping[str, Disagreements]) -> Iterator[str]:
    wrong: Counter[tuple[str, str]] = Counter()
    for each in found.values():
        for pair in each.pairs:
            wrong[pair.bucket, pair.recorded] += pair.steps * (not pair.agrees)
    compared = sum(each.steps_compared for each in found.values())
    yield "| the classifier says | recorded | steps | of all compared |"
    yield "| --- | --- | ---: | ---: |"
    for (bucket, recorded), steps in wrong.most_common(_CONFUSIONS):
        if steps:
            yield f"| `{bucket}` | `{recorded}` | {steps:,} | {100 * steps / compared:.1f} % |"


def main(words: Sequence[str]) -> int:
    """Replay, print the tables, and put them into the document."""
    parser = argparse.ArgumentParser(description="Agreement of the ten buckets with the recorded reasons.")
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args(words).folder
    missing = [each.file for each in WORKLOADS if not (folder / each.file).is_file()]
    if missing:
        print(f"generate_agreement.py: {folder} lacks {', '.join(missing)}", file=sys.stderr)
        return 2
    found = {each.name: agreement(folder / each.file, each.flags) for each in WORKLOADS}
    made = tables(found)
    made += "".join(f"\n* {each.name}: `{each.file}`, `{each.flags}`" for each in WORKLOADS) + "\n"
    print(made, end="")
    document = TARGET.read_text(encoding="utf-8")
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"{TARGET}: has no {BEGIN.strip()} ... {END.strip()}")
    TARGET.write_text(f"{before}{BEGIN}\n{made}\n{END}{after}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
