"""A vector that lost something is damaged, never equal; whatever is wrong with one, a message says so: no traceback."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

from tokenyard.errors import ParityError
from tokenyard.parity.replay import VectorResult, replay_vector

Json = dict[str, Any]
VECTORS = Path(__file__).resolve().parents[2] / "conformance" / "vectors" / "0.22"
SHORT = ("aborts_of_prefills", "async_short_answers", "pooling", "drafts_stops_in_the_middle")
"""Names of recordings that are replayed quickly: plain, two steps in flight, poolers, drafts."""

in_one_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
"""Examples of one test overwrite each other's file."""


def _read(name: str) -> list[Json]:
    with gzip.open(VECTORS / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def _bytes(lines: list[Json]) -> bytes:
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def _replay(lines: list[Json], folder: Path) -> VectorResult:
    path = folder / "vector.jsonl"
    path.write_bytes(_bytes(lines))
    return replay_vector(path)


def _outcome(content: bytes, folder: Path) -> str:
    """What came of it; anything but a ParityError that names the file comes through."""
    path = folder / "vector.jsonl"
    path.write_bytes(content)
    try:
        result = replay_vector(path)
    except ParityError as damage:
        return "damaged" if str(path) in str(damage) else f"damaged, and the file is not named: {damage}"
    if result.unsupported:
        return "unsupported"
    return "compared" if result.steps or result.difference else "nothing compared"


@given(name=st.sampled_from(SHORT), data=st.data())
@settings(in_one_folder, max_examples=examples(60))
def test_a_vector_cut_after_any_tick_is_damaged(name: str, data: st.DataObject, tmp_path: Path) -> None:
    lines = _read(name)
    kept = data.draw(st.integers(0, len(lines) - 2), label="ticks kept")
    with pytest.raises(ParityError, match=f"cut short: it holds {kept} of the {len(lines) - 1} ticks"):
        _replay(lines[: 1 + kept], tmp_path)


@given(name=st.sampled_from(SHORT), data=st.data())
@settings(in_one_folder, max_examples=examples(30))
def test_a_vector_without_some_ticks_in_the_middle_is_damaged(name: str, data: st.DataObject, tmp_path: Path) -> None:
    lines = _read(name)
    first = data.draw(st.integers(1, len(lines) - 2), label="first line that is missing")
    after = data.draw(st.integers(first + 1, len(lines) - 1), label="first line after them")
    del lines[first:after]
    with pytest.raises(ParityError, match=f"tick {after - 1} stands where tick {first - 1} is due"):
        _replay(lines, tmp_path)


def test_a_tick_that_stands_twice_is_damage(tmp_path: Path) -> None:
    lines = _read(SHORT[0])
    lines.insert(4, lines[4])
    with pytest.raises(ParityError, match=r"vector\.jsonl:6: tick 3 stands where tick 4 is due"):
        _replay(lines, tmp_path)


def test_a_step_that_was_numbered_otherwise_is_damage(tmp_path: Path) -> None:
    lines = _read(SHORT[0])
    lines[6]["s"]["n"] += 1
    with pytest.raises(ParityError, match=r"tick 5: schedule\(\) number 5 stands where number 4 is due"):
        _replay(lines, tmp_path)


@pytest.mark.parametrize("name", SHORT)
def test_a_step_whose_output_was_lost_at_the_end_is_damage(name: str, tmp_path: Path) -> None:
    lines = _read(name)
    last = max(number for number, line in enumerate(lines) if "u" in line)
    lost = lines[last].pop("u")["of"]
    with pytest.raises(ParityError, match=rf"ends before the outputs of schedule\(\) number {lost}$"):
        _replay(lines, tmp_path)


def test_a_step_of_which_a_token_was_lost_is_damage(tmp_path: Path) -> None:
    """Its request would wait for it for ever."""
    lines = _read(SHORT[0])
    tick, rows = next(
        (n, line["u"]["sampled"]) for n, line in enumerate(lines) if any(line.get("u", {}).get("out", ()))
    )
    rows[0][1] = []
    with pytest.raises(ParityError, match=rf"tick {tick - 1}: the model returned no token for request '{rows[0][0]}'"):
        _replay(lines, tmp_path)


@pytest.mark.parametrize("stats", [None, {}, {"ticks": "all"}, {"ticks": None}])
def test_a_header_that_does_not_count_its_ticks_is_damaged(stats: Json | None, tmp_path: Path) -> None:
    lines = _read(SHORT[0])
    del lines[0]["stats"]
    if stats is not None:
        lines[0]["stats"] = stats
    with pytest.raises(ParityError, match=r"vector\.jsonl:1: not the header"):
        _replay(lines, tmp_path)


def _sampled(lines: list[Json]) -> list[list[Any]]:
    """What the first step with two decoding requests sampled: `[id, tokens]`."""
    return next(
        line["u"]["sampled"]
        for line in lines
        if "u" in line and sum(bool(tokens) for _, tokens in line["u"]["sampled"]) > 1
    )


def _drafts(lines: list[Json]) -> list[list[Any]]:
    return next(line["u"]["drafts"] for line in lines if line.get("u", {}).get("drafts"))


def _sampled_token(token: int) -> Callable[[list[Json]], object]:
    return lambda lines: _sampled(lines)[0].__setitem__(1, [token])


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_sampled_token(-1), "not a tick"),
        (_sampled_token(2**31), "not a tick"),
        (_sampled_token(10**30), "not a tick"),
        (lambda lines: _sampled(lines).pop(), "not those of the requests of the step"),
        (lambda lines: _sampled(lines).reverse(), "not those of the requests of the step"),
        (lambda lines: _sampled(lines).append(_sampled(lines)[0]), "not those of the requests of the step"),
        (lambda lines: _sampled(lines)[0][1].extend([1] * 9), "where there can be"),
        (lambda lines: _drafts(lines)[0][1].extend([1] * 9), "more than num_speculative_tokens = "),
        (lambda lines: _drafts(lines).append(_drafts(lines)[0]), "not those of requests of the step, each once"),
        (lambda lines: _drafts(lines).append(["nobody", [1]]), "not those of requests of the step, each once"),
        (lambda lines: lines[0]["config"].pop("num_speculative_tokens"), "the header has no num_speculative_tokens"),
    ],
)
def test_what_no_model_could_have_returned_is_damage(
    damage: Callable[[list[Json]], object], said: str, tmp_path: Path
) -> None:
    lines = _read("drafts_stops_in_the_middle")
    damage(lines)
    with pytest.raises(ParityError, match=said):
        _replay(lines, tmp_path)


