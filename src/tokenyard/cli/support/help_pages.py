"""The help of the program and of each command, and scripts for completion in a shell, made of the table of flags."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from tokenyard.cli.support.flag_table import HELP, Flag, flags_of
from tokenyard.cli.support.flags import COMMANDS, command_of, name_of
from tokenyard.errors import ConfigError


class _Formatter(argparse.HelpFormatter):
    """Breaks no flag at its dashes."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return textwrap.indent("\n".join(self._split_lines(text, width - len(indent))), indent)


def _page(usage: str, about: str) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        usage=usage,
        description=about,
        add_help=False,
        formatter_class=lambda prog: _Formatter(prog, max_help_position=26),
    )


def help_of(command: type) -> str:
    """Return the help of a command: what stands without a flag, its own flags, and each group with what it is about."""
    flags = flags_of(command)
    positional = [each for each in flags if each.is_positional]
    page = _page(
        " ".join(["tokenyard", name_of(command), *(each.metavar for each in positional), "[OPTIONS]"]),
        command.__doc__ or "",
    )
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


def _list(group: Any, flags: Iterable[Flag]) -> None:
    for each in flags:
        text = f"{each.text} ({each.default_in_words})".replace("%", "%%")
        if each.is_positional:
            group.add_argument(each.name, metavar=each.metavar, help=text)
        elif each.is_switch:
            names = [*each.spellings, *each.off_spellings]
            group.add_argument(*names, dest=each.name, action="store_true", help=text)
        else:
            group.add_argument(*each.spellings, dest=each.name, metavar=each.metavar, help=text)


def help_of_all(about: str) -> str:
    """Return the help of the program: its sub-commands, with a sentence each."""
    page = _page("tokenyard COMMAND [OPTIONS]", about)
    commands = page.add_argument_group("commands")
    for name in COMMANDS:
        commands.add_argument(name, help=(command_of(name).__doc__ or "").replace("%", "%%"))
    others = page.add_argument_group("instead of a command")
    others.add_argument(*HELP, action="store_true", help="Print this help.")
    others.add_argument("--version", action="store_true", help="Print which version this is, and which core it runs.")
    others.add_argument("--print-completion", metavar="bash|zsh", help="Print a script for completion in a shell.")
    return page.format_help()


_SCRIPTS = {
    "bash": """_tokenyard() {{
    local command=${{COMP_WORDS[1]}} current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} offered=
    (( COMP_CWORD == 1 )) && command=
{cases}
    COMPREPLY=($(compgen -W "$offered" -- "$current"))
}}
complete -o default -F _tokenyard tokenyard
""",
    "zsh": """#compdef tokenyard
local command=$words[2] current=$words[CURRENT] previous=$words[CURRENT-1] offered=
(( CURRENT == 2 )) && command=
{cases}
if [[ -n $offered ]]; then compadd -- ${{=offered}}; else _files; fi
""",
}
"""For each shell what surrounds the cases, which all of them read alike."""


def completion(shell: str) -> str:
    """Return the script for a shell. Raises ConfigError for one that is not known."""
    if shell not in _SCRIPTS:
        raise ConfigError("--print-completion", shell, f"give one of: {', '.join(_SCRIPTS)}")
    return _SCRIPTS[shell].format(cases="\n".join(_cases()))


def _cases() -> Iterator[str]:
    yield '    case "$command $previous $current" in'
    yield f'    " "*) offered="{" ".join((*COMMANDS, "--help", "--version", "--print-completion"))}" ;;'
    for name in COMMANDS:
        flags = [each for each in flags_of(command_of(name)) if not each.is_positional]
        for each in flags:
            for word in each.spellings if each.choices else ():
                yield f'    "{name} {word} "*) offered="{" ".join(each.choices)}" ;;'
        words = sorted(word for each in flags for word in (*each.spellings, *each.off_spellings))
        yield f'    "{name} "*" -"*) offered="{" ".join((*words, "--help"))}" ;;'
    yield "    esac"
