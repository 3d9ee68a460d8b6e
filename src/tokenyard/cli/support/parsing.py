"""From the words of a command line to a command with its flags."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from tokenyard.cli.support.flag_table import HELP, spellings
from tokenyard.cli.support.flags import COMMANDS, command_of
from tokenyard.cli.support.flags.replays import CompareCommand
from tokenyard.cli.support.parser import read
from tokenyard.cli.support.vllm_argv import REPLAYS, with_given, without_vllm_flags
from tokenyard.deploy.serve_line import check_joined
from tokenyard.deploy.vllm_serve.flags import flag_table, written_out
from tokenyard.errors import ConfigError, near_names
from tokenyard.redaction import hidden_words

if TYPE_CHECKING:
    from tokenyard.cli.support.flags.marks import Command

# ---------------------------------------------------------------------------------------------------------------------
# Flags that take several names: ``--policies a,b``, ``--policies a b`` and ``--policy a --policy b`` are the same.

_POLICIES = ("--policies", "--policy")


def names_in(texts: Iterable[str]) -> list[str]:
    """The names, however texts group them."""
    return [name.strip() for text in texts for name in text.split(",") if name.strip()]


def with_one_policies(words: Sequence[str]) -> list[str]:
    """The words of `compare` with all names of policies in one flag.

    What names a workload or a file, and no policy, ends the list: it is what is compared. Behind a list with commas so
    does whatever is no policy that is known.
    """
    rest: list[str] = []
    names: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        name, sign, value = word.partition("=")
        if name not in _POLICIES:
            rest.append(word)
            continue
        found = [value] if sign else []
        while not sign and left and _lists_more(found, left[0]):
            found.append(left.pop(0))
        if not found:
            return list(words)  # a flag without a name: its reader says so
        names += found
    return [*rest, f"{_POLICIES[0]}={','.join(names_in(names))}"] if names else rest


def _lists_more(found: Sequence[str], word: str) -> bool:
    """Whether ``word`` names further policies."""
    if word.startswith("-"):
        return False
    from tokenyard.vocabulary import known_policies  # noqa: PLC0415 - only where policies are listed
    from tokenyard.workload.load import GENERATORS  # noqa: PLC0415 - the same

    known = known_policies()
    if not found or all(name in known or ".py:" in name for name in names_in([word])):
        return True
    is_compared = word in GENERATORS or os.path.exists(word)  # noqa: PTH110
    return not is_compared and "," not in found[-1]


# ---------------------------------------------------------------------------------------------------------------------
# From the words of a command line to a command with its flags.

_ABOUT = """vLLM's scheduler as a library: replay traffic, see what held requests back. To begin with: `tokenyard demo`.
More of a command: `tokenyard COMMAND --help`."""
_OF_ONE_DEPLOYMENT = ("headroom", "emulate")
"""Sub-commands about nothing but the deployment that ``--serve`` says."""


def parse(arguments: Sequence[str]) -> Command:
    """Make the command of its words. Raises ConfigError; SystemExit(0) once a help, or a completion, is printed."""
    name, given = "".join(arguments[:1]), list(arguments[1:])
    if name not in COMMANDS:
        print(_instead_of_a_command(name, given), end="")
        raise SystemExit(0)
    if name in REPLAYS:
        check_joined(given, "flag")
        words, said = without_vllm_flags(REPLAYS[name], given)
        if REPLAYS[name] is CompareCommand:
            words = with_one_policies(words)
        return with_given(read(REPLAYS[name], words, flag_table().long_names), said)
    command = command_of(name)
    if name in _OF_ONE_DEPLOYMENT:
        given = list(_without_flag("--serve", given))
    return read(command, list(_written_out(command, given)))


def _instead_of_a_command(name: str, given: Sequence[str]) -> str:
    """Return the help of all commands, or a script for completion. Raises ConfigError for any other word."""
    if name in (*HELP, "help"):
        from tokenyard.cli.support.help_pages import help_of_all  # noqa: PLC0415 - it loads all commands

        return help_of_all(_ABOUT)
    if name == "--print-completion":
        from tokenyard.cli.support.completion import completion  # noqa: PLC0415 - the same

        return completion("".join(given))
    close = near_names(name, COMMANDS, n=1, cutoff=0.75)
    meant = f"did you mean {close[0]}?" if close else f"use one of: {', '.join(COMMANDS)} (tokenyard --help)"
    raise ConfigError("command", hidden_words([name], ())[0], meant, code="unknown_command")


def _without_flag(flag: str, words: Iterable[str]) -> Iterator[str]:
    """``--serve LINE`` as LINE, for commands that take it without a flag because they are about nothing else."""
    for word in words:
        if word.startswith(f"{flag}="):
            yield word.removeprefix(f"{flag}=")
        elif word != flag:
            yield word


def _written_out(command: type[Command], words: Iterable[str]) -> Iterator[str]:
    """The words with abbreviations of flags written out, as vLLM's own command line takes them."""
    flags = {**spellings(command), "--help": "help"}
    for word in words:
        head, equals, value = word.partition("=")
        full = written_out(head.replace("_", "-"), flags) if head.startswith("--") else None
        yield word if full is None else f"{full}{equals}{value}"
