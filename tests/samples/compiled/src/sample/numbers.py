"""Numbers with names; those who import them get numbers of C."""

from typing import Final

FULL: Final = 1 << 40
NOTHING: Final = -1
HALF: Final = 0.5
