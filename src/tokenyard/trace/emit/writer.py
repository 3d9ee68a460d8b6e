"""The emitter: the JSONL pair of a trace, with sampling, a step limit and the promise never to harm the scheduler.

Whole lines are gathered in memory and go to the disk together, from a thread of their own: when 256 KiB have come
together, when 64 steps and a quarter of a second have passed since the last time, after 1,024 steps in any case, when
the scheduler runs idle, on ``flush``, ``close`` and at the interpreter's exit. So a crash leaves every line readable
and costs little more than the last 64 steps or quarter of a second, and a scheduler of short steps does not wake the
thread hundreds of times a second. If the path cannot be written, another process writes it, the file is removed, or the
disk is full, one warning is logged, tracing ends, and the scheduler goes on.
"""

from __future__ import annotations

import atexit
import logging
import math
import os
import threading
from typing import Any

import msgspec

from tokenyard.trace.emit.line_file import LineFile, Lines, claim
from tokenyard.trace.emit.writer_thread import WriterThread
from tokenyard.trace.format.config import TraceConfig
from tokenyard.trace.format.schema import (
    HostEvent,
    PrefixCacheLookup,
    RequestEvent,
    RequestRecord,
    StepDecision,
    StepEvent,
    StepSnapshot,
    TraceStart,
)

__all__ = ["TraceConfig", "TraceWriter"]

_BYTES_HELD = 256 * 1024
"""What the thread puts together at once should fit the cache that it shares with the scheduler."""
_STEPS_HELD = 64
_MOST_STEPS_HELD = 1024
_SECONDS_HELD = 0.25

_log = logging.getLogger("tokenyard.trace")


