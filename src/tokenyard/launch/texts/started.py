"""What a text says of how vLLM is started, whatever kind of text it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

__all__ = ["NO_GPU", "Found", "MeasuredKV", "Said", "Started"]


class Said(NamedTuple):
    """Something that a text says beside flags, and where it stands."""

    value: str
    where: str
    """In words, for a header: ``the tag of the image vllm/vllm-openai:v0.22.1``."""


class Found(NamedTuple):
    """Something that a header says of the text: ``name value: why``."""

    name: str
    value: Any
    why: str


NO_GPU = Found("start-up log", "no GPU", "the log names none; --gpu says which")


class MeasuredKV(NamedTuple):
    """What a start-up log says of the KV cache."""

    memory_bytes: int | None = None
    """Available on each GPU; of several workers, the least."""
    size_tokens: int | None = None
    """"GPU KV cache size"; of several engines, the least."""
    max_model_len: int | None = None
    """The length by which the size is counted, in tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """How one server is started."""

    words: list[str]
    """What follows ``vllm serve``."""
    environment: dict[str, str] = field(default_factory=dict)
    """Variables that are set for it."""
    version: Said | None = None
    """vLLM's, as the text has it: ``0.22.1``, or a tag that names none."""
    gpu: Said | None = None
    """As the text names it: ``NVIDIA-H100-80GB-HBM3``."""
    replicas: Said | None = None
    """``4``, or ``1..4`` where they are scaled."""
    resolved: dict[str, Any] = field(default_factory=dict)
    """Settings, by name, that vLLM logged as it settled them, though nobody gave them as flags."""
    kv: MeasuredKV = field(default_factory=MeasuredKV)
    notes: tuple[Found, ...] = ()
    """What was not read, and what the text leaves to whoever reads it."""
