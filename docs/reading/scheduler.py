"""A scheduler to read: how vLLM decides, in one file, from top to bottom.

First come, first served; chunked prefill; prefix caching; preemption by recomputing; blocks of one size. That is the
core of what Tokenyard does, without its features and without its speed. It makes the same decisions:
tests/parity/test_reading.py replays recordings of vLLM 0.22.1 against it (those that need no other feature), and every
block has to be the same.

A step is two calls. ``schedule()`` says who computes how many tokens, and which blocks they get. The model computes
them. ``update(tokens)`` takes in what it sampled.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field


@dataclass(eq=False)
class Request:
    """Its tokens, and how many of them are computed: their keys and values lie in its blocks."""

    request_id: str
    tokens: list[int]
    max_tokens: int
    eos: int | None = None
    num_computed: int = 0
    blocks: list[int] = field(default_factory=list)
    is_preempted: bool = False
    num_prompt: int = 0

    def __post_init__(self) -> None:
        self.num_prompt = len(self.tokens)

    @property
    def num_output(self) -> int:
        return len(self.tokens) - self.num_prompt


# ---- memory

# A prefix is all tokens up to the end of a block. Two requests with the same prefix can share the block that ends it.
Prefix = tuple[int, ...]


class BlockPool:
    """Blocks of KV memory. Block 0 is never given away: it stands for "no block"."""

    def __init__(self, num_blocks: int, block_size: int, *, caches: bool) -> None:
        self.size, self.caches = block_size, caches
        # What is freed goes to the end, what is needed comes from the front: the least recently used content is lost.
        self.free: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, num_blocks))
        self.users = [0] * num_blocks
        self.prefix_of: dict[int, Prefix] = {}
        # Two requests may compute the same prefix at the same time; then two blocks hold it, the first is found.
        self.cached: dict[Prefix, dict[int, None]] = {}

    def lookup(self, tokens: list[int]) -> list[int]:
        """Blocks that hold the beginning of these tokens. The last token is always computed: its logits are needed."""
        found: list[int] = []
        for end in range(self.size, len(tokens), self.size):
            blocks = self.cached.get(tuple(tokens[:end]))
            if not self.caches or not blocks:
                break
            found.append(next(iter(blocks)))
        return found

    def num_needed(self, num_tokens: int, held: list[int], hits: list[int]) -> int:
        """How many blocks leave the free queue: new ones, and hits that no request uses any more, which lie in it."""
        return -(-num_tokens // self.size) - len(held) - len(hits) + sum(block in self.free for block in hits)

    def share(self, hits: list[int]) -> None:
        for block in hits:
            self.free.pop(block, None)
            self.users[block] += 1

    def take(self) -> int:
        """The block that was free for longest; what it held cannot be found any more."""
        block, _ = self.free.popitem(last=False)
        prefix = self.prefix_of.pop(block, None)
        if prefix is not None:
            del self.cached[prefix][block]
        self.users[block] = 1
        return block

    def publish(self, request: Request, num_tokens: int) -> None:
        """All blocks that these tokens fill can be found from now on."""
        for i in range(num_tokens // self.size if self.caches else 0):
            block = request.blocks[i]
            if block not in self.prefix_of:
                prefix = self.prefix_of[block] = tuple(request.tokens[: (i + 1) * self.size])
                self.cached.setdefault(prefix, {})[block] = None

    def give_back(self, blocks: list[int]) -> None:
        """The last block first: the end of a prompt is evicted before its beginning, which more requests share."""
        for block in reversed(blocks):
            self.users[block] -= 1
            if not self.users[block]:
                self.free[block] = None


# ---- decisions


@dataclass
class Step:
    """What was decided: tokens per request in order, the blocks each got, and who lost theirs."""

    num_tokens: dict[Request, int] = field(default_factory=dict)
    new_blocks: dict[Request, list[int]] = field(default_factory=dict)
    admitted: list[Request] = field(default_factory=list)
    resumed: list[Request] = field(default_factory=list)
    preempted: list[Request] = field(default_factory=list)
    finished_before: set[str] = field(default_factory=set)


class Scheduler:
    """Decides who runs. The arguments have the names of vLLM's settings."""

    def __init__(
        self,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        max_model_len: int,
        num_blocks: int,
        block_size: int,
        enable_prefix_caching: bool = True,
        long_prefill_token_threshold: int = 0,
        scheduler_reserve_full_isl: bool = True,
    ) -> None:
        self.max_num_seqs = max_num_seqs
        self.max_num_batched_tokens = max_num_batched_tokens
        self.max_model_len = max_model_len
        self.longest_chunk = long_prefill_token_threshold or max_num_batched_tokens
        self.reserves_whole_prompts = scheduler_reserve_full_isl
        self.pool = BlockPool(num_blocks, block_size, caches=enable_prefix_caching)
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.finished: set[str] = set()
        self.step = Step()

    def add(self, request: Request) -> None:
        self.waiting.append(request)

    def schedule(self) -> Step:
        self.step = Step(finished_before=self.finished)
        self.finished = set()
        self.budget = self.max_num_batched_tokens
        self._continue_running()
        # A request has just lost its blocks for want of memory: it would be odd to let others in now.
        if not self.step.preempted:
            self._admit_waiting()
        for request, count in self.step.num_tokens.items():
            request.num_computed += count
        return self.step

    def _continue_running(self) -> None:
        """Running requests come first. There is no prefill and no decode: a request computes the tokens it lacks."""
        position = 0
        while position < len(self.running) and self.budget:
            request = self.running[position]
            count = min(len(request.tokens) - request.num_computed, self.longest_chunk, self.budget)
            while not self._grow(request, count):
                victim = self.running.pop()  # the youngest
                self._preempt(victim)
                if victim is request:
                    return  # no request is left behind it
            position += 1

    def _admit_waiting(self) -> None:
        """The head of the queue, as long as it fits. If it does not, no other overtakes it."""
        while self.waiting and self.budget and len(self.running) < self.max_num_seqs:
            request = self.waiting[0]
            hits = self.pool.lookup(request.tokens)
            num_hit = len(hits) * self.pool.size
            count = min(len(request.tokens) - num_hit, self.longest_chunk, self.budget)
            whole = len(request.tokens) if self.reserves_whole_prompts else num_hit + count
            if self.pool.num_needed(whole, [], hits) > len(self.pool.free):
                return
            self.pool.share(hits)
            request.blocks, request.num_computed = hits, num_hit
            self._grow(request, count)
            self.step.new_blocks[request] = list(request.blocks)
            self.running.append(self.waiting.popleft())
            (self.step.resumed if request.is_preempted else self.step.admitted).append(request)

    def _grow(self, request: Request, count: int) -> bool:
        """Give the request room for ``count`` more tokens, and the tokens; False if there are too few free blocks."""
        total = request.num_computed + count
        needed = self.pool.num_needed(total, request.blocks, [])
        if needed > len(self.pool.free):
            return False
        self.step.new_blocks[request] = [self.pool.take() for _ in range(needed)]
        request.blocks += self.step.new_blocks[request]
        self.pool.publish(request, total)
        self.step.num_tokens[request] = count
        self.budget -= count
        return True

    def _preempt(self, victim: Request) -> None:
        """It computes everything again later, its output as well; what is still cached then it need not."""
        self.pool.give_back(victim.blocks)
        victim.blocks, victim.num_computed, victim.is_preempted = [], 0, True
        self.waiting.appendleft(victim)
        self.step.preempted.append(victim)

    def update(self, sampled: dict[str, list[int]]) -> list[tuple[str, list[int], str | None]]:
        """Append what the model sampled; returns for each request its new tokens, and how it ended if it has ended."""
        news = []
        for request in self.step.num_tokens:
            tokens = sampled[request.request_id]
            if not tokens:
                continue  # in the middle of its prompt nothing is sampled
            request.tokens += tokens
            ended = self._how_ended(request)
            news.append((request.request_id, tokens, ended))
            if ended:
                self.running.remove(request)
                self.pool.give_back(request.blocks)
                self.finished.add(request.request_id)
        return news

    def _how_ended(self, request: Request) -> str | None:
        if request.tokens[-1] == request.eos:
            return "stop"
        is_full = len(request.tokens) >= self.max_model_len
        return "length" if is_full or request.num_output >= request.max_tokens else None
