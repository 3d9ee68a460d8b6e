"""Flags that have no effect as long as others stand as they do: a user who types one gets a line that says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import msgspec

from tokenyard.cli.support.flag_table import flag, in_words_of, setting_names
from tokenyard.cli.support.flags import name_of
from tokenyard.cli.support.flags.planning import PlanCommand, SweepCommand
from tokenyard.cli.support.flags.replays import CompareCommand, ReplayFlags, UpgradeCommand

if TYPE_CHECKING:
    from tokenyard.cli.support.flags.marks import Command

_MAY_REPEAT = {"slo", "price", "space", "grid", "changes", "policies"}
"""Flags of which every one counts."""
_SPLITS = {"split"}
"""Likewise, of `plan`."""
_OF_TRACES = {"align", "json"}
"""What two traces are compared by; every other flag of `compare` is about replays."""


def ignored_flags(command: Command, arguments: Sequence[str]) -> list[str]:
    """A sentence for each flag among ``arguments`` that ``command``, which they were read into, will not heed."""
    kind: type = type(command)
    known = setting_names(kind)
    words = (word.partition("=")[0].removeprefix("--").replace("-", "_") for word in arguments if word[:2] == "--")
    typed = Counter(word if word in known else word.removeprefix("no_") for word in words)
    once = known - _MAY_REPEAT - (_SPLITS if kind is PlanCommand else set())
    repeated = [
        f"{flag(name)} is given {times} times: the last one counts"
        for name, times in typed.items()
        if name in once and times > 1
    ]
    heard = [name for name in typed if name in known]
    if not heard or not isinstance(command, ReplayFlags):
        return repeated
    ignored = (in_words_of(kind, f"§{name} is ignored: {because}") for name, because in _ignored(command, heard))
    return [*repeated, *ignored]


def _ignored(command: Command, typed: Sequence[str]) -> Iterator[tuple[str, str]]:
    if isinstance(command, CompareCommand) and command.other is not None:
        yield from (
            (name, "two traces are compared, and nothing is replayed") for name in typed if name not in _OF_TRACES
        )
        return
    from tokenyard.cli.support.asking import scenario_of  # noqa: PLC0415 - most commands replay nothing
    from tokenyard.questions import without_effect as rules  # noqa: PLC0415 - the same

    assert isinstance(command, ReplayFlags)
    asked = rules.Asked(scenario_of(command), name_of(type(command)))
    if isinstance(command, PlanCommand):
        splits = {"split"} if command.split else set()
        asked = msgspec.structs.replace(asked, varied=rules.varied_in(chain.from_iterable(command.space)) | splits)
    elif isinstance(command, SweepCommand):
        varied = rules.varied_in(chain.from_iterable(command.grid))
        asked = msgspec.structs.replace(asked, varied=varied, varies_any=command.variants is not None)
    yield from rules.without_effect(asked, typed)
    if isinstance(command, UpgradeCommand) and "vllm_version" in typed:
        yield "vllm_version", "--from and --to name the versions"
    if isinstance(command, CompareCommand):
        if "scheduling_policy" in typed and not command.changes:
            yield "scheduling_policy", "--policies names those that are compared"
        if "align" in typed:
            yield "align", "it is for two traces, and one is given"
