"""A whole ``vllm serve`` line: what it says, as flags and values."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tokenyard.errors import ConfigError, FileError
from tokenyard.files.opening import read_input
from tokenyard.launch.config_file import MOST_BYTES, config_words
from tokenyard.launch.flag import GivenFlag
from tokenyard.launch.flag_table import flag_table
from tokenyard.launch.reading import merged, read_words
from tokenyard.launch.words import serve_words

__all__ = ["ServeLine", "read_config_file", "read_serve_line", "read_serve_text"]

_FILE_MARK = "@"


class ServeLine(NamedTuple):
    """What somebody starts vLLM with."""

    given: list[GivenFlag]
    """Its flags, those of its ``--config`` file included; ``model`` is what stands behind ``vllm serve``."""
    environment: dict[str, str]
    """Variables that are set in front of it."""


def read_serve_line(text: str) -> ServeLine:
    """The line itself, ``@FILE``, or the path of a file that holds it. Raises ConfigError."""
    if text.startswith(_FILE_MARK):
        return read_serve_text(_file(Path(text.removeprefix(_FILE_MARK))))
    if len(text.split()) == 1 and Path(text).is_file():
        return read_serve_text(_file(Path(text)))
    return read_serve_text(text)


def read_serve_text(text: str) -> ServeLine:
    """The line that ``text`` holds. Raises ConfigError naming the word that cannot be understood."""
    words, environment = serve_words(text)
    given = _read(words, "serve")
    config = next((each for each in given if each.flag.name == "config"), None)
    from_file = read_config_file(config.value) if config is not None else []
    return ServeLine(merged(from_file, given), environment)


def read_config_file(path: Path | str) -> list[GivenFlag]:
    """The flags of a YAML file. Raises ConfigError."""
    return _read(config_words(path), str(path))


def _file(path: Path) -> str:
    try:
        return read_input(path, MOST_BYTES).decode()
    except FileError as error:
        raise ConfigError("serve", str(path), error.problem) from None
    except UnicodeDecodeError as error:
        raise ConfigError("serve", str(path), f"is not text: {error}") from None


def _read(words: Sequence[str], source: str) -> list[GivenFlag]:
    given, rest = read_words(words)
    for word in rest:
        if word.startswith("-"):
            raise ConfigError(source, word, f"vllm serve has no such flag{_meant(word)}")
    if len(rest) > 1:
        raise ConfigError(source, " ".join(rest[1:]), f"stands behind the model ({rest[0]}) and belongs to no flag")
    if rest:
        given = merged(given, read_words(["--model", rest[0]]).given)
    return given


def _meant(word: str) -> str:
    close = difflib.get_close_matches(word.partition("=")[0].replace("_", "-"), flag_table().names, n=1)
    return f": did you mean {close[0]}?" if close else ""
