"""The replayer sees every kind of difference, and says where a vector is damaged."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tokenyard.errors import ParityError
from tokenyard.parity.replay import replay_vector

Json = dict[str, Any]


@pytest.fixture
def lines(vectors: Path) -> list[Json]:
    """A recording with preemptions, aborts, prefix hits and stops: header first, then its ticks."""
    with gzip.open(vectors / "aborts_priority.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def _write(path: Path, lines: list[Json]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def _tick(lines: list[Json], wanted: Callable[[Json], Any]) -> Json:
    """The first tick of which ``wanted`` is true."""
    return next(tick for tick in lines[1:] if wanted(tick))


def test_an_untouched_recording_is_equal_plain_or_compressed(lines: list[Json], vectors: Path, tmp_path: Path) -> None:
    compressed = replay_vector(vectors / "aborts_priority.jsonl.gz")
    plain = replay_vector(_write(tmp_path / "plain.jsonl", lines))
    assert compressed.difference is None
    assert plain.difference is None
    assert plain.steps == compressed.steps == sum("s" in tick for tick in lines)
    assert (plain.name, plain.unsupported) == (lines[0]["name"], [])


def test_a_blank_line_means_nothing(lines: list[Json], tmp_path: Path) -> None:
    path = _write(tmp_path / "gaps.jsonl", lines)
    path.write_text(path.read_text(encoding="utf-8").replace("\n", "\n\n"), encoding="utf-8")
    assert replay_vector(path).difference is None


def _other_block(tick: Json) -> None:
    tick["s"]["new"][0][2][0][-1] += 1


def _other_tokens(tick: Json) -> None:
    tick["s"]["nst"][0][1] += 1


def _other_order(tick: Json) -> None:
    tick["s"]["nst"].reverse()


def _other_free(tick: Json) -> None:
    tick["s"]["free"] -= 1


def _other_hit(tick: Json) -> None:
    tick["s"]["new"][0][1] += 16


def _other_common_prefix(tick: Json) -> None:
    tick["s"]["ncpb"][0] += 1


def _other_victim(tick: Json) -> None:
    tick["s"]["preempted"] = []


def _other_finished(tick: Json) -> None:
    tick["s"]["finished"].append("nobody")


def _other_running(tick: Json) -> None:
    tick["s"]["running"].reverse()


def _other_waiting(tick: Json) -> None:
    tick["s"]["waiting"].pop()


def _resumed(tick: Json) -> bool:
    return "s" in tick and any(row[4] for row in tick["s"]["cached"])


def _not_resumed(tick: Json) -> None:
    for row in tick["s"]["cached"]:
        row[4] = 0


def _other_delta(tick: Json) -> None:
    tick["s"]["cached"][0][1] -= 1


@pytest.mark.parametrize(
    ("wanted", "change", "what"),
    [
        (lambda t: "s" in t and t["s"]["new"], _other_block, "schedule.new"),
        (lambda t: "s" in t and t["s"]["new"], _other_hit, "schedule.new"),
        (lambda t: "s" in t and t["s"]["nst"], _other_tokens, "schedule.nst"),
        (lambda t: "s" in t and len(t["s"]["nst"]) > 1, _other_order, "schedule.nst"),
        (lambda t: "s" in t, _other_free, "schedule.free"),
        (lambda t: "s" in t, _other_common_prefix, "schedule.ncpb"),
        (lambda t: "s" in t and t["s"]["preempted"], _other_victim, "schedule.preempted"),
        (lambda t: "s" in t, _other_finished, "schedule.finished"),
        (lambda t: "s" in t and len(t["s"]["running"]) > 1, _other_running, "schedule.running"),
        (lambda t: "s" in t and t["s"]["waiting"], _other_waiting, "schedule.waiting"),
        (_resumed, _not_resumed, "schedule.cached"),
        (lambda t: "s" in t and t["s"]["cached"], _other_delta, "schedule.cached"),
    ],
)
def test_a_changed_decision_is_named(
    wanted: Callable[[Json], Any], change: Callable[[Json], None], what: str, lines: list[Json], tmp_path: Path
) -> None:
    tick = _tick(lines, wanted)
    change(tick)
    difference = replay_vector(_write(tmp_path / "changed.jsonl", lines)).difference
    assert difference is not None
    assert (difference.tick, difference.what) == (tick["t"], what)
    key = what.removeprefix("schedule.")
    assert difference.theirs == tick["s"][key]
    assert difference.ours != difference.theirs


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        ("out", [], "update.out"),
        ("pcs", [9, 9, 9, 9, 9, 9], "update.pcs"),
        ("nct", [], "update.nct"),
        ("free", -1, "update.free"),
        ("running", ["nobody"], "update.running"),
    ],
)
def test_a_changed_update_is_named(key: str, value: Any, what: str, lines: list[Json], tmp_path: Path) -> None:
    tick = _tick(lines, lambda t: "u" in t and t["u"]["out"] and t["u"]["nct"])
    tick["u"][key] = value
    difference = replay_vector(_write(tmp_path / "changed.jsonl", lines)).difference
    assert difference is not None
    assert (difference.tick, difference.what, difference.theirs) == (tick["t"], what, value)


@pytest.mark.parametrize(
    ("name", "part", "key", "value"),
    [
        ("images_priority_rollback", "s", "enc", {}),
        ("images_priority_rollback", "s", "enc_free", ["nothing"]),
        ("images_priority_rollback", "s", "enc_room", [0, 0]),
        ("images_priority_rollback", "u", "enc_room", [0, 0]),
        ("drafts_tight_budget", "s", "spec", []),
        ("drafts_tight_budget", "u", "sds", [9, 9, 9]),
        ("async_stops", "u", "nop", []),
    ],
)
def test_a_changed_feature_is_named(name: str, part: str, key: str, value: Any, vectors: Path, tmp_path: Path) -> None:
    with gzip.open(vectors / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    tick = _tick(lines, lambda t: part in t and t[part].get(key))
    tick[part][key] = value
    difference = replay_vector(_write(tmp_path / "changed.jsonl", lines)).difference
    assert difference is not None
    what = {"s": "schedule", "u": "update"}[part]
    assert (difference.tick, difference.what, difference.theirs) == (tick["t"], f"{what}.{key}", value)


def test_a_grammar_that_is_not_compiled_keeps_its_request_waiting(vectors: Path, tmp_path: Path) -> None:
    with gzip.open(vectors / "grammars.jsonl.gz", "rt", encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    tick = _tick(lines, lambda t: any(event["op"] == "grammar" for event in t.get("ev_pre", [])))
    del tick["ev_pre"]
    difference = replay_vector(_write(tmp_path / "changed.jsonl", lines)).difference
    assert difference is not None
    assert difference.what in {"schedule.new", "schedule.skipped"}


def test_another_sampled_token_shows_in_the_outputs(lines: list[Json], tmp_path: Path) -> None:
    """Sampled tokens are input, not compared: what becomes of them is."""
    tick = _tick(lines, lambda t: "u" in t and t["u"]["sampled"])
    tick["u"]["sampled"][0][1] = [123_456]
    difference = replay_vector(_write(tmp_path / "changed.jsonl", lines)).difference
    assert difference is not None
    assert (difference.tick, difference.what) == (tick["t"], "update.out")


def test_an_abort_that_hits_nobody_is_a_difference(lines: list[Json], tmp_path: Path) -> None:
    tick = _tick(lines, lambda t: any(event.get("hit") for event in t.get("ev_pre", []) + t.get("ev_mid", [])))
    event = next(event for event in tick.get("ev_pre", []) + tick.get("ev_mid", []) if event["hit"])
    event["id"] = "nobody"
    difference = replay_vector(_write(tmp_path / "changed.jsonl", lines)).difference
    assert difference is not None
    assert difference == (tick["t"], "abort.hit", False, True)


def test_a_step_too_few_or_too_many_is_a_difference(lines: list[Json], tmp_path: Path) -> None:
    tick = _tick(lines, lambda t: "s" in t)
    del tick["s"], tick["u"]
    difference = replay_vector(_write(tmp_path / "changed.jsonl", lines)).difference
    assert difference is not None
    assert difference == (tick["t"], "has_requests", True, False)


def test_a_scenario_of_unknown_features_is_never_equal(lines: list[Json], tmp_path: Path) -> None:
    lines[0]["config"]["prefill_schedule_interval"] = 2
    result = replay_vector(_write(tmp_path / "unsupported.jsonl", lines))
    assert result.unsupported == ["setting prefill_schedule_interval"]
    assert (result.steps, result.difference) == (0, None)


def _refused(path: Path, *said: str) -> None:
    with pytest.raises(ParityError) as refusal:
        replay_vector(path)
    for words in (str(path), *said):
        assert words in str(refusal.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    _refused(tmp_path / "absent.jsonl.gz", "cannot be read")


def test_an_empty_file_is_named(tmp_path: Path) -> None:
    _refused(_write(tmp_path / "empty.jsonl", []), "empty file")


def test_truncated_gzip_is_named(vectors: Path, tmp_path: Path) -> None:
    whole = (vectors / "aborts_priority.jsonl.gz").read_bytes()
    path = tmp_path / "cut.jsonl.gz"
    path.write_bytes(whole[: len(whole) // 2])
    _refused(path, "compressed data is cut off or damaged")


def test_damaged_gzip_is_named(vectors: Path, tmp_path: Path) -> None:
    """A flipped byte within the compressed stream, and a file that is not gzip at all."""
    whole = bytearray((vectors / "aborts_priority.jsonl.gz").read_bytes())
    whole[len(whole) // 2] ^= 0xFF
    path = tmp_path / "flipped.jsonl.gz"
    path.write_bytes(bytes(whole))
    _refused(path)
    path = tmp_path / "text.jsonl.gz"
    path.write_text("{}\n", encoding="utf-8")
    _refused(path, "compressed data is cut off or damaged")


def test_a_line_that_is_not_json_is_named(lines: list[Json], tmp_path: Path) -> None:
    path = _write(tmp_path / "torn.jsonl", lines)
    torn = path.read_text(encoding="utf-8").splitlines()
    torn[4] = torn[4][: len(torn[4]) // 2]
    path.write_text("\n".join(torn), encoding="utf-8")
    _refused(path, ":5:", "not JSON")


@pytest.mark.parametrize("line", ["[1, 2]", '"tick"', "{}", "7"])
def test_a_line_that_is_no_tick_is_named(line: str, lines: list[Json], tmp_path: Path) -> None:
    path = _write(tmp_path / "odd.jsonl", lines[:3])
    path.write_text(path.read_text(encoding="utf-8") + line + "\n", encoding="utf-8")
    _refused(path, ":4:", "not a tick")


@pytest.mark.parametrize(
    "damage",
    [
        {"add": 7},
        {"add": [7]},
        {"s": None},
        {"s": {}},
        {"s": {"n": 2, "known": [["a"]]}},
        {"u": []},
        {"u": {"of": [], "sampled": []}},
        {"u": {"of": 0, "sampled": "none"}},
        {"u": {"of": 0}},
        {"ev_pre": [{"id": "a"}]},
        {"ev_mid": [{"op": "pause", "state": 7}]},
        {"ev_pre": "abort"},
        {"t": "two"},
    ],
    ids=str,
)
def test_inputs_of_a_wrong_type_are_named(damage: Json, lines: list[Json], tmp_path: Path) -> None:
    lines[3] |= damage
    _refused(_write(tmp_path / "mistyped.jsonl", lines), ":4:", "not a tick")


@pytest.mark.parametrize(
    ("setting", "value"),
    [("groups", 5), ("groups", [{}]), ("groups", ["full"]), ("pipeline_parallel_size", "two")],
)
def test_settings_of_a_wrong_type_are_named(setting: str, value: Any, lines: list[Json], tmp_path: Path) -> None:
    lines[0]["config"][setting] = value
    _refused(_write(tmp_path / "mistyped.jsonl", lines), ":1:", "not the header")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"num_blocks": "many"}, "num_gpu_blocks = 'many'"),
        ({"policy": "sjf"}, "policy = 'sjf'"),
        ({"mamba_cache_mode": "some"}, "mamba_cache_mode = 'some': use one of: none, all"),
        ({"num_speculative_tokens": 2, "spec_method": "guess"}, "spec_method = 'guess': use one of: ngram"),
    ],
)
def test_settings_that_cannot_work_are_named_with_their_file(
    settings: Json, problem: str, lines: list[Json], tmp_path: Path
) -> None:
    lines[0]["config"] |= settings
    _refused(_write(tmp_path / "settings.jsonl", lines), "settings.jsonl:1:", problem)


def test_a_request_that_is_added_twice_is_named_with_its_file(lines: list[Json], tmp_path: Path) -> None:
    tick = _tick(lines, lambda t: t.get("add"))
    tick["add"] = tick["add"] * 2
    _refused(_write(tmp_path / "twice.jsonl", lines), "twice.jsonl: tick", "request_id")


def test_a_format_of_another_version_is_named(lines: list[Json], tmp_path: Path) -> None:
    lines[0]["format"] = "vllm-golden-2"
    _refused(_write(tmp_path / "later.jsonl", lines), ":1:", "vllm-golden-2")


@pytest.mark.parametrize("header", [{}, {"name": "x"}, {"name": "x", "config": {}, "requests": [{"id": "a"}]}, [1]])
def test_a_wrong_header_is_named(header: Any, lines: list[Json], tmp_path: Path) -> None:
    _refused(_write(tmp_path / "header.jsonl", [header, *lines[1:]]), ":1:", "not the header")


def test_an_unknown_arrival_is_named(lines: list[Json], tmp_path: Path) -> None:
    _tick(lines, lambda t: t.get("add"))["add"] = ["nobody"]
    _refused(_write(tmp_path / "unknown.jsonl", lines), "tick", "'nobody'")


def test_an_update_of_a_step_that_was_never_made_is_named(lines: list[Json], tmp_path: Path) -> None:
    _tick(lines, lambda t: "u" in t)["u"]["of"] = 999
    _refused(_write(tmp_path / "of.jsonl", lines), "tick", "999")


def test_an_unknown_event_is_named(lines: list[Json], tmp_path: Path) -> None:
    lines[2]["ev_pre"] = [{"op": "dance"}]
    _refused(_write(tmp_path / "event.jsonl", lines), "tick", "'dance'")


def test_the_first_difference_is_the_first_in_order_of_the_step(lines: list[Json], tmp_path: Path) -> None:
    """Several facts of one step differ: who was scheduled is told before the queues that follow from it."""
    tick = _tick(lines, lambda t: "s" in t and t["s"]["new"])
    tick["s"] |= {"free": -1, "running": [], "new": [], "waiting": ["x"]}
    difference = replay_vector(_write(tmp_path / "changed.jsonl", lines)).difference
    assert difference is not None
    assert difference.what == "schedule.new"


def test_a_setting_nobody_knows_is_unsupported(lines: list[Json], tmp_path: Path) -> None:
    lines[0]["config"]["dance_steps"] = 3
    assert replay_vector(_write(tmp_path / "dance.jsonl", lines)).unsupported == ["setting dance_steps"]


def test_a_vector_without_a_step_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "bare.jsonl"
    path.write_text('{"name": "bare", "config": {}, "requests": [], "stats": {"ticks": 0}}\n')
    with pytest.raises(ParityError, match="no step was recorded"):
        replay_vector(path)


def test_a_record_without_a_required_key_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "holes.jsonl"
    request = '{"id": "a", "prompt": [1, 2], "max_tokens": 1, "arrival_time": 0}'
    path.write_text(
        f'{{"name": "holes", "config": {{}}, "requests": [{request}], "stats": {{"ticks": 1}}}}\n'
        '{"t": 0, "add": ["a"], "ev_pre": [{"op": "abort"}]}\n'
    )
    with pytest.raises(ParityError, match="tick 0: a record lacks 'id'"):
        replay_vector(path)
