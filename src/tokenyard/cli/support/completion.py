"""Scripts by which a shell completes commands, flags and the values that a flag may have."""

from __future__ import annotations

from collections.abc import Iterator

from tokenyard.cli.support.flag_table import flags_of
from tokenyard.cli.support.flags import COMMANDS, command_of
from tokenyard.errors import ConfigError

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
