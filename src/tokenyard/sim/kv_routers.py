"""Routers that look for KV, by the rules that their projects publish: llm-d, Dynamo, vLLM's, Ray Serve's, sessions.

What is published are rules and defaults; where a project keeps a record of what it has sent, in the place of the
engine's cache, the engine's cache is taken (``num_cached_tokens``). A router sees queues and KV use as they are:
metrics that a gateway scrapes are some 50 to 100 ms older.

    llm-d             highest 3 x share of the prompt cached + 2 x emptiness of the queue + 2 x free share of KV
                      (llm-d.ai, architecture of the endpoint picker; weights as documents of its distributions have
                      them)
    dynamo            lowest prompt blocks not cached + blocks in use (docs.nvidia.com/dynamo, KV router: overlap
                      weight 1, temperature 0)
    cache-aware       who holds most of the prompt, if it is 30 % of it; else who holds least. Once the busiest has 64
                      requests more than the idlest, and 1.5 times as many: the idlest (vllm-router, sglang-gateway)
    ray-serve         while the busiest has less than 10 requests more than the idlest: who holds most of the prompt,
                      if it is 10 % of it, else who was sent the fewest new tokens. Otherwise, and at first, the emptier
                      of two that are drawn (docs.ray.io, PrefixCacheAffinityRouter)
    prefixaware       one of those that were sent the longest beginning of the prompt before, drawn; none forgets, and
                      no load is looked at (vLLM's production stack, ``prefixaware``: a trie of 128 characters a node)
    session-affinity  every session has its engine, by rendezvous hashing (sessions in the production stack and in Ray
                      Serve, which hash consistently)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from random import Random

import numpy as np

from tokenyard.core.request import Request
from tokenyard.sim.routers import EngineState, Router, load_of


class LLMD(Router):
    """llm-d's endpoint picker: the highest sum of three scores, each from 0 to 1."""

    def __init__(self, prefix: float = 3.0, queue: float = 2.0, kv: float = 2.0) -> None:
        """Weights of the scores."""
        self._prefix, self._queue, self._kv = prefix, queue, kv

    def choose(self, now: float, request: Request, engines: Sequence[EngineState]) -> int:
        waiting = [each.num_waiting for each in engines]
        least, spread = min(waiting), max(waiting) - min(waiting)

        def score(i: int) -> float:
            engine = engines[i]
            cached = engine.num_cached_tokens(request) / max(request.num_prompt_tokens, 1)
            queue = 1.0 - (waiting[i] - least) / spread if spread else 1.0
            return self._prefix * cached + self._queue * queue + self._kv * (1.0 - engine.kv_usage)

        return max(range(len(engines)), key=lambda i: (score(i), -engines[i].num_running, -i))


