"""Make the sample trace of the viewer's landing page, viewer/src/shell/sample.*.txt.

A few agents with growing prompts on a small pool: the token budget, max_num_seqs, memory and preemptions all hold
requests back in it, and prefixes are found again. The same bytes on every machine. The browser tests replay a longer
one of the same kind.
"""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

__all__ = ["PRESSURE", "crowded", "main"]

REPO = Path(__file__).resolve().parent.parent
TARGET = REPO / "viewer" / "src" / "shell"
BLOCK = 128
"""Tokens per hash id of the workload."""
LEFT_OUT = {
    "steps": "config num_pinned pinned_blocks external_hit_tokens total_hit_tokens load_kv_async gpu_cached_blocks"
    " num_skipped_waiting tokenyard_version skipped_counts num_external_computed_tokens",
    "requests": "prompt_prefix prompt_suffix output_tail resumable priority block_hashes_count ts arrival_time job_id"
    " num_external_computed_tokens num_preemptions num_output_tokens max_tokens",
}
"""The page would carry them, and they say nothing that the sample needs to show."""
DIGITS = 4
"""Digits of times, in seconds."""
PRESSURE = (
    "--num-gpu-blocks-override=186",
    "--no-scheduler-reserve-full-isl",
    "--max-num-seqs=6",
    "--max-num-batched-tokens=512",
    "--vllm-version=0.22",
    "--record-requests",
)
"""Flags under which this workload meets every limit."""


def crowded(jobs: int = 8, lengths: Sequence[int] = (5, 8, 12, 26)) -> str:
    """Agents whose prompts share a beginning and grow turn by turn, and one long report among them, as JSON lines.

    ``lengths``: what answers are long, in tokens.
    """
    draw = random.Random(11)
    requests: list[dict[str, object]] = []
    for job in range(jobs):
        hashes = [1, 2]
        for turn in range(draw.choice((1, 2, 2, 3))):
            hashes = [*hashes, *(1000 * (job + 1) + 10 * turn + k for k in range(draw.choice((1, 2, 4))))]
            request: dict[str, object] = {
                "request_id": f"agent_{job:02}_t{turn}",
                "job_id": f"agent_{job:02}",
                "prompt_len": BLOCK * len(hashes) + draw.randrange(BLOCK),
                "hash_ids": hashes,
                "block_size": BLOCK,
                "max_tokens": draw.choice(lengths),
            }
            if turn == 0:
                request["arrival_time"] = round(0.07 * job + draw.random() / 50, 3)
            else:
                request |= {"after": f"agent_{job:02}_t{turn - 1}", "gap": round(draw.random() / 5, 3)}
            requests.append(request)
    report = {"request_id": "report_t0", "job_id": "report", "prompt_len": 2600, "max_tokens": 8, "arrival_time": 0.21}
    return "".join(json.dumps(request) + "\n" for request in [*requests, report])


def main() -> None:
    """Replay, leave out token ids, pack."""
    with tempfile.TemporaryDirectory() as folder:
        workload = Path(folder) / "sample.jsonl"
        workload.write_text(crowded(jobs=6, lengths=(4, 6, 8, 14)))
        flags = (*PRESSURE, "--gpu=l4", "--max-ids-per-step=0", "--trace", folder)
        command = [sys.executable, "-m", "tokenyard.cli.main", "run", str(workload), *flags]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        for kind in ("steps", "requests"):
            lines = (Path(folder) / f"sched_trace.fcfs.{kind}.jsonl").read_text().splitlines()
            text = "".join(_short(line, set(LEFT_OUT[kind].split())) + "\n" for line in lines)
            (TARGET / f"sample.{kind}.txt").write_text(text)
            print(f"{kind}: {len(lines)} lines, {len(gzip.compress(text.encode(), 9))} bytes packed")


def _short(line: str, left_out: set[str]) -> str:
    record = json.loads(line)
    kept = {name: _rounded(value) for name, value in record.items() if name not in left_out}
    return json.dumps(kept, separators=(",", ":"))


def _rounded(value: object) -> object:
    return round(value, DIGITS) if isinstance(value, float) else value


if __name__ == "__main__":
    main()
