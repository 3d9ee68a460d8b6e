"""Per-request records, and the texts in them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from tests.support.toy_engine import FIRST_SAMPLED, prompt_of
from tests.unit.trace.recorded import RecordedYard, lines_of, records_of

from tokenyard.core.sched.observer import Observers
from tokenyard.record.recorder import TraceRecorder
from tokenyard.record.request_records import Decoder
from tokenyard.tokenizer import Decode
from tokenyard.trace.schema import RequestRecord


def test_every_field_of_a_running_request(tmp_path: Path) -> None:
    toy = RecordedYard(tmp_path)
    toy.add("old", list(range(20)), max_tokens=1)
    toy.drain()
    toy.add("a", list(range(20)), max_tokens=9, job_id="job", priority=3, arrival_time=0.25)
    toy.step()
    toy.step()
    toy.step()
    toy.writer.close()
    record = records_of(tmp_path, kind="requests")[-1]
    assert record == {
        "step": 4,
        "ts": 2.0,
        "queue": "running",
        "req_id": "a",
        "job_id": "job",
        "status": "RequestStatus.RUNNING",
        "priority": 3,
        "arrival_time": 0.25,
        "max_tokens": 9,
        "num_prompt_tokens": 20,
        "num_tokens": 22,
        "num_output_tokens": 2,
        "num_computed_tokens": 21,
        "num_cached_tokens": 16,
        "num_preemptions": 0,
        "num_external_computed_tokens": 0,
        "is_prefill_chunk": False,
        "resumable": False,
        "prompt_prefix": list(range(16)),
        "prompt_suffix": list(range(4, 20)),
        "output_tail": [FIRST_SAMPLED + 2, FIRST_SAMPLED + 3],
        "block_hashes_count": 5,
        "num_blocks": 6,
    }


def test_a_waiting_request_has_no_hits_yet(tmp_path: Path) -> None:
    toy = RecordedYard(tmp_path, max_num_seqs=1)
    toy.add("a", 3, max_tokens=5)
    toy.add("b", 40, max_tokens=5)
    toy.step()
    toy.step()
    toy.writer.close()
    records = [msgspec.json.decode(line, type=RequestRecord) for line in lines_of(tmp_path, "requests")]
    assert [(each.step, each.queue, each.req_id) for each in records] == [
        (0, "waiting", "a"),
        (0, "waiting", "b"),
        (1, "running", "a"),
        (1, "waiting", "b"),
    ]
    waiting = records[-1]
    assert (waiting.status, waiting.num_cached_tokens, waiting.num_blocks) == ("RequestStatus.WAITING", 0, 0)
    assert waiting.prompt_suffix == prompt_of("b", 40)[-16:]
    assert waiting.output_tail == []


def test_output_tail_is_the_last_sixteen(tmp_path: Path) -> None:
    toy = RecordedYard(tmp_path)
    toy.add("a", 3, max_tokens=30)
    toy.drain()
    toy.writer.close()
    record = records_of(tmp_path, kind="requests")[-1]
    assert record["output_tail"] == [FIRST_SAMPLED + number for number in range(14, 30)]


def test_the_bound_is_per_queue(tmp_path: Path) -> None:
    toy = RecordedYard(tmp_path, max_num_seqs=3, trace={"max_ids_per_step": 2})
    for name in "abcdefg":
        toy.add(name, 4, max_tokens=5)
    toy.step()
    toy.step()
    toy.writer.close()
    assert [(each["step"], each["req_id"]) for each in records_of(tmp_path, kind="requests")] == [
        *[(0, "a"), (0, "b")],
        *[(1, "a"), (1, "b"), (1, "d"), (1, "e")],
    ]


def test_they_can_be_switched_off(tmp_path: Path) -> None:
    toy = RecordedYard(tmp_path, trace={"request_records": False})
    toy.add("a", 4)
    toy.drain()
    toy.writer.close()
    assert [file.name for file in tmp_path.iterdir()] == ["sched_trace.fcfs.steps.jsonl"]


def spell(name: str) -> Decode:
    """A tokenizer whose text is the token ids."""
    return lambda ids: f"{name}:{'-'.join(map(str, ids))}"


def with_decoder(path: Path, decoder: Decoder) -> RecordedYard:
    toy = RecordedYard(path)
    toy.recorder = TraceRecorder(toy.writer, decoder=decoder)
    toy.scheduler.attach_observer(Observers(toy.recorder))
    return toy


def test_texts_stand_beside_the_ids_if_a_tokenizer_is_named(tmp_path: Path) -> None:
    toy = with_decoder(tmp_path, Decoder("toy", spell))
    toy.add("a", [1, 2, 3], max_tokens=3)
    toy.drain()
    toy.writer.close()
    first, *_, last = records_of(tmp_path, kind="requests")
    assert first["prompt_prefix_text"] == "toy:1-2-3"
    assert "output_tail_text" not in first
    assert last["output_tail_text"] == f"toy:{FIRST_SAMPLED + 1}-{FIRST_SAMPLED + 2}"


def fails_to_load(name: str) -> Decode:
    raise OSError(f"{name} is not a tokenizer")


def fails_to_decode(name: str) -> Decode:
    def decode(ids: Sequence[int]) -> str:
        raise KeyError(ids[0])

    return decode


@pytest.mark.parametrize("load", [fails_to_load, fails_to_decode])
def test_a_useless_tokenizer_costs_one_warning(tmp_path: Path, load: object, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tokenyard.trace"):
        toy = with_decoder(tmp_path, Decoder("bad", load))  # type: ignore[arg-type]
        toy.add("a", [1, 2, 3], max_tokens=3)
        toy.drain()
        toy.writer.close()
    assert len(caplog.records) == 1
    assert "token ids only" in caplog.text
    records = records_of(tmp_path, kind="requests")
    assert records[0]["prompt_prefix"] == [1, 2, 3]
    assert not any(name.endswith("_text") for record in records for name in record)


def test_a_tokenizer_that_is_not_there(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tokenyard.trace"):
        assert Decoder(str(tmp_path / "nothing")).text([1]) is None
    assert len(caplog.records) == 1
