"""Hashes of full blocks: of prompts, of tokens ahead, of jobs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import NamedTuple, Protocol, Self, cast

import msgspec
import numpy as np
import numpy.typing as npt
import xxhash

from tokenyard.core.config import HashAlgo
from tokenyard.core.request import TOKEN_BYTES, BlockHash, Request

# ---------------------------------------------------------------------------------------------------------------------
# The hash that runs along a request's blocks.

_COUNT_BYTES = 4


class HashState(Protocol):
    """What the hash libraries give: an object that goes on after each digest."""

    def update(self, data: bytes, /) -> None: ...

    def digest(self) -> bytes: ...

    def copy(self) -> Self: ...


def framed(keys: bytes) -> bytes:
    """Extra keys as they stand behind tokens; nothing if they are empty."""
    return b"\xff" * _COUNT_BYTES + len(keys).to_bytes(_COUNT_BYTES, "little") + keys if keys else b""


class PrefixHash:
    """Everything hashed of one request so far, in the order of its blocks.

    A block enters as the int32 values of its tokens. If it has extra keys, then -1, their length and their bytes
    follow: no token is negative, so two different prefixes never give the same stream. A block costs little more than
    ``update`` and ``digest`` of ``state``.
    """

    state: HashState
    extra_keys: dict[int, bytes] | None
    """Extra keys by block number, as they were when the block was hashed; None before there are any."""

    def __init__(self, state: HashState) -> None:
        """``state`` has the root in it."""
        self.state = state
        self.extra_keys = None

    def digest_with(self, data: bytes) -> bytes:
        """The digest as it would be with ``data`` behind it; the hash goes on without."""
        ahead = self.state.copy()
        ahead.update(data)
        return ahead.digest()

    def fork(self) -> PrefixHash:
        """The same again, to go on in another request; it must have no extra keys so far."""
        assert not self.extra_keys, "extra keys belong to one request"
        return PrefixHash(self.state.copy())

    def add_keys(self, block: int, keys: bytes) -> None:
        """Continue behind the tokens of block number ``block`` with its extra keys, unless they are empty."""
        if keys:
            if self.extra_keys is None:
                self.extra_keys = {}
            self.extra_keys[block] = keys
            self.state.update(framed(keys))


# ---------------------------------------------------------------------------------------------------------------------
# Hashes of earlier prompts, for those that begin alike.
#
# An agent sends its whole conversation again with every turn, many prompts begin with one system prompt, and some are
# sent twice. To compare the tokens of two prompts costs a hundredth of hashing them: hashing goes on at the last mark
# before the two part. The hashes are the same either way.
#
#     known        [ the same tokens ....m.........m....... | rewritten, or another question ]       m  a mark
#     this one     [ the same tokens ................ | answer, tool result, new question ... ]
#                    hashes taken over       ^ hashed from here on

_MARK_EVERY = 64
"""Blocks between two places at which hashing can go on."""
_WORTH_KEEPING = 16
"""Blocks of a prompt that is worth it."""
_MOST_BYTES = 16 << 20


class HashedPrompt(NamedTuple):
    """The full blocks of a prompt, and places within at which hashing can go on."""

    tokens: npt.NDArray[np.int32]
    """Their token ids."""
    hashes: list[BlockHash]
    marks: list[PrefixHash]
    """The hash behind every ``_MARK_EVERY``-th block."""
    end: PrefixHash
    """The hash behind the last block."""

    def common(self, tokens: npt.NDArray[np.int32], block_size: int) -> tuple[int, PrefixHash | None]:
        """Blocks after which hashing of a prompt of these ``tokens`` can go on, and from what."""
        length = min(len(tokens), len(self.tokens))
        differs = self.tokens[:length] != tokens[:length]
        at = int(differs.argmax()) if length else 0
        blocks = (at if length and differs[at] else length) // block_size
        if blocks == len(self.hashes):
            return blocks, self.end
        marks = blocks // _MARK_EVERY
        return marks * _MARK_EVERY, self.marks[marks - 1] if marks else None


class HashedPrompts:
    """The last prompt of each job and the last with each first block, whose hashes depend on nothing but tokens.

    Keeps at most ``most_bytes`` of token ids (the hashes take about as much again), and forgets the one first that was
    not begun by for longest.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes: int = most_bytes
        self._num_bytes: int = 0
        self._kept: OrderedDict[str | BlockHash, HashedPrompt] = OrderedDict()

    def __len__(self) -> int:
        """Prompts it knows, a job's first one twice."""
        return len(self._kept)

    def like(self, job_id: str | None, first: BlockHash) -> HashedPrompt | None:
        """The job's last prompt, or else one that begins with the block of this hash."""
        for key in (job_id, first):
            if key is not None and key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        return None

    def keep(self, job_id: str | None, first: BlockHash, prompt: HashedPrompt) -> None:
        """Keep a job's newest prompt in place of the one before; without a job, the newest that begins so."""
        if job_id is not None:
            self._put(job_id, prompt)
        if job_id is None or first not in self._kept:
            self._put(first, prompt)
        while self._num_bytes > self._most_bytes:
            _, forgotten = self._kept.popitem(last=False)
            self._num_bytes -= forgotten.tokens.nbytes

    def _put(self, key: str | BlockHash, prompt: HashedPrompt) -> None:
        old = self._kept.pop(key, None)
        self._num_bytes += prompt.tokens.nbytes - (old.tokens.nbytes if old is not None else 0)
        self._kept[key] = prompt


