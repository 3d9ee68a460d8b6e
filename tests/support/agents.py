"""Jobs of agents, and a service's log of them: small, and the same for the same seed."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any


def agents_log(
    path: Path, *, jobs: int = 12, every: float = 2.0, turns: tuple[int, int] = (4, 9), seed: int = 1, **more: Any
) -> Path:
    """Usage rows of agents, with sessions, durations and why each answer ended; tools have no names.

    Contexts grow by what the tools bring, and half of the pauses between turns are below two seconds.
    """
    random = Random(seed)
    rows: list[dict[str, Any]] = []
    for job in range(jobs):
        at, context, count = every * job + random.random(), 3000 + random.randint(300, 1500), random.randint(*turns)
        for turn in range(count):
            output = random.randint(60, 250)
            took, is_last = 0.5 + 0.02 * output, turn == count - 1
            rows.append(
                {
                    "id": f"{job}_{turn}",
                    "timestamp": 1_764_000_000 + at,
                    "session_id": f"job-{job}",
                    "duration": took,
                    "usage": {"prompt_tokens": context, "completion_tokens": output},
                    "finish_reason": "stop" if is_last else "tool_calls",
                    **more,
                }
            )
            context += output + random.randint(200, 1500)
            at += took + random.lognormvariate(0.7, 1.2)
    rows.sort(key=lambda row: row["timestamp"])
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
