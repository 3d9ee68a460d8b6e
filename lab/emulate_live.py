"""Live against replay: an emulated server under a real client, and the replay of the arrivals that it saw.

    .venv/bin/python lab/emulate_live.py [--seconds 20] [--speed 1] [--only chat] [--rate 3] [--json FILE]

Five workloads at three loads. A client in a process of its own streams completions over HTTP. Then the arrivals, as the
server stamped them, are replayed: every decision is compared, and the means that the client has measured are put beside
those of the replay. What is on the way between client and engine, there and back, is told in milliseconds of the
machine's own clock: on a busy machine a lower ``--speed`` leaves it small beside emulated times. Exits with 1 if a
decision differs or a mean is off by more than 2 %.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import random
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from emulate_servers import served
from tokenyard.core.sched.observer import StepObserver
from tokenyard.deploy.deployment import Deployment
from tokenyard.sim.replay import replay
from tokenyard.workload.record import Workload, WorkloadRequest
from tokenyard.workload.tokens import ListedTokens

LINE = "vllm serve Qwen/Qwen3-32B -tp 2 --max-num-seqs 128 --max-model-len 16384"
_MOST_OFF = 0.02
_READY_BEFORE = 0.5
"""Seconds before a request is sent that its connection is made."""
_WARM = "warm"
"""A request before the others, which is replayed and not counted: it waits for what is loaded then."""


class Kind(NamedTuple):
    """A workload."""

    more: str
    """The rest of the command line."""
    rates: tuple[float, float, float]
    """Requests per second."""
    prompt: tuple[int, int]
    """Shortest and longest, in tokens."""
    answer: tuple[int, int]
    shared: int = 0
    """Tokens that prompts begin with, of one of eight kinds."""
    adapters: int = 0
    priorities: int = 1


KINDS = {
    "chat": Kind("", (1, 3, 6), (50, 800), (50, 200)),
    "agents": Kind("", (1, 3, 6), (20, 200), (30, 120), shared=2048),
    "long": Kind("", (0.2, 0.5, 1), (2000, 8000), (20, 60)),
    "lora": Kind(
        " --enable-lora --max-loras 2 --lora-modules a=/a b=/b c=/c", (1, 3, 6), (50, 500), (30, 120), adapters=3
    ),
    "priority": Kind(" --scheduling-policy priority --max-num-seqs 8", (1, 3, 6), (50, 500), (30, 120), priorities=3),
}


class Seen(StepObserver):
    """What an engine decided, and when requests had their tokens."""

    def __init__(self) -> None:
        self.decisions: list[tuple[Any, ...]] = []
        self.arrivals: dict[str, float] = {}
        self.tokens: dict[str, list[float]] = defaultdict(list)

    def request_arrived(self, ts: float, request: Any) -> None:
        self.arrivals[request.request_id] = request.arrival_time

    def step_decided(self, ts: float, output: Any, outcomes: Any, state: Any) -> None:
        if output.total_num_scheduled_tokens:
            ids = tuple(each.removeprefix("cmpl-") for each in output.req_ids)
            self.decisions.append((round(ts, 9), ids, tuple(output.num_new_tokens.tolist())))

    def step_completed(self, ts: float, output: Any, outputs: Any) -> None:
        for request_id in outputs.req_ids:
            self.tokens[request_id].append(ts)

    def means(self) -> dict[str, float]:
        """TTFT, TPOT and E2E, in seconds."""
        spans = {name: (self.arrivals[name], times) for name, times in self.tokens.items() if _WARM not in name}
        return _means(spans, {name: len(times) for name, (_, times) in spans.items()})


Times = dict[str, tuple[float, list[float]]]
"""Request -> when it was sent, and when its tokens came."""


def _means(times: Times, counts: Mapping[str, int]) -> dict[str, float]:
    """``counts`` are the tokens of each answer: several may come at a time."""
    spans = list(times.values())
    return {
        "ttft": mean(told[0] - sent for sent, told in spans),
        "tpot": mean(
            (told[-1] - told[0]) / (counts[name] - 1) for name, (_, told) in times.items() if counts[name] > 1
        ),
        "e2e": mean(told[-1] - sent for sent, told in spans),
    }


def requests_of(kind: Kind, rate: float, seconds: float) -> list[dict[str, Any]]:
    """Bodies, each with the second at which it is sent; one in any case, however short the run."""
    chance, at, made = random.Random(11), 0.0, list[dict[str, Any]]()
    shared = [chance.choices(range(1000, 100_000), k=kind.shared) for _ in range(8)]
    while (at := at + chance.expovariate(rate)) < seconds or not made:
        prompt = chance.choice(shared) + chance.choices(range(1000, 100_000), k=chance.randint(*kind.prompt))
        body = {"prompt": prompt, "max_tokens": chance.randint(*kind.answer), "ignore_eos": True, "stream": True}
        if kind.adapters:
            body["model"] = chance.choice("abc"[: kind.adapters])
        if kind.priorities > 1:
            body["priority"] = chance.randrange(kind.priorities)
        made.append({"at": at, "body": {**body, "request_id": str(len(made))}})
    return made


class _Streaming(asyncio.Protocol):
    """A connection for one request, whose answer is a stream."""

    def __init__(self) -> None:
        self.sent, self.told, self.tail = 0.0, list[float](), b""
        self.is_over = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def ask(self, content: bytes) -> None:
        """Send the request."""
        self.sent = time.monotonic()
        self._transport.write(content)

    def data_received(self, data: bytes) -> None:
        now = time.monotonic()
        if b"data: {" in self.tail[-6:] + data:
            self.told.append(now)
        self.tail = (self.tail + data)[-64:]
        if b"data: [DONE]" in self.tail and self.tail.endswith(b"0\r\n\r\n"):
            self._transport.close()
            self.is_over.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.is_over.done():
            self.is_over.set_exception(exc or ConnectionError(f"lost after {self.tail!r}"))


def client(port: int, requests: list[dict[str, Any]], speed: float, answers: Any) -> None:
    """Send them, and tell when each was sent, and its pieces came, in seconds of the machine's clock.

    Bodies are written and connections made before their time: what a client needs for that is not the server's.
    """

    async def run() -> None:
        async def one(at: float, body: dict[str, Any]) -> tuple[float, list[float]]:
            content = json.dumps(body).encode()
            head = f"Host: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
            content = b"POST /v1/completions HTTP/1.1\r\n" + head.encode() + content
            await asyncio.sleep(max(0.0, at - _READY_BEFORE - time.monotonic()))
            made = await asyncio.get_running_loop().create_connection(_Streaming, "127.0.0.1", port)
            await asyncio.sleep(max(0.0, at - time.monotonic()))
            made[1].ask(content)
            await made[1].is_over
            return made[1].sent, made[1].told

        warm = {"prompt": [1, 2, 3], "max_tokens": 2, "ignore_eos": True, "stream": True, "request_id": _WARM}
        await one(0.0, warm)
        start = time.monotonic() + 2 * _READY_BEFORE
        told = await asyncio.gather(*(one(start + each["at"] / speed, each["body"]) for each in requests))
        answers.put({each["body"]["request_id"]: seen for each, seen in zip(requests, told, strict=True)})

    asyncio.run(run())


def compared(name: str, rate: float, seconds: float, speed: float) -> dict[str, Any]:
    """One workload at one load, live and replayed."""
    kind = KINDS[name]
    deployment = Deployment(LINE + kind.more, gpu="h100")
    requests, live, again = requests_of(kind, rate, seconds), Seen(), Seen()
    with served(deployment, speed, seen=live) as (emulation, port):
        context = multiprocessing.get_context("spawn")
        answers = context.Queue()
        asking = context.Process(target=client, args=(port, requests, speed, answers))
        asking.start()
        seen: Times = answers.get(timeout=7200)
        asking.join()
        late, wall = emulation.engines.lateness, emulation.engines.wall
    resolved, bodies = deployment.resolve(), {each["body"]["request_id"]: each["body"] for each in requests}
    bodies[_WARM] = {"prompt": [1, 2, 3], "max_tokens": 2}
    workload = [
        WorkloadRequest(
            request_id=request_id,
            prompt=ListedTokens(bodies[request_id]["prompt"]),
            max_tokens=bodies[request_id]["max_tokens"],
            arrival_time=moment,
            lora_name=bodies[request_id].get("model"),
            priority=bodies[request_id].get("priority", 0),
        )
        for moment, request_id in sorted((at, name.removeprefix("cmpl-")) for name, at in live.arrivals.items())
    ]
    replay(
        Workload(name, workload),
        resolved.scheduler,
        resolved.cache,
        resolved.latency,
        observer=again,
        policy=resolved.policy,
    )
    parted = next(
        (i for i, pair in enumerate(zip(live.decisions, again.decisions, strict=False)) if pair[0] != pair[1]), None
    )
    same = parted is None and len(live.decisions) == len(again.decisions)
    replayed = again.means()
    counts = {name: each["max_tokens"] for name, each in bodies.items()}
    told = _means(
        {name: (sent * speed, [each * speed for each in came]) for name, (sent, came) in seen.items()}, counts
    )
    there = mean(wall.monotonic(live.arrivals[f"cmpl-{name}"]) - sent for name, (sent, _) in seen.items())
    back = mean(came[0] - wall.monotonic(live.tokens[f"cmpl-{name}"][0]) for name, (_, came) in seen.items())
    off = {measure: told[measure] / replayed[measure] - 1 for measure in told}
    return {
        "workload": name,
        "rate": rate,
        "requests": len(requests),
        "steps": len(live.decisions),
        "decisions_equal": same,
        "client": told,
        "replay": replayed,
        "off": off,
        "way_ms": [there * 1e3, back * 1e3],
        "late_steps": late.late_steps / max(late.steps, 1),
    }


def main() -> int:
    """Run all, print a row each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--speed", type=float, default=1.0)
    parser.add_argument("--only", choices=sorted(KINDS))
    parser.add_argument("--rate", type=float, help="one load alone, in requests a second")
    parser.add_argument("--json", type=Path)
    flags = parser.parse_args()
    rows = []
    print(f"{'workload':9} {'req/s':>5} {'requests':>8} {'steps':>6} {'decisions':>9}   client against replay")
    for name in [flags.only] if flags.only else KINDS:
        for rate in KINDS[name].rates if flags.rate is None else [flags.rate]:
            row = compared(name, rate, flags.seconds, flags.speed)
            rows.append(row)
            off = "  ".join(f"{measure} {value:+.2%}" for measure, value in row["off"].items())
            equal = "equal" if row["decisions_equal"] else "DIFFER"
            steps, late = f"{row['requests']:8} {row['steps']:6}", f"late steps {row['late_steps']:.1%}"
            way = "{:.1f} ms there, {:.1f} ms back".format(*row["way_ms"])
            print(f"{name:9} {rate:5g} {steps} {equal:>9}   {off}  {late}  {way}", flush=True)
    if flags.json is not None:
        flags.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    good = all(row["decisions_equal"] and max(map(abs, row["off"].values())) <= _MOST_OFF for row in rows)
    print(
        "all decisions are equal, all means within 2 %" if good else "not all decisions are equal, or means within 2 %"
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
