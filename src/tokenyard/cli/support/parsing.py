"""From the words of a command line to a command with its flags."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from tokenyard.cli.support.flag_table import HELP, spellings
from tokenyard.cli.support.flags import COMMANDS, command_of
from tokenyard.cli.support.parser import read
from tokenyard.cli.support.vllm_argv import REPLAYS, read_replay
from tokenyard.deploy.serve_line import check_joined
from tokenyard.deploy.vllm_serve.flags import written_out
from tokenyard.errors import ConfigError, near_names
from tokenyard.redaction import hidden_words

if TYPE_CHECKING:
    from tokenyard.cli.support.flags.marks import Command

_ABOUT = """vLLM's scheduler as a library: replay traffic, see what held requests back, and try another setting.
To begin with: `tokenyard demo`. The flags of a command: `tokenyard COMMAND -h`."""
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
        return read_replay(REPLAYS[name], given)
    command = command_of(name)
    if name in _OF_ONE_DEPLOYMENT:
        given = list(_without_flag("--serve", given))
    return read(command, list(_written_out(command, given)))


def _instead_of_a_command(name: str, given: Sequence[str]) -> str:
    """Return the help of all commands, or a script for completion. Raises ConfigError for any other word."""
    if name in ("", *HELP, "help"):
        from tokenyard.cli.support.help_pages import help_of_all  # noqa: PLC0415 - it loads all commands

        return help_of_all(_ABOUT, brief=name not in ("--help", "help"))
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
