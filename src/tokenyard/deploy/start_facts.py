"""What a text says of how vLLM is started, as values: no reader of texts is loaded for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, NamedTuple

import msgspec

from tokenyard.quick_dataclass import dataclass


class Said(NamedTuple):
    """Something that a text says beside flags, and where it stands."""

    value: str
    where: str
    """The place in words, for a header: ``the tag of the image vllm/vllm-openai:v0.22.1``."""


class HeaderNote(NamedTuple):
    """Something that a header says of the text: ``name value: why``."""

    name: str
    value: Any
    why: str


NO_GPU = HeaderNote("start-up log", "no GPU", "the log names none; --gpu says which")

AROUND = "around the engine"
"""Name of a note about what is not about the engine at all."""
NOT_READ = "not read"
"""Name of a note about what may be, and changes nothing here."""

SEVERAL_GPUS = " or "
"""Separates the names of GPUs where a text names several kinds."""


class MeasuredKV(NamedTuple):
    """What a start-up log says of the KV cache."""

    memory_bytes: int | None = None
    """Available on each GPU; of several workers, the least."""
    size_tokens: int | None = None
    """"GPU KV cache size"; of several engines, the least."""
    max_model_len: int | None = None
    """The length by which the size is counted, in tokens."""
    concurrency: float | None = None
    """"Maximum concurrency": requests of that length that fit."""
    by_blocks: bool = False
    """The size counts blocks of one group, as vLLM did before 0.22; else requests of that length that fit."""


class Nodes(msgspec.Struct, frozen=True):
    """Machines that a text asks for."""

    machines: int
    gpus: int | None
    """GPUs on each machine; None where the text does not say."""
    where: str


SEVERAL = "several"
"""Stands in the place of a version where a text names more than one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFacts:
    """What a text says of a server's start besides the words behind ``vllm serve``."""

    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that are set for it."""
    version: Said | None = None
    """vLLM's, as the text has it: ``0.22.1``, or a tag that names none."""
    gpu: Said | None = None
    """The GPU as the text names it: ``NVIDIA-H100-80GB-HBM3``."""
    replicas: Said | None = None
    """``4``, or ``1..4`` where they are scaled."""
    nodes: Nodes | None = None
    gpus: Said | None = None
    """How many the text gives to it, where it says so."""
    resolved: Mapping[str, Any] = field(default_factory=dict)
    """Settings, by name, that vLLM logged as it settled them, though no flag gave them."""
    kv: MeasuredKV = field(default_factory=MeasuredKV)
    notes: tuple[HeaderNote, ...] = ()
    """What was not read, and what the text leaves to its reader."""
    passed_over: tuple[HeaderNote, ...] = ()
    """What stands in the text and changes nothing here, by name and value, or by name alone (``AROUND``)."""
