"""The trace of an emulation: decisions as any trace has them, from which a replay can begin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from tokenyard.core.sched.observer import StepObserver
from tokenyard.deploy.deployment import Deployment
from tokenyard.deploy.record import ASKED, asked_flags
from tokenyard.deploy.spec import open_trace
from tokenyard.policies.named import policy_label
from tokenyard.record.recorder import TraceRecorder
from tokenyard.record.writer import TraceWriter
from tokenyard.serve.emulate.live import WallClock
from tokenyard.trace.config import TraceConfig
from tokenyard.trace.start import SECTION, describe_run


@contextmanager
def recorder_of(deployment: Deployment, folder: Path | None, wall: WallClock) -> Iterator[Sequence[StepObserver]]:
    """What writes the trace of the first engine into ``folder``; none without one. Raises ConfigError.

    The trace says how its clock follows ``wall``.
    """
    if folder is None:
        yield []
        return
    resolved = deployment.resolve()
    label = policy_label(resolved.scheduler.policy)
    with ExitStack() as stack:
        config = TraceConfig(path=folder, policy=label, request_records=True)
        writer = stack.enter_context(TraceWriter(config))
        open_trace(writer)
        start = describe_run(
            resolved.scheduler,
            resolved.cache,
            host="emulate",
            model=resolved.settled.model.name,
            gpu=resolved.settled.gpu.name,
            bytes_per_block=resolved.plan.bytes_per_block,
            clock_zero=wall.zero,
            clock_speed=wall.speed,
            sections={SECTION: msgspec.to_builtins(resolved.header), ASKED: asked_flags(deployment.settings)},
        )
        yield [TraceRecorder(writer, start=start)]
