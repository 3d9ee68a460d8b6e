"""Numbers in place of tokens and hashes, where neither is looked at.

A replay needs hashes of blocks for one thing: equal content under equal names. What a workload's tokens are made of
says the same before they are made. A recorded prompt is a chain of hash ids, a generated one a piece of a stream; their
blocks get consecutive numbers, and equal chains the same ones:

    ids       [ 46           | 47           | 51           ]       each stands for 32 blocks here
    numbers   [ 1 2 ... 32   | 33 ... 64    | 65 ... 96    ]       another prompt that begins 46, 47 has 1 ... 64, too

An output block is named by the block before it and the stream that it comes from.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import NamedTuple

import numpy as np

from tokenyard.core.request import BlockHash, Request, TokenIds
from tokenyard.workload.record import Workload, attempt_id
from tokenyard.workload.tokens import HashedTokens, StreamTokens, TokenSource

_Key = tuple[object, ...]
_AHEAD = 8
"""Blocks of an output that get their numbers at once; some of the numbers may never have a block."""


class _Output(NamedTuple):
    """The blocks of a request's output: number ``first + i`` of its blocks has ``numbers[i]``."""

    num_prompt: int
    """Tokens of the prompt, which a session adds to."""
    first: int
    numbers: list[int]


class SymbolicHasher:
    """A ``RequestHasher`` that numbers the blocks of a workload's requests; their token ids may be anything."""

    def __init__(self, workload: Workload, block_size: int) -> None:
        """Made for a workload that :meth:`knows` accepts."""
        self._block_size = block_size
        retries = 0 if workload.clients is None else workload.clients.retries
        self._prompts = {
            attempt_id(request.request_id, attempt): request.prompt
            for attempt in range(1, retries + 2)
            for request in workload
        }
        self._numbers: dict[_Key, int] = {}
        """What stands for a stretch of blocks, with the number of the one before -> the number of its first block."""
        self._streams: dict[tuple[int, int], list[int]] = {}
        """The number before a sequence, and the seed of its stream -> numbers of its blocks so far."""
        self._ends: dict[str, int] = {}
        """Request id -> the number of its prompt's last block, which may be full only in part."""
        self._outputs: dict[str, _Output] = {}
        """Request id -> where its output goes on."""
        self._outputs_after: dict[tuple[BlockHash, int], list[int]] = {}
        """The number before a request's output, and the seed of its stream -> numbers of its blocks so far."""
        self._next = 1

    @staticmethod
    def knows(workload: Workload, block_size: int) -> bool:
        """Whether all prompts are chains of whole blocks, or pieces of streams from their beginning."""
        sizes = {each.prompt.block_size for each in workload if isinstance(each.prompt, HashedTokens)}
        whole = len(sizes) <= 1 and not any(size % block_size for size in sizes)
        return whole and all(_is_known(each.prompt) and not each.images for each in workload)

    # ---- as a RequestHasher

    def extend(self, request: Request) -> list[BlockHash]:
        """Number every full block of the request that has no number yet; returns all its numbers."""
        known = request.block_hashes
        stop = request.num_tokens // self._block_size
        if len(known) < stop:
            prompt = request.num_prompt_tokens
            within = min(stop, prompt // self._block_size)
            if len(known) < within:
                numbers = self._prompt(request, -(-prompt // self._block_size))
                known += numbers[len(known) : within]
                self._ends[request.request_id] = numbers[-1]
            self._go_on([request] * (stop - len(known)))
        return request.block_hashes

    def forget_beyond(self, request: Request, num_tokens: int) -> None:
        """Forget the numbers of blocks behind the first ``num_tokens``."""
        del request.block_hashes[num_tokens // self._block_size :]

    # ---- numbers

    def _prompt(self, request: Request, num_blocks: int) -> list[int]:
        """Numbers of the first blocks of a request's prompt; the last one may be full only in part."""
        source = self._prompts[request.request_id]
        if isinstance(source, StreamTokens):
            return self._stream(self._root(request), source.segments[0].seed, num_blocks)
        assert isinstance(source, HashedTokens)
        size, scope = source.block_size // self._block_size, source.scope
        ids: list[int] = []
        for first, count in source.ranges:
            ids += range(first, first + count)
        before, numbers = self._chained(self._root(request), scope, ids, size)
        if len(numbers) < num_blocks:
            numbers += self._stream(before, source.tail_seed, num_blocks - len(numbers))
        return numbers[:num_blocks]

    def _chained(self, before: int, scope: int, ids: list[int], size: int) -> tuple[int, list[int]]:
        """Numbers of a chain of stretches, ``size`` blocks each, that follows the block of number ``before``.

        Returns what stands for the last stretch, too.
        """
        known, numbers = self._numbers, list[int]()
        first = stop = num_known = 0
        for hash_id in ids:
            begin = known.get((before, scope, hash_id))
            if begin is None:
                break
            if begin != stop:  # most stretches go on where the one before ends
                numbers += range(first, stop)
                first = begin
            before, stop = begin, begin + size
            num_known += 1
        numbers += range(first, stop)
        # Behind one that is new all are: they follow what nothing has followed yet.
        new = ids[num_known:]
        if new:
            begins = range(self._next, self._next + size * len(new), size)
            known.update(zip(zip((before, *begins), repeat(scope), new), begins))  # noqa: B905 - the last begins nothing
            numbers = self._grown(numbers, len(numbers) + size * len(new))
            before = begins[-1]
        return before, numbers

    def _go_on(self, requests: Iterable[Request]) -> None:
        """Number one more block of each: the first that holds output, or one all of whose tokens are output."""
        outputs = self._outputs
        for request in requests:
            known = request.block_hashes
            begun = outputs.get(request.request_id)
            if begun is None or begun.num_prompt != request.num_prompt_tokens:
                begun = self._begin_output(request, known)
            prompt, first, numbers = begun
            at = len(known) - first
            if at < 0:  # the end of the prompt is in it
                end = self._ends.get(request.request_id) or self._prompt(request, len(known) + 1)[-1]
                known.append(self._begin((end, "mixed", prompt, request.output_seed), 1))
                continue
            if at >= len(numbers):
                self._grown(numbers, at + _AHEAD)
            known.append(numbers[at])

    def _begin_output(self, request: Request, known: Sequence[BlockHash]) -> _Output:
        """Where a request's output goes on, which may be in the blocks of another's."""
        seed, prompt = request.output_seed, request.num_prompt_tokens
        if _is_beginning_of(seed, self._prompts[request.request_id]):
            begun = _Output(prompt, 0, self._stretch(self._root(request), seed, 0))
        else:
            first = -(-prompt // self._block_size)
            if len(known) < first:
                return _Output(prompt, first, [])  # for the block of both alone: what follows is named after it
            begun = _Output(prompt, first, self._outputs_after.setdefault((known[first - 1], seed), []))
        self._outputs[request.request_id] = begun
        return begun

    def _stream(self, before: int, seed: int, num_blocks: int) -> list[int]:
        """Numbers of the first blocks of a stream that follows the block of number ``before``."""
        return self._stretch(before, seed, num_blocks)[:num_blocks]

    def _stretch(self, before: int, seed: int, num_blocks: int) -> list[int]:
        """The same with all that are known behind them; not to be changed."""
        return self._grown(self._streams.setdefault((before, seed), []), num_blocks)

    def _grown(self, numbers: list[int], num_blocks: int) -> list[int]:
        """Numbers of a sequence, with further ones where it has fewer."""
        missing = num_blocks - len(numbers)
        if missing > 0:
            numbers += range(self._next, self._next + missing)
            self._next += missing
        return numbers

    def _root(self, request: Request) -> int:
        """What else the KV depends on, as a number; negative, so that it is none of a block."""
        if not request.has_extra_keys:
            return 0
        key = ("keys", request.lora_name or None, request.cache_salt or None)
        return -self._numbers.setdefault(key, len(self._numbers) + 1)

    def _begin(self, key: _Key, num_blocks: int) -> int:
        """The number of the first of so many blocks, the same for the same key."""
        begin = self._numbers.get(key)
        if begin is None:
            begin = self._numbers[key] = self._next
            self._next += num_blocks
        return begin


def _is_known(source: TokenSource) -> bool:
    if isinstance(source, StreamTokens):
        return len(source.segments) == 1 and source.segments[0].start == 0
    return isinstance(source, HashedTokens)


def _is_beginning_of(seed: int, prompt: TokenSource) -> bool:
    """Whether output from the stream of ``seed`` goes on where the prompt ends."""
    if isinstance(prompt, HashedTokens):
        return prompt.tail_seed == seed and prompt.is_all_tail
    return isinstance(prompt, StreamTokens) and prompt.segments[0].seed == seed


_blank = np.zeros(1 << 17, np.int32)
_blank.flags.writeable = False


def blank_tokens(num_tokens: int) -> TokenIds:
    """``num_tokens`` token ids without meaning, shape ``[num_tokens]``, read-only: mostly a part of one array."""
    if num_tokens <= len(_blank):
        return _blank[:num_tokens]
    more = np.zeros(num_tokens, np.int32)
    more.flags.writeable = False
    return more
