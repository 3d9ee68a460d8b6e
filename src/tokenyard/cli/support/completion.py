"""Scripts by which a shell completes commands, flags and the values that a flag may have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tokenyard.cli.support.flag_table import HELP, VERSION, flags_of
from tokenyard.cli.support.flags import COMMANDS, command_of
from tokenyard.errors import ConfigError

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
