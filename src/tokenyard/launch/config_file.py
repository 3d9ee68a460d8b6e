"""A file of flags for ``--config``, as ``vllm serve`` reads it: YAML, flat or nested."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenyard.errors import ConfigError, FileError
from tokenyard.files.bounds import MIB
from tokenyard.files.opening import read_input
from tokenyard.launch.flag_table import flag_table

__all__ = ["MOST_BYTES", "config_words"]

MOST_BYTES = MIB
"""Of a file of flags, or of one that holds a line: far more than anybody writes."""


def config_words(path: Path | str) -> list[str]:
    """The words that stand for the file's content. ConfigError naming the file if it cannot be used.

    As vLLM 0.33: ``true`` names a flag and ``false`` turns it off, lists are several values, objects are JSON.
    """
    path = Path(path)
    if path.suffix not in (".yaml", ".yml"):
        raise ConfigError("config", str(path), "give a file that ends with .yaml or .yml")
    words: list[str] = []
    for name, value in _content(path).items():
        words += _words(f"--{name}", value)
    return words


def _content(path: Path) -> dict[str, Any]:
    import yaml  # noqa: PLC0415 - takes time that a command without such a file need not spend

    try:
        text = read_input(path, MOST_BYTES).decode()
        if any(isinstance(each, yaml.AliasEvent) for each in yaml.parse(text, yaml.SafeLoader)):
            # A few of them, one in the other, make a file of gigabytes.
            raise ConfigError("config", str(path), "has an alias (*name): write the value in its place")
        content = yaml.safe_load(text)
    except FileError as error:
        raise ConfigError("config", str(path), error.problem) from None
    except (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError("config", str(path), f"is not YAML: {' '.join(str(error).split())}") from None
    if content is None:
        return {}
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise ConfigError("config", str(path), "must hold flags and their values, such as `max-num-seqs: 64`")
    if {"apiVersion", "services", "containers"} & content.keys():
        raise ConfigError("config", str(path), f"is a manifest, not a file of flags: give --serve {path}")
    return content


def _words(flag: str, value: Any) -> list[str]:
    if value is None:
        return []
    if isinstance(value, bool):
        off = "--no-" + flag.removeprefix("--")
        return [flag] if value else [off] if flag_table().named(off, prefixes=False) else []
    if isinstance(value, list):
        return [flag, *map(str, value)] if value else []
    return [flag, json.dumps(value) if isinstance(value, dict) else str(value)]
