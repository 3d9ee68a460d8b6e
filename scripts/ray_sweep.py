"""A sweep on a Ray cluster of two workers, one of which is killed, beside the same sweep in one process.

    python scripts/ray_sweep.py --variants 200        (needs the extras ray and analysis)

Exits 1 unless both tables are the same to the byte.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import ray

from tokenyard.cli.support.asking import scenario_of
from tokenyard.cli.support.flags.replays import SweepCommand
from tokenyard.cli.support.parsing import parse
from tokenyard.explain.slo import read_slos
from tokenyard.questions.experiment import measured
from tokenyard.questions.sweeping.cluster import LOCAL_RAY
from tokenyard.questions.sweeping.measuring import VariantWorker
from tokenyard.questions.sweeping.rows import Journal, Row, Settings
from tokenyard.questions.sweeping.variants import Grid, Job
from tokenyard.questions.variant_sources import source_of

__all__ = ["grid_of", "job_of", "main", "on_dying_cluster", "table_of"]

WORKLOAD = ("chat", "--limit", "4", "--rate-scale", "40", "--num-gpu-blocks-override", "900", "--max-model-len", "8192")
_STORE_BYTES = 100 << 20


@dataclass(frozen=True)
class Dying:
    """A job whose worker process is killed in the middle of one variant, once."""

    job: Job
    variant: Settings
    mark: Path
    """Is there once that has happened."""

    def __call__(self, settings: Settings) -> Row:
        """Measure, or be killed."""
        if settings == self.variant and not self.mark.exists():
            self.mark.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        return self.job(settings)


def job_of() -> VariantWorker:
    """Small conversations on one GPU."""
    flags = cast(SweepCommand, parse(["sweep", *WORKLOAD]))
    return VariantWorker(source=source_of(scenario_of(flags)), slos=read_slos([["ttft_p90=500ms", "tpot:40"]]))


def grid_of(number: int) -> list[dict[str, Any]]:
    """The variants of one sweep."""
    grid = Grid(
        [
            ("max_num_seqs", tuple(range(1, 11))),
            ("max_num_batched_tokens", (256, 512, 1024, 2048)),
            ("long_prefill_token_threshold", (0, 64, 128, 192, 256)),
        ]
    )
    return grid.all()[:number]


def on_dying_cluster(job: VariantWorker, variants: Sequence[Settings], mark: Path) -> Iterator[Row]:
    """Rows from two workers of a cluster on this machine, one of which is killed with what it is doing."""
    ray.init(LOCAL_RAY, num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=_STORE_BYTES)
    try:
        yield from measured(Dying(job, variants[len(variants) // 3], mark), variants, ray=LOCAL_RAY)
    finally:
        ray.shutdown()


def table_of(rows: Iterable[Row], variants: Sequence[Settings], directory: Path) -> bytes:
    """The table that a sweep writes."""
    with Journal(directory, {}) as journal:
        for row in rows:
            journal.add(row)
        journal.write_table(variants)
        return journal.table.read_bytes()


def main() -> int:
    """Both sweeps, and whether their tables are equal."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--variants", type=int, default=200)
    job, variants = job_of(), grid_of(parser.parse_args().variants)
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        serial = table_of(measured(job, variants), variants, Path(folder) / "serial")
        middle = time.perf_counter()
        mark = Path(folder) / "killed"
        cluster = table_of(on_dying_cluster(job, variants, mark), variants, Path(folder) / "ray")
        end = time.perf_counter()
        killed = mark.read_text()
    same = serial == cluster
    print(f"{len(variants)} replays in one process: {middle - begun:.0f} s")
    print(f"{len(variants)} replays on a Ray cluster of two workers: {end - middle:.0f} s; worker {killed} was killed")
    print(f"the tables are {'the same to the byte' if same else 'NOT THE SAME'}: {len(serial):,} bytes")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
