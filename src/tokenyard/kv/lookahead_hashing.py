"""Hashes that also cover the tokens behind their block, for drafters that read ahead.

    h[i] = H(root | block 0 | ... | block i | the next tokens)

The KV of an EAGLE head at a block's last position depends on the token behind it. With that token in the hash a matched
block can be used whole; but a block has its hash, and can be published, only when that token is known.
"""

from __future__ import annotations

from tokenyard.kv.hashing import BlockHasher
from tokenyard.prefix_hash import framed
from tokenyard.request import Request

__all__ = ["LookaheadBlockHasher"]


class LookaheadBlockHasher(BlockHasher):
    """Hashes of blocks together with the tokens behind each."""

    __slots__ = ()

    num_ahead = 1
    """Tokens that an EAGLE head reads beyond a block."""

    def extend(self, request: Request) -> list[bytes]:
        hashes, size = request.block_hashes, self.block_size
        start, stop = len(hashes), (request.num_tokens - self.num_ahead) // size
        if start >= stop:
            return hashes
        first = start * size
        tokens = request.token_slice(first, stop * size + self.num_ahead)
        prefix = request.prefix_hash or self._begin(request)
        for i in range(start, stop):
            at = i * size - first
            prefix.update(tokens[at : at + size].tobytes())
            ahead = tokens[at + size : at + size + self.num_ahead].tobytes()
            if request.has_extra_keys:
                prefix.add_keys(i, self.extra_keys(request, i))
                ahead += framed(self.extra_keys(request, i, self.num_ahead))
            hashes.append(prefix.digest_with(ahead))
        return hashes

    def forget_beyond(self, request: Request, num_tokens: int) -> None:
        self.truncate(request, max(num_tokens - self.num_ahead, 0) // self.block_size)
