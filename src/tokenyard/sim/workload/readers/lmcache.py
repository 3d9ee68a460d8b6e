"""Hashed LMCache agent traces: JSON lines, one call each, with global prefix-chained ids of 64-token blocks.

Fields read: ``suite``, ``session``, ``timestamp`` (ms since the session began), ``input_length``, ``output_length``,
``hash_ids``. Only arrivals are recorded, not durations. So a turn arrives as long after the previous one's arrival as
recorded, or when the previous one ends, whichever is later. Sessions start in a seeded Poisson process.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from tokenyard.errors import WorkloadError
from tokenyard.sim.workload.readers.hashes import HashId, id_ranges, problem_with_ids
from tokenyard.sim.workload.readers.lines import Count, ReadOptions, Seconds, decode, numbered_lines
from tokenyard.sim.workload.readers.session_starts import session_starts
from tokenyard.sim.workload.record import WorkloadRequest
from tokenyard.sim.workload.tokens import HashedTokens, seed_of

__all__ = ["BLOCK_SIZE", "read_lmcache"]

BLOCK_SIZE = 64


class _Row(msgspec.Struct):
    suite: str
    session: str
    timestamp: Seconds
    input_length: Count
    output_length: Count
    hash_ids: list[HashId]


def read_lmcache(path: Path, options: ReadOptions) -> Iterator[WorkloadRequest]:
    """One request per line, one job per session; a length of 0 tokens (not recorded) counts as 1."""
    session_requests: dict[str, list[_Row]] = {}
    decoder = msgspec.json.Decoder(_Row)
    for number, line in numbered_lines(path):
        row = decode(decoder, path, number, line)
        name = f"{row.suite}_{row.session}"
        if name not in session_requests and options.limit is not None and len(session_requests) == options.limit:
            continue
        turns = session_requests.setdefault(name, [])
        problem = problem_with_ids(len(row.hash_ids), row.input_length, BLOCK_SIZE)
        if not problem and turns and row.timestamp < turns[-1].timestamp:
            problem = f"timestamp = {row.timestamp:g}: is earlier than the session's call before"
        if problem:
            raise WorkloadError(path, number, problem)
        turns.append(row)
    scope = seed_of("lmcache", options.seed)
    for start, (name, turns) in zip(session_starts(options), session_requests.items(), strict=False):
        for turn, row in enumerate(turns):
            own = seed_of("lmcache", options.seed, name, turn)
            first = turn == 0
            yield WorkloadRequest(
                request_id=f"{name}_t{turn}",
                prompt=HashedTokens(
                    id_ranges(row.hash_ids), max(1, row.input_length), block_size=BLOCK_SIZE, scope=scope, tail=own
                ),
                max_tokens=max(1, row.output_length),
                arrival_time=start + row.timestamp / 1000 if first else 0.0,
                after=() if first else (f"{name}_t{turn - 1}",),
                spacing=0.0 if first else (row.timestamp - turns[turn - 1].timestamp) / 1000,
                job_id=name,
                is_last_step=turn == len(turns) - 1,
                output_seed=own,
            )
