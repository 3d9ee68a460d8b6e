"""The Parquet twin, measured: how much smaller than the JSON lines, and questions over a million steps.

    python benchmarks/columnar.py [TRACE]       a trace directory or file; without one the demo is replayed

The million steps are those of the trace, one run of it after the other, with steps and times going on.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tokenyard.cli.run import run
from tokenyard.cli.support.flags.replays import RunCommand
from tokenyard.deploy.settings import HardwareSettings, SchedulerSettings, TraceSettings
from tokenyard.trace.convert import convert
from tokenyard.trace.query import QueryLimits, ask
from tokenyard.trace.reader import find_trace

STEPS = 1_000_000
LIMITS = QueryLimits(seconds=120, memory_mb=4_096)
QUESTIONS = {
    "steps and time held back, by reason": """
        SELECT reason, count(*) AS steps, sum(num_requests * seconds) AS request_seconds FROM (
            SELECT o.reason, o.num_requests, lead(s.ts) OVER (ORDER BY s.step) - s.ts AS seconds
            FROM snapshots s LEFT JOIN outcomes o USING (step)) WHERE reason IS NOT NULL GROUP BY reason""",
    "occupancy in 1,000 windows": """
        SELECT step // 1000 AS w, avg(1 - free_blocks / total_blocks), max(num_running), max(num_waiting)
        FROM snapshots GROUP BY w ORDER BY w""",
    "token budget, as a histogram": """
        SELECT least(total_scheduled_tokens * 20 // max_num_scheduled_tokens, 20) AS bin, count(*)
        FROM decisions JOIN snapshots USING (step) GROUP BY bin ORDER BY bin""",
    "time to first token, percentiles": """
        SELECT quantile_cont(first_token_time - arrival_time, [0.5, 0.9, 0.99]) FROM finishes""",
    "prefix hits": """
        SELECT sum(local_hit_tokens) / sum(total_prompt_tokens), sum(external_hit_tokens) FROM lookups""",
    "requests named in the running lists": """
        SELECT sum(len(running_req_ids)), max(len(waiting_req_ids)) FROM snapshots""",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", nargs="?", type=Path)
    parser.add_argument("--steps", type=int, default=STEPS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tokenyard-bench-") as directory:
        source = find_trace(arguments.trace or replayed(Path(directory) / "trace")).source
        twin = Path(directory) / "trace.steps.parquet"
        began = time.perf_counter()
        done = convert(source, twin, "steps")
        print(
            f"{source.name}: {done.lines:,} lines, {done.json_bytes / 1e6:.1f} MB of JSON -> "
            f"{done.target_bytes / 1e6:.2f} MB, {done.json_bytes / done.target_bytes:.1f} times smaller, "
            f"in {time.perf_counter() - began:.1f} s"
        )
        million = Path(directory) / "million.steps.parquet"
        steps = repeated(twin, million, arguments.steps)
        print(f"{steps:,} steps: {million.stat().st_size / 1e6:.1f} MB")
        for what, sql in QUESTIONS.items():
            answer = ask(sql, million, None, LIMITS)
            print(f"  {answer.seconds:6.2f} s  {what} ({len(answer.rows):,} rows)")


def replayed(directory: Path) -> Path:
    run(
        RunCommand(
            workload="agentic",
            hardware=HardwareSettings(gpu="a100-40gb", num_gpu_blocks_override=10_318),
            scheduler=SchedulerSettings(max_num_batched_tokens=2_048, max_num_seqs=100),
            output=TraceSettings(trace=directory),
        )
    )
    return directory


def repeated(source: Path, target: Path, steps: int) -> int:
    """Write ``source`` again and again until there are at least ``steps``; returns how many there are."""
    table = pq.read_table(source)
    span = pc.max(table["step"]).as_py() + 1
    seconds = pc.max(table["ts"]).as_py() + 1.0
    times = math.ceil(steps / span)
    with pq.ParquetWriter(target, table.schema, compression="zstd") as writer:
        for i in range(times):
            writer.write_table(moved(table, i * span, i * seconds))
    return int(span * times)


def moved(table: Any, steps: int, seconds: float) -> Any:
    for name, offset in (("step", pa.scalar(steps, pa.int32())), ("ts", pa.scalar(seconds))):
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, pc.add(table[name], offset))
    return table


if __name__ == "__main__":
    main()
