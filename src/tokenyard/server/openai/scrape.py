"""What Prometheus is told when it asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["scraped", "together"]


def scraped(registry: CollectorRegistry) -> Callable[[], tuple[bytes, str]]:
    """Gives the text of a registry's metrics, and its content type."""
    from prometheus_client import CONTENT_TYPE_LATEST, generate_latest  # noqa: PLC0415 - an extra

    return lambda: (generate_latest(registry), CONTENT_TYPE_LATEST)


def together(texts: Iterable[bytes]) -> bytes:
    """One text of several engines' metrics: a family is described once, and its samples follow each other."""
    families: dict[bytes, tuple[dict[bytes, None], list[bytes]]] = {}
    for text in texts:
        described: dict[bytes, None] = {}
        samples: list[bytes] = []
        for line in text.splitlines():
            if line.startswith(b"# HELP "):
                described, samples = families.setdefault(line.split(b" ", 3)[2], ({}, []))
            if line.startswith(b"#"):
                described[line] = None
            else:
                samples.append(line)
    lines = [line for described, samples in families.values() for line in (*described, *samples)]
    return b"".join(line + b"\n" for line in lines)
