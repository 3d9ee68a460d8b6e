"""The words behind a sub-command, read by argparse with the flags of its table."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterator, Sequence
from dataclasses import MISSING
from functools import partial
from typing import Any, TypeVar

from tokenyard.cli.support.flag_table import HELP, Flag, flags_of, spellings
from tokenyard.cli.support.flags import COMMANDS, command_of, name_of
from tokenyard.deploy.setting_values import as_value
from tokenyard.errors import ConfigError, near_names
from tokenyard.redaction import HIDDEN, hidden_text, hidden_words

_T = TypeVar("_T")


def read(command: type[_T], words: Sequence[str], others: Collection[str] = ()) -> _T:
    """Make the command of its words. ConfigError for one that cannot be read; SystemExit where help is asked for.

    ``others``: flags that were read elsewhere, for what a misspelt one may mean.
    """
    flags = flags_of(command)
    try:
        given, left = _parser(flags, words).parse_known_args(list(_apart(flags, words)))
    except argparse.ArgumentError:
        raise _value_of_a_switch(flags, words) from None
    if given.help or given.h:
        from tokenyard.cli.support.help_pages import help_of, short_help_of  # noqa: PLC0415 - most commands print none

        print(help_of(command) if given.help else short_help_of(command), end="")
        raise SystemExit(0)
    found = vars(given)
    end = left.index("--") if "--" in left else len(left)
    unknown = next((word for word in left[:end] if word.startswith("-") and word != "-"), None)
    if unknown is not None:
        raise _unknown(command, unknown.partition("=")[0], others)
    bare = [*left[:end], *left[end + 1 :]]
    values = {each.name: _value(each, found[each.name]) for each in flags if each.name in found}
    for each in flags:
        if bare and each.is_positional:
            takes_all = each.element is not None
            values[each.name] = _value(each, bare if takes_all else bare[0])
            bare = [] if takes_all else bare[1:]
    if bare:
        raise _one_too_many(command, bare[0], words)
    missing = next((each for each in flags if each.default is MISSING and each.name not in values), None)
    if missing is not None:
        raise ConfigError(_called(missing), "", f"is needed: {missing.text}", code="missing")
    return _made(command, flags, values)


def _parser(flags: Sequence[Flag], words: Sequence[str]) -> argparse.ArgumentParser:
    """Make a parser of the flags that are among the words: words that stand without a flag, or name none, are left."""
    named = {word.partition("=")[0] for word in words}
    parser = argparse.ArgumentParser(
        add_help=False,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
        exit_on_error=False,
        formatter_class=partial(argparse.HelpFormatter, width=80),  # it prints nothing: a terminal is not asked for
    )
    for name in HELP:
        parser.add_argument(name, action="store_true", default=False)
    for each in flags:
        if each.is_positional or named.isdisjoint((*each.spellings, *each.off_spellings)):
            continue
        if each.is_switch:
            parser.add_argument(*each.spellings, dest=each.name, action="store_true")
            if each.off_spellings:
                parser.add_argument(*each.off_spellings, dest=each.name, action="store_false")
        elif each.element is None:
            parser.add_argument(*each.spellings, dest=each.name, nargs="?", const=MISSING)
        else:
            action = "append" if each.is_repeated else "store"
            parser.add_argument(*each.spellings, dest=each.name, action=action, nargs="*")
    return parser


def _apart(flags: Sequence[Flag], words: Sequence[str]) -> Iterator[str]:
    """Write ``--flag=A B`` as ``--flag A B`` where a flag takes several values: argparse would give it A alone."""
    several = {name for each in flags if each.element is not None for name in each.spellings}
    for word in words:
        name, equals, value = word.partition("=")
        if equals and name in several and not value.startswith("-"):
            yield from (name, value)
        else:
            yield word


def _value(flag: Flag, said: Any) -> Any:
    """Return what was said in the type of the flag. Raises ConfigError."""
    if said is MISSING:
        raise ConfigError(_called(flag), "", f"needs a value: {flag.metavar}", code="missing")
    if flag.is_switch:
        return said
    if flag.is_repeated:
        return tuple(tuple(as_value(flag.name, each, flag.element) for each in several) for several in said)
    if flag.element is not None:
        return tuple(as_value(flag.name, each, flag.element) for each in said)
    return as_value(flag.name, said, flag.kind)


def _one_too_many(command: type, word: str, words: Sequence[str]) -> ConfigError:
    """Name a word that nothing takes, unless it may be the value of a flag that holds a secret."""
    fix = f"is one word too many: `tokenyard {name_of(command)} --help` says what it takes"
    shown = word if word in hidden_words(words) else HIDDEN
    return ConfigError("argument", shown, fix, code="unknown_argument")


def _value_of_a_switch(flags: Sequence[Flag], words: Sequence[str]) -> ConfigError:
    """Name the word that gives a value to what takes none, argparse's only objection to the flags of a table."""
    switches = {name for each in flags if each.is_switch for name in (*each.spellings, *each.off_spellings)}
    pairs = [word.partition("=") for word in words]
    name, _, value = next(each for each in pairs if each[1] and each[0] in switches | {*HELP})
    return ConfigError(name, hidden_text(value), "takes no value: give the flag, or leave it out")


def _unknown(command: type, word: str, others: Collection[str]) -> ConfigError:
    """Say what a flag that the command does not have may have been meant for."""
    own = spellings(command)
    names = {each for flag in flags_of(command) for each in flag.off_spellings}
    close = near_names(word.replace("_", "-"), [*own, *names, *HELP, *others], n=1)
    elsewhere = [name for name in COMMANDS if word in spellings(command_of(name))]
    asking = f"`tokenyard {name_of(command)} --help` lists the flags of this command"
    if elsewhere:
        fix = f"is a flag of {', '.join(elsewhere)}: {asking}"
    else:
        fix = f"did you mean {close[0]}?" if close else f"there is no such flag: {asking}"
    return ConfigError("option", hidden_text(word), fix, code="unknown_option")


def _made(command: type[_T], flags: Sequence[Flag], values: dict[str, Any]) -> _T:
    """Make a command of the values of its own fields and those of its groups."""
    own: dict[str, Any] = {}
    groups: dict[str, tuple[type, dict[str, Any]]] = {}
    for each in flags:
        if each.name not in values:
            continue
        if each.group is None:
            own[each.name] = values[each.name]
        else:
            groups.setdefault(each.group, (each.declared_in, {}))[1][each.name] = values[each.name]
    return command(**own, **{name: kind(**inside) for name, (kind, inside) in groups.items()})


def _called(flag: Flag) -> str:
    return flag.metavar if flag.is_positional else flag.spellings[0]
