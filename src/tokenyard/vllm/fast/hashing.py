"""Hashes of blocks by vLLM's own function: its engine hashes every prompt anyway, and once is enough.

The list of hashes is one object for both requests. vLLM's hashes what its request's token list holds, so tokens are
brought there when a block of them is full, and not before.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import numpy as np

from tokenyard.request import Request
from tokenyard.vllm.fast.requests import FastRequest, refresh_session, sync_tokens

__all__ = ["VllmHashes"]


class VllmHashes:
    """A :class:`~tokenyard.kv.hashing.RequestHasher`."""

    def __init__(self, hash_size: int, num_ahead: int) -> None:
        """A hash covers ``hash_size`` tokens, and depends on ``num_ahead`` behind them as well."""
        self._hash_size = hash_size
        self._num_ahead = num_ahead

    def extend(self, request: Request) -> list[bytes]:
        """Hash every full block of the request that has no hash yet; returns all its hashes."""
        hashes = request.block_hashes
        if len(hashes) < (request.num_tokens - self._num_ahead) // self._hash_size:
            ours = cast("FastRequest", request)
            if ours.resumable:
                refresh_session(ours)
            sync_tokens(ours, ours.num_tokens)
            ours.theirs.update_block_hashes()
        return hashes

    def append_n(self, sealed: Iterable[tuple[Request, bytes]]) -> None:
        """Hash the blocks that have just become full, one of each of several requests, given as int32 bytes."""
        size = self._hash_size
        for request, tokens in sealed:
            theirs = cast("FastRequest", request).theirs
            missing = (len(request.block_hashes) + 1) * size - theirs.num_tokens
            if 0 < missing <= size:
                theirs.append_output_token_ids(np.frombuffer(tokens, np.int32)[-missing:].tolist())
            else:
                self.extend(request)

    def hash_again(self, request: Request) -> None:
        """:meth:`append_n` raised: begin anew."""
        request.block_hashes.clear()
        self.extend(request)

    def forget_beyond(self, request: Request, num_tokens: int) -> None:
        """Forget the hashes that depend on tokens behind the first ``num_tokens``."""
        theirs = cast("FastRequest", request).theirs
        del theirs._all_token_ids[num_tokens:]  # noqa: SLF001
        del request.block_hashes[max(num_tokens - self._num_ahead, 0) // self._hash_size :]
