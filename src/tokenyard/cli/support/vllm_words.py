"""Flags of ``vllm serve`` on our command line: pasted as a line, read from a file, or given by themselves.

Whatever vLLM understands is taken out of the words, read as vLLM reads it, and what a replay uses is put back in its
plain form (``-tp 2`` becomes ``--tensor-parallel-size 2``), for tyro to read like any other flag.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, cast

from tokenyard.cli.support.flag_names import default_of, setting_names, spellings
from tokenyard.cli.support.flags import Compare, Plan, Run, Split, Sweep
from tokenyard.cli.support.pasted import said_beside_flags
from tokenyard.errors import ConfigError
from tokenyard.launch.asked import Asked
from tokenyard.launch.compilation import spelled_out
from tokenyard.launch.flag import Effect, GivenFlag
from tokenyard.launch.flag_table import flag_table
from tokenyard.launch.reading import merged, read_words
from tokenyard.launch.serve_line import ServeLine, read_config_file, read_serve_line
from tokenyard.redaction import hidden_words

__all__ = ["REPLAYS", "Replay", "plain_words", "with_asked"]

Replay = Run | Compare | Split | Plan | Sweep
REPLAYS: dict[str, type[Replay]] = {"run": Run, "compare": Compare, "split": Split, "plan": Plan, "sweep": Sweep}
"""Sub-commands that take flags of vLLM."""

_OURS = ("seed",)
"""Names that vLLM has too, for something else."""


class _Plain(NamedTuple):
    words: list[str]
    asked: Asked


def plain_words(command: type[Replay], words: Sequence[str]) -> _Plain:
    """The words for tyro, and what was asked of vLLM. Raises ConfigError."""
    if {"--async-scheduling", "--no-async-scheduling"} <= set(words):
        raise ConfigError("--async-scheduling", True, "--no-async-scheduling says the opposite: give one of them")
    own = dict(_own_flags(command))
    direct, rest = read_words(words, own=own)
    line, rest = _line(rest)
    rest = _without_secrets(rest, own)
    config = next((each for each in direct if each.flag.name == "config"), None)
    from_file = read_config_file(Path(config.value)) if config is not None else []
    typed = {each.flag.field for each in (*from_file, *direct)} | {_field(word) for word in rest if _name(word) in own}
    pasted = said_beside_flags(
        line,
        typed=typed,
        gpu=_value_of(rest, "--gpu"),
        has=setting_names(cast(type, command)),
        one_deployment=command in (Run, Compare),
        with_trace="trace" in typed,
    )
    given = spelled_out(merged(from_file, line.given, direct))
    used = [each for each in given if each.effect is Effect.USED and _is_field(command, each)]
    named = {each.flag.field for each in given} | typed | pasted.fields
    asked = Asked(tuple(given), line.environment, frozenset(named), pasted.found, line.kv.size_tokens)
    said = [each for each in used if each.value is not False or not _is_switch(command, each)]
    return _Plain([*rest, *(word for each in said for word in each.words), *pasted.words], asked)


def with_asked(command: Replay, asked: Asked) -> Replay:
    """The command, knowing what was asked."""
    return replace(command, launch=replace(command.launch, asked=asked))


def _name(word: str) -> str:
    return word.partition("=")[0].replace("_", "-")


def _field(word: str) -> str:
    return _name(word).removeprefix("--").removeprefix("no-").replace("-", "_")


def _own_flags(command: type[Replay]) -> Iterator[tuple[str, str]]:
    """Flags of ours, and what they are: those of the command that no flag of vLLM's is called."""
    theirs = {flag.field for flag in flag_table() if flag.effect is Effect.USED}
    for word, name in spellings(cast(type, command)).items():
        if name not in theirs or name in _OURS:
            yield word, name
            if isinstance(default_of(command, name), bool):
                yield "--no-" + word.removeprefix("--"), f"no_{name}"
    yield "--help", "help"


def _is_field(command: type[Replay], given: GivenFlag) -> bool:
    """Whether the command has this flag; the header says so of one that it has not."""
    return given.flag.field in setting_names(cast(type, command))


def _is_switch(command: type[Replay], given: GivenFlag) -> bool:
    """Whether the flag is off unless it is named, so that there is nothing to turn off."""
    field = given.flag.field
    return f"no_{field}" not in setting_names(cast(type, command)) and default_of(command, field) is False


def _line(rest: Sequence[str]) -> tuple[ServeLine, list[str]]:
    """What ``--serve`` says; the words stay for tyro, with the text as it was understood in its place."""
    words = list(rest)
    line = ServeLine()
    for i, word in enumerate(words):
        if word == "--serve":
            if i + 1 == len(words):
                raise ConfigError("serve", "", 'needs a value: paste the line, "vllm serve MODEL ..."')
            line = read_serve_line(words[i + 1])
            words[i + 1] = str(line)
        elif word.startswith("--serve="):
            line = read_serve_line(word.removeprefix("--serve="))
            words[i] = f"--serve={line}"
    return line, words


def _without_secrets(words: list[str], own: Collection[str]) -> list[str]:
    """Words that are no flags of vLLM's: those of ours as they are, others without what may be a secret."""
    if all(_name(word) in own for word in words if word.startswith("-")):
        return words
    return hidden_words(words)


def _value_of(words: Sequence[str], flag: str) -> str | None:
    """The value of a flag of ours, in lower case; None where it is not given."""
    for i, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == flag:
            return (value if equals else "".join(words[i + 1 : i + 2])).lower()
    return None
