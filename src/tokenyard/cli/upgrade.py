"""``tokenyard upgrade``: what another version of vLLM changes for a workload."""

from __future__ import annotations

from tokenyard.cli.support.asking import scenario_of
from tokenyard.cli.support.console import print_json, replay_bar, results
from tokenyard.cli.support.flags.replays import UpgradeCommand
from tokenyard.questions.printing.upgrade import print_upgrade
from tokenyard.questions.upgrade import ask


def execute(flags: UpgradeCommand) -> int:
    """Replay, compare, print; 0 if it ends."""
    told = ask(scenario_of(flags), flags.older, flags.newer, bars=replay_bar)
    if flags.json:
        print_json(told)
    else:
        print_upgrade(told, results())
    return 0
