"""KV events over ZeroMQ, as vLLM publishes them: a PUB socket, and a ROUTER socket that replays what a reader missed.

PUB      [topic, sequence number (8 bytes, big endian), batch (MessagePack)]
ROUTER   asks with [.., first sequence number]; answered by [.., sequence number, batch] for each batch kept,
         then by sequence number -1 and an empty batch
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

import msgspec

from tokenyard.core.config import require_int
from tokenyard.core.kv.events import KVEventBatch
from tokenyard.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    import zmq

END_OF_REPLAY = (-1).to_bytes(8, "big", signed=True)
_POLL_MS = 50


class KVEventPublisher:
    """Publishes batches from the thread of the scheduler; a thread of its own answers replays."""

    def __init__(
        self,
        endpoint: str = "tcp://127.0.0.1:5557",
        replay_endpoint: str | None = None,
        *,
        topic: str = "",
        buffer_steps: int = 10_000,
    ) -> None:
        """Bind both sockets; the last ``buffer_steps`` batches can be replayed.

        Raises MissingExtraError without pyzmq, ConfigError if an endpoint cannot be bound.
        """
        require_int("buffer_steps", buffer_steps, 1)
        try:
            import zmq  # noqa: PLC0415 - an extra
        except ImportError:
            raise MissingExtraError("pyzmq", "zmq") from None
        self._topic = topic.encode()
        self._buffered: deque[tuple[int, bytes]] = deque(maxlen=buffer_steps)
        self._lock = threading.Lock()
        self._next = 0
        self._closing = threading.Event()
        self._context = zmq.Context()
        self._pub = self._bind(zmq.PUB, endpoint)
        self.endpoint = self._pub.getsockopt_string(zmq.LAST_ENDPOINT)
        """Where it listens (a port of 0 or * has been chosen)."""
        self.replay_endpoint: str | None = None
        self._thread: threading.Thread | None = None
        if replay_endpoint is not None:
            replay = self._bind(zmq.ROUTER, replay_endpoint)
            self.replay_endpoint = replay.getsockopt_string(zmq.LAST_ENDPOINT)
            self._thread = threading.Thread(target=self._serve, args=(replay,), name="kv-event-replay", daemon=True)
            self._thread.start()

    def _bind(self, kind: int, endpoint: str) -> zmq.Socket[bytes]:
        import zmq  # noqa: PLC0415 - an extra

        socket: zmq.Socket[bytes] = self._context.socket(kind)
        socket.linger = 0
        try:
            socket.bind(endpoint)
        except zmq.ZMQError as problem:
            self._context.destroy()
            raise ConfigError("endpoint", endpoint, f"cannot be bound: {problem}") from None
        return socket

    def publish(self, batch: KVEventBatch) -> int:
        """Send a batch to all subscribers; returns its sequence number."""
        payload = msgspec.msgpack.encode(batch)
        with self._lock:
            number = self._next
            self._next += 1
            self._buffered.append((number, payload))
        self._pub.send_multipart([self._topic, number.to_bytes(8, "big"), payload])
        return number

    def _serve(self, replay: zmq.Socket[bytes]) -> None:
        while not self._closing.is_set():
            if replay.poll(_POLL_MS):
                self._answer(replay, replay.recv_multipart())
        replay.close()

    def _answer(self, replay: zmq.Socket[bytes], frames: list[bytes]) -> None:
        """Send what is buffered from the number in the last frame on; what is no number gets only the end."""
        address, question = frames[:-1], frames[-1]
        first = int.from_bytes(question, "big") if len(question) == 8 else None
        with self._lock:
            wanted = [each for each in self._buffered if first is not None and each[0] >= first]
        for number, payload in wanted:
            replay.send_multipart([*address, number.to_bytes(8, "big"), payload])
        replay.send_multipart([*address, END_OF_REPLAY, b""])

    def close(self) -> None:
        """Stop answering and close both sockets."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
        self._pub.close()
        self._context.term()
