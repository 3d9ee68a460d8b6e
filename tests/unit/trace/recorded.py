"""A toy whose scheduler is recorded: what the tests of traces and reports need to make one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from tests.support.toy_engine import ToyEngine

from tokenyard.core.sched.observer import Observers
from tokenyard.record.recorder import TraceRecorder
from tokenyard.record.writer import TraceWriter
from tokenyard.trace.config import TraceConfig
from tokenyard.trace.facts import FactSink
from tokenyard.trace.start import describe_run

__all__ = ["RecordedYard", "lines_of", "records_of"]


class RecordedYard(ToyEngine):
    """A toy that writes a trace to ``path`` and tells ``sinks``; ``seconds`` pass between schedule and update."""

    def __init__(
        self,
        path: Path | None,
        *sinks: FactSink,
        trace: dict[str, Any] | None = None,
        seconds: float = 0.5,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.seconds = seconds
        scheduler = self.scheduler
        self.writer = TraceWriter(TraceConfig(path=path, policy=scheduler.config.policy, **(trace or {})))
        start = describe_run(scheduler.config, scheduler.cache_config, host="replay", model="toy", gpu="paper")
        self.recorder = TraceRecorder(self.writer, *sinks, start=start)
        scheduler.attach_observer(Observers(self.watcher, self.recorder))

    def step(self, sampled: dict[str, Sequence[int]] | None = None) -> Any:  # type: ignore[override]
        """One whole step on a clock that runs."""
        output = self.schedule()
        self.now += self.seconds
        self.update(output, sampled)
        return output


def lines_of(path: Path, kind: str = "steps") -> list[bytes]:
    """The lines of the one trace in a directory."""
    (file,) = path.glob(f"sched_trace.*.{kind}.jsonl")
    return file.read_bytes().splitlines()


def records_of(path: Path, event: str | None = None, kind: str = "steps") -> list[dict[str, Any]]:
    """The records of the one trace in a directory, of one event if it is given, as plain objects."""
    records = [msgspec.json.decode(line) for line in lines_of(path, kind)]
    return [record for record in records if event is None or record.get("event") == event]
