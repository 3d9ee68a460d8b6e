"""What the library says is said in flags, and a flag that means nothing is named."""

from __future__ import annotations

import pickle
import re
from itertools import chain
from pathlib import Path

import pytest

import generate_vllm_flags
from tokenyard.cli.support.asking import say_overwritten
from tokenyard.cli.support.flag_table import in_words_of, setting_names, spellings
from tokenyard.cli.support.flags import COMMANDS, command_of
from tokenyard.cli.support.flags.replays import CompareCommand, RunCommand, SplitCommand, WhatIfCommand
from tokenyard.cli.support.flags.traces import ReportCommand, ViewCommand
from tokenyard.cli.support.parsing import REPLAYS, ignored_flags, names_in, parse
from tokenyard.connectors.config import KVTransferConfig
from tokenyard.deploy.spec import open_trace
from tokenyard.deploy.vllm_serve.flags import flag_table, written_out
from tokenyard.errors import ConfigError, NoStartError, RequestError, TokenyardError, TraceError
from tokenyard.questions.variants import read_setting
from tokenyard.record.writer import TraceWriter
from tokenyard.trace.config import TraceConfig

ROOT = Path(__file__).resolve().parents[3]


def test_settings_of_a_command_are_its_flags() -> None:
    assert {"max_num_seqs", "seed", "trace", "kv_transfer_config", "json"} <= setting_names(RunCommand)
    assert "workload" not in setting_names(RunCommand)
    assert setting_names(ReportCommand) == {"buckets", "by", "full", "header", "json", "slo", "svg"}
    assert setting_names(ViewCommand) == {"host", "port", "browser"}
    assert all(setting_names(command_of(name)) for name in COMMANDS)


@pytest.mark.parametrize(
    ("command", "error", "message"),
    [
        (RunCommand, ConfigError("max_num_seqs", 0, "give 1"), "--max-num-seqs = 0: give 1"),
        (RunCommand, ConfigError("num_gpu_blocks", 0, "give 1"), "--num-gpu-blocks-override = 0: give 1"),
        (RunCommand, ConfigError("policy", "x", "use fcfs"), "--scheduling-policy = 'x': use fcfs"),
        (CompareCommand, ConfigError("policy", "x", "use fcfs"), "--policies = 'x': use fcfs"),
        (RunCommand, ConfigError("store_on", "x", "use y"), "--kv-transfer-config: store_on = 'x': use y"),
        (SplitCommand, ConfigError("store_on", "x", "use y"), "store_on = 'x': use y"),
        (ReportCommand, ConfigError("max_num_seqs", 0, "give 1"), "max_num_seqs = 0: give 1"),
        (
            RunCommand,
            ConfigError("latency", "max_num_seqs", "lower §max_model_len. Or num_layers"),
            "--latency = 'max_num_seqs': lower --max-model-len. Or num_layers",
        ),
        (
            RunCommand,
            RequestError("max_model_len", "max_tokens", 9, "raise §num_gpu_blocks (3)"),
            "request 'max_model_len': max_tokens = 9: raise --num-gpu-blocks-override (3)",
        ),
        (RunCommand, TraceError("no max_num_seqs"), "no max_num_seqs"),
        (None, ConfigError("max_num_seqs", 0, "give 1"), "max_num_seqs = 0: give 1"),
    ],
)
def test_an_error_names_the_flag(command: type | None, error: TokenyardError, message: str) -> None:
    assert in_words_of(command, error.marked) == message


def test_flags_stand_in_the_place_of_settings_that_are_marked() -> None:
    said = "set §async_scheduling, not async_scheduling, §§limit or §seed_of"
    assert in_words_of(RunCommand, said) == "set --async-scheduling, not async_scheduling, §limit or seed_of"


def test_a_mark_is_seen_by_nobody() -> None:
    """Neither in a message, nor in its parts, nor where a user's own text has one."""
    error = ConfigError("latency", "§max_num_seqs", "lower §max_model_len")
    assert str(error) == "latency = '§max_num_seqs': lower max_model_len"
    assert (error.value, error.fix) == ("§max_num_seqs", "lower max_model_len")
    assert in_words_of(RunCommand, error.marked) == "--latency = '§max_num_seqs': lower --max-model-len"
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.marked, again.marked_fix) == (str(error), error.marked, error.marked_fix)
    assert NoStartError("§max_num_seqs = 3", "max_num_seqs", 3).reason == "max_num_seqs = 3"


