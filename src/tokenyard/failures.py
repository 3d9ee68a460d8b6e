"""What foreign code raised in the middle of a call: kept until nothing is half done, then raised.

A policy, a connector, a grammar or a listener is asked while a step is being decided or taken in. When one raises, the
scheduler goes on without its answer to the next point at which everything adds up, and raises the error there.
"""

from __future__ import annotations

from tokenyard.errors import text_of

__all__ = ["Failures"]


class Failures:
    """Errors of the call that is under way; ``first`` is None nearly always, and then nothing costs anything."""

    __slots__ = ("first",)

    def __init__(self) -> None:
        self.first: Exception | None = None
        """The error to raise; those that followed it in the same call are named in its notes."""

    def note(self, error: Exception, where: str) -> None:
        """``error`` was raised in ``where``, which is left without an answer."""
        if self.first is None:
            self.first = error
            error.add_note(f"Tokenyard: raised in {where}")
        elif error is not self.first:
            self.first.add_note(f"Tokenyard: then {type(error).__name__} in {where}: {text_of(error)}")

    def raise_first(self, state: str) -> None:
        """Raise what was noted, if anything was; ``state`` says what has become of the call."""
        error, self.first = self.first, None
        if error is not None:
            error.add_note(f"Tokenyard: {state}")
            raise error
