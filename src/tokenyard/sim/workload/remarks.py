"""What there is to say of a workload that was read: what was assumed, and what looks wrong in it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

__all__ = ["Remark", "as_remarks"]


class Remark(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing; programs go by ``code``."""

    code: str
    """What it is about, for example ``kind`` or ``times_rounded``."""
    text: str
    """A sentence."""
    warning: bool = False
    """Whether the workload may not be what the log's writer served; else it only says how the log was read."""


def as_remarks(notes: Iterable[str | Remark]) -> tuple[Remark, ...]:
    """Sentences become remarks of code ``note``."""
    return tuple(each if isinstance(each, Remark) else Remark("note", each) for each in notes)
