"""From the words of a command line to a command with its flags."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Annotated, Any, cast

import tyro

from tokenyard.cli.support.flags import COMMANDS, Command
from tokenyard.cli.support.numbers import number_registry
from tokenyard.cli.support.vllm_words import REPLAYS, Replay, plain_words, with_asked

__all__ = ["parse"]

_DESCRIPTION = """vLLM's scheduler as a library: replay traffic, see what held requests back.

To begin with: `tokenyard demo`. More of a command: `tokenyard COMMAND --help`.

Which version this is: `tokenyard --version`.
"""


def parse(arguments: list[str]) -> Command:
    """The command with its flags; tyro prints help and mistakes itself and leaves with 0 or 2.

    Raises ConfigError for a flag of ``vllm serve`` that cannot be read.
    """
    if arguments[:1] and arguments[0] in REPLAYS:
        words, asked = plain_words(REPLAYS[arguments[0]], arguments[1:])
        return with_asked(cast(Replay, _parsed([arguments[0], *words])), asked)
    return _parsed(arguments)


def _parsed(arguments: list[str]) -> Command:
    known: list[Any] = [Annotated[command, tyro.conf.subcommand(name)] for command, name in COMMANDS.items()]
    parsed = tyro.cli(
        reduce(or_, known),
        prog="tokenyard",
        description=_DESCRIPTION,
        args=arguments,
        registry=number_registry(),
        config=(tyro.conf.DisallowNone, tyro.conf.EnumChoicesFromValues, tyro.conf.OmitSubcommandPrefixes),
    )
    return cast(Command, parsed)