def test_events_that_were_recorded_and_are_lost_make_a_difference(tmp_path: Path) -> None:
    lines = _read("pooling")
    tick = next(line for line in lines if line.get("u", {}).get("events"))
    del tick["u"]["events"]
    difference = _replay(lines, tmp_path).difference
    assert difference is not None
    assert (difference.tick, difference.what, difference.theirs) == (tick["t"], "update.events", None)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something can be put or taken away: the beginnings of long lists stand for their rest."""
    keys = list(value) if isinstance(value, dict) else range(min(len(value), 5)) if isinstance(value, list) else ()
    return [each for key in keys for each in [(*path, key), *_places(value[key], (*path, key))]]


REMOVED = object()
JUNK: tuple[Any, ...] = (
    REMOVED,
    None,
    True,
    -1,
    0,
    1,
    7,
    10**6,
    2**31,
    -(2**63),
    10**30,
    1.5,
    "",
    "x",
    "fcfs",
    [],
    [[]],
    {},
    {"a": 1},
)


@given(name=st.sampled_from(SHORT), junk=st.sampled_from(JUNK), in_header=st.booleans(), data=st.data())
@settings(in_one_folder, max_examples=examples(150))
def test_no_damage_raises_anything_but_parity_errors(
    name: str, junk: object, in_header: bool, data: st.DataObject, tmp_path: Path
) -> None:
    """One value of one line is removed or replaced: whatever that is, a scheduler does not crash on it."""
    lines = _read(name)
    line = lines[0] if in_header else data.draw(st.sampled_from(lines[1:]), label="line")
    *holders, last = data.draw(st.sampled_from(_places(line)), label="place")
    holder: Any = line
    for key in holders:
        holder = holder[key]
    if junk is REMOVED:
        del holder[last]
    else:
        holder[last] = junk
    assert _outcome(_bytes(lines), tmp_path) in {"damaged", "unsupported", "compared"}


@given(data=st.data())
@settings(in_one_folder, max_examples=examples(50))
def test_no_other_byte_raises_anything_but_parity_errors(data: st.DataObject, tmp_path: Path) -> None:
    content = bytearray(gzip.decompress((VECTORS / f"{SHORT[0]}.jsonl.gz").read_bytes()))
    content[data.draw(st.integers(0, len(content) - 1), label="at")] = data.draw(st.integers(0, 255), label="byte")
    assert _outcome(bytes(content), tmp_path) in {"damaged", "unsupported", "compared"}
