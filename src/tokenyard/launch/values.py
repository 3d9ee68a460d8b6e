"""Values of flags, read as vLLM 0.33 reads them."""

from __future__ import annotations

import json
import re
from typing import Any

from tokenyard.errors import ConfigError
from tokenyard.launch.flag import FlagKind, VLLMFlag

__all__ = ["dotted_value", "read_value", "readable_int"]

_READABLE = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
_BARE = re.compile(r"\b\d+(?:\.\d+)?[kKmMgGtT]\b")
_QUOTED = re.compile(r'("(?:[^"\\]|\\.)*"?)', re.DOTALL)
_POWERS = "kmgt"
_NUMBER = "give a whole number, or one such as 8k (8,000) or 8K (8,192)"


def readable_int(text: str) -> int:
    """``8k`` is 8,000, ``8K`` is 8,192, ``1.5k`` is 1,500. ValueError for anything else: ``1.5K``, ``1GiB``.

    As vLLM: the letters k, m, g, t stand for powers of 1,000, K, M, G, T for powers of 1,024 and take no decimals.
    """
    match = _READABLE.fullmatch(text.strip())
    if match is None:
        return int(text)
    number, letter = match[1], match[2]
    power: int = 1 + _POWERS.index(letter.lower())
    if letter.islower():
        return int(float(number) * 1000**power)
    return int(number) * int(1024**power)


def read_value(flag: VLLMFlag, text: str, spelled: str | None = None) -> Any:
    """The value of ``flag`` that ``text`` writes; ConfigError naming the flag as it was ``spelled``."""
    try:
        return _read(flag.kind, text)
    except (ValueError, OverflowError, RecursionError):
        fix = 'give a JSON object: {"KEY": VALUE}' if flag.kind is FlagKind.JSON else _NUMBER
        if flag.kind is FlagKind.INT:
            fix = "give a whole number"
        if flag.kind is FlagKind.FLOAT:
            fix = "give a number"
        raise ConfigError(spelled or flag.flag, text, fix) from None


def _read(kind: FlagKind, text: str) -> Any:
    if kind is FlagKind.INT:
        return int(text)
    if kind is FlagKind.FLOAT:
        return float(text)
    if kind is FlagKind.READABLE_INT_OR_AUTO and text.strip().lower() in ("auto", "-1"):
        return -1
    if kind in (FlagKind.READABLE_INT, FlagKind.READABLE_INT_OR_AUTO):
        return readable_int(text)
    if kind is FlagKind.JSON or (kind is FlagKind.JSON_OR_TEXT and text.strip().startswith("{")):
        return None if text in ("", "None") else json.loads(_expanded(text))
    return text


def _expanded(text: str) -> str:
    """JSON with its bare ``80g`` written out."""
    parts = _QUOTED.split(text)
    parts[::2] = [_BARE.sub(lambda match: str(readable_int(match[0])), part) for part in parts[::2]]
    return "".join(parts)


def dotted_value(text: str, *, is_list: bool) -> Any:
    """The value in ``--flag.field value``, or in ``--flag.field+ a,b`` if it ``is_list``."""
    if is_list:
        return text.split(",")
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        pass
    try:
        return readable_int(text)
    except (ValueError, OverflowError, RecursionError):
        return text
