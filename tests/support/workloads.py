"""Workloads for tests of what shows traces."""

from __future__ import annotations

import json
import random

__all__ = ["crowded"]

BLOCK = 128


def crowded(jobs: int = 8, seed: int = 11) -> str:
    """Agents whose prompts share a beginning and grow turn by turn, and one long report among them, as JSON lines."""
    draw = random.Random(seed)
    requests: list[dict[str, object]] = []
    for job in range(jobs):
        hashes = [1, 2]
        for turn in range(draw.choice((1, 2, 2, 3))):
            hashes = [*hashes, *(1000 * (job + 1) + 10 * turn + k for k in range(draw.choice((1, 2, 4))))]
            request: dict[str, object] = {
                "request_id": f"agent_{job:02}_t{turn}",
                "job_id": f"agent_{job:02}",
                "prompt_len": BLOCK * len(hashes) + draw.randrange(BLOCK),
                "hash_ids": hashes,
                "block_size": BLOCK,
                "max_tokens": draw.choice((5, 8, 12, 26)),
            }
            if turn == 0:
                request["arrival_time"] = round(0.07 * job + draw.random() / 50, 3)
            else:
                request |= {"after": f"agent_{job:02}_t{turn - 1}", "gap": round(draw.random() / 5, 3)}
            requests.append(request)
    report = {"request_id": "report_t0", "job_id": "report", "prompt_len": 2600, "max_tokens": 8, "arrival_time": 0.21}
    return "".join(json.dumps(request) + "\n" for request in [*requests, report])
