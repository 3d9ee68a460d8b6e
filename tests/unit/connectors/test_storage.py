"""Blocks in files: bytes come back, several processes share them, and what is damaged or gone is computed again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.connector_engine import ConnectorEngine
from tests.support.toy_engine import prompt_of

from tokenyard.connectors.tier_worker import ArrayMemory, BlockFiles, TierWorker
from tokenyard.connectors.tiered import TieredConnector
from tokenyard.connectors.tiers import DiskTier
from tokenyard.core.kv.hashing import digests
from tokenyard.core.request import FinishReason
from tokenyard.errors import ConfigError, MissingExtraError

HASH = bytes(range(32))


def engine(root: Path, *, threads: int = 0, load_async: bool = True, **options: Any) -> ConnectorEngine:
    """An engine that shares the folder."""
    files = BlockFiles(root)
    return ConnectorEngine(
        lambda cache: TieredConnector(cache, DiskTier(files), load_async=load_async),
        lambda memory: TierWorker(memory, files, num_threads=threads),
        **options,
    )


def tensors(seed: int = 0) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    return {
        "layer.0": random.standard_normal((2, 16, 8, 4)).astype(np.float16),
        "layer.1": random.integers(0, 1 << 16, (2, 16, 8, 4)).astype(np.uint16),
    }


# ---- files


def test_bytes_come_back(tmp_path: Path) -> None:
    files, given = BlockFiles(tmp_path), tensors()
    assert HASH not in files
    files.put(HASH, given)
    assert HASH in files
    back = BlockFiles(tmp_path).get(HASH)
    assert set(back) == set(given)
    for name, array in given.items():
        assert back[name].dtype == array.dtype
        assert back[name].tobytes() == array.tobytes()


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "no checksum"])
def test_a_damaged_file_is_refused_and_deleted(tmp_path: Path, damage: str) -> None:
    files = BlockFiles(tmp_path)
    files.put(HASH, tensors())
    path = files.path_of(HASH)
    content = bytearray(path.read_bytes())
    if damage == "flipped":
        content[-100] ^= 1
    elif damage == "no checksum":
        safetensors = pytest.importorskip("safetensors.numpy")
        content = bytearray(safetensors.save(tensors()))
    elif damage in ("truncated", "empty"):
        del content[-7 if damage == "truncated" else 0 :]
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"safetensors|checksum"):
        files.get(HASH)
    assert HASH not in files
    files.put(HASH, tensors())
    files.get(HASH)


def test_a_missing_file_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        BlockFiles(tmp_path).get(HASH)


def test_namespaces_do_not_meet(tmp_path: Path) -> None:
    BlockFiles(tmp_path, "llama").put(HASH, tensors())
    assert HASH not in BlockFiles(tmp_path, "qwen")


@pytest.mark.parametrize("namespace", ["", "a/b", "..", "a\0b", 7])
def test_a_namespace_is_one_folder(tmp_path: Path, namespace: Any) -> None:
    with pytest.raises(ConfigError, match="namespace"):
        BlockFiles(tmp_path, namespace)


@pytest.mark.parametrize("root", ["", "a\0b", 7, None])
def test_a_path_is_a_text(root: Any) -> None:
    with pytest.raises(ConfigError, match=r"shared_storage_path = .*: give the path of a folder"):
        BlockFiles(root)


def test_a_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="shared_storage_path"):
        BlockFiles(tmp_path / "file")


def test_without_safetensors_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(MissingExtraError, match=r"tokenyard\[storage\]"):
        BlockFiles(tmp_path)


_WRITE_MANY = """
import sys
import numpy as np
from tokenyard.connectors.tier_worker import BlockFiles

files, first = BlockFiles(sys.argv[1]), int(sys.argv[2])
for number in range(first, first + 40):
    files.put(number.to_bytes(32, "big"), {"layer": np.full(5000, number)})
