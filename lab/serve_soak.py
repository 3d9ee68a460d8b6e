"""Many requests in a row at a server with a toy model: is every answer right, and what is left of them?

    python lab/serve_soak.py --requests 30000

A third of the clients leaves in the middle of a stream. Prints blocks, generations, memory and open files after every
tenth of the requests; exit code 1 if an answer is wrong or memory grew by more than --most-mb after the first tenth.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import gc
import json
import random
import resource
import sys
import time
import tracemalloc
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.support.toy_model import text_to, toy_tokenizer
from tests.unit.server.openai.api_server import ApiServer, serving_api

from emulate_load import open_files

TOKENIZER = toy_tokenizer()


def main() -> int:
    """Ask, compare, measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--requests", type=int, default=30_000)
    parser.add_argument("--together", type=int, default=16, help="clients at a time")
    parser.add_argument("--most-mb", type=float, default=32, help="memory that may be gained after the first tenth")
    parser.add_argument(
        "--allocations", type=int, default=0, help="tell so many places that hold more memory at the end"
    )
    flags = parser.parse_args()
    tenth = max(1, flags.requests // 10)
    with serving_api(checks=False, num_gpu_blocks=300, max_num_seqs=16) as server:
        memory: list[float] = []
        held: tracemalloc.Snapshot | None = None
        for done in range(0, flags.requests, tenth):
            began = time.monotonic()
            wrong = asyncio.run(ask(server.url, range(done, min(done + tenth, flags.requests)), flags.together))
            server.until_empty()
            memory.append(_megabytes())
            if flags.allocations and len(memory) == 1:
                tracemalloc.start()
                held = _held()
            rate = tenth / (time.monotonic() - began)
            gc.collect()
            print(
                f"{done + tenth:>7,} requests, {wrong} wrong, {left(server)}, {memory[-1]:.1f} MB,"
                f" {open_files()} files, {sys.getallocatedblocks():,} pieces of memory in Python's hands, {rate:.0f}/s",
                flush=True,
            )
            if wrong:
                return 1
        if held is not None:
            _tell_growth(held, flags.allocations)
            print(f"memory after what is free was given back to the system: {_trimmed():.1f} MB")
    gained = memory[-1] - memory[0]
    print(f"memory gained after the first tenth: {gained:.1f} MB")
    return int(gained > flags.most_mb)


async def ask(url: str, numbers: range, together: int) -> int:
    """Wrong answers among these requests; one in three leaves its stream."""
    room = asyncio.Semaphore(together)
    # Servers close idle connections: a client that keeps none never meets that moment, however busy the machine is.
    async with httpx.AsyncClient(base_url=url, timeout=120, limits=httpx.Limits(max_keepalive_connections=0)) as client:
        return sum(await asyncio.gather(*(_one(client, room, number) for number in numbers)))


async def _one(client: httpx.AsyncClient, room: asyncio.Semaphore, number: int) -> bool:
    chance = random.Random(number)
    prompt, max_tokens = f"request {number} " * chance.randint(1, 4), chance.randint(1, 24)
    leaves = number % 3 == 0
    body = {"prompt": prompt, "max_tokens": 300 if leaves else max_tokens, "stream": leaves or number % 2 == 0}
    async with room:
        if not body["stream"]:
            answer = await client.post("/v1/completions", json=body)
            said = answer.json()["choices"][0]["text"]
        else:
            said = ""
            async with client.stream("POST", "/v1/completions", json=body) as response:
                async for line in response.aiter_lines():
                    if line.startswith("data: {"):
                        said += json.loads(line[6:])["choices"][0]["text"]
                        if leaves:
                            break
    whole = text_to(TOKENIZER.encode(prompt), 300 if leaves else max_tokens)
    return not whole.startswith(said) if leaves else said != whole


def left(server: ApiServer) -> str:
    """What is there although no client waits."""
    llm = server.context.llm
    requests = len(server.core.scheduler.requests)
    return f"{server.num_held_blocks} blocks held, {requests} requests, {llm.num_unfinished} generations left"


def _held() -> tracemalloc.Snapshot:
    gc.collect()
    return tracemalloc.take_snapshot().filter_traces(
        [tracemalloc.Filter(inclusive=False, filename_pattern=tracemalloc.__file__)]
    )


def _tell_growth(before: tracemalloc.Snapshot, most: int) -> None:
    """Where the memory was asked for that is held now and was not before, largest first."""
    grown = _held().compare_to(before, "lineno")
    print(f"Python objects hold {sum(each.size_diff for each in grown) / 2**20:+.2f} MB since the first tenth")
    for each in grown[:most]:
        print(f"  {each.size_diff / 1024:+9.1f} KB in {each.count_diff:+7,} blocks  {each.traceback}")


def _trimmed() -> float:
    """Memory after glibc was told to give back what is free in it; as it is, where there is no glibc."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL("libc.so.6").malloc_trim(0)
    return _megabytes()


def _megabytes() -> float:
    """Memory of this process now; its peak where the system does not tell."""
    status = Path("/proc/self/statm")
    if status.exists():
        return int(status.read_text().split()[1]) * resource.getpagesize() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    sys.exit(main())
