"""Clients that others have written against an emulated server, and the replay of the arrivals that it saw.

    .venv/bin/python lab/emulate_clients.py [--vllm .venv-vllm-0.32] [--guidellm PATH] [--aiperf PATH]
        [--genai-perf PATH] [--python PATH] [--only NAME] [--requests 40] [--speed 1] [--docs FILE]

`vllm bench serve`, guidellm, aiperf, genai-perf and the clients of OpenAI, Anthropic and LiteLLM send what they send by
default. Each request that arrived is replayed at the moment that the server stamped it with, its answer as long as it
was; all decisions are compared. So are what the client counts (requests, tokens) and what the server's metrics tell,
and its means of TTFT, TPOT and E2E stand beside those of the replay. ``--python`` has the three clients installed. A
client that is not installed is passed over. ``--speed 0.2``: the server is five times as slow, and so much smaller is
what client and machine need beside it; clients send as much slower, and times are told in emulated milliseconds. Exits
with 1 if a decision differs, if a client says that a request failed, or if its counts are not those of the metrics.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from emulate_live import LINE, Seen
from emulate_servers import served, tiny_model
from tokenyard.core.request import Request, RequestStatus
from tokenyard.deploy.deployment import Deployment
from tokenyard.sim.replay import replay
from tokenyard.workload.record import Workload, WorkloadRequest
from tokenyard.workload.tokens import ListedTokens

_CLIENT = Path(__file__).with_name("emulate_client.py")
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
    told: Callable[[str], Counts]
    """What it counted, out of what it printed."""


class Counts(NamedTuple):
    """Figures of all requests; None: it does not tell them. Times are means, in milliseconds."""

    requests: float | None = None
    prompt_tokens: float | None = None
    tokens: float | None = None
    ttft: float | None = None
    tpot: float | None = None
    e2e: float | None = None


def printed(text: str) -> Counts:
    """As `vllm bench serve` writes it."""
    names = ["Successful requests", "Total input tokens", "Total generated tokens"]
    names += [rf"Mean {name} \(ms\)" for name in ("TTFT", "TPOT", "E2EL")]
    found = [re.search(name + r":\s+([\d.]+)", text) for name in names]
    return Counts(*(None if each is None else float(each[1]) for each in found))


def of_metrics(url: str, means: dict[str, float]) -> Counts:
    """What the server's metrics tell, and ``means`` of the replay, in seconds."""
    text = httpx.get(f"{url}/metrics").text

    def total(name: str) -> float:
        return sum(float(each) for each in re.findall(rf"^vllm:{name}(?:{{.*}})? ([\d.e+-]+)$", text, re.MULTILINE))

    counts = [total(f"{name}_total") for name in ("request_success", "prompt_tokens", "generation_tokens")]
    return Counts(*counts, *(1e3 * means[name] for name in ("ttft", "tpot", "e2e")))


