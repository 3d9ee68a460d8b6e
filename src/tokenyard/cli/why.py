"""``tokenyard why``: what one request waited for, or who waited longest."""

from __future__ import annotations

from tokenyard.cli.support.console import print_json, results
from tokenyard.cli.support.flags import Why
from tokenyard.explain.render.why import print_waiting, print_why
from tokenyard.explain.why.longest_waits import waiting
from tokenyard.explain.why.why import why

__all__ = ["execute"]


def execute(flags: Why) -> int:
    """Explain; always 0 if the trace can be read and holds the request."""
    if flags.request is not None:
        answer = why(flags.trace, flags.request)
        print_json(answer) if flags.json else print_why(answer, results())
    else:
        everybody = waiting(flags.trace)
        print_json(everybody) if flags.json else print_waiting(everybody, results())
    return 0
