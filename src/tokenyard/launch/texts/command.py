"""A command line or a script that starts vLLM: ``vllm serve``, its modules, or a container of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tokenyard.errors import ConfigError
from tokenyard.launch.shell import MOST_CHARACTERS, Piece, ShellError, Word, commands, expanded
from tokenyard.launch.texts.images import is_vllm_image, version_of_image
from tokenyard.launch.texts.started import Found, Started
from tokenyard.redaction import hidden_beginning

__all__ = ["Expander", "script_started", "words_started"]

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=")
_MODULES = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.cli.main", "vllm.entrypoints.openai.run_server")
_SHELLS = ("sh", "bash", "zsh", "ash", "dash")
_CONTAINERS = ("docker", "podman", "nerdctl", "sudo")
_SETS_VARIABLE = ("-e", "--env")
_SHORT_SWITCHES = "ditP"
_SWITCHES = frozenset(
    (
        "-d", "-i", "-t", "-P", "--detach", "--disable-content-trust", "--init", "--interactive", "--no-healthcheck",
        "--oom-kill-disable", "--privileged", "--publish-all", "--quiet", "--read-only", "--replace", "--rm",
        "--sig-proxy", "--tty",
    )
)  # fmt: skip
"""Options of ``docker run`` that no value follows."""
_DEEPEST = 3
"""Scripts that a command hands to a shell, within each other."""


class Expander:
    """Variables as a script sets them, one after the other; all that they stand for is bounded together."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self.environment = dict(environment or {})
        self._left = MOST_CHARACTERS

    def words(self, command: Sequence[Word]) -> list[str]:
        """The words of one command, with the variables that are set. Raises ShellError."""
        return [text for word in command for text in self._expanded(word)]

    def assigned(self, command: list[Word]) -> list[Word]:
        """What follows the assignments in front of a command, which are noted."""
        for i, word in enumerate(command):
            found = _ASSIGNMENT.match(word[0].text) if word and not _is_variable(word[0]) else None
            if found is None:
                return command[i:]
            value = [
                Piece(word[0].text[found.end() :], is_quoted=True),
                *(p._replace(is_quoted=True) for p in word[1:]),
            ]
            self.environment[found[1]] = "".join(self._expanded(value))
        return []

    def _expanded(self, word: Word) -> list[str]:
        if all(piece.name is None for piece in word):
            return expanded(word, {})
        words = expanded(word, self.environment, most=self._left)
        self._left -= sum(map(len, words))
        return words


def _is_variable(piece: Piece) -> bool:
    return piece.name is not None or piece.is_quoted


def script_started(text: str, source: str, environment: Mapping[str, str] | None = None) -> Started | None:
    """What the first command in ``text`` that starts vLLM says; None if there is none. Raises ConfigError."""
    try:
        return _script(text, Expander(environment), _DEEPEST)
    except ShellError as error:
        raise ConfigError(source, hidden_beginning(text), str(error)) from None


def words_started(words: Sequence[str], source: str, environment: Mapping[str, str] | None = None) -> Started | None:
    """The same of the words of one command, variables written out. Raises ConfigError."""
    try:
        return _command(list(words), Expander(environment), _DEEPEST)
    except ShellError as error:
        raise ConfigError(source, hidden_beginning(" ".join(words)), str(error)) from None


def _script(text: str, expander: Expander, levels: int) -> Started | None:
    for command in commands(text):
        is_prefixed = [piece.text for piece in command[0]] in (["export"], ["exec"], ["declare"])
        rest = expander.assigned(command[1:] if is_prefixed else command)
        found = _command(expander.words(rest), expander, levels) if rest else None
        if found is not None:
            return found
    return None


def _command(words: list[str], expander: Expander, levels: int) -> Started | None:
    """What a command starts; None if it is another one."""
    if words and words[0].startswith("--"):
        return Started(words=words, environment=expander.environment)
    in_container = _container(words, expander, levels)
    if in_container is not None:
        return in_container
    for i, word in enumerate(words):
        if word.rsplit("/", 1)[-1] == "vllm" and words[i + 1 : i + 2] == ["serve"]:
            return _started(words[:i], words[i + 2 :], expander)
        if word in _MODULES:
            return _started(words[:i], words[i + 1 :], expander)
    scripts = [word for word in words if "vllm" in word and len(word.split()) > 1] if levels else []
    for script in scripts:
        _set(words[: words.index(script)], expander)
        found = _script(script, expander, levels - 1)
        if found is not None:
            return found
    return None


def _started(before: Sequence[str], words: list[str], expander: Expander) -> Started:
    """With the assignments that stand in front of the command, as ``env`` has them."""
    _set(before, expander)
    return Started(words=words, environment=expander.environment)


def _set(words: Sequence[str], expander: Expander) -> None:
    for word in words:
        found = _ASSIGNMENT.match(word)
        if found is not None:
            expander.environment[found[1]] = word[found.end() :]


def _container(words: list[str], expander: Expander, levels: int) -> Started | None:
    """What ``docker run`` of an image starts: the words behind the image follow its entry point, ``vllm serve``."""
    if "run" not in words[:3] or words[0].rsplit("/", 1)[-1] not in _CONTAINERS:
        return None
    environment, notes = dict(expander.environment), list[Found]()
    at = _options(words, words.index("run") + 1, environment, notes)
    if at == len(words):
        return None
    image, behind = words[at], words[at + 1 :]
    inner = Expander(environment)
    is_shell = bool(behind) and behind[0].rsplit("/", 1)[-1] in _SHELLS
    found = _command(behind, inner, levels - 1) if levels and behind and not behind[0].startswith("--") else None
    if found is None and is_vllm_image(image) and not is_shell:
        found = Started(words=behind, environment=environment)
    if found is None:
        return None
    return replace(found, version=found.version or version_of_image(image), notes=(*notes, *found.notes))


def _options(words: Sequence[str], at: int, environment: dict[str, str], notes: list[Found]) -> int:
    """Where the image stands, behind the options of ``docker run``; variables that they set are noted."""
    while at < len(words) and words[at].startswith("-"):
        name, equals, value = words[at].partition("=")
        if not name.startswith("--") and len(name) > 2 and not name.lstrip("-").strip(_SHORT_SWITCHES):
            equals = "-"  # several switches in one word: -itd
        elif not name.startswith("--") and len(name) > 2:
            name, value, equals = words[at][:2], words[at][2:], "-"  # the value in the same word: -eNAME=VALUE
        elif not equals and name not in _SWITCHES:
            at += 1
            value = words[at] if at < len(words) else ""
        at += 1
        if name in _SETS_VARIABLE:
            variable, equals, set_to = value.partition("=")
            if equals:
                environment[variable] = set_to
        elif name == "--env-file":
            notes.append(Found(name, value, "variables in it are not read"))
    return min(at, len(words))
