"""The one way in which commands write settings and their values: ``max_num_seqs=64,128``.

Commas stand between values. A comma that belongs to a value stands in brackets or quotes, as JSON has it:
``speculative_config={"method":"eagle3","num_speculative_tokens":3},none``, or ``acceptance_rates="0.8,0.6"``.
Several settings may stand in one text: ``max_num_seqs=64,128,rate_scale=2``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from tokenyard.errors import ConfigError

__all__ = ["quoted", "read_values"]

_NAME = re.compile(r"\s*((?:--)?[A-Za-z][\w-]*)\s*=(.*)", re.DOTALL)
_EXAMPLE = "give NAME=VALUE, or several values with commas between them, for example max_num_seqs=64,128"
_OPEN, _CLOSED = "[{", "]}"


def read_values(text: str, flag: str = "--set") -> dict[str, list[str]]:
    """Names of settings, as they are written, and the texts of their values. Raises ConfigError naming ``flag``."""
    found: dict[str, list[str]] = {}
    values: list[str] | None = None
    for part in _parts(text, flag):
        named = _NAME.fullmatch(part)
        value = part.strip() if named is None else named[2].strip()
        if named is not None:
            name = named[1]
            if name in found:
                raise ConfigError(flag, text, f"{name} is given twice: give it once")
            values = found[name] = []
        if values is None or not value:
            raise ConfigError(flag, text, _EXAMPLE)
        values.append(_unquoted(value))
    return found


def quoted(value: str) -> str:
    """A value as :func:`read_values` takes it for one."""
    try:
        is_whole = value == value.strip() and list(_parts(value, "")) == [value]
        plain = is_whole and _unquoted(value) == value and _NAME.fullmatch(value) is None
    except ConfigError:
        plain = False
    return value if plain else json.dumps(value)


def _parts(text: str, flag: str) -> Iterator[str]:
    """What stands between commas that are in no brackets and in no quotes."""
    depth, start, is_quoted, is_escaped = 0, 0, False, False
    for at, letter in enumerate(text):
        if is_quoted:
            is_quoted = letter != '"' or is_escaped
            is_escaped = letter == "\\" and not is_escaped
        elif letter == '"':
            is_quoted = True
        elif letter in _OPEN:
            depth += 1
        elif letter in _CLOSED:
            depth -= 1
        elif letter == "," and depth == 0:
            yield text[start:at]
            start = at + 1
    if is_quoted or depth:
        what = "a quote" if is_quoted else "a bracket"
        raise ConfigError(flag, text, f"{what} has no counterpart: JSON stands in single quotes on a command line")
    yield text[start:]


def _unquoted(value: str) -> str:
    """A text in quotes is what stands in them; the rest is as it is, JSON too."""
    if value.startswith('"'):
        try:
            read = json.loads(value)
        except ValueError:
            return value
        return read if isinstance(read, str) else value
    return value
