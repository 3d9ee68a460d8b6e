"""What Prometheus is told when it asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["scraped"]


def scraped(registry: CollectorRegistry) -> Callable[[], tuple[bytes, str]]:
    """Gives the text of a registry's metrics, and its content type."""
    from prometheus_client import CONTENT_TYPE_LATEST, generate_latest  # noqa: PLC0415 - an extra

    return lambda: (generate_latest(registry), CONTENT_TYPE_LATEST)
