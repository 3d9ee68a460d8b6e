"""The emitter: the JSONL pair of a trace, its file, its thread, and the promise never to harm an engine."""

from __future__ import annotations

import atexit
import errno
import logging
import math
import os
import stat
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import msgspec

from tokenyard.arguments import given_kind
from tokenyard.errors import ConfigError
from tokenyard.files import close_locked, try_lock
from tokenyard.redaction import with_valid_text
from tokenyard.trace.config import TraceConfig
from tokenyard.trace.schema import (
    HostEvent,
    RequestEvent,
    RequestRecord,
    StepDecision,
    StepEvent,
    StepSnapshot,
    TraceStart,
    json_value,
)

# ---------------------------------------------------------------------------------------------------------------------
# A file of JSON lines that survives a crash, and that one process writes.
#
# Records are gathered in memory and written as whole lines in one go, so a process that dies loses what it had
# gathered. When a write stops in the middle (a full disk) the file is cut back to its last whole line; only a kill in
# the very middle of a write can leave half a line, which readers leave out and count.

_FLAGS = os.O_WRONLY | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)

_GAP = b"\0"
_LINE = _GAP + b"\n"
RECORD_BYTES = 300
"""Length of a small record's line, about."""


class Piece(msgspec.Struct, kw_only=True, gc=False):
    """JSON of what stays as it is: made when it is first written, and kept for other lines that have it too."""

    made: bytes | None = None

    def json(self) -> bytes:
        """The piece."""
        if self.made is None:
            self.made = self.make()
        return self.made

    def make(self) -> bytes:
        """Make it."""
        raise NotImplementedError


class Lines:
    """Lines that wait, in three lists: templates, numbers for them, and pieces of JSON for them.

    A template is one or more whole lines in which ``%b`` stands for a number and a zero byte for a piece. A step has to
    pay for keeping numbers only; the lines are put together when they are written.

    A caller that extends the lists sets ``is_open`` while it does, adds the template last, and calls
    ``drop_unfinished`` first if it finds it set: so an interrupt in between costs this line, and not the others.
    """

    __slots__ = ("is_open", "num_bytes", "numbers", "pieces", "templates")

    def __init__(self) -> None:
        self.templates: list[bytes] = []
        self.numbers: list[float | None] = []
        self.pieces: list[bytes | msgspec.Struct] = []
        """JSON, or a :class:`Piece` or record that becomes JSON when it is written; it is not changed before."""
        self.num_bytes = 0
        """Length of the lines, about; a caller that extends the lists adds to it."""
        self.is_open = False
        """A line is being added, or the adding was interrupted."""

    def append(self, line: bytes | msgspec.Struct, num_bytes: int = RECORD_BYTES) -> None:
        """Add a line, without its end; ``num_bytes``: its length, about, if it is not made yet."""
        if self.is_open:
            self.drop_unfinished()
        self.is_open = True
        self.num_bytes += len(line) + 1 if isinstance(line, bytes) else num_bytes
        self.pieces.append(line)
        self.templates.append(_LINE)
        self.is_open = False

    def drop_unfinished(self) -> None:
        """Drop the numbers and pieces of a line whose adding was interrupted."""
        del self.numbers[sum(template.replace(b"%%", b"").count(b"%b") for template in self.templates) :]
        del self.pieces[sum(template.count(_GAP) for template in self.templates) :]
        self.is_open = False

    def take(self) -> Lines:
        """All of them; none are left here."""
        if self.is_open:
            self.drop_unfinished()
        taken = Lines()
        taken.templates, taken.numbers, taken.pieces = self.templates, self.numbers, self.pieces
        taken.num_bytes = self.num_bytes
        self.templates, self.numbers, self.pieces, self.num_bytes = [], [], [], 0
        return taken

    def render(self) -> list[bytes]:
        """The text of all lines, in parts."""
        text = b"".join(self.templates)
        if self.numbers:
            text %= tuple(_ENCODER.encode(self.numbers)[1:-1].split(b","))
        parts = [b""] * (2 * len(self.pieces) + 1)
        parts[::2] = text.split(_GAP)
        parts[1::2] = [
            piece if isinstance(piece, bytes) else piece.json() if isinstance(piece, Piece) else encoded(piece)
            for piece in self.pieces
        ]
        return parts


class Deferred(ABC):
    """A value of a record that is made when the record is written, by the thread that writes."""

    __slots__ = ()

    @abstractmethod
    def made(self) -> object:
        """What to write. It may be requested twice."""


def encodable(value: object) -> object:
    """What to write for a value that JSON has no notation for."""
    return value.made() if isinstance(value, Deferred) else json_value(value)


_ENCODER = msgspec.json.Encoder(enc_hook=encodable)


