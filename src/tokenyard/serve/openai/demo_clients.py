"""Clients that keep a server busy, for a look at it: conversations that grow, one after the other."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec

_SAYING = "please look into the build why does this test fail again write a patch for the parser then run it"
_WORDS = _SAYING.split(" ")
_MOST_TURNS = 6


@contextmanager
def chatting(url: str, model: str, number: int, keys: Sequence[str]) -> Iterator[None]:
    """Run ``number`` clients, each with conversations that grow, one after the other."""
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
