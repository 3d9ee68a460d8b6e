"""What goes on beside a server: its trace in the viewer, clients that keep it busy."""

from __future__ import annotations

import os
import random
import secrets
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from tokenyard.cli.support.flags import ViewCommand
from tokenyard.cli.view import show

# ---------------------------------------------------------------------------------------------------------------------
# What goes on beside a server: its trace in the viewer, clients that keep it busy.

_SAYING = "please look into the build why does this test fail again write a patch for the parser then run it"
_WORDS = _SAYING.split(" ")
_MOST_TURNS = 6


@contextmanager
def viewing(trace: Path, *, has_key: bool) -> Iterator[None]:
    """The viewer on ``trace``, in a process of its own, which prints its address.

    It ends when the pipe to it is closed, so that it does not outlive this, however this process ends. ``has_key``: its
    address holds a key, and nothing is shown without.
    """
    command = [sys.executable, "-m", "tokenyard.cli.support.model_server.beside", str(trace)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    assert process.stdin is not None
    try:
        with suppress(BrokenPipeError):
            process.stdin.write((secrets.token_urlsafe(24) if has_key else "").encode() + b"\n")
            process.stdin.flush()
        yield
    finally:
        process.terminate()
        process.wait()
        with suppress(BrokenPipeError):
            process.stdin.close()


@contextmanager
def chatting(url: str, model: str, number: int, keys: Sequence[str]) -> Iterator[None]:
    """So many clients, each of which has conversations that grow, one after the other."""
    over = threading.Event()
    threads = [
        threading.Thread(target=_converse, args=(url, model, seed, keys, over), daemon=True) for seed in range(number)
    ]
    for each in threads:
        each.start()
    try:
        yield
    finally:
        over.set()


def _converse(url: str, model: str, seed: int, keys: Sequence[str], over: threading.Event) -> None:
    import httpx  # noqa: PLC0415 - an extra

    chance = random.Random(seed)
    headers = {"Authorization": f"Bearer {keys[0]}"} if keys else {}
    with httpx.Client(base_url=url, headers=headers, timeout=600) as client:
        while not over.is_set():
            job, turns = f"agent-{seed}-{chance.randrange(10**6)}", chance.randint(1, _MOST_TURNS)
            messages: list[dict[str, str]] = []
            for turn in range(turns):
                messages.append({"role": "user", "content": " ".join(chance.choices(_WORDS, k=chance.randint(4, 30)))})
                body = {
                    "model": model,
                    "messages": messages,
                    "max_tokens": chance.randint(8, 48),
                    "job_id": job,
                    "is_last_step": turn == turns - 1,
                }
                try:
                    answer = client.post("v1/chat/completions", json=body)
                except httpx.HTTPError:
                    return  # the server has ended
                if answer.status_code != 200:
                    break  # too long by now, or the queue is full: another conversation
                said = msgspec.json.decode(answer.content)["choices"][0]["message"]["content"]
                messages.append({"role": "assistant", "content": said})
                if over.wait(chance.expovariate(2)):
                    return
            over.wait(0.2)


# ---------------------------------------------------------------------------------------------------------------------
# The viewer beside a server: its key comes by a pipe, and it ends when the pipe does.


def _end_with_the_server() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def main() -> int:
    """Show the trace that is named, until the server ends."""
    key = sys.stdin.buffer.readline().decode().strip()
    threading.Thread(target=_end_with_the_server, name="tokenyard-server-ended", daemon=True).start()
    return show(ViewCommand(paths=(Path(sys.argv[1]),)), key=key or None)


if __name__ == "__main__":
    sys.exit(main())