DRAFTS = "is ignored: without --num-speculative-tokens there are no drafts"


@pytest.mark.parametrize(
    ("typed", "sentences"),
    [
        ("run chat --acceptance-rates 0.7", [f"--acceptance-rates {DRAFTS}"]),
        ("run chat --acceptance-rates 0.7 --num-speculative-tokens 2", []),
        ("run chat --speculative_method=eagle", [f"--speculative-method {DRAFTS}"]),
        (
            "run chat --kv-offloading-backend native",
            ["--kv-offloading-backend is ignored: without --kv-offloading-size nothing is offloaded"],
        ),
        (
            "split chat --num-gpu-blocks-override 99 --gpu-memory-utilization 0.5",
            ["--gpu-memory-utilization is ignored: --num-gpu-blocks-override says how many blocks there are"],
        ),
        (
            "run chat --gpu l4 --num-gpu-blocks-override 99 --latency constant:1",
            [
                "--gpu is ignored: blocks and step times are given; it only names the run",
            ],
        ),
        ("run chat --gpu l4 --num-gpu-blocks-override 99", []),
        (
            "run chat --no-enable-prefix-caching --prefix-caching-hash-algo sha256",
            ["--prefix-caching-hash-algo is ignored: without prefix caching nothing is hashed"],
        ),
        (
            "run chat --skip-oversized-prefill",
            ["--skip-oversized-prefill is ignored: with chunked prefill no prompt is too long for a step"],
        ),
        ("run chat --no-enable-chunked-prefill --skip-oversized-prefill", []),
        (
            "run chat --time-unit ms --stamped completion",
            [
                "--time-unit is ignored: it is for logs of services, and the workload is built in",
                "--stamped is ignored: it is for logs of services, and the workload is built in",
            ],
        ),
        ("run my.csv --time-unit ms", []),
        ("run chat --record-requests", ["--record-requests is ignored: without --trace nothing is recorded"]),
        ("run chat --record-requests --trace here", []),
        (
            "compare chat --scheduling-policy priority --align job",
            [
                "--scheduling-policy is ignored: --policies names those that are compared",
                "--align is ignored: it is for two traces, and one is given",
            ],
        ),
        (
            "compare a b --align job --json --no-enable-prefix-caching",
            ["--enable-prefix-caching is ignored: two traces are compared, and nothing is replayed"],
        ),
        (
            "plan chat --router round-robin",
            ["--router is ignored: without --data-parallel-size or --replicas there is one engine"],
        ),
        ("plan chat --router round-robin --set data_parallel_size=1,2", []),
        ("plan chat --router round-robin --space max_num_seqs=4,replicas=1,2", []),
        ("sweep chat --startup 1s --scale-target 2 --set autoscale=1..2", []),
        (
            "sweep chat --startup 1s --set replicas=1..2",
            ["--startup is ignored: without --autoscale no replica comes or goes"],
        ),
        ("sweep chat --acceptance-rates 0.5 --variants v.csv", []),
        ("compare chat --policy fcfs --policy bypass", []),
        ("plan chat --processes 2", []),
        ("sweep chat --processes 2 --set max_num_seqs=1,2", []),
        ("run chat --seed 1 --limit 3 --seed 2", ["--seed is given 2 times: the last one counts"]),
        ("report here --json", []),
    ],
)
def test_a_flag_without_effect_is_named(typed: str, sentences: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SCHED_TRACE_PATH", raising=False)
    words = typed.split()
    assert ignored_flags(parse(words), words) == sentences


@pytest.mark.parametrize(
    "words",
    [
        "compare chat --policies fcfs,bypass",
        "compare chat --policies fcfs bypass",
        "compare chat --policy fcfs --policies=bypass",
        "compare --policies fcfs bypass chat",
        "compare --policy fcfs,bypass chat --seeds 1",
        "compare --polic fcfs, bypass chat",
    ],
)
def test_policies_are_named_alike(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bypass").mkdir()
    command = parse(words.split())
    assert isinstance(command, CompareCommand)
    assert (command.policies, command.workload, command.other) == ("fcfs,bypass", "chat", None)


def test_policies_of_ones_own_and_two_traces_are_told_from_each_other(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.touch()
    own = parse(["compare", "--policies", "fcfs", f"{tmp_path}/p.py:Mine", "mistyped", str(log)])
    assert isinstance(own, CompareCommand)
    assert (own.policies, own.workload) == (f"fcfs,{tmp_path}/p.py:Mine,mistyped", str(log))
    both = parse(["compare", "a", "b", "--policies", "fcfs"])
    assert isinstance(both, CompareCommand)
    assert (both.workload, both.other) == ("a", Path("b"))


@pytest.mark.parametrize("words", ["--policies fcfs,bypass", "--policy fcfs bypass", "--pol fcfs --policies bypass"])
def test_policies_of_whatif_are_named_as_those_of_compare(words: str) -> None:
    command = parse(["whatif", "trace", *words.split()])
    assert isinstance(command, WhatIfCommand)
    assert names_in(chain.from_iterable(command.policies)) == ["fcfs", "bypass"]


def test_a_setting_that_is_varied_is_the_flag_of_its_name() -> None:
    """For all flags that `run` has, `--set replicas=4` is what `--replicas 4` is, and not another flag."""
    varied = {}
    for name in setting_names(RunCommand):
        try:
            varied[name] = read_setting(name, "1")[0]
        except ConfigError:
            continue  # no setting of a variant, or 1 is no value of it
    assert {"replicas", "data_parallel_size", "max_num_seqs", "scheduling_policy"} <= set(varied)
    assert all(name == meant for name, meant in varied.items())


@pytest.mark.parametrize("command", COMMANDS)
def test_every_flag_of_ours_may_be_written_as_far_as_it_is_unlike_others(command: str) -> None:
    """What an abbreviation is written out as, is the flag that it is the only beginning of."""
    own = spellings(command_of(command))
    assert set(own.values()) == setting_names(command_of(command))
    theirs = flag_table().long_names if command in REPLAYS else {}
    for name, setting in own.items():
        others = {meant for each, meant in {**theirs, **own}.items() if each.startswith(name[:-1])}
        if len(name) < 5 or name[:-1] in (own | theirs):
            continue
        if len(others) == 1:
            assert written_out(name[:-1], {**theirs, **own}) in own, setting


@pytest.mark.parametrize("command", COMMANDS)
def test_every_flag_of_ours_stands_in_a_document(command: str) -> None:
    """Itself, or the form that turns it the other way."""
    documents = [path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md")]
    documents.append(generate_vllm_flags.document())
    told = set(re.findall(r"--[a-z][a-z0-9-]*", "\n".join(documents)))
    plain = {name for each in told for name in (each, each.replace("--no-", "--", 1))}
    own = {name.replace("--no-", "--", 1) for name in spellings(command_of(command))}
    assert own - plain == set()


def test_requests_are_recorded_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHED_TRACE_PATH", "somewhere")
    words = ["run", "chat", "--record-requests"]
    assert ignored_flags(parse(words), words) == []


def test_help_tells_the_true_default_of_async_scheduling(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["run", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    names = "--async-scheduling, --no-async-scheduling"
    told = f"{names} Async scheduling: schedule a step while the previous one runs. (default: on; before"
    assert f"{told} 0.28 off if drafts come from draft_model, before 0.33 if they come from ngram" in text


def test_a_trace_that_is_overwritten_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = TraceConfig(path=tmp_path / "trace")
    assert config.steps_path is not None
    with TraceWriter(config) as writer:
        open_trace(writer)
    assert capsys.readouterr().err == ""
    config.steps_path.write_text("{}\n", encoding="utf-8")
    with TraceWriter(config) as writer:
        open_trace(writer, say_overwritten)
    assert capsys.readouterr().err == (
        f"tokenyard: warning: the trace that was in {config.path} is overwritten; --trace DIR keeps both\n"
    )
    assert config.steps_path.read_bytes() == b""


def test_a_refused_connector_is_not_offered_to_one_engine() -> None:
    with pytest.raises(ConfigError, match="NixlConnector with two engines") as refusal:
        KVTransferConfig(kv_connector="LMCacheConnector")
    assert refusal.value.fix.startswith("use OffloadingConnector or SharedStorageConnector; ")
