"""What an attacker, a full disk or a careless script does to a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

__all__ = ["mutated"]

_NUMBERS = (
    b"0",
    b"-1",
    b"1e308",
    b"-1e308",
    b"1e999",
    b"NaN",
    b"Infinity",
    b"9223372036854775808",
    b"18446744073709551616",
    b"1" * 400,
    b"0.1e-400",
    b"true",
    b"null",
    b'""',
    b"[]",
    b"{}",
)
_BYTES = (
    b"\x00",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\r",
    b"\n",
    b"\n\n\n",
    b"\x1b]0;x\x07",
    b"\x1b[2J",
    b"\xe2\x80\xae",
    b'"\\ud800"',
    b"\\u0000",
    b"[" * 5000,
    b'{"a":' * 3000,
    b"," * 2000,
    b"\xef\xbb\xbf",
)
_VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    2**63,
    -(2**63) - 1,
    1e308,
    "",
    "\ud800",
    "\x1b[31m",
    "x" * 5000,
    [],
    {},
    [[]] * 50,
    {"a": {"b": {"c": []}}},
    0,
    "0",
    "1e9",
    ["r", 1],
)


def mutated(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """``data`` after one to four changes; ``others`` are inputs to take pieces from."""
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        data = random.choice(_MUTATIONS)(data, others, random)
    return data


def _flip(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    raw = bytearray(data)
    for _ in range(random.choice((1, 1, 3, 20))):
        if raw:
            raw[random.randrange(len(raw))] = random.randrange(256)
    return bytes(raw)


def _cut(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    at = random.randrange(len(data) + 1)
    return data[:at] if random.random() < 0.7 else data[at:]


def _remove(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    at = random.randrange(len(data) + 1)
    return data[:at] + data[at + random.choice((1, 4, 64, 1024)) :]


def _insert(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    at = random.randrange(len(data) + 1)
    return data[:at] + random.choice(_BYTES) + data[at:]


def _splice(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    other = random.choice(others) if others else data
    at, begin = random.randrange(len(data) + 1), random.randrange(len(other) + 1)
    return data[:at] + other[begin : begin + random.choice((8, 200, 5000))] + data[at:]


def _number(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """Another value where a number stands."""
    places = [i for i in range(1, len(data)) if data[i : i + 1].isdigit() and not data[i - 1 : i].isdigit()]
    if not places:
        return _insert(data, others, random)
    at = random.choice(places)
    end = at
    while data[end : end + 1].isdigit() or data[end : end + 1] in (b".", b"e"):
        end += 1
    return data[:at] + random.choice(_NUMBERS) + data[end:]


def _lines(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """Lines doubled, dropped, swapped or joined."""
    lines = data.splitlines(keepends=True)
    if not lines:
        return data
    at, to = random.randrange(len(lines)), random.randrange(len(lines))
    action = random.randrange(4)
    if action == 0:
        lines.insert(to, lines[at])
    elif action == 1:
        del lines[at]
    elif action == 2:
        lines[at], lines[to] = lines[to], lines[at]
    else:
        lines[at] = lines[at].rstrip(b"\r\n")
    return b"".join(lines)


def _value(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """A field of a JSON line with another value, another name, or gone."""
    lines = data.splitlines(keepends=True)
    if not lines:
        return data
    at = random.randrange(len(lines))
    try:
        record = json.loads(lines[at])
    except (ValueError, RecursionError):
        return _flip(data, others, random)
    holders: list[Any] = []
    _collect(record, holders)
    if not holders:
        return _flip(data, others, random)
    holder = random.choice(holders)
    key = random.choice(list(holder)) if isinstance(holder, dict) else random.randrange(len(holder))
    action = random.random()
    if action < 0.7:
        holder[key] = random.choice(_VALUES)
    elif action < 0.85:
        del holder[key]
    elif isinstance(holder, dict):
        holder[str(key) + random.choice(("", "x", "\x1b[1m"))] = holder.pop(key)
    lines[at] = json.dumps(record).encode() + b"\n"
    return b"".join(lines)


def _collect(value: Any, holders: list[Any]) -> None:
    if isinstance(value, dict | list) and value:
        holders.append(value)
        for each in value.values() if isinstance(value, dict) else value:
            _collect(each, holders)


_MUTATIONS: tuple[Callable[[bytes, Sequence[bytes], Random], bytes], ...] = (
    _flip,
    _cut,
    _remove,
    _insert,
    _splice,
    _number,
    _number,
    _lines,
    _value,
    _value,
    _value,
)
