"""What a plan has come to so far: on disk, and in words when somebody interrupts it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2s
from pathlib import Path
from typing import Any

import msgspec

from tokenyard.cli.support.console import warn
from tokenyard.cli.support.flags import Plan
from tokenyard.sim.plan.goal import Goal, value_of
from tokenyard.sim.plan.trying import Trying
from tokenyard.sim.sweep.journal import Journal
from tokenyard.sim.sweep.row import words_of

__all__ = ["kept_progress", "say_so_far"]


@contextmanager
def kept_progress(flags: Plan, identity: Mapping[str, Any]) -> Iterator[Journal | None]:
    """Where the rows of a plan are kept: in --output, or in a folder of the user's that goes when the plan is whole.

    None where there is no --output and that folder cannot be written: then nothing is kept. Raises ConfigError if
    another process is at the same plan, or --output holds something else.
    """
    if flags.output is not None:
        with Journal(flags.output, identity) as journal:
            yield journal
        return
    folder = _folder_of(identity)
    if folder is None:
        yield None
        return
    with Journal(folder, identity) as journal:
        if journal.rows:
            warn(f"{len(journal.rows):,} variants were finished by an earlier call of this plan: it goes on from there")
        try:
            yield journal
        except BaseException:
            if not journal.rows:
                journal.remove()
            raise
        journal.remove()


def _folder_of(identity: Mapping[str, Any]) -> Path | None:
    """The same for the same plan; None, and a warning, where it cannot be made."""
    digest = blake2s(msgspec.json.encode(identity, order="sorted"), digest_size=12).hexdigest()
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - Path.home() raises where nobody has a home
    cache = given if given.is_absolute() else home / ".cache"
    folder = cache / "tokenyard" / "plans" / digest
    try:
        if not folder.is_absolute():
            raise OSError("there is no home")
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        warn(f"the progress of this plan is not kept: {folder} cannot be written ({error.strerror or error})")
        return None
    return folder


def say_so_far(trying: Trying, goal: Goal, tries: int, *, is_kept: bool) -> None:
    """On standard error: the best variant so far, and how to go on."""
    warn(f"{len(trying.rows):,} of at most {tries:,} variants were tried")
    best = trying.best
    if best is None:
        warn("none of them is within every bound")
    else:
        value = value_of(best, goal)
        reaches = "" if value is None else f", with {value:,.4g} {goal.unit}"
        warn(f"the best so far: {words_of(best.settings)}{reaches}; another may be better")
    if is_kept:
        warn("the same command goes on with the others")