"""


@pytest.mark.slow
def test_processes_write_the_same_blocks_at_the_same_time(tmp_path: Path) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", _WRITE_MANY, tmp_path, str(first)]) for first in (0, 0, 20)]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    files = BlockFiles(tmp_path)
    for number in range(60):
        assert (files.get(number.to_bytes(32, "big"))["layer"] == number).all()
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".safetensors"]


def test_an_unfinished_file_is_not_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = BlockFiles(tmp_path)

    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        files.put(HASH, tensors())
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_memory_refuses_blocks_of_another_shape() -> None:
    memory = ArrayMemory.like(tensors(), 3)
    memory.write(1, tensors(1))
    assert memory.read(1)["layer.1"].tobytes() == tensors(1)["layer.1"].tobytes()
    wrong = tensors() | {"layer.0": np.zeros((1, 2), np.float16)}
    with pytest.raises(ValueError, match=r"layer\.0 is float16\[1, 2\]"):
        memory.write(1, wrong)
    with pytest.raises(ValueError, match="expected"):
        memory.write(1, {"other": np.zeros(3)})
    assert memory.read(1)["layer.0"].tobytes() == tensors(1)["layer.0"].tobytes()


# ---- engines


@pytest.mark.parametrize("threads", [0, 2])
def test_another_engine_finds_what_one_stored(tmp_path: Path, threads: int) -> None:
    one, other = engine(tmp_path, threads=threads), engine(tmp_path, threads=threads)
    prompt = prompt_of("shared", 40)
    one.serve("a", prompt)
    assert other.serve("b", prompt).num_external_computed_tokens == 36
    assert one.is_quiet
    assert other.is_quiet
    for site in (one, other):
        site.mover.shutdown()


@pytest.mark.parametrize("load_async", [False, True])
@pytest.mark.parametrize("harm", ["deleted", "damaged"])
def test_a_failed_load_is_computed_again(tmp_path: Path, harm: str, load_async: bool) -> None:
    prompt = prompt_of("shared", 40)
    first = engine(tmp_path)
    first.serve("a", prompt)
    site = engine(tmp_path, load_async=load_async, kv_load_failure_policy="recompute")
    site.add("b", prompt, max_tokens=2)
    output = site.scheduler.schedule()  # the lookup finds everything, then the file changes
    path = BlockFiles(tmp_path).path_of(digests([first.requests["a"].block_hashes[3]])[0])
    os.truncate(path, 20) if harm == "damaged" else path.unlink()
    site.finish_step(output)
    site.run()
    assert site.requests["b"].num_output_tokens == 2
    assert site.is_quiet
    third = engine(tmp_path)
    assert third.serve("c", prompt).num_external_computed_tokens == 36, "it was stored anew"


def test_a_prefix_that_is_gone_from_its_beginning_is_not_waited_for_twice(tmp_path: Path) -> None:
    prompt = prompt_of("shared", 40)
    first = engine(tmp_path)
    first.serve("a", prompt)
    site = engine(tmp_path, kv_load_failure_policy="recompute")
    site.add("b", prompt, max_tokens=2)
    output = site.scheduler.schedule()
    for path in tmp_path.rglob("*.safetensors"):
        path.unlink()
    site.finish_step(output)
    site.run()
    assert site.requests["b"].num_external_computed_tokens == 0
    assert site.is_quiet


def test_a_file_of_another_shape_is_not_tried_again(tmp_path: Path) -> None:
    prompt = prompt_of("shared", 40)
    first = engine(tmp_path)
    first.serve("a", prompt)
    site = engine(tmp_path, kv_load_failure_policy="recompute")

    def write(block: int, given: Any) -> None:
        raise ValueError("another model's")

    site.mover.memory.write = write  # type: ignore[attr-defined]
    assert site.serve("b", prompt).num_external_computed_tokens == 0
    assert site.is_quiet


def test_a_failed_load_ends_the_request_if_the_policy_says_so(tmp_path: Path) -> None:
    prompt = prompt_of("shared", 40)
    first = engine(tmp_path)
    first.serve("a", prompt)
    site = engine(tmp_path, load_async=False, kv_load_failure_policy="fail")
    site.add("b", prompt, max_tokens=2)
    output = site.scheduler.schedule()
    BlockFiles(tmp_path).path_of(digests([first.requests["a"].block_hashes[3]])[0]).unlink()
    site.finish_step(output)
    site.run()
    assert [news.finish_reason for news in site.news] == [FinishReason.ERROR]
    assert site.is_quiet


def test_the_storage_of_others_is_not_reset(tmp_path: Path) -> None:
    site = engine(tmp_path)
    site.serve("a", 20)
    assert not site.scheduler.reset_connector_cache()
    assert list(tmp_path.rglob("*.safetensors"))
