"""The flags themselves: every sub-command parses, has a module, and every flag says what it does."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from tokenyard.cli.main import main
from tokenyard.cli.support.flag_table import Command
from tokenyard.cli.support.flags import COMMANDS, command_of, module_of, name_of
from tokenyard.cli.support.flags.known import ParityCommand
from tokenyard.cli.support.flags.replays import DemoCommand, RunCommand
from tokenyard.cli.support.flags.traces import ReportCommand
from tokenyard.cli.support.parsing import parse
from tokenyard.deploy.settings import HardwareSettings, LaunchSettings
from tokenyard.deploy.vllm_serve.given import GivenFlags
from tokenyard.errors import ConfigError
from tokenyard.models.gpus import GPUS
from tokenyard.workload.generators import AgenticOptions, ChatOptions
from tokenyard.workload.load import GENERATORS
from tokenyard.workload.readers.plain import FORMATS


def help_of(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as left:
        parse([name, "--help"])
    assert left.value.code == 0
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_module_and_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = command_of(name)
    assert issubclass(command, Command)
    assert name_of(command) == name
    assert callable(import_module(module_of(command)).execute)
    assert command.__doc__
    assert command.__doc__ in help_of(name, capsys)


def test_help_names_what_can_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of("run", capsys)
    for names in (GENERATORS, FORMATS):
        assert all(name in text for name in names)
    assert {"h100", "mi300x", "a10g"} <= set(GPUS)
    assert all(name in text for name in ("h100", "mi300x", "a10g", "docs/gpus.md"))
    assert f"0.05; agentic {AgenticOptions().rate:g}, chat {ChatOptions().rate:g}" in text


def test_parse() -> None:
    asked = LaunchSettings(asked=GivenFlags(named=frozenset({"gpu"})))
    hardware = HardwareSettings(gpu="l4")
    assert parse(["run", "w.jsonl", "--gpu", "l4"]) == RunCommand(workload="w.jsonl", launch=asked, hardware=hardware)
    assert parse(["report", "t", "--json"]) == ReportCommand(trace=Path("t"), json=True)
    assert parse(["parity", "a", "b"]) == ParityCommand(files=(Path("a"), Path("b")))
    assert parse(["demo"]) == DemoCommand(trace=Path("traces/demo"), seed=0)


def test_a_command_that_there_is_not_names_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match="command = 'nothing': use one of: run, report"):
        parse(["nothing"])


@pytest.mark.parametrize("arguments", [["run"], ["report"], ["run", "w", "--max-seqs", "2"]])
def test_mistakes_leave_with_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1


def test_the_help_of_all_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--help"], ["help"]):
        with pytest.raises(SystemExit) as left:
            parse(words)
        assert left.value.code == 0
        text = " ".join(capsys.readouterr().out.split())
        assert all(f"{name} {command_of(name).__doc__}" in text for name in COMMANDS)
