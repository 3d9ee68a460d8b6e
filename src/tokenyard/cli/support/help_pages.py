"""The help of the program and of each command, and scripts for completion in a shell, made of the table of flags."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from tokenyard.cli.support.flag_table import HELP, VERSION, Flag, flags_of
from tokenyard.cli.support.flags import COMMANDS, TASKS, command_of, name_of
from tokenyard.errors import ConfigError

_MOST_USED = (
    "serve",
    "gpu",
    "model",
    "tensor_parallel_size",
    "max_num_seqs",
    "max_num_batched_tokens",
    "vllm_version",
    "format",
    "limit",
    "rate_scale",
    "policy",
    "scheduling_policy",
    "dram_gib",
    "set",
    "goal",
    "slo",
    "by",
    "trace",
    "port",
    "output",
    "json",
)
"""Settings whose flags ``-h`` lists of a command that has more than a screen of them."""
_SCREEN = 20
"""Flags that a command may have and still be listed whole."""


class _Formatter(argparse.HelpFormatter):
    """Breaks no flag at its dashes."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return textwrap.indent("\n".join(self._split_lines(text, width - len(indent))), indent)


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=[.;]) ", " ".join(text.split()), maxsplit=1)[0].rstrip(".;")


def _page(usage: str, about: str) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        usage=usage,
        description=about,
        add_help=False,
        formatter_class=lambda prog: _Formatter(prog, max_help_position=26),
    )


def short_help_of(command: type) -> str:
    """Return the help that fits a screen: the flags that are used most, and where the others are listed."""
    flags = flags_of(command)
    if len(flags) <= _SCREEN:
        return help_of(command)
    positional = [each for each in flags if each.is_positional]
    listed = sorted((each for each in flags if each.name in _MOST_USED), key=lambda each: _MOST_USED.index(each.name))
    page = _page_of(command, positional)
    _list(page.add_argument_group("positional arguments"), positional, brief=True)
    _list(page.add_argument_group("options"), listed, brief=True)
    others = len(flags) - len(positional) - len(listed)
    page.epilog = f"`tokenyard {name_of(command)} --help` explains these and the {others} others."
    return page.format_help()


def help_of(command: type) -> str:
    """Return the help of a command: what stands without a flag, its own flags, and each group with what it is about."""
    flags = flags_of(command)
    positional = [each for each in flags if each.is_positional]
    page = _page_of(command, positional)
    _list(page.add_argument_group("positional arguments"), positional)
    own = page.add_argument_group("options")
    own.add_argument(*HELP, action="store_true", help="Print this help.")
    _list(own, [each for each in flags if each.group is None and not each.is_positional])
    for group, inside in groupby(flags, key=lambda each: each.group):
        listed = list(inside)
        if group is not None:
            title = f"{group.replace('_', '-')} options"
            _list(page.add_argument_group(title, listed[0].declared_in.__doc__), listed)
    return page.format_help()


def _page_of(command: type, positional: Iterable[Flag]) -> argparse.ArgumentParser:
    usage = " ".join(["tokenyard", name_of(command), *(each.metavar for each in positional), "[OPTIONS]"])
    return _page(usage, command.__doc__ or "")


def _list(group: Any, flags: Iterable[Flag], *, brief: bool = False) -> None:
    """Add flags to a group of a page, each with its whole text, or its first sentence and no default."""
    for each in flags:
        text = _first_sentence(each.text) if brief else f"{each.text} ({each.default_in_words})"
        text = text.replace("%", "%%")
        if each.is_positional:
            group.add_argument(each.name, metavar=each.metavar, help=text)
        elif each.is_switch:
            names = [*each.spellings, *each.off_spellings]
            group.add_argument(*names, dest=each.name, action="store_true", help=text)
        else:
            group.add_argument(*each.spellings, dest=each.name, metavar=each.metavar, help=text)


def help_of_all(about: str, *, brief: bool) -> str:
    """Return the help of the program: its sub-commands by task, each with a sentence unless it is brief."""
    page = _page("tokenyard COMMAND [OPTIONS]", about)
    if brief:
        commands = page.add_argument_group("commands")
        for task, names in TASKS.items():
            commands.add_argument(task, help=", ".join(names))
        page.epilog = "`tokenyard --help` says what each does."
        return page.format_help()
    for task, names in TASKS.items():
        group = page.add_argument_group(task)
        for name in names:
            group.add_argument(name, help=(command_of(name).__doc__ or "").replace("%", "%%"))
    others = page.add_argument_group("instead of a command")
    others.add_argument("-h", action="store_true", help="Print the commands alone; after a command, its main flags.")
    others.add_argument("--help", action="store_true", help="Print this help; after a command, all its flags.")
    others.add_argument(*VERSION, action="store_true", help="Print which version this is, and which core it runs.")
    others.add_argument("--print-completion", metavar="bash|fish|zsh", help="Print a script for completion in a shell.")
    return page.format_help()


_SCRIPTS = {
    "bash": """_tokenyard() {{
    local command=${{COMP_WORDS[1]}} current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} offered=
    (( COMP_CWORD == 1 )) && command=
    case "$command $previous $current" in
{cases}
    esac
    COMPREPLY=($(compgen -W "$offered" -- "$current"))
}}
complete -o default -F _tokenyard tokenyard
""",
    "fish": """function __tokenyard
    set -l words (commandline -opc)
    set -l command $words[2]
    set -l previous $words[-1]
    set -l current (commandline -ct)
    switch "$command $previous $current"
{cases}
    end
end
complete -c tokenyard -a "(__tokenyard)"
""",
    "zsh": """#compdef tokenyard
local command=$words[2] current=$words[CURRENT] previous=$words[CURRENT-1] offered=
(( CURRENT == 2 )) && command=
case "$command $previous $current" in
{cases}
esac
if [[ -n $offered ]]; then compadd -- ${{=offered}}; else _files; fi
""",
}
"""For each shell what surrounds the cases."""
_INSTEAD = (*HELP, *VERSION, "--print-completion")
"""What may be typed in the place of a command."""


def completion(shell: str) -> str:
    """Return the script for a shell. Raises ConfigError for one that is not known."""
    if shell not in _SCRIPTS:
        raise ConfigError("--print-completion", shell, f"give one of: {', '.join(_SCRIPTS)}")
    return _SCRIPTS[shell].format(cases="\n".join(_case(shell, *each) for each in _cases()))


def _case(shell: str, begins: str, before: str, offered: Sequence[str]) -> str:
    """Write one case: a line that begins so, has these words right before its end, and what a shell offers there."""
    words = " ".join(offered)
    if shell == "fish":
        end = f"{before}*" if before else ""
        return f"    case '{begins}*{end}'\n        string split ' ' -- '{words}'"
    end = f'"{before}"*' if before else ""
    return f'    "{begins}"*{end}) offered="{words}" ;;'


def _cases() -> Iterator[tuple[str, str, Sequence[str]]]:
    yield " ", "", (*COMMANDS, *_INSTEAD)
    for name in COMMANDS:
        flags = [each for each in flags_of(command_of(name)) if not each.is_positional]
        for each in flags:
            for word in each.spellings if each.choices else ():
                yield f"{name} {word} ", "", each.choices
        words = sorted(word for each in flags for word in (*each.spellings, *each.off_spellings))
        yield f"{name} ", " -", (*words, *HELP)
