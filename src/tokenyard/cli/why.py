"""``tokenyard why``: what one request waited for, who waited longest, or where nothing moved."""

from __future__ import annotations

from tokenyard.cli.support.console import print_json, results
from tokenyard.cli.support.flags import Why as Flags
from tokenyard.errors import ConfigError
from tokenyard.explain.recorded import why
from tokenyard.explain.render.why import print_stuck, print_waiting, print_why
from tokenyard.explain.why.stuck import standstills
from tokenyard.explain.why.why import Why

__all__ = ["execute"]


def execute(flags: Flags) -> int:
    """Explain; always 0 if the trace can be read and holds the request, or the job."""
    if flags.stuck:
        if flags.request is not None:
            raise ConfigError("stuck", flags.request, "it looks at all requests: leave the request out")
        found = standstills(flags.trace)
        print_json(found) if flags.json else print_stuck(found, results())
        return 0
    answer = why(flags.trace, flags.request)
    if flags.json:
        print_json(answer)
    elif isinstance(answer, Why):
        print_why(answer, results())
    else:
        print_waiting(answer, results(), of_job=flags.request)
    return 0
