"""ServeGen draws: CSV with ``t_s``, ``client`` and token columns.

The prompt is ``input_tokens``, or the sum of ``text_tokens``, ``image_tokens``, ``audio_tokens`` and
``video_tokens`` (encoders are not modelled: their tokens count as prompt). Prefixes are not recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from tokenyard.sim.workload.readers.lines import CsvRows, ReadOptions
from tokenyard.sim.workload.record import WorkloadRequest
from tokenyard.sim.workload.tokens import StreamTokens, seed_of

__all__ = ["read_servegen"]

_MODAL = ("text_tokens", "image_tokens", "audio_tokens", "video_tokens")


def read_servegen(path: Path, options: ReadOptions) -> Iterator[WorkloadRequest]:
    """One request per row; a length of 0 tokens counts as 1."""
    rows = CsvRows(path, "t_s", "client", "output_tokens")
    columns = ["input_tokens"] if rows.has("input_tokens") else [name for name in _MODAL if rows.has(name)]
    if not columns:
        raise rows.error(f"the header has neither 'input_tokens' nor any of {', '.join(_MODAL)}")
    for row in islice(rows, options.limit):
        seed = seed_of("servegen", options.seed, rows.line)
        yield WorkloadRequest(
            request_id=f"servegen_{rows.line:06d}",
            prompt=StreamTokens.unique(seed, max(1, sum(rows.count(row, name) for name in columns))),
            max_tokens=max(1, rows.count(row, "output_tokens")),
            arrival_time=rows.seconds(row, "t_s"),
            output_seed=seed,
        )
