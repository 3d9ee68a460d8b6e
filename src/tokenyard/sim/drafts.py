"""Drafts of a recorded run, request by request and position by position, for a replay that repeats them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

import msgspec

# ---------------------------------------------------------------------------------------------------------------------
# Whether a request has drafts, and how many are right, follows from its text: from where it stands, not from when it is
# served. So what a trace shows of a position holds in every replay of it.
#
#     position     20   21   22   23   24   25   26   27   28
#     recorded     row, none  row, 3 offered, 2 right    row, none
#     here         .    none  3    1 right left  .    .
#
# A replay that begins a row within a recorded one (its budget cut the drafts before) has what is left of it.


class DraftRow(msgspec.Struct, frozen=True):
    """A step in which a request sampled."""

    position: int
    """Tokens of its prompt and of its answer before the step."""
    offered: int
    """Drafts that were verified."""
    right: int
    """Drafts that were accepted."""


class RecordedDrafts:
    """What a trace shows of every request's drafts."""

    def __init__(self, rows: Mapping[str, Sequence[DraftRow]]) -> None:
        """``rows``: of each request, in the order of its positions."""
        self._rows = {request_id: list(each) for request_id, each in rows.items() if each}
        self._positions = {request_id: [row.position for row in each] for request_id, each in self._rows.items()}
        self._reaches = {request_id: _reaches(each) for request_id, each in self._rows.items()}

    def __len__(self) -> int:
        """Requests of which it knows any."""
        return len(self._rows)

    def offered(self, request_id: str, position: int) -> int | None:
        """Drafts of a request with so many tokens; None if the trace does not show it."""
        row = self._row(request_id, position)
        return None if row is None else self._rows[request_id][row].offered

    def right(self, request_id: str, position: int) -> int | None:
        """How many drafts in a row are right there; None if the trace does not show it."""
        row = self._row(request_id, position)
        return None if row is None else max(self._reaches[request_id][row] - position, 0)

    def _row(self, request_id: str, position: int) -> int | None:
        """The place of the row that covers a position."""
        rows = self._rows.get(request_id)
        if rows is None:
            return None
        place = bisect_right(self._positions[request_id], position) - 1
        is_covered = place >= 0 and position <= rows[place].position + rows[place].right
        return place if is_covered else None


def _reaches(rows: Sequence[DraftRow]) -> list[int]:
    """For each row the position behind the drafts that are right without a wrong one in between.

    After a row whose drafts were all right the text goes on as drafted, if the row behind it had right ones as well.
    """
    found: list[int] = []
    behind: DraftRow | None = None
    for row in reversed(rows):
        goes_on = row.offered == row.right > 0 and behind is not None and behind.right > 0
        found.append(found[-1] if goes_on else row.position + row.right)
        behind = row
    return found[::-1]