# ---------------------------------------------------------------------------------------------------------------------
# Hashes of full blocks, each of everything up to its end.
#
#     h[i] = H(root | block 0 | ... | block i)      block = tokens | extra keys
#
# One hash object runs along the request, so a block costs an update and a digest; what enters it is described at
# ``PrefixHash``. The root comes from the block size and a seed, so equal runs give equal
# hashes. A block's extra keys are what else its KV depends on: LoRA adapter, multi-modal items that overlap it (hash
# and offset), the cache salt (first block only, which is in every later hash) and the bytes of prompt embeddings.

_STATE: dict[HashAlgo, Callable[[bytes], HashState]] = {
    HashAlgo.SHA256: sha256,
    HashAlgo.XXH3_128: xxhash.xxh3_128,
}


def digests(hashes: Sequence[BlockHash]) -> list[bytes]:
    """Hashes for those who look into them: a replay that numbers blocks instead has no trace, events or connector."""
    return cast("list[bytes]", list(hashes))


class RequestHasher(Protocol):
    """What hashes requests' blocks: :class:`BlockHasher`, or a host that hashes anyway."""

    def extend(self, request: Request) -> list[BlockHash]:
        """Hash every full block of the request that has no hash yet; returns all its hashes."""

    def forget_beyond(self, request: Request, num_tokens: int) -> None:
        """Forget the hashes that depend on tokens behind the first ``num_tokens``."""


