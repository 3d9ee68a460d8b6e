"""Chained hashes of full blocks.

    h[0] = H(root         | tokens of block 0 | extra keys)
    h[i] = H(h[i-1]       | tokens of block i | extra keys)

Tokens enter as the bytes of their int32 values; the root comes from a seed, so equal runs give equal hashes. A block's
extra keys are what else its KV depends on: LoRA adapter, multi-modal items that overlap it (hash and offset), the cache
salt (first block only, the chain carries it on) and the bytes of prompt embeddings.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from hashlib import sha256

import msgspec
import xxhash

from tokenyard.config import HashAlgo
from tokenyard.request import Request

__all__ = ["BlockHasher"]

_TOKEN_BYTES = 4


def _sha256(data: bytes) -> bytes:
    return sha256(data).digest()


_DIGEST: dict[HashAlgo, Callable[[bytes], bytes]] = {
    HashAlgo.SHA256: _sha256,
    HashAlgo.XXH3_128: xxhash.xxh3_128_digest,
}


class BlockHasher:
    """Grows ``request.block_hashes`` as tokens arrive."""

    __slots__ = ("_algo", "_blocks_of", "_digest", "_stride", "block_size", "root")

    def __init__(self, block_size: int, algo: HashAlgo = HashAlgo.SHA256, seed: str = "") -> None:
        self.block_size = block_size
        self._algo = algo
        self._digest = _DIGEST[algo]
        self._stride = block_size * _TOKEN_BYTES
        self._blocks_of = struct.Struct(f"{self._stride}s").iter_unpack
        self.root = self._digest(b"tokenyard:" + seed.encode())

    def extend(self, request: Request) -> list[bytes]:
        """Hash every full block of the request that has no hash yet; returns all its hashes."""
        hashes = request.block_hashes
        start = len(hashes)
        stop = request.num_sealed_tokens // self.block_size
        if start < stop:
            parent = hashes[-1] if hashes else self.root
            data = request.token_bytes(start * self.block_size, stop * self.block_size)
            if request.has_extra_keys:
                self._chain_with_extras(parent, data, request, start, hashes)
            elif self._algo is HashAlgo.SHA256:
                hashes += _chain_sha256(parent, self._blocks_of(data))
            else:
                hashes += _chain(self._digest, parent, self._blocks_of(data))
        return hashes

    def append(self, request: Request, tokens: bytes) -> None:
        """Hash the block that has just become full; the hashes of all blocks before it are there."""
        self.append_n(((request, tokens),))

    def append_n(self, sealed: Iterable[tuple[Request, bytes]]) -> None:
        """:meth:`append` for one block of each of several requests."""
        digest, root = self._digest, self.root
        for request, tokens in sealed:
            hashes = request.block_hashes
            data = (hashes[-1] if hashes else root) + tokens
            if request.has_extra_keys:
                data += self.extra_keys(request, len(hashes))
            hashes.append(digest(data))

    def _chain_with_extras(self, parent: bytes, data: bytes, request: Request, first: int, into: list[bytes]) -> None:
        digest, stride = self._digest, self._stride
        for i, at in enumerate(range(0, len(data), stride), first):
            parent = digest(parent + data[at : at + stride] + self.extra_keys(request, i))
            into.append(parent)

    def extra_keys(self, request: Request, block: int) -> bytes:
        """Unambiguous encoding of the extra keys of the request's block number ``block``; empty if it has none."""
        start, stop = block * self.block_size, (block + 1) * self.block_size
        lora = request.lora_name or None
        items = [
            (item.mm_hash, item.offset - start)
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
        if len(items) > 1 and block > 0 and stop > request.num_prompt_tokens:
            # Output has filled this block. vLLM then hashes the last item only, so that a prompt with the same content
            # misses it; so does ours, but without taking other images for the same.
            return msgspec.msgpack.encode((*keys, True))
        return msgspec.msgpack.encode(keys)


# Hashing is most of the cost of admitting a long prompt: hence no loop of our own, and no call between it and sha256.


def _chain(digest: Callable[[bytes], bytes], parent: bytes, blocks: Iterable[tuple[bytes]]) -> list[bytes]:
    return [parent := digest(parent + block) for (block,) in blocks]


def _chain_sha256(parent: bytes, blocks: Iterable[tuple[bytes]]) -> list[bytes]:
    return [parent := sha256(parent + block).digest() for (block,) in blocks]
