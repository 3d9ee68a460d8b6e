"""Two replicas on CPUs behind Ray Serve: right answers, prefixes that stay together, and one that is killed."""

from __future__ import annotations

import json
import random
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
import tests.engine.needs_torch  # noqa: F401 - before whatever imports torch
import torch
from transformers import AutoModelForCausalLM

from tokenyard.serve.served_model import make_demo_model
from tokenyard.serve.text import TextTokenizer

ray: Any = pytest.importorskip("ray", reason="several replicas need Ray: pip install 'tokenyard[ray]'")

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own

ENGINE = {"dtype": "float64", "device": "cpu", "max_model_len": 2048, "num_gpu_blocks_override": 300}
WORDS = ("apple", "river", "stone", "cloud", "engine", "paper", "window", "garden", "silver", "mountain")


class Served(NamedTuple):
    """An application that runs."""

    url: str
    folder: Path

    def complete(self, prompt: str, **more: Any) -> httpx.Response:
        body = {"prompt": prompt, "max_tokens": 8, "temperature": 0, **more}
        return httpx.post(f"{self.url}/v1/completions", json=body, timeout=120)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    from ray import serve

    from tokenyard.serve.replicas.application import app

    folder = make_demo_model(tmp_path_factory.mktemp("demo"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100 * 2**20)
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        settings = {"model": str(folder), "num_cpus": 0.5, "engine": ENGINE, "health_check_period_s": 1}
        serve.run(app(settings), name="tokenyard", route_prefix="/")
        yield Served(f"http://127.0.0.1:{port}", folder)
    finally:
        serve.shutdown()
        ray.shutdown()


@pytest.fixture(scope="module")
def greedy(served: Served) -> Callable[[str, int], str]:
    """What transformers generates."""
    model = AutoModelForCausalLM.from_pretrained(served.folder, dtype=torch.float64)
    tokenizer = TextTokenizer.load(served.folder)

    def generate(prompt: str, num_tokens: int) -> str:
        ids = torch.tensor([tokenizer.encode(prompt)])
        made = model.generate(ids, max_new_tokens=num_tokens, do_sample=False, pad_token_id=0)
        return tokenizer.decode(made[0, ids.shape[1] :].tolist())

    return generate


def words(seed: int, count: int) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=count))


def replica_of(answer: httpx.Response) -> str:
    return answer.headers["tokenyard-replica"]


def test_answers_are_right(served: Served, greedy: Callable[[str, int], str]) -> None:
    for seed in range(6):
        prompt = words(seed, 5)
        answer = served.complete(prompt)
        assert answer.status_code == 200, answer.text
        assert answer.json()["choices"][0]["text"] == greedy(prompt, 8)


def test_a_stream_is_right(served: Served, greedy: Callable[[str, int], str]) -> None:
    said, body = "", {"prompt": "stream this", "max_tokens": 20, "temperature": 0, "stream": True}
    with httpx.stream("POST", f"{served.url}/v1/completions", json=body, timeout=120) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        *lines, last = [line.removeprefix("data: ") for line in stream.iter_lines() if line]
    said = "".join(json.loads(line)["choices"][0]["text"] for line in lines)
    assert (said, last) == (greedy("stream this", 20), "[DONE]")


def test_mistakes_are_told_as_by_one_server(served: Served) -> None:
    refused = served.complete("x", temperature=-1)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "temperature")
    assert httpx.post(f"{served.url}/v1/completions", content="x").status_code == 415
    assert httpx.get(f"{served.url}/nowhere").status_code == 404
    assert httpx.get(f"{served.url}/v1/models").json()["data"][0]["id"] == str(served.folder)


def test_turns_of_a_conversation_go_to_one_replica(served: Served) -> None:
    """Their prompts begin alike, so all but the first find their prefix; conversations are spread over both."""
    said = {seed: words(100 + seed, 15) for seed in range(6)}
    replicas: dict[int, set[str]] = {seed: set() for seed in said}
    cached = dict.fromkeys(said, 0)
    asked_again = 0
    for turn in range(4):
        for seed, prompt in said.items():
            answer = served.complete(prompt)
            usage = answer.json()["usage"]
            replicas[seed].add(replica_of(answer))
            cached[seed] += usage["prompt_tokens_details"]["cached_tokens"]
            asked_again += usage["prompt_tokens"] if turn else 0
            said[seed] = prompt + answer.json()["choices"][0]["text"] + words(turn, 3)
    assert all(len(each) == 1 for each in replicas.values()), replicas
    assert len(set.union(*replicas.values())) == 2, "one replica has all of them"
    assert sum(cached.values()) > 0.6 * asked_again, (cached, asked_again)


def test_a_client_that_leaves_has_its_request_aborted(served: Served) -> None:
    body = {"prompt": "to nobody", "max_tokens": 2000, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{served.url}/v1/completions", json=body, timeout=120) as stream:
        next(stream.iter_lines())
    deadline = time.monotonic() + 60
    while not num_aborted(served):
        assert time.monotonic() < deadline, "it was not aborted"
        time.sleep(0.1)


def num_aborted(served: Served) -> int:
    """Requests that both replicas aborted, together."""
    lines = httpx.get(f"{served.url}/metrics", timeout=60).text.splitlines()
    told = [line for line in lines if line.startswith("vllm:request_success_total{") and '"abort"' in line]
    assert len(told) == 2, lines
    return int(sum(float(line.split()[-1]) for line in told))


def test_a_killed_replica_is_replaced(served: Served, greedy: Callable[[str, int], str]) -> None:
    prompt = words(7, 20)
    lost = replica_of(served.complete(prompt))
    names = [each["name"] for each in ray.util.list_named_actors(all_namespaces=True) if lost in each["name"]]
    assert len(names) == 1, names
    ray.kill(ray.get_actor(names[0], namespace="serve"))
    seen: set[str] = set()
    deadline = time.monotonic() + 200
    while len(seen - {lost}) < 2 or seen == {lost}:
        assert time.monotonic() < deadline, seen
        answer = served.complete(words(random.randrange(10**6), 5) if seen else prompt)
        assert answer.status_code in (200, 503), answer.text
        if answer.status_code == 200:
            seen.add(replica_of(answer))
        time.sleep(0.2)
    assert lost not in seen or len(seen) == 3
    again = served.complete(prompt)
    assert again.json()["choices"][0]["text"] == greedy(prompt, 8)
