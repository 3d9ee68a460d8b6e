"""From the words of a command line to a command with its flags."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import redirect_stderr
from functools import reduce
from io import StringIO
from operator import or_
from typing import Annotated, Any, cast

import tyro

from tokenyard.cli.support.flag_names import spellings
from tokenyard.cli.support.flags import COMMANDS, Command, Compare
from tokenyard.cli.support.groups import registry
from tokenyard.cli.support.vllm_words import REPLAYS, Replay, plain_words, with_given
from tokenyard.cli.support.word_lists import with_one_policies
from tokenyard.launch.abbreviations import written_out
from tokenyard.launch.serve_line import check_joined
from tokenyard.redaction import hidden_words

__all__ = ["parse"]

_DESCRIPTION = """vLLM's scheduler as a library: replay traffic, see what held requests back.

To begin with: `tokenyard demo`. More of a command: `tokenyard COMMAND --help`.

Which version this is: `tokenyard --version`.
"""


def parse(arguments: list[str]) -> Command:
    """The command with its flags; tyro prints help and mistakes itself and leaves with 0 or 2.

    Raises ConfigError for a flag of ``vllm serve`` that cannot be read.
    """
    name, given = "".join(arguments[:1]), arguments[1:]
    if name in REPLAYS:
        check_joined(given, "flag")
        words, said = plain_words(REPLAYS[name], given)
        if REPLAYS[name] is Compare:
            words = with_one_policies(words)
        return with_given(cast(Replay, _parsed([name, *words])), said)
    command = next((command for command, known in COMMANDS.items() if known == name), None)
    return _parsed(arguments if command is None else [name, *_written_out(command, given)])


def _written_out(command: type, words: list[str]) -> Iterator[str]:
    """The words with abbreviations of flags written out, as vLLM's own command line takes them."""
    flags = {**spellings(command), "--help": "help"}
    for word in words:
        head, equals, value = word.partition("=")
        full = written_out(head.replace("_", "-"), flags) if head.startswith("--") else None
        yield word if full is None else f"{full}{equals}{value}"


def _parsed(arguments: list[str]) -> Command:
    """What tyro reads; what it says of a mistake holds no value of a flag that may have been a secret one."""
    try:
        with redirect_stderr(StringIO()):
            return _read(arguments)
    except SystemExit as ended:
        if not ended.code:
            raise
    command = (
        next((command for command, known in COMMANDS.items() if known == arguments[0]), None) if arguments else None
    )
    flags = {"-h", "--help"} if command is None else {"-h", "--help", *spellings(cast(type, command))}
    _read([*arguments[:1], *hidden_words(arguments[1:], flags)])
    raise SystemExit(2)


def _read(arguments: list[str]) -> Command:
    known: list[Any] = [Annotated[command, tyro.conf.subcommand(name)] for command, name in COMMANDS.items()]
    parsed = tyro.cli(
        reduce(or_, known),
        prog="tokenyard",
        description=_DESCRIPTION,
        args=arguments,
        registry=registry(),
        config=(tyro.conf.DisallowNone, tyro.conf.EnumChoicesFromValues, tyro.conf.OmitSubcommandPrefixes),
    )
    return cast(Command, parsed)
