"""KV events over the wire, on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tokenyard.core.kv.events import AllBlocksCleared, BlockRemoved, KVEventBatch
from tokenyard.errors import ConfigError
from tokenyard.serve.kv_publisher import END_OF_REPLAY, KVEventPublisher

zmq = pytest.importorskip("zmq", reason="pyzmq is not installed (extra: zmq)")

WAIT_MS = 5_000


@pytest.fixture
def publisher() -> Iterator[KVEventPublisher]:
    made = KVEventPublisher("tcp://127.0.0.1:*", "tcp://127.0.0.1:*", topic="kv", buffer_steps=3)
    yield made
    made.close()


def batch(number: int) -> KVEventBatch:
    return KVEventBatch(float(number), [BlockRemoved([number], "GPU", 0), AllBlocksCleared()])


def receive(socket: Any) -> list[bytes]:
    assert socket.poll(WAIT_MS), "nothing came"
    frames: list[bytes] = socket.recv_multipart()
    return frames


def replay(publisher: KVEventPublisher, question: bytes) -> list[tuple[int, KVEventBatch]]:
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        socket.connect(publisher.replay_endpoint)
        socket.send_multipart([b"", question])
        answers = []
        while (frames := receive(socket))[-2] != END_OF_REPLAY:
            answers.append((int.from_bytes(frames[-2], "big"), msgspec.msgpack.decode(frames[-1], type=KVEventBatch)))
        return answers


def test_a_subscriber_gets_topic_number_and_batch(publisher: KVEventPublisher) -> None:
    with zmq.Context() as context, context.socket(zmq.SUB) as socket:
        socket.linger = 0
        socket.subscribe("kv")
        socket.connect(publisher.endpoint)
        # A subscription takes a moment to arrive: publish until it has.
        sent = 0
        while not socket.poll(20):
            sent = publisher.publish(batch(7))
            assert sent < 500, "the subscription never arrived"
        topic, number, payload = receive(socket)
    assert topic == b"kv"
    assert int.from_bytes(number, "big") <= sent
    assert msgspec.msgpack.decode(payload, type=KVEventBatch) == batch(7)


def test_a_reader_that_missed_something_asks_for_it(publisher: KVEventPublisher) -> None:
    for number in range(4):
        assert publisher.publish(batch(number)) == number
    assert replay(publisher, (2).to_bytes(8, "big")) == [(2, batch(2)), (3, batch(3))]
    assert [number for number, _ in replay(publisher, (0).to_bytes(8, "big"))] == [1, 2, 3], "three are kept"


def test_a_question_that_is_no_number_gets_the_end_and_breaks_nothing(publisher: KVEventPublisher) -> None:
    publisher.publish(batch(0))
    assert replay(publisher, b"what?") == []
    assert replay(publisher, (0).to_bytes(8, "big")) == [(0, batch(0))]


def test_an_endpoint_that_is_taken_is_one_clear_error(publisher: KVEventPublisher) -> None:
    with pytest.raises(ConfigError, match="cannot be bound"):
        KVEventPublisher(publisher.endpoint)
