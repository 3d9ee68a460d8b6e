"""Flags of ``vllm serve`` on our command line: pasted as a line, read from a file, or given by themselves.

Whatever vLLM understands is taken out of the words and read as vLLM reads it, once: our parser gets the other words,
and the values are filled into the command that it makes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tokenyard.cli.support.flag_table import flags_of, setting_names
from tokenyard.cli.support.flags.planning import PlanCommand, SweepCommand
from tokenyard.cli.support.flags.replays import CompareCommand, RunCommand, SplitCommand, UpgradeCommand
from tokenyard.cli.support.parser import read
from tokenyard.cli.support.policy_names import with_one_policies
from tokenyard.deploy.given import OURS, given_by
from tokenyard.deploy.serve_line import ServeLine, read_config_file, read_serve_line
from tokenyard.deploy.setting_values import with_values
from tokenyard.deploy.vllm_serve.flags import FlagEffect, flag_table
from tokenyard.deploy.vllm_serve.given import read_words
from tokenyard.errors import ConfigError

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


def read_replay(kind: type[ReplayCommand], words: Sequence[str]) -> ReplayCommand:
    """Make the command of words of ours and of vLLM's. Raises ConfigError."""
    if {"--async-scheduling", "--no-async-scheduling"} <= set(words):
        raise ConfigError("--async-scheduling", True, "--no-async-scheduling says the opposite: give one of them")
    own = dict(_own_flags(kind))
    direct, rest = read_words(words, own=own)
    command = read(kind, with_one_policies(rest) if kind is CompareCommand else rest, flag_table().long_names)
    launch = command.launch
    line = ServeLine() if launch.serve is None else read_serve_line(launch.serve)
    config = next((each for each in direct if each.flag.name == "config"), None)
    from_file = read_config_file(Path(config.value)) if config is not None else []
    typed = {each.flag.field for each in (*from_file, *direct)} | {_field(word) for word in rest if _name(word) in own}
    has = setting_names(kind)
    if kind is SplitCommand or any(_SPLIT.search(word) for word in rest):
        has -= {"replicas", "autoscale"}  # a split is replayed with one number of engines on each side
    given = given_by(
        line,
        [direct],
        before=from_file,
        typed=typed,
        gpu=command.hardware.gpu.lower() if "gpu" in typed else None,
        has=has,
        one_deployment=kind in (RunCommand, CompareCommand, UpgradeCommand),
        with_trace="trace" in typed,
    )
    launch = replace(launch, asked=given.asked, serve=None if launch.serve is None else str(line))
    return with_values(replace(command, launch=launch), given.values)


def _name(word: str) -> str:
    return word.partition("=")[0].replace("_", "-")


def _field(word: str) -> str:
    return _name(word).removeprefix("--").removeprefix("no-").replace("-", "_")


def _own_flags(command: type[ReplayCommand]) -> Iterator[tuple[str, str]]:
    """Flags of ours, and what they are: those of the command that no flag of vLLM's is called."""
    theirs = {each.field for each in flag_table() if each.effect is FlagEffect.USED}
    for each in flags_of(command):
        if not each.is_positional and (each.name not in theirs or each.name in OURS):
            yield from ((word, each.name) for word in each.spellings)
            yield from ((word, f"no_{each.name}") for word in each.off_spellings)
    yield "--help", "help"
