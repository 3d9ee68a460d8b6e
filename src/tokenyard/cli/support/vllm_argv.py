"""Flags of ``vllm serve`` on our command line: pasted as a line, read from a file, or given by themselves.

Whatever vLLM understands is taken out of the words and read as vLLM reads it, once: our parser gets the other words,
and the values are filled in where it is done.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tokenyard.cli.support.flag_table import flags_of, setting_names
from tokenyard.cli.support.flags.planning import PlanCommand, SweepCommand
from tokenyard.cli.support.flags.replays import CompareCommand, RunCommand, SplitCommand, UpgradeCommand
from tokenyard.deploy.given import OURS, Given, given_by
from tokenyard.deploy.serve_line import ServeLine, read_config_file, read_serve_line
from tokenyard.deploy.setting_values import with_values
from tokenyard.deploy.vllm_serve.flags import FlagEffect, flag_table
from tokenyard.deploy.vllm_serve.given import read_words
from tokenyard.errors import ConfigError
from tokenyard.quick_named_tuple import NamedTuple

ReplayCommand = RunCommand | CompareCommand | SplitCommand | PlanCommand | SweepCommand | UpgradeCommand
REPLAYS: dict[str, type[ReplayCommand]] = {
    "run": RunCommand,
    "compare": CompareCommand,
    "split": SplitCommand,
    "plan": PlanCommand,
    "sweep": SweepCommand,
    "upgrade": UpgradeCommand,
}
"""Sub-commands that take flags of vLLM."""
_SPLIT = re.compile(r"--split\b|(?:^|[,\s=])split=")
"""Words by which variants of a plan or a sweep are splits: ``--split 1+1``, ``--set split=1+1``."""


class _Plain(NamedTuple):
    words: list[str]
    """The words of ours."""
    given: Given
    """What the others say."""


def without_vllm_flags(command: type[ReplayCommand], words: Sequence[str]) -> _Plain:
    """Return the words for our parser, and what the others say. Raises ConfigError."""
    if {"--async-scheduling", "--no-async-scheduling"} <= set(words):
        raise ConfigError("--async-scheduling", True, "--no-async-scheduling says the opposite: give one of them")
    own = dict(_own_flags(command))
    direct, rest = read_words(words, own=own)
    line, rest = _line(rest)
    config = next((each for each in direct if each.flag.name == "config"), None)
    from_file = read_config_file(Path(config.value)) if config is not None else []
    typed = {each.flag.field for each in (*from_file, *direct)} | {_field(word) for word in rest if _name(word) in own}
    has = set(setting_names(command))
    if command is SplitCommand or any(_SPLIT.search(word) for word in rest):
        has -= {"replicas", "autoscale"}  # a split is replayed with one number of engines on each side
    given = given_by(
        line,
        [direct],
        before=from_file,
        typed=typed,
        gpu=_value_of(rest, "--gpu"),
        has=has,
        one_deployment=command in (RunCommand, CompareCommand, UpgradeCommand),
        with_trace="trace" in typed,
    )
    return _Plain(rest, given)


def with_given(command: ReplayCommand, given: Given) -> ReplayCommand:
    """The command with what was given in words of vLLM's, and knowing what that was."""
    return with_values(replace(command, launch=replace(command.launch, asked=given.asked)), given.values)


def _name(word: str) -> str:
    return word.partition("=")[0].replace("_", "-")


def _field(word: str) -> str:
    return _name(word).removeprefix("--").removeprefix("no-").replace("-", "_")


def _own_flags(command: type[ReplayCommand]) -> Iterator[tuple[str, str]]:
    """Flags of ours, and what they are: those of the command that no flag of vLLM's is called."""
    used = [each for each in flag_table() if each.effect is FlagEffect.USED]
    theirs = {each.field for each in used}
    turned_off = {word for each in used for word in each.off_names}
    for each in flags_of(command):
        for word in [] if each.is_positional else each.spellings:
            if (each.name not in theirs and word not in turned_off) or each.name in OURS:
                yield word, each.name
                if each.is_switch:
                    yield "--no-" + word.removeprefix("--"), f"no_{each.name}"
    yield "--help", "help"


def _line(rest: Sequence[str]) -> tuple[ServeLine, list[str]]:
    """What ``--serve`` says; the words stay, with the text as it was understood in its place."""
    words = list(rest)
    line = ServeLine()
    for i, word in enumerate(words):
        if word == "--serve":
            if i + 1 == len(words):
                raise ConfigError("serve", "", 'needs a value: paste the line, "vllm serve MODEL ..."')
            line = read_serve_line(words[i + 1])
            words[i + 1] = str(line)
        elif word.startswith("--serve="):
            line = read_serve_line(word.removeprefix("--serve="))
            words[i] = f"--serve={line}"
    return line, words


def _value_of(words: Sequence[str], wanted: str) -> str | None:
    """The value of a flag of ours, in lower case; None where it is not given."""
    for i, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == wanted:
            return (value if equals else "".join(words[i + 1 : i + 2])).lower()
    return None
