"""Clients that others have written against an emulated server, and the replay of the arrivals that it saw.

    .venv/bin/python scripts/emulate_clients.py [--vllm .venv-vllm-0.32] [--guidellm PATH] [--only NAME] [--requests 40]

`vllm bench serve`, guidellm and OpenAI's client send what they send by default. Each request that arrived is replayed
at the moment that the server stamped it with; all decisions are compared. A client that is not installed is passed
over. Exits with 1 if a decision differs, or if a client says that a request failed.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import uvicorn

from emulate_conformance import tiny_model
from emulate_live import LINE, Seen
from tokenyard.core.request import Request
from tokenyard.deploy.deployment import Deployment
from tokenyard.serve.emulate.host import EmulateSettings, Emulation, emulate
from tokenyard.serve.emulate.listening import server_config
from tokenyard.serve.emulate.surface import make_app
from tokenyard.sim.replay import replay
from tokenyard.web.serve import bound
from tokenyard.workload.record import ListedTokens, Workload, WorkloadRequest

_OPENAI = """
import asyncio, sys
from openai import AsyncOpenAI
async def main(url, number):
    client = AsyncOpenAI(base_url=url + "/v1", api_key="any")
    async def one(i):
        await asyncio.sleep(0.1 * i)
        said = [{"role": "user", "content": f"question {i}: " + "why " * (10 * i % 300)}]
        stream = await client.chat.completions.create(model="served", messages=said, max_tokens=60, stream=True,
            extra_body={"ignore_eos": True})
        return [chunk async for chunk in stream]
    answers = await asyncio.gather(*(one(i) for i in range(number)))
    ended = sum(each[-1].choices[0].finish_reason in ("stop", "length") for each in answers)
    print(f"Successful requests: {ended}")
asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


_BENCH = """
import argparse
from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
"""
"""As ``vllm bench serve``, which asks for the version of a package that the one for CPUs does not have by that name."""


class Client(NamedTuple):
    """A program that asks."""

    name: str
    command: list[str]
    succeeded: str
    """Expression for the number of requests that it says have succeeded, where it says so."""


class Watched(Seen):
    """What an engine decided, and the requests themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: dict[str, Request] = {}

    def request_arrived(self, ts: float, request: Any) -> None:
        super().request_arrived(ts, request)
        self.requests[request.request_id] = request


@contextmanager
def served(speed: float) -> Iterator[tuple[Emulation, Watched, str]]:
    """A server in a thread, what watches it, and its address."""
    deployment, seen = Deployment(f"{LINE} --served-model-name served", gpu="h100"), Watched()
    with closing(emulate(deployment, EmulateSettings(speed=speed), observers=[seen])) as emulation:
        app = make_app(emulation, emulation.fronts[0], deployment, emulation.faults)
        listener = bound("127.0.0.1", 0)
        server = uvicorn.Server(server_config(app))
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.05)
        yield emulation, seen, f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join()


def replayed(seen: Watched) -> Seen:
    """The same requests at the same moments."""
    resolved, again = Deployment(LINE, gpu="h100").resolve(), Seen()
    workload = [
        WorkloadRequest(
            request_id=name,
            prompt=ListedTokens(request.token_slice(0, request.num_prompt_tokens).tolist()),
            max_tokens=request.num_output_tokens,
            arrival_time=request.arrival_time,
            priority=request.priority,
        )
        for name, request in sorted(seen.requests.items(), key=lambda each: each[1].arrival_time)
    ]
    replay(
        Workload("recorded", workload),
        resolved.scheduler,
        resolved.cache,
        resolved.latency,
        observer=again,
        policy=resolved.policy,
    )
    return again


def clients(flags: argparse.Namespace, url: str, tokenizer: Path) -> Iterator[Client]:
    """Those that are installed."""
    number = str(flags.requests)
    python = flags.vllm / "bin" / "python"
    if python.exists():
        line = f"--backend openai --base-url {url} --model served --tokenizer {tokenizer} --endpoint /v1/completions "
        line += f"--dataset-name random --random-input-len 200 --random-output-len 60 --num-prompts {number}"
        command = [str(python), "-c", _BENCH, *line.split(), "--ignore-eos", "--request-rate", "4"]
        yield Client("vllm bench serve", command, r"Successful requests:\s+(\d+)")
    if flags.guidellm is not None:
        given = {
            "backend": f"kind=openai_http,target={url},model=served",
            "profile": "kind=constant,rate=4",
            "constraint": f"kind=max_requests,count={number}",
            "tokenizer": f"kind=huggingface_auto,model={tokenizer}",
            "data": "kind=synthetic_text,prompt_tokens=150,output_tokens=40",
            "output": f"kind=json,path={tokenizer}/guidellm.json",
        }
        options = [part for name, value in given.items() for part in (f"--{name}", value)]
        yield Client("guidellm", [str(flags.guidellm), "run", *options, "--disable-console"], "")
    yield Client("openai", [sys.executable, "-c", _OPENAI, url, number], r"Successful requests:\s+(\d+)")


def asked(client: Client, seen: Watched, flags: argparse.Namespace) -> bool:
    """Run a client, print a row, and say whether all was as it should be."""
    ran = subprocess.run(client.command, capture_output=True, text=True, timeout=1200, check=False)
    if ran.returncode:
        print(f"{client.name}: ended with {ran.returncode}\n{(ran.stderr or ran.stdout)[-2000:]}")
        return False
    time.sleep(1.0)
    again = replayed(seen)
    equal = seen.decisions == again.decisions
    told = re.search(client.succeeded, ran.stdout) if client.succeeded else None
    answered = int(told[1]) if told is not None else None
    says = "" if answered is None else f", {answered} answered as the client says"
    print(
        f"{client.name:17} {len(seen.requests):4} requests, {len(seen.decisions):5} steps: decisions "
        f"{'equal' if equal else 'DIFFER'} those of the replay{says}",
        flush=True,
    )
    return equal and answered in (None, flags.requests)


def main() -> int:
    """Run all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--vllm", type=Path, default=Path(__file__).resolve().parent.parent / ".venv-vllm-0.32")
    parser.add_argument("--guidellm", type=Path, help="the program")
    parser.add_argument("--only")
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--speed", type=float, default=1.0)
    flags = parser.parse_args()
    good = True
    with tempfile.TemporaryDirectory() as folder:
        model = tiny_model(flags.vllm, Path(folder))
        for name in [each.name for each in clients(flags, "", model)]:
            if flags.only not in (None, name):
                continue
            with served(flags.speed) as (_, seen, url):
                (client,) = (each for each in clients(flags, url, model) if each.name == name)
                good &= asked(client, seen, flags)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
