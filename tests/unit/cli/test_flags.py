"""The flags themselves: every sub-command parses, has a module, and every flag says what it does."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from tokenyard.cli.support.flags import COMMANDS, Command, DemoCommand, ParityCommand, ReportCommand, RunCommand
from tokenyard.cli.support.parsing import parse
from tokenyard.deploy.settings import HardwareSettings, LaunchSettings
from tokenyard.deploy.vllm_serve.given import GivenFlags
from tokenyard.errors import ConfigError
from tokenyard.models.gpus import GPUS
from tokenyard.workload.generators import AgenticOptions, ChatOptions
from tokenyard.workload.load import GENERATORS
from tokenyard.workload.readers.formats import FORMATS


def help_of(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as left:
        parse([name, "--help"])
    assert left.value.code == 0
    return " ".join(capsys.readouterr().out.replace("│", " ").split())


@pytest.mark.parametrize(("command", "name"), COMMANDS.items(), ids=COMMANDS.values())
def test_every_command_has_a_module_and_help(
    command: type[Command], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(import_module(f"tokenyard.cli.{name}").execute)
    assert command.__doc__
    assert command.__doc__.split("\n")[0] in help_of(name, capsys)


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


@pytest.mark.parametrize("arguments", [["run"], ["report"], [], ["run", "w", "--max-seqs", "2"]])
def test_mistakes_leave_with_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        parse(arguments)
    assert left.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err
