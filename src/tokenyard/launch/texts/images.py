"""Images of containers: whether one holds vLLM, and of which version."""

from __future__ import annotations

import re

from tokenyard.launch.texts.started import Said

__all__ = ["is_vllm_image", "version_installed", "version_of_image"]

_VERSION = re.compile(r"v?(0\.[0-9]{1,4}(?:\.[0-9]{1,4})?)(?![0-9.])")
"""Versions of vLLM begin with 0; other tags (25.11-py3, 3.0) count something else."""
_AMONG_OTHERS = re.compile(r"vllm[_-]v?(0\.[0-9]{1,4}(?:\.[0-9]{1,4})?)(?![0-9.])")
"""Within a tag that counts something else first: ``rocm6.4.1_vllm_0.9.1_20250715``."""
_INSTALLED = re.compile(r"(?<![\w.-])vllm(?:\[[\w,-]{1,60}\])?(?:==|@)v?(0\.[0-9]{1,4}(?:\.[0-9]{1,4})?)(?![0-9])")
_NAME = re.compile(r"vllm(?:-[\w.-]+)?")
_ENTRY = frozenset(("vllm", "vllm-openai"))


def is_vllm_image(image: str) -> bool:
    """Whether an image, of whatever registry, is called ``vllm``, ``vllm-openai`` or ``vllm-...``."""
    name = _parts(image)[0]
    parts = name.split("/")
    return _NAME.fullmatch(parts[-1]) is not None or (len(parts) > 1 and parts[-2] in _ENTRY)


def version_of_image(image: str) -> Said | None:
    """What the image's tag says; None without a tag, or where the image is not called after vLLM."""
    name, tag = _parts(image)
    if not tag or "vllm" not in name:
        return None
    found = _VERSION.match(tag) or _AMONG_OTHERS.search(tag)
    short = image if len(image) <= 100 else f"{image[:100]}..."
    return Said(found[1] if found else tag, f"the tag of the image {short}")


def version_installed(text: str) -> Said | None:
    """What a script installs, ``vllm==0.22.1``; None where it names none, or several."""
    versions = {found[1] for found in _INSTALLED.finditer(text)}
    return Said(version := versions.pop(), f"vllm=={version} in the text") if len(versions) == 1 else None


def _parts(image: str) -> tuple[str, str]:
    """Name and tag; a port in front of a slash is none, and a digest says nothing."""
    name = image.partition("@")[0]
    last = name.rpartition("/")[2]
    tag = last.partition(":")[2]
    return name[: len(name) - len(tag) - 1] if tag else name, tag
