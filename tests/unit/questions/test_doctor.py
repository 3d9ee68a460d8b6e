"""What is wrong with a server is told from its metrics, its log, or one look; nothing is advised that was not tried."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

import tokenyard as ty
from tokenyard.cli.main import main
from tokenyard.errors import ConfigError, WorkloadError
from tokenyard.questions.doctor.diagnosis import ask
from tokenyard.questions.doctor.evidence import Watching

pytest.importorskip("prometheus_client", reason="it is not installed (extra: server)")

from tests.support.states import STATES, State  # needs that extra

BY_NAME = {each.name: each for each in STATES}
QUEUES = (
    'vllm:num_requests_running{{engine="0",model_name="m"}} {}\n'
    'vllm:num_requests_waiting{{engine="0",model_name="m"}} {}\n'
)
LINE = (
    "(APIServer pid=7) INFO 03-11 06:{}:{} [loggers.py:257] Engine 00{}: Avg prompt throughput: 16.5 tokens/s, "
    "Avg generation throughput: {} tokens/s, Running: {} reqs, Waiting: {} reqs, "
    "GPU KV cache usage: {}%, Prefix cache hit rate: 70.0%\n"
)


def saved(folder: Path, name: str) -> Path:
    path = folder / "state.prom"
    path.write_bytes(BY_NAME[name].made())
    return path


@pytest.mark.slow
@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
def test_every_state_is_told(state: State, tmp_path: Path) -> None:
    told = ty.doctor(saved(tmp_path, state.name))
    answer = told.answer
    first = answer.causes[0].code if answer.causes else None
    expected = state.cause or (None if state.code in ("idle", "empty") else "held_back")
    assert (answer.code, answer.reason, first) == (state.code, state.reason, expected), answer.sentence
    assert told.exit_code == {"idle": 0, "empty": 0, "stuck": 3}.get(state.code, 1)


def test_five_that_wait_for_nothing_are_stuck_not_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", str(saved(tmp_path, "0 running, 5 waiting, KV 0 %")), "--json"]) == 3
    told = json.loads(capsys.readouterr().out)
    assert (told["answer"]["code"], told["answer"]["sure"]) == ("stuck", "certain")
    assert "0 run and 5 wait, KV 0.0 %" in told["answer"]["sentence"]
    assert told["commands"][0].endswith("--scheduler-cls tokenyard.vllm.TracingScheduler")


def test_one_look_tells_what_it_can(tmp_path: Path) -> None:
    path = tmp_path / "now.prom"
    path.write_text(QUEUES.format(0, 5))
    told = ask([str(path)])
    assert (told.answer.code, told.answer.sure, told.seen.is_since_start) == ("stuck", "guess", True)
    assert any("one scrape" in each for each in told.unknown)


def test_two_files_are_two_moments_and_folders_are_replicas(tmp_path: Path) -> None:
    first, second = tmp_path / "a.prom", tmp_path / "b.prom"
    first.write_text(QUEUES.format(8, 1))
    second.write_text(QUEUES.format(8, 4))
    told = ask([str(first), str(second)])
    assert (told.seen.scrapes, told.seen.waiting_first, told.seen.waiting) == (2, 1, 4)
    assert told.assumed  # nothing says how far they are apart
    for name, waiting in (("east", 30), ("west", 0)):
        for moment in (100, 110):
            (tmp_path / "all" / name).mkdir(parents=True, exist_ok=True)
            text = f"# scraped_at {moment}\n{QUEUES.format(9, waiting)}"
            (tmp_path / "all" / name / f"{moment}.prom").write_text(text)
    told = ask([str(tmp_path / "all")])
    assert (told.seen.engines, told.answer.causes[0].code, told.answer.causes[0].rank) == (2, "hot_engine", 0)


def test_the_lines_of_a_log_say_what_is_short_and_since_when(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    calm = [LINE.format("10", f"{second:02}", 0, 900.0, 12, 0, 31.0) for second in (0, 10, 20)]
    full = [LINE.format("10", f"{second:02}", 0, 700.0, 51, 117, 100.0) for second in (30, 40, 50)]
    path.write_text("".join(["INFO something else\n", *calm, *full]))
    answer = ask([str(path)]).answer
    assert (answer.code, answer.reason, answer.sure) == ("held_back", "kv_blocks", "likely")
    assert "since 06:10:30" in answer.sentence
    path.write_text(
        "".join(
            [*full, LINE.format("11", "00", 0, 0.0, 51, 117, 100.0), LINE.format("11", "10", 0, 0.0, 51, 117, 100.0)]
        )
    )
    assert ask([str(path)]).seen.output_tokens_per_s == 350.0


def test_a_server_is_watched_and_an_address_without_a_path_found() -> None:
    clock = [1000.0]
    answers = iter(range(100))

    def fetch(url: str) -> bytes:
        assert url == "http://server:8000/metrics"
        return (QUEUES.format(4, next(answers)) + "vllm:generation_tokens_total 5\n").encode()

    watching = Watching(now=lambda: clock[0], sleep=lambda s: clock.__setitem__(0, clock[0] + s), fetch=fetch)
    told = ask(["http://server:8000"], watching=watching)
    assert (told.seen.scrapes, told.seen.seconds, told.answer.code) == (6, 10.0, "stuck")


@pytest.mark.slow
def test_what_helps_is_replayed_and_its_gain_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = "seats, and more comes than is served"
    line = "vllm serve Qwen/Qwen3-8B --max-model-len 32768 --max-num-seqs 16"
    assert main(["doctor", str(saved(tmp_path, state)), "--serve", line, "--gpu", "l40s"]) == 1
    shown = capsys.readouterr().out
    assert "replayed: max_num_seqs 16 -> " in shown or "replayed: --max-num-seqs " in shown
    assert "TTFT p90 -" in shown


@pytest.mark.slow
def test_nothing_is_advised_from_a_replay_that_is_not_like_it(tmp_path: Path) -> None:
    """The line is another server's: with so many seats nothing waits there."""
    other = ty.Deployment("vllm serve Qwen/Qwen3-8B --max-model-len 32768 --max-num-seqs 512", gpu="h100")
    told = ty.doctor(saved(tmp_path, "seats, and more comes than is served"), deployment=other)
    assert told.treatment is not None
    assert not told.treatment.holds
    assert not any(each.is_tried for each in told.answer.remedies)
    assert "nothing is advised" in str(told)


def test_alert_rules_are_rules(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--prom-rules", "--serve", "vllm serve Qwen/Qwen3-8B --max-num-seqs 48"]) == 0
    (group,) = yaml.safe_load(capsys.readouterr().out)["groups"]
    rules = {each["alert"]: each["expr"] for each in group["rules"]}
    assert "vllm:num_requests_running >= 48" in rules["VllmWaitsForSeats"]
    assert all(text.count("(") == text.count(")") for text in rules.values())


@pytest.mark.parametrize(("text", "fix"), [("hello\n", "holds no metrics"), ("", "holds no metrics")])
def test_what_says_nothing_of_a_server_is_refused(text: str, fix: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_text(text)
    with pytest.raises(WorkloadError, match=fix):
        ask([str(tmp_path / "x")])
    with pytest.raises(ConfigError, match="name the address"):
        ask([])
    with pytest.raises(ConfigError, match="without a user"):
        ask(["http://me:key@server/metrics"])
