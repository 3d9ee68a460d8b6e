"""What clients saw who hang up after a time and ask again."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from tokenyard.explain.render.units import count, duration, milliseconds
from tokenyard.explain.report.clients import ClientFigures

__all__ = ["clients_of"]


def clients_of(clients: ClientFigures) -> Iterator[Text]:
    """Sentences; the rest of a report is of attempts."""
    again = f", and ask again {duration(clients.retry_wait_s)} later, {count(clients.retries)} times at most"
    yield Text(f"They hang up after {duration(clients.timeout_s)}{again if clients.retries else ''}.")
    yield Text(
        f"{count(clients.given_up)} attempts given up, {count(clients.retried)} sent again; "
        f"{count(clients.answered_late)} requests answered late, {count(clients.unanswered)} not at all"
    )
    answer = clients.answer_ms
    if answer.mean is not None:
        yield Text(
            f"from the first sending to the end of the answer: {milliseconds(answer.mean)} on average, "
            f"p90 {milliseconds(answer.p90)}, max {milliseconds(answer.max)}"
        )
    yield Text("All other figures are of attempts, as the server sees them.")
