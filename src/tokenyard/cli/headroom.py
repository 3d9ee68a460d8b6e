"""``tokenyard headroom``: how much memory a deployment leaves, and what may be too much for it."""

from __future__ import annotations

from tokenyard.cli.support.console import print_json, results
from tokenyard.cli.support.flags.serving import HeadroomCommand
from tokenyard.deploy.deployment import Deployment
from tokenyard.questions.headroom import headroom
from tokenyard.questions.printing.headroom import print_headroom


def execute(flags: HeadroomCommand) -> int:
    """Count and print; 0 if it would start. Raises TokenyardError."""
    given = {name: value for name in ("gpu", "vllm_version") if (value := getattr(flags, name)) is not None}
    told = headroom(Deployment(flags.serve, **given, ignore_unmodelled=flags.ignore_unmodelled))
    print_json(told) if flags.json else print_headroom(told, results())
    return 0
