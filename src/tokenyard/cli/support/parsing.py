"""From the words of a command line to a command with its flags."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import redirect_stderr
from functools import reduce
from io import StringIO
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, cast

from tokenyard.cli.support.flag_names import spellings
from tokenyard.cli.support.flags import CompareCommand, command_of
from tokenyard.cli.support.plain_words import read_plainly
from tokenyard.cli.support.vllm_argv import REPLAYS, ReplayCommand, plain_words, with_given
from tokenyard.deploy.serve_line import check_joined
from tokenyard.deploy.vllm_serve.flags import written_out
from tokenyard.errors import ConfigError, near_names
from tokenyard.redaction import hidden_words

if TYPE_CHECKING:
    from tokenyard.cli.support.flags import Command

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
        while not sign and left and _goes_on(found, left[0]):
            found.append(left.pop(0))
        if not found:
            return list(words)  # a flag without a name: its reader says so
        names += found
    return [*rest, f"{_POLICIES[0]}={','.join(names_in(names))}"] if names else rest


def _goes_on(found: Sequence[str], word: str) -> bool:
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

_DESCRIPTION = """vLLM's scheduler as a library: replay traffic, see what held requests back.

To begin with: `tokenyard demo`. More of a command: `tokenyard COMMAND --help`.

Which version this is: `tokenyard --version`.
"""
_OF_ONE_DEPLOYMENT = ("headroom", "emulate")
"""Sub-commands about nothing but the deployment that ``--serve`` says."""


def parse(arguments: list[str]) -> Command:
    """The command with its flags; tyro prints help and mistakes itself and leaves with 0 or 2.

    Raises ConfigError for a flag of ``vllm serve`` that cannot be read.
    """
    name, given = "".join(arguments[:1]), arguments[1:]
    if name in REPLAYS:
        check_joined(given, "flag")
        words, said = plain_words(REPLAYS[name], given)
        if REPLAYS[name] is CompareCommand:
            words = with_one_policies(words)
        return with_given(cast(ReplayCommand, _parsed([name, *words])), said)
    command = command_of(name)
    if command is None:
        if name and not name.startswith("-"):
            raise _no_such_command(name)
        return _parsed(arguments)
    if name in _OF_ONE_DEPLOYMENT:
        given = list(_without_flag("--serve", given))
    return _parsed([name, *_written_out(command, given)])


def _no_such_command(name: str) -> ConfigError:
    from tokenyard.cli.support.flags import COMMANDS  # noqa: PLC0415 - it makes the classes of all of them

    names = list(COMMANDS.values())
    close = near_names(name, names, n=1, cutoff=0.75)
    meant = f"did you mean {close[0]}?" if close else f"use one of: {', '.join(names)}"
    return ConfigError("command", hidden_words([name], ())[0], meant, code="unknown_command")


def _without_flag(flag: str, words: Iterable[str]) -> Iterator[str]:
    """``--serve LINE`` as LINE, for commands that take it without a flag because they are about nothing else."""
    for word in words:
        if word.startswith(f"{flag}="):
            yield word.removeprefix(f"{flag}=")
        elif word != flag:
            yield word


def _written_out(command: type, words: list[str]) -> Iterator[str]:
    """The words with abbreviations of flags written out, as vLLM's own command line takes them."""
    flags = {**spellings(command), "--help": "help"}
    for word in words:
        head, equals, value = word.partition("=")
        full = written_out(head.replace("_", "-"), flags) if head.startswith("--") else None
        yield word if full is None else f"{full}{equals}{value}"


def _parsed(arguments: list[str]) -> Command:
    """What was typed; the message about a mistake holds no value of a flag that may have been a secret one."""
    plain = read_plainly(arguments)
    if plain is not None:
        return plain
    command = command_of(arguments[0]) if arguments else None
    flags = {"-h", "--help"} if command is None else {"-h", "--help", *spellings(cast(type, command))}
    sayable = [*arguments[:1], *hidden_words(arguments[1:], flags)]
    if sayable != arguments:
        try:
            with redirect_stderr(StringIO()):
                parsed, unknown = _by_tyro(arguments, return_unknown_args=True)
            if not unknown:
                return cast("Command", parsed)
        except SystemExit as ended:
            if not ended.code:
                raise
        read_by_tyro(sayable)
        raise SystemExit(2)
    return read_by_tyro(arguments)


def read_by_tyro(arguments: list[str]) -> Command:
    """What tyro reads, which prints help and mistakes itself."""
    return cast("Command", _by_tyro(arguments))


def _by_tyro(arguments: list[str], **options: Any) -> Any:
    """A command; with the words that tyro does not know, where it may return them: it then looks for none like them."""
    import tyro  # noqa: PLC0415 - where the words are not plain: it takes longer than many a command

    from tokenyard.cli.support.flags import COMMANDS  # noqa: PLC0415 - it makes the classes of all of them
    from tokenyard.cli.support.groups import registry  # noqa: PLC0415

    known: list[Any] = [Annotated[command, tyro.conf.subcommand(name)] for command, name in COMMANDS.items()]
    return tyro.cli(
        reduce(or_, known),
        prog="tokenyard",
        description=_DESCRIPTION,
        args=arguments,
        registry=registry(),
        config=(tyro.conf.DisallowNone, tyro.conf.EnumChoicesFromValues, tyro.conf.OmitSubcommandPrefixes),
        **options,
    )
