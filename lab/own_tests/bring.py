"""Bring vLLM's tests: from its source distribution, into a folder that is not part of the repository."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

__all__ = ["bring"]

_WANTED = ("v1/core", "v1/kv_connector/unit/utils.py")
"""Below ``tests``: what is run, and what it imports."""

_OPT = {
    "architectures": ["OPTForCausalLM"],
    "model_type": "opt",
    "hidden_size": 768,
    "ffn_dim": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "vocab_size": 50272,
    "max_position_embeddings": 2048,
    "torch_dtype": "float16",
    "word_embed_proj_dim": 768,
    "do_layer_norm_before": True,
    "bos_token_id": 2,
    "eos_token_id": 2,
    "pad_token_id": 1,
}
_MODELS = {"facebook/opt-125m": _OPT}
"""Configurations of the models that the tests name; their weights are not needed."""


def bring(version: str, folder: Path) -> Path:
    """The directory that holds ``tests``; brought if it is not there. SystemExit if it cannot be."""
    target = folder / version
    if not (target / "tests/v1/core").is_dir():
        print(f"Bringing the tests of vLLM {version} ...", file=sys.stderr)
        with tempfile.TemporaryDirectory(dir=_made(folder)) as unpacked:
            _copy(_unpacked(version, Path(unpacked)), target)
    for name, config in _MODELS.items():
        _write_model(folder / "models", name, config)
    return target


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


def _unpacked(version: str, folder: Path) -> Path:
    """The source distribution: the download unpacks it, then fails to build it, which is enough."""
    words = ["download", "--quiet", "--no-clean", "--no-deps", "--no-build-isolation", "--no-binary", "vllm"]
    environment = os.environ | {"TMPDIR": str(folder), "VLLM_TARGET_DEVICE": "empty"}
    done = subprocess.run(
        [sys.executable, "-m", "pip", *words, f"vllm=={version}", "--dest", str(folder)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    found = next(folder.glob("*/vllm_*/tests/v1/core"), None)
    if found is None:
        last = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        raise SystemExit(f"the source of vLLM {version} holds no tests/v1/core, or was not unpacked: {last}")
    return found.parents[1]


def _copy(tests: Path, target: Path) -> None:
    part = target.with_name(target.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    for name in _WANTED:
        source, place = tests / name, part / "tests" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, place) if source.is_dir() else shutil.copy(source, place)
    for package in (part / "tests").rglob("*"):
        if package.is_dir():
            (package / "__init__.py").touch()
    (part / "tests/__init__.py").touch()
    shutil.rmtree(target, ignore_errors=True)
    part.rename(target)


def _write_model(home: Path, name: str, config: dict[str, Any]) -> None:
    """A model's configuration where the hub's cache would have it."""
    revision = "0" * 40
    cache = home / "hub" / f"models--{name.replace('/', '--')}"
    snapshot = cache / "snapshots" / revision
    snapshot.mkdir(parents=True, exist_ok=True)
    (cache / "refs").mkdir(exist_ok=True)
    (cache / "refs/main").write_text(revision)
    (snapshot / "config.json").write_text(json.dumps(config))
