"""Live against replay: an emulated server under a real client, and the replay of the arrivals that it saw.

    .venv/bin/python scripts/emulate_live.py [--seconds 20] [--speed 1] [--only chat] [--rate 3] [--json FILE]

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
import threading
import time
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import httpx
import uvicorn

from tokenyard.core.sched.observer import StepObserver
from tokenyard.deploy.deployment import Deployment
from tokenyard.serve.emulate.host import EmulateSettings, emulate
from tokenyard.serve.emulate.surface import make_app
from tokenyard.sim.replay import replay
from tokenyard.web.serve import bound
from tokenyard.workload.record import ListedTokens, Workload, WorkloadRequest

LINE = "vllm serve Qwen/Qwen3-32B -tp 2 --max-num-seqs 128 --max-model-len 16384"
_MOST_OFF = 0.02
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
        return _means({name: (self.arrivals[name], times) for name, times in self.tokens.items() if _WARM not in name})


Times = dict[str, tuple[float, list[float]]]
"""Request -> when it was sent, and when its tokens came."""


def _means(times: Times) -> dict[str, float]:
    spans = list(times.values())
    return {
        "ttft": mean(told[0] - sent for sent, told in spans),
        "tpot": mean((told[-1] - told[0]) / (len(told) - 1) for _, told in spans if len(told) > 1),
        "e2e": mean(told[-1] - sent for sent, told in spans),
    }


def requests_of(kind: Kind, rate: float, seconds: float) -> list[dict[str, Any]]:
    """Bodies, each with the second at which it is sent."""
    chance, at, made = random.Random(11), 0.0, list[dict[str, Any]]()
    shared = [chance.choices(range(1000, 100_000), k=kind.shared) for _ in range(8)]
    while (at := at + chance.expovariate(rate)) < seconds:
        prompt = chance.choice(shared) + chance.choices(range(1000, 100_000), k=chance.randint(*kind.prompt))
        body = {"prompt": prompt, "max_tokens": chance.randint(*kind.answer), "ignore_eos": True, "stream": True}
        if kind.adapters:
            body["model"] = chance.choice("abc"[: kind.adapters])
        if kind.priorities > 1:
            body["priority"] = chance.randrange(kind.priorities)
        made.append({"at": at, "body": {**body, "request_id": str(len(made))}})
    return made


def client(url: str, requests: list[dict[str, Any]], speed: float, answers: Any) -> None:
    """Send them, and tell when each was sent, and its pieces came, in seconds of the machine's clock."""

    async def run() -> None:
        limits = httpx.Limits(max_connections=1000)
        async with httpx.AsyncClient(base_url=url, timeout=3600, limits=limits) as http:
            warm = {"prompt": [1, 2, 3], "max_tokens": 2, "ignore_eos": True, "stream": True, "request_id": _WARM}
            await http.post("/v1/completions", json=warm)
            start, times = time.monotonic(), Times()

            async def one(request: dict[str, Any]) -> None:
                await asyncio.sleep(max(0.0, request["at"] / speed - (time.monotonic() - start)))
                sent, told = time.monotonic(), list[float]()
                async with http.stream("POST", "/v1/completions", json=request["body"]) as answer:
                    async for line in answer.aiter_lines():
                        if line.startswith("data: {"):
                            told.append(time.monotonic())
                times[request["body"]["request_id"]] = sent, told

            await asyncio.gather(*(one(each) for each in requests))
            answers.put(times)

    asyncio.run(run())


def compared(name: str, rate: float, seconds: float, speed: float) -> dict[str, Any]:
    """One workload at one load, live and replayed."""
    kind = KINDS[name]
    deployment = Deployment(LINE + kind.more, gpu="h100")
    requests, live, again = requests_of(kind, rate, seconds), Seen(), Seen()
    with closing(emulate(deployment, EmulateSettings(speed=speed), observers=[live])) as emulation:
        app = make_app(emulation, emulation.fronts[0], deployment, emulation.faults)
        listener = bound("127.0.0.1", 0)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.05)
        context = multiprocessing.get_context("spawn")
        answers = context.Queue()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        asking = context.Process(target=client, args=(url, requests, speed, answers))
        asking.start()
        seen: Times = answers.get(timeout=7200)
        asking.join()
        server.should_exit = True
        thread.join()
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
    told = _means({name: (sent * speed, [each * speed for each in came]) for name, (sent, came) in seen.items()})
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
