"""Settings of what arrives, by name.

Made by scripts/generate_keywords.py: change it there. Only type checkers and editors load it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Literal, TypeAlias, TypedDict

Text: TypeAlias = str | float | PathLike[str] | Mapping[str, Any] | Sequence[Any]
"""A text, or what becomes one: a number, a path, JSON."""


class TrafficKeywords(TypedDict, total=False):
    """What ``**arrivals`` of a question takes."""

    burstiness: float | str | None
    client_timeout: Text | None
    columns: Text | None
    format: Text | None
    front_end_delay: Text | None
    input_len: int | str | None
    limit: int | str | None
    max_bad_lines: int | str | None
    max_concurrency: int | str | None
    model_name: Text | None
    num_prompts: int | str | None
    output_len: int | str | None
    prefixes: Literal["sessions", "recorded"] | None
    random_prefix_len: int | str | None
    random_range_ratio: float | str | None
    rate_scale: float | str | None
    request_rate: float | str | None
    retries: int | str | None
    retry_wait: Text | None
    seed: int | str | None
    session_rate: float | str | None
    skip_refused: bool | None
    stamped: Literal["arrival", "completion"] | None
    time_unit: Literal["d", "h", "min", "s", "ms", "us", "ns"] | None
    turns_follow: bool | None
