"""The traffic that a server under test gets: 64 streams at once, clients that hang up, some of the streams again."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from tests.vllm.serving import Asked, Server, ask_all, served

__all__ = ["LEAVING", "LIMITS", "STREAMS", "Served", "served_traffic"]

LIMITS = ("--max-num-seqs", "16", "--max-num-batched-tokens", "512", "--num-gpu-blocks-override", "60")
"""So that requests wait for a seat, for tokens and for memory, and some are preempted."""
STREAMS = [Asked(f"stream number {i // 4} says " * (2 + i % 11), max_tokens=12 + i % 25) for i in range(64)]
"""Four after another share a prefix."""
LEAVING = [Asked(f"client {i} leaves early " * (1 + i % 7), max_tokens=700, leaves_after=1 + i % 5) for i in range(48)]
"""Their answers are so long that the server notices most of them leave before these end."""
_AGAIN = 8


class Served(NamedTuple):
    """What a server did for the clients, and what it left behind."""

    model: Path
    answers: list[list[int]]
    """To ``STREAMS``."""
    again: list[list[int]]
    """To the first of them, after the clients of ``LEAVING`` have hung up."""
    trace: Path
    queue_seconds: float
    """Sum of ``vllm:request_queue_time_seconds`` over ``STREAMS``."""
    queue_count: float
    lost_seconds: dict[str, float]
    """``tokenyard:lost_seconds_total`` by reason."""
    metrics: dict[str, float]
    """vLLM's metrics at the end."""
    exit_code: int

    @property
    def num_requests(self) -> int:
        """Requests that all clients sent."""
        return len(STREAMS) + len(LEAVING) + len(self.again)


def served_traffic(model: Path, scheduler: str, folder: Path) -> Served:
    """Serve the traffic with a scheduler class of ours, traced; the log and the trace stay in ``folder``."""
    (folder / "prometheus").mkdir()
    env = {"SCHED_TRACE_PATH": str(folder / "trace"), "PROMETHEUS_MULTIPROC_DIR": str(folder / "prometheus")}
    flags = [*LIMITS, "--scheduler-cls", f"tokenyard.vllm.{scheduler}"]
    with served(model, folder / "log", flags, env) as server:
        answers = ask_all(server, STREAMS)
        waited = [server.total(f"vllm:request_queue_time_seconds_{what}") for what in ("sum", "count")]
        ask_all(server, LEAVING)
        again = ask_all(server, STREAMS[:_AGAIN])
        lost = _lost_by_reason(server)
        names = ("num_requests_running", "num_requests_waiting", "request_success_total", "prefix_cache_hits_total")
        metrics = {name: server.total(f"vllm:{name}") for name in names}
        code = server.stop()
    return Served(model, answers, again, folder / "trace", waited[0], waited[1], lost, metrics, code)


def _lost_by_reason(server: Server) -> dict[str, float]:
    lost: defaultdict[str, float] = defaultdict(float)
    for line, value in server.metrics().items():
        if line.startswith("tokenyard:lost_seconds_total{"):
            lost[line.split('reason="')[1].split('"')[0]] += value
    return dict(lost)
