"""A file of flags for ``--config``, as ``vllm serve`` reads it: YAML, flat or nested."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenyard.errors import ConfigError, FileError
from tokenyard.files.bounds import MIB
from tokenyard.files.opening import read_input
from tokenyard.launch.flag_words import flag_words
from tokenyard.launch.yaml_text import YAMLError, yaml_documents

__all__ = ["MOST_BYTES", "config_words"]

MOST_BYTES = MIB
"""Of a file of flags, or of one that holds a line: far more than anybody writes."""


def config_words(path: Path | str) -> list[str]:
    """The words that stand for the file's content. ConfigError naming the file if it cannot be used."""
    path = Path(path)
    if path.suffix not in (".yaml", ".yml"):
        raise ConfigError("config", str(path), "give a file that ends with .yaml or .yml")
    words: list[str] = []
    for name, value in _content(path).items():
        words += flag_words(f"--{name}", value)
    return words


def _content(path: Path) -> dict[str, Any]:
    try:
        documents = yaml_documents(read_input(path, MOST_BYTES).decode())
    except FileError as error:
        raise ConfigError("config", str(path), error.problem) from None
    except YAMLError as error:
        raise ConfigError("config", str(path), str(error)) from None
    except UnicodeDecodeError:
        raise ConfigError("config", str(path), "is not YAML: it is no text in UTF-8") from None
    if len(documents) > 1:
        raise ConfigError("config", str(path), f"has {len(documents)} documents: give the one with the flags")
    content = documents[0] if documents else None
    if content is None:
        return {}
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise ConfigError("config", str(path), "must hold flags and their values, such as `max-num-seqs: 64`")
    if {"apiVersion", "services", "containers", "servingEngineSpec"} & content.keys():
        raise ConfigError("config", str(path), f"is a manifest, not a file of flags: give --serve {path}")
    return content
