"""The traffic that all sample logs are of, drawn from a seed: what a reader should find in them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random

__all__ = ["MODEL", "REQUESTS", "START", "Truth"]

START = datetime(2026, 11, 20, 14, 0, 0, 125_000, tzinfo=UTC)
MODEL = "qwen3-32b"
_COUNT = 24


@dataclass(frozen=True)
class Truth:
    """One request."""

    number: int
    arrival: float
    """Seconds since ``START``, in milliseconds."""
    duration: float
    prompt: int
    output: int
    cached: int
    user: str
    session: str

    @property
    def start(self) -> datetime:
        return START + timedelta(milliseconds=round(self.arrival * 1000))

    @property
    def end(self) -> datetime:
        return self.start + timedelta(milliseconds=round(self.duration * 1000))

    @property
    def request_id(self) -> str:
        return f"req-{self.number:04d}"


def _drawn() -> list[Truth]:
    random, now, requests = Random(26), 0.0, []
    for number in range(_COUNT):
        prompt, output = random.randint(40, 320), random.randint(5, 90)
        session = random.randrange(6)
        requests.append(
            Truth(
                number,
                round(now, 3),
                round(0.05 + 0.02 * output + random.random() / 10, 3),
                prompt,
                output,
                16 * random.randrange(prompt // 16) if random.random() < 0.5 else 0,
                f"team-{session % 3}",
                f"chat-{session}",
            )
        )
        now += random.expovariate(0.4)
    return requests


REQUESTS = _drawn()