class BlockHasher:
    """Grows ``request.block_hashes`` as tokens arrive."""

    block_size: int
    root: bytes
    """Stands before every first block."""

    def __init__(
        self,
        block_size: int,
        algo: HashAlgo = HashAlgo.SHA256,
        seed: str = "",
        *,
        output_blocks_hash_last_image: bool = True,
    ) -> None:
        self.block_size = block_size
        self._output_keeps_last: bool = output_blocks_hash_last_image
        self._state: Callable[[bytes], HashState] = _STATE[algo]
        self._stride: int = block_size * TOKEN_BYTES
        self._prompts: HashedPrompts = HashedPrompts()
        self.root = self._digest(f"tokenyard:{block_size}:{seed}".encode())

    def extend(self, request: Request) -> list[BlockHash]:
        """Hash every full block of the request that has no hash yet; returns all its hashes."""
        hashes = request.block_hashes
        stop = request.num_tokens // self.block_size
        if len(hashes) < stop:
            try:
                if hashes or request.has_extra_keys or stop < _WORTH_KEEPING:
                    self._hash(request, stop)
                else:
                    self._hash_prompt(request, stop)
            except BaseException:
                self._forget(request)
                raise
        return hashes

    def _hash(self, request: Request, stop: int) -> PrefixHash:
        """Hash the request's blocks up to number ``stop - 1``."""
        hashes = request.block_hashes
        start = len(hashes)
        prefix: PrefixHash = request.prefix_hash or self._begin(request)
        update, digest = prefix.state.update, prefix.state.digest
        tokens, stride = request.token_bytes(start * self.block_size, stop * self.block_size), self._stride
        for i in range(stop - start):
            update(tokens[i * stride : (i + 1) * stride])
            if request.has_extra_keys:
                prefix.add_keys(start + i, self.extra_keys(request, start + i))
            hashes.append(digest())
        return prefix

    def _hash_prompt(self, request: Request, stop: int) -> None:
        """Hash the first ``stop`` blocks, from where those of a prompt that begins alike can be taken over."""
        hashes, job_id = request.block_hashes, request.job_id
        self._hash(request, 1)
        first = hashes[0]
        tokens = request.token_slice(0, stop * self.block_size)
        known = self._prompts.like(job_id, first)
        done, prefix = (0, None) if known is None else known.common(tokens, self.block_size)
        marks: list[PrefixHash] = []
        if known is not None and prefix is not None:
            hashes[:] = known.hashes[:done]
            marks = known.marks[: done // _MARK_EVERY]
            request.prefix_hash = prefix.fork()
        for mark in range((len(marks) + 1) * _MARK_EVERY, stop + 1, _MARK_EVERY):
            marks.append(self._hash(request, mark).fork())
        end = self._hash(request, stop).fork()
        self._prompts.keep(job_id, first, HashedPrompt(tokens, hashes.copy(), marks, end))

    @staticmethod
    def _forget(request: Request) -> None:
        """The running hash and the list of hashes may disagree: begin anew."""
        request.block_hashes.clear()
        request.prefix_hash = None

    def truncate(self, request: Request, num_blocks: int) -> None:
        """Keep the hashes of the request's first ``num_blocks`` blocks, whose tokens must still be there."""
        if num_blocks >= len(request.block_hashes):
            return
        keys = (request.prefix_hash.extra_keys if request.prefix_hash else None) or {}
        del request.block_hashes[num_blocks:]
        prefix, stride = self._begin(request), self._stride
        tokens = request.token_bytes(0, num_blocks * self.block_size)
        for i in range(num_blocks):
            prefix.state.update(tokens[i * stride : (i + 1) * stride])
            prefix.add_keys(i, keys.get(i, b""))

    def _begin(self, request: Request) -> PrefixHash:
        request.prefix_hash = PrefixHash(self._state(self.root))
        return request.prefix_hash

    def _digest(self, data: bytes) -> bytes:
        return self._state(data).digest()

    def forget_beyond(self, request: Request, num_tokens: int) -> None:
        """Forget the hashes that depend on tokens behind the first ``num_tokens``."""
        self.truncate(request, num_tokens // self.block_size)

    def extra_keys(self, request: Request, block: int, num_ahead: int = 0) -> bytes:
        """Unambiguous encoding of the extra keys of the request's block number ``block``; empty if it has none.

        With those of ``num_ahead`` tokens behind it.
        """
        start, stop = block * self.block_size, (block + 1) * self.block_size + num_ahead
        lora = request.lora_name or None
        items = [
            (item.mm_hash, int(item.offset) - start)  # NumPy has whole numbers as well
            for item in request.mm_features
            if item.offset < stop and item.offset + item.length > start
        ]
        salt = (request.cache_salt or None) if block == 0 else None
        embeds = None
        if request.prompt_embeds is not None and start < request.num_prompt_tokens:
            embeds = self._digest(request.prompt_embeds[start:stop].tobytes())
        if lora is None and not items and salt is None and embeds is None:
            return b""
        keys = (lora, items, salt, embeds)
        if self._output_keeps_last and len(items) > 1 and block > 0 and stop > request.num_prompt_tokens:
            # Output has filled this block. vLLM 0.22 then hashes the last item only, so that a prompt with the same
            # content misses it; so does ours, but without taking other images for the same.
            return msgspec.msgpack.encode((*keys, True))
        return msgspec.msgpack.encode(keys)


# ---------------------------------------------------------------------------------------------------------------------
# Hashes that also cover the tokens behind their block, for drafters that read ahead.
#
#     h[i] = H(root | block 0 | ... | block i | the next tokens)
#
# The KV of an EAGLE head at a block's last position depends on the token behind it. With that token in the hash a
# matched block can be used whole; but a block has its hash, and can be published, only when that token is known.


_NUM_AHEAD = 1
"""Tokens that an EAGLE head reads beyond a block."""


class LookaheadBlockHasher(BlockHasher):
    """Hashes of blocks together with the tokens behind each."""

    def extend(self, request: Request) -> list[BlockHash]:
        hashes, size = request.block_hashes, self.block_size
        start, stop = len(hashes), (request.num_tokens - _NUM_AHEAD) // size
        if start >= stop:
            return hashes
        first = start * size
        tokens = request.token_slice(first, stop * size + _NUM_AHEAD)
        prefix: PrefixHash = request.prefix_hash or self._begin(request)
        for i in range(start, stop):
            at = i * size - first
            prefix.state.update(tokens[at : at + size].tobytes())
            ahead = tokens[at + size : at + size + _NUM_AHEAD].tobytes()
            if request.has_extra_keys:
                prefix.add_keys(i, self.extra_keys(request, i))
                ahead += framed(self.extra_keys(request, i, _NUM_AHEAD))
            hashes.append(prefix.digest_with(ahead))
        return hashes

    def forget_beyond(self, request: Request, num_tokens: int) -> None:
        self.truncate(request, max(num_tokens - _NUM_AHEAD, 0) // self.block_size)
