"""How deep lists and objects lie in each other, told before anything is decoded: what walks them walks a stack."""

from __future__ import annotations

import re
from itertools import accumulate

__all__ = ["has_more_brackets", "is_nested_deeper"]

_STRUCTURE = b'[]{}"\\'
_REST = bytes(set(range(256)) - set(_STRUCTURE))
_ESCAPED = re.compile(rb"\\.", re.DOTALL)
_STRING = re.compile(rb'"[^"]*"?')
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


def is_nested_deeper(text: bytes, levels: int) -> bool:
    """Whether lists and objects in a text of JSON nest deeper than ``levels``; brackets in strings do not count."""
    if text.count(b"[") + text.count(b"{") <= levels:
        return False
    return max(accumulate(map(_STEP.__getitem__, _brackets(text))), default=0) > levels


def has_more_brackets(text: bytes, most: int) -> bool:
    """Whether a text of JSON has more lists and objects than ``most``; brackets in strings do not count."""
    if text.count(b"[") + text.count(b"{") <= most:
        return False
    brackets = _brackets(text)
    return brackets.count(b"[") + brackets.count(b"{") > most


def _brackets(text: bytes) -> bytes:
    """Those outside of strings."""
    # An escape is gone with what follows it before strings are looked for, or dropped with the letter it escapes.
    escapes = _ESCAPED.sub(b"", text) if b"\\" in text else text
    return _STRING.sub(b"", escapes.translate(None, _REST)).replace(b"\\", b"")
