"""``tokenyard check``: files that start vLLM against stored traffic, as a pull request changes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tokenyard.cli.support.console import print_json, replay_bar, results, write_text
from tokenyard.cli.support.flags.operating import CheckCommand
from tokenyard.deploy.deployment import Deployment
from tokenyard.errors import ConfigError, TokenyardError
from tokenyard.questions.checking import Check, ask, changed_since
from tokenyard.questions.printing.checking import markdown_of, print_check


def execute(flags: CheckCommand) -> int:
    """Replay each file, print, write the comment; 0 if every bound holds, 1 if one does not or vLLM would not start."""
    checks = list(_checks(flags))
    if flags.markdown is not None:
        write_text("markdown", flags.markdown, markdown_of(checks) if checks else "")
    if flags.json:
        print_json(checks)
    else:
        for each in checks:
            print_check(each, results())
        if not checks:
            results().print(f"None of {len(flags.files):,} files changed.")
    return 0 if all(each.holds for each in checks) else 1


def _checks(flags: CheckCommand) -> Iterator[Check]:
    """A check of each file; with ``--since`` of those that changed, beside what they were."""
    if not flags.files:
        raise ConfigError("files", "", "name a file that starts vLLM: tokenyard check server.yaml --against LOG")
    if flags.against is None:
        raise ConfigError("against", "", "name what is replayed: a log, a workload or a trace")
    old: dict[str, str | None] = dict.fromkeys(flags.files)
    if flags.since is not None:
        old = changed_since(flags.files, flags.since)
    elif flags.before is not None:
        if len(flags.files) > 1:
            raise ConfigError("before", str(flags.before), "is of one file: check it alone, or give §since")
        old[flags.files[0]] = flags.before.read_text(encoding="utf-8")
    named: dict[str, Any] = {} if flags.gpu is None else {"gpu": flags.gpu}
    for file, before in old.items():
        try:
            now = Deployment(file, **named)
        except TokenyardError as error:
            yield Check(file=file, against=flags.against, requests=0, problem=str(error))
            continue
        yield ask(
            now,
            flags.against,
            before=None if before is None else Deployment(before, **named),
            slo=flags.slo,
            price=flags.price,
            name=file,
            bars=replay_bar,
            arrivals=flags.arrivals,
        )