class TraceWriter:
    """Writes records as they come; every method is safe to call at any time and none raises for a bad disk."""

    def __init__(self, config: TraceConfig) -> None:
        self.config = config
        self.problem: str | None = None
        """Why writing ended early, or None."""
        self._steps: LineFile | None = None
        self._requests: LineFile | None = None
        self._claimed: LineFile | None = None
        """The steps file before there is something to write."""
        self._start: TraceStart | None = None
        self._first_step: int | None = None
        self.all_before: float = -math.inf
        """All steps below are wanted; for a caller in a hurry, who asks ``wants_step`` about the others."""
        self._steps_held = 0
        self._handed_over_at = -math.inf
        self._thread = WriterThread(self._failed)
        self._pid = os.getpid()
        self._closed = not config.enabled

    def begin(self, start: TraceStart) -> None:
        """Say what runs: written before the first record, with the writer's own settings in it. Opens no file."""
        self._start = start

    def claim(self) -> None:
        """Make the steps file now, empty, and keep other writers out; what an earlier run left beside it is removed.

        For whoever was asked for a trace, and should say at once that it cannot be written. Raises OSError.
        """
        steps, requests = self.config.steps_path, self.config.requests_path
        if self._closed or steps is None or requests is None:
            return
        self._claimed = LineFile(steps, claim(steps))
        requests.unlink(missing_ok=True)

    # ---- what is wanted

    @property
    def is_open(self) -> bool:
        """False when there is no path, after ``close`` and after a failed write: nothing is written then."""
        return not self._closed

    @property
    def is_whole(self) -> bool:
        """A trace is wanted, and nothing has kept it from being written."""
        return self.config.enabled and self.problem is None

    @property
    def wants_requests(self) -> bool:
        """Per-request records are wanted."""
        return not self._closed and self.config.request_records

    def wants_step(self, step: int) -> bool:
        """``step`` is neither sampled away nor beyond the step limit."""
        if self._closed:
            return False
        if self._first_step is None:
            self._first_step = step
            if self.config.every_n == 1:
                self.all_before = step + self.config.max_steps
        count = step - self._first_step
        return 0 <= count < self.config.max_steps and count % self.config.every_n == 0

    def wants_events(self, step: int) -> bool:
        """Records that belong to a request and not to a step are wanted: sampling does not concern them."""
        return not self._closed and (self._first_step is None or step - self._first_step < self.config.max_steps)

    # ---- the three functions of the format, and what is additive

    def step_snapshot(self, step: int, **fields: Any) -> None:
        """Write a ``step_snapshot`` if the step is wanted; fields the format does not know are written as they are."""
        if self.wants_step(step):
            self._write(StepSnapshot, step, fields)

    def step_decision(self, step: int, **fields: Any) -> None:
        """Write a ``step_decision`` if the step is wanted; see :meth:`step_snapshot`."""
        if self.wants_step(step):
            self._write(StepDecision, step, fields)

    def prefix_cache_event(self, step: int, **fields: Any) -> None:
        """Write a ``prefix_cache_lookup``; see :meth:`step_snapshot`."""
        if self.wants_events(step):
            self._write(PrefixCacheLookup, step, fields)

    def _write(
        self, record: type[StepSnapshot | StepDecision | PrefixCacheLookup], step: int, fields: dict[str, Any]
    ) -> None:
        assert "event" not in fields, "the kind of record is the function's to say"
        fields.setdefault("policy", self.config.policy)
        extra = {name: fields.pop(name) for name in fields.keys() - set(record.__struct_fields__)}
        self.append(record(step=step, **fields), **dict(sorted(extra.items())))

    def append(self, record: StepEvent, **extra: object) -> None:
        """Write a record of the steps file with ``extra`` fields behind its own."""
        if self._closed:
            return
        steps = self._steps
        if steps is None:
            steps = self._open()
        steps.append(record, extra)
        if steps.waiting.num_bytes >= _BYTES_HELD:
            self._hand_over()

    def append_event(self, record: RequestEvent | HostEvent) -> None:
        """Write what happened to a request, or what the host did. The writing thread encodes it: leave it unchanged."""
        if self._closed:
            return
        steps = self._steps
        if steps is None:
            steps = self._open()
        steps.append_small(record)
        if steps.waiting.num_bytes >= _BYTES_HELD:
            self._hand_over()

    def waiting(self) -> Lines:
        """What waits for the steps file, for a caller in a hurry, who asks ``wants_step`` first."""
        return (self._steps or self._open()).waiting

    def append_request(self, record: RequestRecord, **extra: object) -> None:
        """Write a record of the requests file."""
        path = self.config.requests_path
        if self._closed or path is None:
            return
        if self._requests is None:
            self._open()
            self._requests = LineFile(path)
        self._requests.append(record, extra)
        if self._requests.waiting.num_bytes >= _BYTES_HELD:
            self._hand_over()

    def _open(self) -> LineFile:
        if self._steps is None:
            path = self.config.steps_path
            assert path is not None, "a writer without a path is closed"
            self._steps = self._claimed or LineFile(path)
            atexit.register(self.close)
            if self._start is not None:
                self._steps.append(self._stamped(self._start))
        return self._steps

    def _stamped(self, start: TraceStart) -> TraceStart:
        config = self.config
        return msgspec.structs.replace(
            start,
            policy=config.policy,
            every_n=config.every_n,
            max_steps=config.max_steps,
            max_ids_per_step=config.max_ids_per_step,
            request_records=config.request_records,
        )

    # ---- to the disk

    @property
    def thread(self) -> threading.Thread | None:
        """The thread that writes, for those who want to know what it costs; None before there was anything to write."""
        return self._thread.thread

    def steps_done(self, count: int = 1, *, idle: bool, ts: float = math.inf) -> None:
        """Steps are complete: write what waits if it is due.

        ``idle``: no request is left, a pause may follow; ``ts``: now.
        """
        self._steps_held += count
        steps = self._steps
        if steps is None:
            return
        if idle or steps.waiting.num_bytes >= _BYTES_HELD or (self._steps_held >= _STEPS_HELD and self._is_due(ts)):
            self._handed_over_at = ts
            self._hand_over()

    def _is_due(self, ts: float) -> bool:
        return ts >= self._handed_over_at + _SECONDS_HELD or self._steps_held >= _MOST_STEPS_HELD

    def _hand_over(self) -> None:
        """Have what waits written, without waiting for it."""
        self._steps_held = 0
        if self._closed:
            return
        if self._pid != os.getpid():  # a forked child: these lines are its parent's
            self._end()
            return
        for file in (self._steps, self._requests):
            if file is not None:
                self._thread.put(file)

    def flush(self) -> None:
        """Write what waits, and wait until it is written."""
        self._hand_over()
        if not self._closed:
            self._thread.drain()

    def close(self) -> None:
        """Write what waits and close; a second call does nothing."""
        self._hand_over()
        self._end()
        atexit.unregister(self.close)
        if self._pid == os.getpid():
            self._thread.stop()
        for file in (self._steps or self._claimed, self._requests):
            try:
                if file is not None:
                    if self._pid == os.getpid():
                        file.check()
                    file.discard()
            except OSError as error:
                self._failed(error)

    def _end(self) -> None:
        """Nothing more is wanted."""
        self._closed, self.all_before = True, -math.inf

    def _failed(self, error: Exception) -> None:
        self._end()
        if self.problem is None:
            self.problem = f"{self.config.path}: {error}"
            if isinstance(error, OSError) and error.strerror:
                self.problem = f"{error.filename or self.config.path}: {error.strerror}"
            _log.warning("trace: writing stopped, the scheduler goes on: %s", self.problem)

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
