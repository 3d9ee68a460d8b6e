"""What a plan has come to so far: on disk, and in words when it is interrupted or told to stop."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2s
from pathlib import Path
from typing import Any

import msgspec

from tokenyard.questions.planning.goal import Goal, goal_value
from tokenyard.questions.planning.search import Trying
from tokenyard.questions.scenario import Say
from tokenyard.questions.sweeping.rows import Journal, settings_in_words


@contextmanager
def progress_journal(output: Path | None, identity: Mapping[str, Any], say: Say) -> Iterator[Journal | None]:
    """Where the rows of a plan are kept: in ``output``, or in a folder of the user's that goes when the plan is whole.

    None where there is no ``output`` and that folder cannot be written: then nothing is kept. Raises ConfigError if
    another process is at the same plan, or ``output`` holds something else.
    """
    if output is not None:
        with Journal(output, identity) as journal:
            yield journal
        return
    folder = _folder_of(identity, say)
    if folder is None:
        yield None
        return
    with Journal(folder, identity) as journal:
        if journal.rows:
            say(f"{len(journal.rows):,} variants were finished by an earlier call of this plan: it goes on from there")
        try:
            yield journal
        except BaseException:
            if not journal.rows:
                journal.remove()
            raise
        journal.remove()


def _folder_of(identity: Mapping[str, Any], say: Say) -> Path | None:
    """The same for the same plan; None, and a warning, where it cannot be made."""
    digest = blake2s(msgspec.json.encode(identity, order="sorted"), digest_size=12).hexdigest()
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - Path.home() raises where there is no home
    cache = given if given.is_absolute() else home / ".cache"
    folder = cache / "tokenyard" / "plans" / digest
    try:
        if not folder.is_absolute():
            raise OSError("there is no home")
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        say(f"the progress of this plan is not kept: {folder} cannot be written ({error.strerror or error})")
        return None
    return folder


def say_so_far(trying: Trying, goal: Goal, tries: int, say: Say, *, is_kept: bool) -> None:
    """The best variant so far, or the nearest to the bounds, and how to go on."""
    say(f"a partial answer: {len(trying.rows):,} of at most {tries:,} variants were tried")
    best = trying.best
    if best is None:
        say("none of them is within every bound")
        known = [row for row in trying.rows if row.tightness is not None]
        if known:
            near = min(known, key=lambda row: row.tightness or 0.0)
            far = f"{near.tightest} is {near.tightness:,.3g} times its bound"
            say(f"the nearest so far: {settings_in_words(near.settings)}, whose {far}; another may be better")
    else:
        value = goal_value(best, goal)
        reaches = "" if value is None else f", with {value:,.4g} {goal.unit}"
        say(f"the best so far: {settings_in_words(best.settings)}{reaches}; another may be better")
    if is_kept:
        say("the same command goes on with the others")


# ---------------------------------------------------------------------------------------------------------------------
# How a plan ends that is told to stop: what was found so far is said before the process goes.


@contextmanager
def ends_after_saying() -> Iterator[None]:
    """SIGTERM is taken as Ctrl-C is: what was found so far is said. Then the process ends by it all the same."""
    process, before = os.getpid(), signal.getsignal(signal.SIGTERM)

    def end(*_: object) -> None:
        if os.getpid() != process:  # a worker
            os._exit(128 + signal.SIGTERM)
        raise _TerminatedError

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGTERM, end)
    try:
        yield
    except _TerminatedError:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        sys.stderr.flush()
        os.kill(process, signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


class _TerminatedError(KeyboardInterrupt):
    """SIGTERM came."""
