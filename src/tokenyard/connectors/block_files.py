"""Blocks on a disk that several engines share: one safetensors file per block, named by the hash of its content.

    root / namespace / ab / abcdef....safetensors

A block's hash covers all tokens before it, so equal names mean equal KV, whoever computed it, as long as the namespace
says what else the KV depends on: weights, precision, shape. Files are written under another name and renamed when they
are complete; readers see a whole file or none. Files may be deleted at any time by anybody.
"""

from __future__ import annotations

import os
from pathlib import Path
from threading import get_ident
from typing import Any

import numpy as np
import xxhash

from tokenyard.connectors.memory import Tensors
from tokenyard.connectors.plan import Address
from tokenyard.connectors.settings import check_namespace, check_storage_path
from tokenyard.errors import ConfigError, MissingExtraError

__all__ = ["BlockFiles"]

_SUFFIX = ".safetensors"
_CHECKSUM = "xxh3_128"
"""Name of the header field with the checksum over the tensors."""


class BlockFiles:
    """A ``BlockStore`` over files; addresses are block hashes."""

    def __init__(self, root: Path | str, namespace: str = "default") -> None:
        """Makes the folder. ConfigError if it cannot be used, MissingExtraError without safetensors."""
        check_storage_path(root)
        check_namespace(namespace)
        try:
            import safetensors.numpy  # noqa: PLC0415 - an extra
        except ModuleNotFoundError:
            raise MissingExtraError("safetensors", "storage") from None
        self._format, self._format_error = safetensors.numpy, safetensors.SafetensorError
        self.folder = Path(root) / namespace
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError("shared_storage_path", str(root), f"cannot be used: {error.strerror or error}") from None

    def path_of(self, block_hash: bytes) -> Path:
        """Where a block is, if it is here."""
        name = block_hash.hex()
        return self.folder / name[:2] / f"{name}{_SUFFIX}"

    def __contains__(self, block_hash: object) -> bool:
        return isinstance(block_hash, bytes) and self.path_of(block_hash).exists()

    def get(self, address: Address) -> Tensors:
        """Reads and checks a block; a damaged file is deleted, so that somebody stores it anew."""
        path = self.path_of(_hash(address))
        content = path.read_bytes()
        try:
            return self._decoded(content)
        except ValueError:
            self._delete(path)
            raise

    def _decoded(self, content: bytes) -> Tensors:
        """ValueError unless the content is what :meth:`put` wrote."""
        try:
            tensors: dict[str, Any] = self._format.load(content)
        except self._format_error as error:
            raise ValueError(f"not a safetensors file: {error}") from None
        sums = tensors.pop(_CHECKSUM, None)
        if sums is None or sums.tobytes() != _checksum(tensors):
            raise ValueError("the checksum is not that of the content")
        return tensors

    def put(self, address: Address, tensors: Tensors) -> None:
        path = self.path_of(_hash(address))
        if path.exists():
            return
        sums = np.frombuffer(_checksum(tensors), np.uint8)
        content = self._format.save({**tensors, _CHECKSUM: sums})
        path.parent.mkdir(exist_ok=True)
        unfinished = path.with_name(f".{path.stem}.{os.getpid()}.{get_ident()}")
        try:
            unfinished.write_bytes(content)
            unfinished.replace(path)
        except OSError:
            self._delete(unfinished)
            raise

    @staticmethod
    def _delete(path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError:
            return  # a folder that may only be read: whoever may write it will have to


def _hash(address: Address) -> bytes:
    assert isinstance(address, bytes), "files are addressed by hashes"
    return address


def _checksum(tensors: Tensors) -> bytes:
    """Over names and contents, in order of the names."""
    state = xxhash.xxh3_128()
    for name in sorted(tensors):
        state.update(name.encode())
        state.update(np.ascontiguousarray(tensors[name]).view(np.uint8).reshape(-1).data)
    return state.digest()
