"""``tokenyard why``: what requests waited for, where nothing moved, why prompts were not in the cache."""

from __future__ import annotations

from tokenyard.cli.support.console import print_json, results
from tokenyard.cli.support.flags.traces import WhyCommand
from tokenyard.errors import ConfigError
from tokenyard.explain.render.why import print_prefix, print_stuck, print_waiting, print_why
from tokenyard.explain.why.prefix import prefix_misses
from tokenyard.explain.why.stuck import standstills
from tokenyard.explain.why.why import JobNamedError, waiting, why


def execute(flags: WhyCommand) -> int:
    """Explain; always 0 if the trace can be read and holds the request, or the job."""
    if flags.stuck:
        if flags.request is not None:
            raise ConfigError("stuck", flags.request, "it looks at all requests: leave the request out")
        found = standstills(flags.trace)
        print_json(found) if flags.json else print_stuck(found, results())
        return 0
    if flags.prefix:
        misses = prefix_misses(flags.trace, flags.request)
        print_json(misses) if flags.json else print_prefix(misses, results())
        return 0
    job = None
    if flags.request is not None:
        try:
            answer = why(flags.trace, flags.request)
        except JobNamedError:
            job = flags.request
        else:
            print_json(answer) if flags.json else print_why(answer, results())
            return 0
    several = waiting(flags.trace, job)
    print_json(several) if flags.json else print_waiting(several, results(), of_job=job)
    return 0
