"""The free queue keeps least-recently-used order, whatever is taken out of its middle."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenyard.core.kv.block_pool import FreeQueue


def test_blocks_leave_in_the_order_they_came() -> None:
    queue = FreeQueue(10, [3, 1, 2])
    queue.append(9)
    assert [queue.popleft() for _ in range(4)] == [3, 1, 2, 9]
    assert len(queue) == 0


def test_a_block_that_returns_goes_to_the_end() -> None:
    queue = FreeQueue(10, [1, 2, 3])
    queue.append(queue.popleft())
    assert list(queue) == [2, 3, 1]


def test_a_block_leaves_from_the_middle() -> None:
    queue = FreeQueue(10, range(1, 6))
    queue.remove(3)
    queue.remove_n([1, 5])
    assert list(queue) == [2, 4]
    assert 3 not in queue
    assert 4 in queue


def test_a_block_leaves_from_the_middle_of_those_put_in_front() -> None:
    queue = FreeQueue(10, [1, 2])
    queue.prepend_n([7, 8, 9])
    queue.remove(8)
    assert list(queue) == [7, 9, 1, 2]
    assert queue.first_n(3) == [7, 9, 1]
    assert queue.popleft_n(3) == [7, 9, 1]
    assert list(queue) == [2]


def test_blocks_may_come_and_go_for_ever() -> None:
    """Places are counted anew now and then, with holes in the middle and blocks in front."""
    queue, model = FreeQueue(20, range(1, 20)), list(range(1, 20))
    for turn in range(3_000):
        taken, model = model[:7], model[7:]
        assert queue.popleft_n(7) == taken
        hit = model[turn % len(model)]
        queue.remove(hit)
        model.remove(hit)
        if turn % 3:
            queue.append_n([*taken, hit])
            model += [*taken, hit]
        else:
            queue.prepend_n(taken)
            queue.append(hit)
            model = [*taken, *model, hit]
        assert list(queue) == model


def test_batch_forms_keep_the_given_order() -> None:
    queue = FreeQueue(10, [1])
    queue.append_n([7, 5, 6])
    assert queue.popleft_n(3) == [1, 7, 5]
    assert list(queue) == [6]
    assert queue.popleft_n(0) == []


def test_taking_what_is_not_there_is_our_own_mistake() -> None:
    queue = FreeQueue(10, [1])
    with pytest.raises(KeyError):
        queue.remove(2)
    half = FreeQueue(10, [1, 2, 3])
    with pytest.raises(KeyError):
        half.remove_n([1, 7])
    assert (len(half), list(half)) == (2, [2, 3])
    with pytest.raises(KeyError):
        queue.popleft_n(2)
    with pytest.raises(KeyError):
        FreeQueue(40).popleft()


Command = tuple[str, list[int]]
COMMANDS = st.lists(
    st.tuples(
        st.sampled_from(["append", "append_n", "prepend_n", "popleft", "popleft_n", "remove", "remove_n"]),
        st.lists(st.integers(0, 30), max_size=6, unique=True),
    ),
    max_size=60,
)


@pytest.mark.slow
@given(initial=st.lists(st.integers(0, 30), unique=True, max_size=12), commands=COMMANDS)
def test_it_behaves_like_a_list(initial: list[int], commands: list[Command]) -> None:
    """Against a plain list; commands that would break the rules (a block twice, one that is absent) are bent first."""
    queue, model = FreeQueue(31, initial), list(initial)
    for name, blocks in commands:
        absent = [block for block in blocks if block not in model]
        present = [block for block in blocks if block in model]
        if name == "append" and absent:
            queue.append(absent[0])
            model.append(absent[0])
        elif name == "append_n":
            queue.append_n(absent)
            model += absent
        elif name == "prepend_n":
            queue.prepend_n(absent)
            model = absent + model
        elif name == "popleft" and model:
            assert queue.popleft() == model.pop(0)
        elif name == "popleft_n":
            n = min(len(blocks), len(model))
            assert queue.popleft_n(n) == model[:n]
            del model[:n]
        elif name == "remove" and present:
            queue.remove(present[0])
            model.remove(present[0])
        elif name == "remove_n":
            queue.remove_n(present)
            model = [block for block in model if block not in present]
        assert queue.first_n(len(blocks)) == model[: len(blocks)]
        assert list(queue) == model
        assert len(queue) == len(model)
        assert all((block in queue) == (block in model) for block in range(31))


@pytest.mark.slow
@given(blocks=st.lists(st.integers(0, 99), unique=True, min_size=1), data=st.data())
def test_batch_forms_equal_repeated_single_ones(blocks: list[int], data: st.DataObject) -> None:
    batch, single = FreeQueue(100), FreeQueue(100)
    batch.append_n(blocks)
    for block in blocks:
        single.append(block)
    gone = data.draw(st.lists(st.sampled_from(blocks), unique=True))
    batch.remove_n(gone)
    for block in gone:
        single.remove(block)
    assert list(batch) == list(single)
    n = data.draw(st.integers(0, len(batch)))
    assert batch.popleft_n(n) == [single.popleft() for _ in range(n)]
    assert list(batch) == list(single)
