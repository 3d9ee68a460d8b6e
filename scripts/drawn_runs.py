"""Traces and reports of drawn replays, as digests in a file; where it is there already, they are compared with it.

    python scripts/drawn_runs.py FILE [--runs 200]         before a change, and after it

Each run is replayed twice: with a trace of every step, and in leaps for its report alone. The exit status is 1 where a
digest differs. The runs are those of the property test of leaps.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO))

import msgspec  # noqa: E402
import numpy as np  # noqa: E402
from tests.property.test_features_machine import draw_cache, draw_speculation  # noqa: E402 - a folder of the repository
from tests.property.test_leaps import cache_of, draw_config, draw_latency, draw_requests  # noqa: E402

from tokenyard.errors import ConfigError  # noqa: E402
from tokenyard.explain.report.builder import ReportBuilder  # noqa: E402
from tokenyard.record.recorder import TraceRecorder  # noqa: E402
from tokenyard.record.writer import TraceWriter  # noqa: E402
from tokenyard.sim.executor import SimulatedSpeculation  # noqa: E402
from tokenyard.sim.replay import replay  # noqa: E402
from tokenyard.steptime.pace import MachineSpeed  # noqa: E402
from tokenyard.trace.config import TraceConfig  # noqa: E402
from tokenyard.trace.start import describe_run  # noqa: E402
from tokenyard.workload.record import Workload  # noqa: E402

__all__ = ["main"]


def drawn(seed: int) -> tuple[Workload, dict[str, Any]]:
    """A workload, and how it is replayed. ConfigError for settings that exclude each other."""
    random = Random(seed)
    config = draw_config(random)
    speculative = draw_speculation(random) if random.random() < 0.2 else None
    guesses = config.async_scheduling and speculative is not None
    eagle = speculative is not None and speculative.use_eagle
    cache = cache_of(random, draw_cache(random, config, guesses=guesses, eagle=eagle), config)
    workload = Workload("w", draw_requests(random), max_concurrency=random.choice([None, None, 3]))
    how: dict[str, Any] = {"config": config, "cache_config": cache, "latency": draw_latency(random)}
    if random.random() < 0.2:
        how["pace"] = MachineSpeed(np.array([0.0, 1.0, 4.0]), np.array([1.0, 2.5, 0.5]))
    how["speculation"] = None if speculative is None else SimulatedSpeculation(config=speculative)
    return workload, how


def digest(*parts: bytes) -> str:
    """The first half of a hash."""
    return sha256(b"\0".join(parts)).hexdigest()[:32]


def digests(seed: int, folder: Path) -> dict[str, str]:
    """Return those of the trace, its report, and the report of a replay in leaps. Raises ConfigError."""
    path, builder, leaping = folder / "trace", ReportBuilder(), ReportBuilder()
    workload, how = drawn(seed)
    start = describe_run(how["config"], how["cache_config"], host="replay")
    with TraceWriter(TraceConfig(path=path)) as writer:
        replay(workload, observer=TraceRecorder(writer, builder, start=start), skip_refused=True, **how)
    workload, how = drawn(seed)
    replay(workload, observer=TraceRecorder(None, leaping, start=start), skip_refused=True, **how)
    files = [each.read_bytes() for each in sorted(path.iterdir())]
    shutil.rmtree(path)
    reports = [msgspec.json.encode(each.report(), order="sorted") for each in (builder, leaping)]
    return {"trace": digest(*files), "report": digest(reports[0]), "report in leaps": digest(reports[1])}


def runs(count: int) -> Iterator[tuple[str, dict[str, str]]]:
    """Give out ``count`` runs that can be made, each under its seed."""
    seed = 0
    with tempfile.TemporaryDirectory() as folder:
        while count:
            try:
                yield str(seed), digests(seed, Path(folder))
                count -= 1
            except ConfigError:
                pass
            seed += 1


def main(arguments: list[str]) -> int:
    """Write the file, or compare with it."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--runs", type=int, default=200)
    flags = parser.parse_args(arguments)
    found = dict(runs(flags.runs))
    if not flags.file.exists():
        flags.file.write_text(json.dumps(found, indent=1))
        return 0
    known = json.loads(flags.file.read_text())
    differ = [f"run {seed}: another {part}" for seed in found for part in found[seed] if found[seed] != known.get(seed)]
    print("\n".join(differ) or f"{len(found)} runs, all alike")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
