"""What stands below a field in the source is found, inherited fields included."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tokenyard.cli.support.flag_table import field_docs


@dataclass
class Base:
    first: int = 1
    """One line."""
    silent: int = 2
    third: int = 3
    """Two
    lines."""


class Derived(Base):
    """Not a field's."""

    fourth = 4
    """Without a type."""
    first = 5
    """Said anew."""

    def method(self) -> None:
        """Not a field's either."""


def test_texts_by_name() -> None:
    assert field_docs(Base) == {"first": "One line.", "third": "Two lines."}
    assert field_docs(Derived) == {"first": "Said anew.", "third": "Two lines.", "fourth": "Without a type."}


def test_enums_and_classes_without_a_source() -> None:
    class Kind(Enum):
        A = "a"
        """The first."""
        B = "b"

    assert field_docs(Kind)["A"] == "The first."
    assert "B" not in field_docs(Kind)
    assert field_docs(int) == {}
