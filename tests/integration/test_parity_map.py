"""The map of vLLM's names: every counterpart and every test that it names exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest

REPO = Path(__file__).resolve().parents[2]
MAP = REPO / "scripts" / "parity_map.tsv"
_CODE = re.compile(r"`([^`]+)`")


class Row(NamedTuple):
    line: int
    theirs: str
    ours: str
    tests: str

    @property
    def is_absent(self) -> bool:
        return self.ours.startswith("absent: ")


ROWS = [Row(number, *line.split("\t")[1:]) for number, line in enumerate(MAP.read_text().splitlines()[1:], 2)]


def _source_of(module: str) -> str:
    """A module's Python text; a compiled module has the same text beside it."""
    path = REPO.joinpath("src", *module.split("."))
    return (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8")


def _assigns(source: str, of: str, name: str) -> bool:
    """Whether a class declares a field, or one of its methods assigns an attribute of itself."""
    body = re.search(rf"^class {of}\b.*\n((?:[ )].*\n|\n)*)", source, re.MULTILINE)
    field = rf"^    {name}: |\bself\.{name}\b[^=\n]*=[^=]"
    return body is not None and re.search(field, body[1], re.MULTILINE) is not None


def _member(owner: Any, name: str) -> Any:
    """An attribute, a declared field, or an attribute that a method assigns; AttributeError if there is none."""
    if hasattr(owner, name):
        return getattr(owner, name)
    for each in getattr(owner, "__mro__", ()):
        if name in getattr(each, "__annotations__", {}):
            return None
        if each.__module__.startswith("tokenyard.") and _assigns(_source_of(each.__module__), each.__name__, name):
            return None
    raise AttributeError(f"{owner} has no {name}")


def _resolve(dotted: str) -> None:
    """Find ``core.sched.scheduler.Scheduler.schedule`` below ``tokenyard``."""
    parts = ["tokenyard", *dotted.split(".")]
    for end in range(len(parts), 0, -1):
        try:
            found: Any = import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for name in parts[end:]:
            found = _member(found, name)
        return


def _defines(path: Path, name: str) -> bool:
    return (
        re.search(rf"^\s*(def|class) {name}\b|^{name}\b.* = ", path.read_text(encoding="utf-8"), re.MULTILINE)
        is not None
    )


def _wrong_with(row: Row) -> Iterator[str]:
    if not _CODE.findall(row.theirs):
        yield "no name of vLLM's"
    if row.is_absent:
        if len(row.ours) == len("absent: "):
            yield "no reason"
        return
    ours, tests = _CODE.findall(row.ours), _CODE.findall(row.tests)
    if not ours:
        yield "no counterpart"
    for name in ours:
        try:
            _resolve(name)
        except AttributeError as error:
            yield f"{name}: {error}"
    if not tests:
        yield "no test"
    yield from filter(None, map(_wrong_with_test, tests))


def _wrong_with_test(named: str) -> str | None:
    path, _, test = named.partition("::")
    if not (REPO / "tests" / path).exists():
        return f"no {path}"
    return f"no {test} in {path}" if test and not _defines(REPO / "tests" / path, test) else None


def test_what_the_map_names_exists() -> None:
    assert len(ROWS) > 300
    found = [f"line {row.line}: {problem}" for row in ROWS for problem in _wrong_with(row)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (Row(1, "Scheduler", "`core.sched.scheduler.Scheduler`", "`parity`"), "no name of vLLM's"),
        (Row(1, "`A`", "absent: ", ""), "no reason"),
        (Row(1, "`A`", "", "`parity`"), "no counterpart"),
        (
            Row(1, "`A`", "`core.sched.scheduler.Scheduler.nothing`", "`parity`"),
            "core.sched.scheduler.Scheduler.nothing: ",
        ),
        (Row(1, "`A`", "`no_such_place`", "`parity`"), "no_such_place: "),
        (Row(1, "`A`", "`core.sched.scheduler.Scheduler`", ""), "no test"),
        (Row(1, "`A`", "`core.sched.scheduler.Scheduler`", "`parity/none.py`"), "no parity/none.py"),
        (Row(1, "`A`", "`core.sched.scheduler.Scheduler`", "`conftest.py::test_none`"), "no test_none in conftest.py"),
    ],
)
def test_what_is_wrong_with_a_row_is_found(row: Row, problem: str) -> None:
    (found,) = _wrong_with(row)
    assert found.startswith(problem)


def test_a_name_that_does_not_exist_is_found() -> None:
    with pytest.raises(AttributeError):
        _resolve("core.sched.scheduler.Scheduler.no_such_method")
    assert not _defines(Path(__file__), "no_such_test")


