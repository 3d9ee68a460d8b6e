"""What vLLM says no to when it starts: the sentences of ``refusals.json``, filled in."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from tokenyard.errors import NoStartError
from tokenyard.files import packaged


class _Refusal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    field: str
    says: str
    fix: str | None = None
    details: tuple[str, ...] = ()


class _Refusals(msgspec.Struct, forbid_unknown_fields=True):
    about: tuple[str, ...]
    refusals: dict[str, _Refusal]


@cache
def _refusals() -> dict[str, _Refusal]:
    return msgspec.json.decode(packaged(__package__, "refusals.json"), type=_Refusals).refusals


def refused(name: str, value: object, **of: Any) -> NoStartError:
    """Return the error for a ``value``, by the refusal's name, with what its sentence names."""
    refusal = _refusals()[name]
    fix = None if refusal.fix is None else refusal.fix.format(value=value, **of)
    details = {each: of[each] for each in refusal.details} or None
    return NoStartError(refusal.says.format(value=value, **of), refusal.field, value, fix, details=details)
