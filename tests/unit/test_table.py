"""The request table: rows are loaded, grown, flushed and given back without a token getting lost."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.toy_engine import make_request

from tokenyard.core.params import RepetitionDetectionParams
from tokenyard.core.request import Request, SamplingParams
from tokenyard.core.table import COLUMNS, MOST_STOP_IDS, NO_TOKEN, RequestTable


@pytest.fixture
def table() -> RequestTable:
    return RequestTable(2, block_size=4)


def _append(table: RequestTable, request: Request, token: int) -> None:
    slot = request.slot
    at = int(table.num_tokens[slot])
    table.append(np.array([slot]), np.array([token]))
    if at % table.block_size == table.block_size - 1:
        list(table.seal(np.array([slot])))


def test_a_row_is_loaded_from_its_request(table: RequestTable) -> None:
    request = Request("r", [1, 2, 3, 4, 5, 6], SamplingParams(max_tokens=9, eos_token_id=7, stop_token_ids=(8,)))
    slot = table.acquire(request, 100)
    assert (request.slot, table.requests[slot], table.num_tenants) == (slot, request, 1)
    assert (table.num_tokens[slot], table.num_computed[slot]) == (6, 0)
    assert (table.stop_at[slot], table.max_total[slot], table.eos[slot]) == (15, 15, 7)
    assert table.tail[slot, :2].tolist() == [5, 6]
    assert table.stop_ids[slot].tolist() == [8] + [NO_TOKEN] * (MOST_STOP_IDS - 1)
    assert (table.num_with_stop_ids, table.num_any_may_stop) == (1, 0)


def test_what_ends_a_tenant_ends_nobody_after_it(table: RequestTable) -> None:
    looked_for = RepetitionDetectionParams(max_pattern_size=2, min_count=2)
    for params in (SamplingParams(stop_token_ids=(8, 9)), SamplingParams(repetition_detection=looked_for)):
        before, after = Request("a", [1], params), Request("b", [1])
        table.acquire(before, 100)
        table.release(before)
        slot = table.acquire(after, 100)
        assert (table.stop_ids[slot].max(), table.any_may_stop[slot]) == (NO_TOKEN, False)
        table.release(after)
        assert (table.num_with_stop_ids, table.num_any_may_stop) == (0, 0)


def test_more_stop_tokens_than_there_are_places_for_are_asked_about_one_by_one(table: RequestTable) -> None:
    request = Request("r", [1], SamplingParams(stop_token_ids=tuple(range(MOST_STOP_IDS + 1))))
    slot = table.acquire(request, 100)
    assert (table.any_may_stop[slot], table.stop_ids[slot].max()) == (True, NO_TOKEN)
    assert (table.num_with_stop_ids, table.num_any_may_stop) == (0, 1)
    table.release(request)
    assert table.num_any_may_stop == 0


def test_the_length_limit_is_the_nearer_one(table: RequestTable) -> None:
    slot = table.acquire(make_request("r", 6, max_tokens=9), 10)
    assert (table.stop_at[slot], table.max_total[slot]) == (10, 15)


@pytest.mark.parametrize("params", [SamplingParams(), SamplingParams(eos_token_id=7, ignore_eos=True)])
def test_no_token_ends_a_request_without_an_end_token(table: RequestTable, params: SamplingParams) -> None:
    assert table.eos[table.acquire(Request("r", [1], params), 10)] == NO_TOKEN


def test_slots_are_used_again_and_the_table_grows(table: RequestTable) -> None:
    requests = [make_request(name) for name in "abcde"]
    slots = [table.acquire(request, 100) for request in requests]
    assert sorted(slots) == [0, 1, 2, 3, 4]
    table.release(requests[1])
    assert table.acquire(make_request("f"), 100) == slots[1]
    assert [request.request_id for request in table.tenants(np.array(slots))] == ["a", "f", "c", "d", "e"]
    for request in table.tenants(np.array(slots)):
        table.set_capacity(request.slot, 4)
    table.check_invariants()


def test_growing_keeps_the_tenants_rows(table: RequestTable) -> None:
    first = make_request("a", 6)
    table.acquire(first, 100)
    _append(table, first, 50)
    for name in "bcdefgh":
        table.acquire(make_request(name), 100)
    assert first.all_token_ids[-3:] == [*make_request("a", 6).prompt_token_ids[-2:], 50]
    assert first.num_tokens == 7


def test_the_version_changes_when_a_tenant_leaves(table: RequestTable) -> None:
    request = make_request("a")
    version = table.version
    table.acquire(request, 100)
    assert table.version == version
    table.release(request)
    assert table.version != version


def test_a_request_keeps_its_counters_when_it_leaves(table: RequestTable) -> None:
    request = make_request("a", 5)
    slot = table.acquire(request, 100)
    request.num_computed_tokens = 3
    assert table.num_computed[slot] == 3
    _append(table, request, 77)
    table.release(request)
    assert (request.slot, request.num_computed_tokens, request.num_tokens) == (-1, 3, 6)
    assert request.output_token_ids == [77]
    request.num_computed_tokens = 0
    assert table.num_computed[slot] == 3, "the row is no longer its own"


@given(
    prompt=st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=20),
    block_size=st.integers(1, 6),
    output=st.lists(st.one_of(st.integers(0, 2**31 - 1), st.sampled_from(["look", "move"])), max_size=40),
)
def test_the_token_stream_is_what_was_appended(prompt: list[int], block_size: int, output: list[int | str]) -> None:
    """Whether it is looked at in between, or the request leaves and comes back."""
    table, request = RequestTable(1, block_size), Request("r", prompt)
    table.acquire(request, 1000)
    expected = list(prompt)
    for step in output:
        if step == "look":
            assert request.all_token_ids == expected
        elif step == "move":
            table.release(request)
            assert request.all_token_ids == expected
            table.acquire(request, 1000)
        else:
            assert isinstance(step, int)
            _append(table, request, step)
            expected.append(step)
            full = len(expected) // block_size * block_size
            assert request.num_sealed_tokens >= full
            assert np.frombuffer(request.token_bytes(0, full), np.int32).tolist() == expected[:full]
    assert request.all_token_ids == expected
    assert (request.prompt_token_ids, request.output_token_ids) == (prompt, expected[len(prompt) :])
    assert (request.num_tokens, request.num_output_tokens) == (len(expected), len(expected) - len(prompt))


@given(
    st.lists(st.integers(0, 99), max_size=6),
    st.lists(st.tuples(st.integers(0, 12), st.lists(st.integers(0, 99), max_size=5)), max_size=8),
)
def test_a_stream_is_cut_and_goes_on(prompt: list[int], tails: list[tuple[int, list[int]]]) -> None:
    """Wherever it is cut, in its beginning or in a piece that has come behind it."""
    request, expected = Request("r", prompt or [1]), prompt or [1]
    for cut, more in tails:
        at = min(cut, len(expected))
        request.replace_tail(at, np.array(more, np.int32).tobytes())
        expected = expected[:at] + more
        assert request.num_sealed_tokens == len(expected)
        if at % 2:  # else the pieces stay apart
            assert request.sealed_tokens(0, len(expected)).tolist() == expected
        request.append_token(cut)
        expected = [*expected, cut]
    for start in range(len(expected)):
        assert request.sealed_tokens(start, len(expected)).tolist() == expected[start:]


@pytest.mark.parametrize("damage", ["computed", "drafts", "slot", "stops", "any", "eos", "short"])
def test_the_invariants_notice_damage(table: RequestTable, damage: str) -> None:
    request = make_request("a", 4)
    slot = table.acquire(request, 100)
    table.set_capacity(slot, 4)
    table.check_invariants()
    if damage == "computed":
        table.set_num_computed(slot, 5)
    elif damage == "drafts":
        table.set_drafts(np.array([slot]), np.zeros((1, 0), np.int64), np.array([-1]))
    elif damage == "eos":
        table.num_with_eos = 1
    elif damage == "slot":
        request.slot = 1
    elif damage == "stops":
        table.num_with_stop_ids = 1
    elif damage == "any":
        table.num_any_may_stop = 1
    else:
        table.num_tokens.base[slot] = 3  # type: ignore[index]  # the column behind the read-only view
    with pytest.raises(AssertionError):
        table.check_invariants()


@pytest.mark.parametrize("name", COLUMNS)
def test_only_the_table_writes_its_columns(name: str) -> None:
    """Before it grows and after."""
    table = RequestTable(1, 4, max_drafts=2)
    for number in range(3):
        with pytest.raises(ValueError, match="read-only"):
            getattr(table, name)[0] = 1
        table.acquire(Request(f"r{number}", [1, 2, 3]), 100)
    assert getattr(table, name).base.flags.writeable, "it shows the column that the table writes, no copy"


def test_block_tables_are_as_wide_as_they_have_to_be() -> None:
    table = RequestTable(2, 4, num_groups=2)
    for name in "ab":
        table.acquire(Request(name, [1, 2, 3]), 10_000)
    table.set_blocks(0, ([5, 6, 7], [8]))
    table.append_blocks(np.array([0, 1]), np.array([3, 0]), np.array([1, 2]), np.array([9, 10, 11], np.int32))
    table.set_blocks(1, ([10, 11], list(range(100, 1000))))
    assert table.block_tables[0][:, :4].tolist() == [[5, 6, 7, 9], [10, 11, 0, 0]]
    assert table.block_tables[1][0, 0] == 8
    assert table.block_tables[1][1, :900].tolist() == list(range(100, 1000))
    table.acquire(Request("c", [1]), 10_000)
    assert table.block_tables[1][1, 899] == 999, "what it had when the table grew"


@given(st.lists(st.integers(1, 5), min_size=1, max_size=40), st.randoms(use_true_random=False))
def test_blocks_are_dealt_out_in_order_to_few_and_to_many(counts: list[int], random: Random) -> None:
    table = RequestTable(64, block_size=4)
    slots, starts = random.sample(range(64), len(counts)), [random.randrange(9) for _ in counts]
    blocks = list(range(1, 1 + sum(counts)))
    table.append_blocks(np.array(slots), np.array(starts), np.array(counts), np.array(blocks, np.int32))
    dealt = iter(blocks)
    for slot, start, count in zip(slots, starts, counts, strict=True):
        row = table.block_tables[0][slot].tolist()
        assert row[start : start + count] == [next(dealt) for _ in range(count)]
        assert not any(row[:start] + row[start + count :])
