"""The words of a ``vllm serve`` line: what a shell would make of what people paste."""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple

from tokenyard.errors import ConfigError
from tokenyard.launch.manifests import Started, started_by

__all__ = ["ServeWords", "serve_words"]

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)(?::?-([^}]*))?\}|([A-Za-z_][A-Za-z0-9_]*))")
_CONTINUED = re.compile(r"[ \t]*\\[ \t]*\r?\n")
_FLAG_BELOW = re.compile(r"\r?\n[ \t]*(?=--?[A-Za-z])")
"""No command begins with a dash: whoever pasted it lost the backslashes."""
_KUBERNETES = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")
_ENDS = frozenset((";", "&", "&&", "||", "|", ">", ">>", "<", "2>", "2>>", "&>", "2>&1"))
_MODULES = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.cli.main")
_IMAGE = re.compile(r"(?:^|/)vllm(?:-openai)?(?:[-/][\w.-]+)*(?::[\w.-]+)?$")
_PROMPT = re.compile(r"^\s*[$>]\s+(?=\S)")
_HOW = 'paste the whole line, for example "vllm serve MODEL --max-num-seqs 64"'


class ServeWords(NamedTuple):
    """A line, taken apart."""

    words: list[str]
    """What follows ``vllm serve``."""
    environment: dict[str, str]
    """Assignments in front of it, and those of ``export``."""


def serve_words(text: str, source: str = "serve") -> ServeWords:
    """Find the ``vllm serve`` in ``text`` and the words after it; ConfigError, naming ``source``, if there is none.

    Known besides ``vllm serve``: ``python -m vllm.entrypoints.openai.api_server``, a ``docker run`` of a vLLM image,
    and flags alone. Lines that a backslash continues, comments, assignments before the command, ``export``, variables
    that were assigned, ``$`` of a prompt, pipes and redirections behind it are taken as a shell takes them; a line that
    begins with a flag goes on where the one before ended. Manifests (:mod:`~tokenyard.launch.manifests`) are read too.
    """
    containers = started_by(text)
    if len(containers) > 1:
        fix = f"{len(containers)} containers start vLLM: paste the one that is meant"
        raise ConfigError(source, text.strip(), fix)
    if containers:
        return _of_container(containers[0], source)
    environment: dict[str, str] = {}
    for line in _lines(text):
        words = _split(line, source)
        if words[:1] == ["export"]:
            words = words[1:]
        rest = _assigned(words, environment)
        if not rest:
            continue
        found = _after_command([_substituted(word, environment) for word in _until_the_end(rest)], environment)
        if found is not None:
            return ServeWords(found, environment)
    raise ConfigError(source, text.strip(), f"holds no `vllm serve`: {_HOW}")


def _of_container(started: Started, source: str) -> ServeWords:
    """What a container runs; its words follow ``vllm serve`` if they do not say so themselves."""
    environment = dict(started.environment)
    if started.script is not None:
        found = serve_words(started.script, source)
        return ServeWords(found.words, environment | found.environment)
    words = [_substituted(_KUBERNETES.sub(r"${\1}", word), environment) for word in started.words]
    after = _after_command(words, environment)
    return ServeWords(words if after is None else after, environment)


def _lines(text: str) -> list[str]:
    without_comments = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    joined = _FLAG_BELOW.sub(" ", _CONTINUED.sub(" ", without_comments)).strip().rstrip("\\")
    lines = [_PROMPT.sub("", line).strip() for line in joined.splitlines()]
    return [line for line in lines if line]


def _split(line: str, source: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=False)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        words = list(lexer)
    except ValueError as error:
        raise ConfigError(source, line, f"is not a valid shell command line: {str(error).lower()}") from None
    comment = next((i for i, word in enumerate(words) if word.startswith("#")), len(words))
    return words[:comment]


def _assigned(words: list[str], environment: dict[str, str]) -> list[str]:
    """What follows the assignments, which are noted."""
    for i, word in enumerate(words):
        match = _ASSIGNMENT.fullmatch(word)
        if match is None or word.startswith("-"):
            return words[i:]
        environment[match[1]] = _substituted(match[2], environment)
    return []


def _substituted(word: str, environment: dict[str, str]) -> str:
    """With the variables that were assigned; others stay as they are written, unless they have a default."""

    def value(match: re.Match[str]) -> str:
        return environment.get(match[1] or match[3], match[0] if match[2] is None else match[2])

    return _VARIABLE.sub(value, word)


def _until_the_end(words: list[str]) -> list[str]:
    """Without what a pipe, a redirection or another command adds."""
    kept: list[str] = []
    for word in words:
        if word in _ENDS or word.startswith((">", "2>", "&>")):
            break
        kept.append(word.rstrip(";"))
        if word.endswith(";"):
            break
    return kept


def _after_command(words: list[str], environment: dict[str, str]) -> list[str] | None:
    """The words for vLLM; None if this is another command."""
    if words and words[0].startswith("--"):
        return words
    for i, word in enumerate(words):
        if word.rsplit("/", 1)[-1] == "vllm" and words[i + 1 : i + 2] == ["serve"]:
            _assigned([each for each in words[:i] if _ASSIGNMENT.fullmatch(each)], environment)
            return words[i + 2 :]
        if word in _MODULES:
            return words[i + 1 :]
    if "run" in words[:3] and words[0].rsplit("/", 1)[-1] in ("docker", "podman", "sudo", "nerdctl"):
        for i, word in enumerate(words):
            if _IMAGE.search(word) and not word.startswith("-"):
                return words[i + 1 :]
    return None