class DynamoKV(Router):
    """NVIDIA Dynamo's KV router: the lowest cost of computing the prompt and of joining decodes, in blocks."""

    def __init__(self, overlap: float = 1.0, block_size: int = 16) -> None:
        """``overlap``: credit for what is cached, from 0 to 1."""
        self._overlap, self._block_size = overlap, block_size
        self._sent: dict[str, tuple[int, int]] = {}
        """Request under way -> its engine, and blocks of its prompt."""
        self._active: Counter[int] = Counter()
        """Engine -> blocks of the prompts that are under way to it or there."""

    def choose(self, now: float, request: Request, engines: Sequence[EngineState]) -> int:
        blocks = -(-request.num_prompt_tokens // self._block_size)

        def cost(i: int) -> float:
            cached = engines[i].num_cached_tokens(request) // self._block_size
            return blocks - self._overlap * cached + self._active[engines[i].rank]

        self.request_ended(now, request.request_id, -1)  # one that is sent again
        chosen = min(range(len(engines)), key=lambda i: (cost(i), i))
        rank = engines[chosen].rank
        self._sent[request.request_id] = rank, blocks
        self._active[rank] += blocks
        return chosen

    def request_ended(self, now: float, request_id: str, rank: int) -> None:
        if request_id in self._sent:
            chosen, blocks = self._sent.pop(request_id)
            self._active[chosen] -= blocks


class CacheAware(Router):
    """``cache_aware`` of vllm-router and sglang-gateway: affinity above a share of the prompt, else emptiness."""

    def __init__(self, threshold: float = 0.3, most_ahead: int = 64, most_times: float = 1.5) -> None:
        """``threshold``: share of the prompt; ``most_ahead`` and ``most_times``: when load alone decides."""
        self._threshold, self._most_ahead, self._most_times = threshold, most_ahead, most_times

    def choose(self, now: float, request: Request, engines: Sequence[EngineState]) -> int:
        loads = [load_of(each)[0] for each in engines]
        busiest, idlest = max(loads), min(loads)
        if busiest > idlest + self._most_ahead and busiest > self._most_times * idlest:
            return min(range(len(engines)), key=lambda i: load_of(engines[i]))
        cached = [each.num_cached_tokens(request) for each in engines]
        if max(cached) >= self._threshold * request.num_prompt_tokens:
            return min(range(len(engines)), key=lambda i: (-cached[i], *load_of(engines[i])))
        return min(range(len(engines)), key=lambda i: (engines[i].kv_usage, *load_of(engines[i])))


class RayServe(Router):
    """``PrefixCacheAffinityRouter`` of Ray Serve: affinity while loads are alike, else the better of two at random."""

    def __init__(self, most_ahead: int = 10, threshold: float = 0.1, seed: int = 0) -> None:
        """``imbalanced_threshold`` and ``match_rate_threshold``, as documented; ``seed`` of what is drawn."""
        self._most_ahead, self._threshold, self._draw = most_ahead, threshold, Random(seed)
        self._recorded: dict[int, int] = {}
        """Rank of an engine -> tokens of prompts that it was the first to get, as the prefix tree holds them."""

    def choose(self, now: float, request: Request, engines: Sequence[EngineState]) -> int:
        loads = [each.num_waiting + each.num_running for each in engines]
        cached = [each.num_cached_tokens(request) for each in engines]
        if max(loads) - min(loads) >= self._most_ahead or not self._recorded:
            two = self._draw.sample(range(len(engines)), min(2, len(engines)))
            chosen = min(two, key=lambda i: (loads[i], i))
        elif max(cached) >= self._threshold * request.num_prompt_tokens:
            chosen = min(range(len(engines)), key=lambda i: (-cached[i], loads[i], i))
        else:
            chosen = min(range(len(engines)), key=lambda i: (self._recorded.get(engines[i].rank, 0), loads[i], i))
        rank = engines[chosen].rank
        self._recorded[rank] = self._recorded.get(rank, 0) + request.num_prompt_tokens - cached[chosen]
        return chosen


class PrefixAware(Router):
    """``prefixaware`` of vLLM's production stack: who was sent the longest beginning before; of several, one is drawn.

    It keeps a record of what it has sent, from which nothing is evicted, and looks at no load: what all requests have
    in common keeps them together.
    """

    def __init__(self, chunk: int = 32, seed: int = 0) -> None:
        """``chunk``: tokens that are compared at a time, in the place of 128 characters; ``seed`` of what is drawn."""
        self._chunk, self._draw = chunk, Random(seed)
        self._sent: dict[bytes, set[int]] = {}
        """Hash of a beginning -> those that were sent one that begins so."""

    def choose(self, now: float, request: Request, engines: Sequence[EngineState]) -> int:
        beginnings = self._beginnings(request)
        place = {each.rank: i for i, each in enumerate(engines)}
        among = set(place)
        for each in beginnings:
            who = self._sent.get(each, set()) & among
            if not who:
                break
            among = who
        rank = self._draw.choice(sorted(among))
        for each in beginnings:
            self._sent.setdefault(each, set()).add(rank)
        return place[rank]

    def _beginnings(self, request: Request) -> list[bytes]:
        """Hashes of the prompt's beginnings, each a chunk longer than the one before."""
        ids = np.asarray(request.prompt_token_ids, np.int64)
        hasher, found = blake2b(digest_size=16), []
        for begin in range(0, len(ids), self._chunk):
            hasher.update(ids[begin : begin + self._chunk].tobytes())
            found.append(hasher.digest())
        return found


class SessionAffinity(Router):
    """Every session has its engine: that with the highest hash of both, so that few move when engines come and go.

    A request without a session (``job_id``) is one of its own.
    """

    def choose(self, now: float, request: Request, engines: Sequence[EngineState]) -> int:
        session = request.job_id or request.request_id

        def place(i: int) -> bytes:
            return blake2b(f"{session}/{engines[i].rank}".encode(), digest_size=8).digest()

        return max(range(len(engines)), key=place)