INVENTORY = """
Scheduler.__init__ Scheduler._pin_request Scheduler._unpin_request Scheduler._unpin_expired_requests
Scheduler._mamba_block_aligned_split Scheduler.schedule Scheduler._build_kv_connector_meta Scheduler._preempt_request
Scheduler._update_after_schedule Scheduler._update_request_as_session Scheduler._make_cached_request_data
Scheduler._try_schedule_encoder_inputs Scheduler.get_grammar_bitmask Scheduler.update_from_output
Scheduler._is_blocked_waiting_status Scheduler._enqueue_waiting_request Scheduler._select_waiting_queue_for_scheduling
Scheduler._handle_stopped_request Scheduler._get_routed_experts Scheduler._update_request_with_output
Scheduler._free_encoder_inputs Scheduler.update_draft_token_ids Scheduler.update_draft_token_ids_in_output
Scheduler.get_request_counts Scheduler.add_request Scheduler.finish_requests Scheduler._free_request
Scheduler._free_blocks Scheduler.pause_state Scheduler.set_pause_state Scheduler.get_num_unfinished_requests
Scheduler.has_finished_requests Scheduler.reset_prefix_cache Scheduler.reset_connector_cache
Scheduler.reset_encoder_cache Scheduler.make_stats Scheduler._get_encoder_cache_usage
Scheduler.make_spec_decoding_stats Scheduler.shutdown Scheduler.get_kv_connector Scheduler._connector_finished
Scheduler._update_waiting_for_remote_kv Scheduler._try_promote_blocked_waiting_request
Scheduler._update_from_kv_xfer_finished Scheduler._update_requests_with_invalid_blocks
Scheduler._handle_invalid_blocks Request.request_id Request.client_index Request.priority Request.arrival_time
Request.lora_request Request.cache_salt Request.trace_headers Request.prompt_token_ids Request.prompt_embeds
Request.num_prompt_tokens Request.mm_features Request.sampling_params Request.pooling_params Request.max_tokens
Request.structured_output_request Request._output_token_ids Request._all_token_ids Request.spec_token_ids
Request.num_computed_tokens Request.num_output_placeholders Request.num_external_computed_tokens
Request.num_cached_tokens Request.num_preemptions Request.status Request.events Request.stop_reason
Request.is_prefill_chunk Request.num_nans_in_logits Request.block_hashes Request._block_hasher
Request.skip_reading_prefix_cache Request.kv_transfer_params Request.resumable Request.streaming_queue
Request.discard_latest_async_tokens RequestStatus.WAITING RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
RequestStatus.WAITING_FOR_REMOTE_KVS RequestStatus.WAITING_FOR_STREAMING_REQ RequestStatus.RUNNING
RequestStatus.PREEMPTED RequestStatus.FINISHED_STOPPED RequestStatus.FINISHED_LENGTH_CAPPED
RequestStatus.FINISHED_ABORTED RequestStatus.FINISHED_IGNORED RequestStatus.FINISHED_ERROR
RequestStatus.FINISHED_REPETITION SchedulerOutput.scheduled_new_reqs SchedulerOutput.scheduled_cached_reqs
SchedulerOutput.num_scheduled_tokens SchedulerOutput.total_num_scheduled_tokens
SchedulerOutput.scheduled_spec_decode_tokens SchedulerOutput.scheduled_encoder_inputs
SchedulerOutput.num_common_prefix_blocks SchedulerOutput.finished_req_ids SchedulerOutput.free_encoder_mm_hashes
SchedulerOutput.preempted_req_ids SchedulerOutput.new_block_ids_to_zero SchedulerOutput.kv_connector_metadata
KVCacheManager.allocate_slots KVCacheManager.get_computed_blocks KVCacheManager.new_step_starts KVCacheManager.free
BlockPool.get_new_blocks BlockPool.free_blocks BlockPool.touch BlockPool.reset_prefix_cache
BlockPool._maybe_evict_cached_block FullAttentionManager SlidingWindowManager UnitaryKVCacheCoordinator
HybridKVCacheCoordinator KVCacheCoordinatorNoPrefixCache FCFSRequestQueue PriorityRequestQueue
"""
"""The section map and the fields that the reference walk through vLLM V1's scheduler lists."""


def test_the_whole_inventory_is_on_the_map() -> None:
    names = {name for row in ROWS for name in _CODE.findall(row.theirs)}
    assert [name for name in INVENTORY.split() if name not in names] == []


def test_no_name_of_vllm_stands_twice() -> None:
    names = [name for row in ROWS for name in _CODE.findall(row.theirs)]
    assert sorted(set(names)) == sorted(names)