class Watched(Seen):
    """What an engine decided, and the requests themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: dict[str, Request] = {}

    def request_arrived(self, ts: float, request: Any) -> None:
        super().request_arrived(ts, request)
        self.requests[request.request_id] = request


def replayed(seen: Watched) -> Seen:
    """The same requests at the same moments."""
    resolved, again = Deployment(LINE, gpu="h100").resolve(), Seen()
    workload = [
        WorkloadRequest(
            request_id=name,
            prompt=ListedTokens(request.token_slice(0, request.num_prompt_tokens).tolist()),
            max_tokens=request.num_output_tokens,
            limit=request.max_tokens if request.status is RequestStatus.FINISHED_STOPPED else None,
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
    """The clients that are installed."""
    number, rate = str(flags.requests), 4 * flags.speed
    python = flags.vllm / "bin" / "python"
    if python.exists():
        line = f"--backend openai --base-url {url} --model served --tokenizer {tokenizer} --endpoint /v1/completions "
        line += f"--dataset-name random --random-input-len 200 --random-output-len 60 --num-prompts {number}"
        line += f" --ignore-eos --request-rate {rate:g} --percentile-metrics ttft,tpot,e2el"
        command = [str(python), "-c", _BENCH, *line.split()]
        yield Client("vllm bench serve", command, printed)
    if flags.guidellm is not None:
        given = {
            "backend": f"kind=openai_http,target={url},model=served",
            "profile": f"kind=constant,rate={rate:g}",
            "constraint": f"kind=max_requests,count={number}",
            "tokenizer": f"kind=huggingface_auto,model={tokenizer}",
            "data": "kind=synthetic_text,prompt_tokens=150,output_tokens=40",
            "output": f"kind=json,path={tokenizer}/guidellm.json",
        }
        options = [part for name, value in given.items() for part in (f"--{name}", value)]
        yield Client(
            "guidellm",
            [str(flags.guidellm), "run", *options, "--disable-console"],
            lambda _: of_guidellm(tokenizer / "guidellm.json"),
        )
    if flags.aiperf is not None:
        line = f"profile --model served --url {url} --endpoint-type chat --streaming --tokenizer {tokenizer} "
        line += f"--request-count {number} --concurrency 4 --synthetic-input-tokens-mean 150 --output-tokens-mean 40 "
        line += f"--artifact-dir {tokenizer}/aiperf --ui none --use-server-token-count"
        yield Client("aiperf", [str(flags.aiperf), *line.split()], lambda _: of_aiperf(tokenizer / "aiperf"))
    if flags.genai_perf is not None:
        line = f"profile --model served --url {url} --endpoint-type chat --streaming --tokenizer {tokenizer} "
        line += f"--request-count {number} --warmup-request-count 0 --concurrency 4 --synthetic-input-tokens-mean 150 "
        line += f"--output-tokens-mean 40 --artifact-dir {tokenizer}/genai-perf"
        command = [str(flags.genai_perf), *line.split()]
        yield Client("genai-perf", command, lambda _: of_genai_perf(tokenizer / "genai-perf"))
    for name in ("openai", "anthropic", "litellm"):
        found = subprocess.run([flags.python, "-c", f"import {name}"], capture_output=True, check=False)
        if not found.returncode:
            yield Client(name, [str(flags.python), str(_CLIENT), name, url, number, str(0.1 / flags.speed)], printed)


def of_guidellm(path: Path) -> Counts:
    """What guidellm wrote."""
    (ran,) = json.loads(path.read_text())["benchmarks"]
    metrics = ran["metrics"]

    def told(name: str, what: str) -> float:
        return float(metrics[name]["successful"][what])

    return Counts(
        float(metrics["request_totals"]["successful"]),
        told("prompt_token_count", "total_sum"),
        told("output_token_count", "total_sum"),
        told("time_to_first_token_ms", "mean"),
        told("inter_token_latency_ms", "mean"),
        1e3 * told("request_latency", "mean"),
    )


def of_aiperf(folder: Path) -> Counts:
    """What aiperf wrote."""
    told = json.loads(next(folder.rglob("profile_export_aiperf.json")).read_text())

    def value(name: str) -> float | None:
        return float(told[name]["avg"]) if name in told else None

    counts = [value(name) for name in ("request_count", "total_isl", "total_output_tokens")]
    return Counts(*counts, *(value(name) for name in ("time_to_first_token", "inter_token_latency", "request_latency")))


def of_genai_perf(folder: Path) -> Counts:
    """What genai-perf wrote; it counts the tokens of texts, each alone."""
    told = json.loads(next(folder.rglob("*_genai_perf.json")).read_text())
    times = (float(told[name]["avg"]) for name in ("time_to_first_token", "inter_token_latency", "request_latency"))
    return Counts(float(told["request_count"]["avg"]), None, None, *times)


def asked(client: Client, url: str, seen: Watched, flags: argparse.Namespace) -> Row | None:
    """Run a client, and compare."""
    ran = subprocess.run(client.command, capture_output=True, text=True, timeout=1200, check=False)
    if ran.returncode:
        print(f"{client.name}: ended with {ran.returncode}\n{(ran.stderr or ran.stdout)[-2000:]}")
        return None
    time.sleep(1.0)
    again = replayed(seen)
    equal = seen.decisions == again.decisions
    told, ours = client.told(ran.stdout), of_metrics(url, again.means())
    times = (None if each is None else each * flags.speed for each in told[3:])
    return Row(client.name, len(seen.decisions), equal, Counts(*told[:3], *times), ours)


class Row(NamedTuple):
    """What a client and the server say of the same requests."""

    client: str
    steps: int
    equal: bool
    there: Counts
    here: Counts

    def is_good(self, requests: int) -> bool:
        """All were answered and decided as in the replay, and the tokens of answers are counted alike."""
        answered = self.there.requests in (None, requests) and self.here.requests >= requests  # type: ignore[operator]
        return self.equal and answered and self.there.tokens in (None, self.here.tokens)

    @property
    def cells(self) -> list[str]:
        """For a table."""
        told = [
            f"{'-' if each is None else f'{each:,.{places}f}'} / {own:,.{places}f}"
            for each, own, places in zip(self.there, self.here, (0, 0, 0, 1, 2, 1), strict=True)
        ]
        return [self.client, *told, f"{self.steps}, {'equal' if self.equal else 'DIFFER'}"]


_HEAD = ["client", "requests", "prompt tokens", "tokens of answers", *("TTFT (ms)", "TPOT (ms)", "E2E (ms)")]
_HEAD += ["steps, decisions"]


def main() -> int:
    """Run all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--vllm", type=Path, default=Path(__file__).resolve().parent.parent / ".venv-vllm-0.32")
    parser.add_argument("--guidellm", type=Path, help="the program")
    parser.add_argument("--aiperf", type=Path, help="the program")
    parser.add_argument("--genai-perf", type=Path, help="the program")
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="where the clients are installed")
    parser.add_argument("--docs", type=Path, help="write the table for readers")
    parser.add_argument("--only")
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--speed", type=float, default=1.0)
    flags = parser.parse_args()
    good, rows = True, list[Row]()
    with tempfile.TemporaryDirectory() as folder:
        model = tiny_model(flags.vllm, Path(folder))
        for name in [each.name for each in clients(flags, "", model)]:
            if flags.only not in (None, name):
                continue
            seen = Watched()
            deployment = Deployment(f"{LINE} --served-model-name served --tokenizer {model}", gpu="h100")
            with served(deployment, flags.speed, seen=seen) as (_, port):
                url = f"http://127.0.0.1:{port}"
                (client,) = (each for each in clients(flags, url, model) if each.name == name)
                row = asked(client, url, seen, flags)
                good &= row is not None and row.is_good(flags.requests)
                if row is not None:
                    rows.append(row)
                    print("  ".join(row.cells), flush=True)
    if flags.docs is not None:
        lines = [_HEAD, ["---"] * len(_HEAD), *(row.cells for row in rows)]
        flags.docs.write_text("".join(f"| {' | '.join(each)} |\n" for each in lines), encoding="utf-8")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
