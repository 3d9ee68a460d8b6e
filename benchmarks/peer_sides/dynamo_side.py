"""Dynamo's replay, in an environment of its own: TRACE and the settings as JSON in, what it predicts as JSON out."""

from __future__ import annotations

import json
import sys
from typing import Any

__all__ = ["main"]


def main(trace: str, settings: str) -> None:
    """Replay offline on one engine, with its built-in step times."""
    from dynamo.replay import run_trace_replay  # type: ignore[import-not-found]  # noqa: PLC0415 - there alone

    given: dict[str, Any] = json.loads(settings)
    block = given.pop("trace_block_size")
    said = run_trace_replay([trace], extra_engine_args={"engine": given}, trace_block_size=block).summary
    figures = {
        "requests": said["completed_requests"],
        "ttft_mean_ms": said["mean_ttft_ms"],
        "ttft_p99_ms": said["p99_ttft_ms"],
        "tpot_mean_ms": said["mean_tpot_ms"],
        "tpot_p99_ms": said["p99_tpot_ms"],
        "tokens_per_s": said["output_throughput_tok_s"],
        "hit_rate": said["prefix_cache_reused_ratio"],
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
