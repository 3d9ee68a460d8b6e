"""From the words of a command line to a command with its flags, and the flags among them that it will not heed.

Whatever vLLM understands (pasted as a line, read from a file, or given by itself) is taken out of the words and read as
vLLM reads it, once: our parser gets the other words, and the values are filled into the command that it makes.
"""

from __future__ import annotations

import argparse
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import MISSING, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tokenyard.cli.support.flag_table import HELP, Command, Flag, flag, flags_of, in_words_of, setting_names, spellings
from tokenyard.cli.support.flags import COMMANDS, command_of, name_of
from tokenyard.cli.support.flags.replays import (
    CompareCommand,
    PlanCommand,
    ReplayFlags,
    RunCommand,
    SplitCommand,
    SweepCommand,
    UpgradeCommand,
)
from tokenyard.deploy.given import OURS, given_by
from tokenyard.deploy.serve_line import ServeLine, check_joined, read_config_file, read_serve_line
from tokenyard.deploy.setting_values import as_value, with_values
from tokenyard.deploy.vllm_serve.flags import FlagEffect, flag_table, written_out
from tokenyard.deploy.vllm_serve.given import read_words
from tokenyard.errors import ConfigError, near_names
from tokenyard.redaction import HIDDEN, hidden_text, hidden_words

# ---------------------------------------------------------------------------------------------------------------------
# The words behind a sub-command, read by argparse with the flags of its table.

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


# ---------------------------------------------------------------------------------------------------------------------

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
        from tokenyard.cli.support.help_pages import completion  # noqa: PLC0415 - the same

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


ReplayCommand = RunCommand | CompareCommand | SplitCommand | PlanCommand | SweepCommand | UpgradeCommand
REPLAYS: dict[str, type[ReplayCommand]] = {
    "run": RunCommand,
    "compare": CompareCommand,
    "split": SplitCommand,
    "plan": PlanCommand,
    "sweep": SweepCommand,
    "upgrade": UpgradeCommand,
}
"""Sub-commands that take flags of vLLM."""
_SPLIT = re.compile(r"--split\b|(?:^|[,\s=])split=")
"""Words by which variants of a plan or a sweep are splits: ``--split 1+1``, ``--set split=1+1``."""


def read_replay(kind: type[ReplayCommand], words: Sequence[str]) -> ReplayCommand:
    """Make the command of words of ours and of vLLM's. Raises ConfigError."""
    if {"--async-scheduling", "--no-async-scheduling"} <= set(words):
        raise ConfigError("--async-scheduling", True, "--no-async-scheduling says the opposite: give one of them")
    own = dict(_own_flags(kind))
    direct, rest = read_words(words, own=own)
    command = read(kind, with_one_policies(rest) if kind is CompareCommand else rest, flag_table().long_names)
    launch = command.launch
    gpu = command.hardware.gpu.lower() if any(_field(word) == "gpu" for word in rest) else None
    line = ServeLine() if launch.serve is None else read_serve_line(launch.serve, gpu=gpu)
    config = next((each for each in direct if each.flag.name == "config"), None)
    from_file = read_config_file(Path(config.value)) if config is not None else []
    typed = {each.flag.field for each in (*from_file, *direct)} | {_field(word) for word in rest if _name(word) in own}
    has = setting_names(kind)
    if kind is SplitCommand or any(_SPLIT.search(word) for word in rest):
        has -= {"replicas", "autoscale"}  # a split is replayed with one number of engines on each side
    given = given_by(
        line,
        [direct],
        before=from_file,
        typed=typed,
        gpu=gpu,
        has=has,
        one_deployment=kind in (RunCommand, CompareCommand, UpgradeCommand),
        with_trace="trace" in typed,
    )
    launch = replace(launch, asked=given.asked, serve=None if launch.serve is None else str(line))
    return with_values(replace(command, launch=launch), given.values)


def _name(word: str) -> str:
    return word.partition("=")[0].replace("_", "-")


def _field(word: str) -> str:
    return _name(word).removeprefix("--").removeprefix("no-").replace("-", "_")


def _own_flags(command: type[ReplayCommand]) -> Iterator[tuple[str, str]]:
    """Flags of ours, and what they are: those of the command that no flag of vLLM's is called."""
    theirs = {each.field for each in flag_table() if each.effect is FlagEffect.USED}
    for each in flags_of(command):
        if not each.is_positional and (each.name not in theirs or each.name in OURS):
            yield from ((word, each.name) for word in each.spellings)
            yield from ((word, f"no_{each.name}") for word in each.off_spellings)
    yield "--help", "help"


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