def claim(path: Path, before_emptied: Callable[[], None] | None = None) -> int:
    """A file that this process alone writes, empty; its directory is made.

    ``before_emptied`` is called when it is locked and still holds what it held; an error of it leaves the file alone.
    The lock belongs to the open file: it ends when that is closed or the process dies. Raises OSError, also if another
    writer has the file, or if it is a pipe or a device, which is not waited for.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, _FLAGS, 0o644)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "is no file on a disk", str(path))
        if not try_lock(fd):
            raise OSError(errno.EBUSY, "is being written by another run", str(path))
        if before_emptied is not None:
            before_emptied()
        os.ftruncate(fd, 0)
    except BaseException:
        os.close(fd)
        raise
    return fd


class LineFile:
    """Gathers the lines of one file in memory, and puts them down.

    Not created, not even its directory made, before there is something to put down, unless it was claimed. An existing
    file is replaced: a trace file holds one run.
    """

    def __init__(self, path: Path, claimed: int = -1) -> None:
        """``claimed``: what :func:`claim` gave for ``path``, if it was asked."""
        self.path = path
        self.waiting = Lines()
        self._fd = claimed
        self._size = 0

    def append(self, record: msgspec.Struct, extra: Mapping[str, object] | None = None) -> None:
        """Encode ``record``, with the fields of ``extra`` behind its own."""
        self.waiting.append(encoded(record, extra))

    def append_small(self, record: msgspec.Struct) -> None:
        """Add a record that is encoded when it is written; it must not change any more."""
        self.waiting.append(record)

    def put_down(self, lines: Lines) -> None:
        """Write lines. Raises OSError and leaves whole lines behind."""
        text = b"".join(lines.render())
        if self._fd < 0:
            self._fd = claim(self.path)
        self.check()
        done = 0
        try:
            while done < len(text):
                done += os.write(self._fd, memoryview(text)[done:])
        except OSError:
            os.ftruncate(self._fd, self._size + text.rfind(b"\n", 0, done) + 1)
            raise
        self._size += done

    def check(self) -> None:
        """Raise OSError if the file is not in its place any more: what is written to it would be lost."""
        if self._fd >= 0 and not (self.path.exists() and os.path.samestat(self.path.stat(), os.fstat(self._fd))):
            raise OSError(errno.ENOENT, "was removed or replaced while it was written", str(self.path))

    def discard(self) -> None:
        """Forget what waits and close the file."""
        self.waiting.take()
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            close_locked(fd)


def encoded(record: msgspec.Struct, extra: Mapping[str, object] | None = None) -> bytes:
    """A record as JSON, with the fields of ``extra`` behind its own."""
    try:
        line = _ENCODER.encode(record)
        return line[:-1] + b"," + _ENCODER.encode(extra)[1:] if extra else line
    except UnicodeEncodeError:
        fields = msgspec.to_builtins(record, enc_hook=encodable, str_keys=True)
        return _ENCODER.encode(with_valid_text(fields | dict(extra or {})))


# ---------------------------------------------------------------------------------------------------------------------
# Writes lines to the disk from a thread of its own, so that a slow disk does not hold up the scheduler.
#
# Batches are written in the order in which they are given. Where more than 32 MiB wait in memory, the disk cannot
# keep up, and the caller waits until it has.
#
# Ctrl-C reaches the caller between any two of its instructions. So it holds no lock that the thread needs: what
# passes between them is one queue whose operations are atomic, and a lock per wait that no other thread has.

_BYTES_WAITING = 32 * 1024 * 1024


class WriterThread:
    """Takes batches until it is stopped. ``failed`` is called once, from the thread, if the disk refuses."""

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        self._failed = failed
        self._queue: SimpleQueue[tuple[LineFile, Lines] | Callable[[], None] | None] = SimpleQueue()
        """Batches; what to call when all before it is written; None: stop."""
        self._bytes_given = 0
        """Kept by the caller."""
        self._bytes_done = 0
        """Kept by the thread."""
        self.thread: threading.Thread | None = None
        """Started with the first batch."""
        self._broken = False

    def put(self, file: LineFile) -> None:
        """Have everything written that waits in ``file``."""
        if self._broken or not file.waiting.templates:
            return
        if self.thread is None and not self._start():
            self._write((file, file.waiting.take()))
            return
        if self._bytes_given - self._bytes_done > _BYTES_WAITING:
            self.drain()
        lines = file.waiting.take()  # not before: an interrupt of the wait loses nothing
        self._bytes_given += lines.num_bytes
        self._queue.put((file, lines))

    def drain(self) -> None:
        """Wait until everything is written."""
        if self.thread is not None:
            written = threading.Lock()
            written.acquire()
            self._queue.put(written.release)
            written.acquire()

    def stop(self) -> None:
        """Write everything and end the thread."""
        thread = self.thread
        if thread is not None:
            self._queue.put(None)
            thread.join()
            self.thread = None

    def _start(self) -> bool:
        """Start the thread; False where none can be had, as late in the interpreter's life."""
        thread = threading.Thread(target=self._run, name="tokenyard-trace", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return False
        self.thread = thread
        return True

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            if not isinstance(item, tuple):
                item()
                continue
            self._write(item)
            self._bytes_done += item[1].num_bytes

    def _write(self, batch: tuple[LineFile, Lines]) -> None:
        if self._broken:
            return
        try:
            batch[0].put_down(batch[1])
        except Exception as error:  # noqa: BLE001 - whatever it is, no caller may wait for this thread in vain
            self._broken = True
            self._failed(error)


# ---------------------------------------------------------------------------------------------------------------------
# The emitter: the JSONL pair of a trace, with sampling, a step limit and the promise never to harm the scheduler.
#
# Whole lines are gathered in memory and go to the disk together, from a thread of their own: when 256 KiB have come
# together, when 64 steps and a quarter of a second have passed since the last time, after 1,024 steps in any case,
# when the scheduler runs idle, on ``flush``, ``close`` and at the interpreter's exit. So a crash leaves every line
# readable and costs little more than the last 64 steps or quarter of a second, and a scheduler of short steps does
# not wake the thread hundreds of times a second. If the path cannot be written, another process writes it, the file
# is removed, or the disk is full, one warning is logged, tracing ends, and the scheduler goes on.

_BYTES_HELD = 256 * 1024
"""What the thread puts together at once should fit the cache that it shares with the scheduler."""
_STEPS_HELD = 64
_MOST_STEPS_HELD = 1024
_SECONDS_HELD = 0.25

_log = logging.getLogger("tokenyard.trace")


class TraceWriter:
    """Writes records as they come; every method is safe to call at any time and none raises for a bad disk."""

    def __init__(self, config: TraceConfig) -> None:
        given_kind("config", config, TraceConfig, "give a TraceConfig: TraceConfig(path=DIR)")
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
        """All steps below are wanted; for a caller on the hot path, which calls ``wants_step`` about the others."""
        self._steps_held = 0
        self._handed_over_at = -math.inf
        self._thread = WriterThread(self._failed)
        self._pid = os.getpid()
        self._closed = not config.enabled

    def begin(self, start: TraceStart) -> None:
        """Say what runs: written before the first record, with the writer's own settings in it. Opens no file."""
        self._start = start

    def claim(self, on_overwritten: Callable[[], None] | None = None) -> None:
        """Make the steps file now, empty, and keep other writers out; what an earlier run left beside it is removed.

        With it a command that was asked for a trace learns at once that it cannot be written. ``on_overwritten`` is
        called before an earlier trace is removed, if there is one. Raises OSError.
        """
        steps, requests = self.config.steps_path, self.config.requests_path
        if self._closed or steps is None or requests is None:
            return
        is_overwritten = any(path.is_file() and path.stat().st_size for path in (steps, requests))
        self._claimed = LineFile(steps, claim(steps, on_overwritten if is_overwritten else None))
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

    # ---- the two functions of the format, and what is additive

    def step_snapshot(self, step: int, **fields: Any) -> None:
        """Write a ``step_snapshot`` if the step is wanted; fields the format does not know are written as they are."""
        if self.wants_step(step):
            self._write(StepSnapshot, step, fields)

    def step_decision(self, step: int, **fields: Any) -> None:
        """Write a ``step_decision`` if the step is wanted; see :meth:`step_snapshot`."""
        if self.wants_step(step):
            self._write(StepDecision, step, fields)

    def _write(self, record: type[StepSnapshot | StepDecision], step: int, fields: dict[str, Any]) -> None:
        if "event" in fields:
            raise ConfigError("event", fields["event"], "leave it out: the function says the kind of record")
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
        """What waits for the steps file, for a caller on the hot path, which calls ``wants_step`` first."""
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
        """The thread that writes, for measuring what it costs; None before anything was written."""
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
        """Stop: nothing is written from now on."""
        self._closed, self.all_before = True, -math.inf

    def _failed(self, error: Exception) -> None:
        self._end()
        if self.problem is None:
            self.problem = f"{self.config.path}: {error if str(error) else type(error).__name__}"
            if isinstance(error, OSError) and error.strerror:
                self.problem = f"{error.filename or self.config.path}: {error.strerror}"
            _log.warning("trace: writing stopped, the scheduler goes on: %s", self.problem)

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
