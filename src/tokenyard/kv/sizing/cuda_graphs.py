"""Sizes of steps that vLLM captures as CUDA graphs: what a step is padded to, and what takes memory.

Unless sizes are given: 1, 2, 4, every 8 tokens to 255, every 16 from 256, up to twice what a step of decodes has, at
most 512; since 0.33 at most 1,024 on a B200 and its kin (compute capability 10), and steps of decodes of every size
that the drafts make. GPT-OSS asks for 1,024 itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenyard.config import MAX_COUNT, require_int
from tokenyard.errors import ConfigError, NoStartError
from tokenyard.kv.sizing.gpus import GPU
from tokenyard.kv.sizing.layer_cache import Planner

__all__ = ["MOST_CAPTURED", "capture_sizes", "sizes_up_to"]

MOST_CAPTURED = 512
"""Tokens of the largest CUDA graph that vLLM captures unless told otherwise."""
_MOST_ON_BLACKWELL = 1024
_MOST_OF_ARCHITECTURE = {"GptOssForCausalLM": 1024}
_INTERACTIVE = 32
"""Up to so many tokens `--performance-mode interactivity` captures every size."""


def capture_sizes(
    gpu: GPU,
    *,
    version: Planner,
    max_num_seqs: int,
    max_num_batched_tokens: int,
    num_speculative_tokens: int = 0,
    architecture: str = "",
    interactive: bool = False,
    given: Sequence[int] = (),
    most: int | None = None,
) -> tuple[int, ...]:
    """Sizes in tokens, ascending.

    ``given`` and ``most`` are what ``--cudagraph-capture-sizes`` and ``--max-cudagraph-capture-size`` say. Raises
    ConfigError for sizes that are none, NoStartError if the two contradict each other.
    """
    for size in given:
        require_int("cudagraph_capture_sizes", size, 1, MAX_COUNT)
    if most is not None:
        require_int("max_cudagraph_capture_size", most, 1, MAX_COUNT)
    if given:
        return _checked(tuple(sorted({size for size in given if size <= max_num_batched_tokens})), most)
    query = 1 + num_speculative_tokens
    decodes: list[int] = []
    limit = _MOST_OF_ARCHITECTURE.get(architecture) if most is None else most
    if limit is None:
        later = version != "0.22"
        ceiling = _MOST_ON_BLACKWELL if later and gpu.compute_capability[0] == 10 else MOST_CAPTURED
        limit = min(max_num_seqs * query * 2, ceiling)
        if later:
            decodes = [size for size in _of_decodes(max_num_seqs, query, ceiling) if size <= limit]
    limit = min(limit, max_num_batched_tokens)
    sizes = {*sizes_up_to(limit, every_below=_INTERACTIVE if interactive else 0)}
    sizes |= {size for size in decodes if size <= max_num_batched_tokens}
    if max_num_batched_tokens <= limit:
        sizes.add(max_num_batched_tokens)
    return tuple(sorted(sizes))


def sizes_up_to(largest: int, *, every_below: int = 0) -> tuple[int, ...]:
    """1, 2, 4, then every 8 tokens to 255, then every 16; each size up to ``every_below``, if that is given."""
    small = range(1, min(largest, every_below) + 1) if every_below else [s for s in (1, 2, 4) if s <= largest]
    return (*sorted({*small, *range(8, min(largest + 1, 256), 8), *range(256, largest + 1, 16)}),)


def _of_decodes(max_num_seqs: int, query: int, ceiling: int) -> list[int]:
    """Tokens of steps of decodes; without drafts only the largest is no round number."""
    if query == 1:
        return [max_num_seqs]
    requests = min(max_num_seqs, ceiling)
    return [count * query for count in {*sizes_up_to(requests), requests}]


def _checked(sizes: tuple[int, ...], most: int | None) -> tuple[int, ...]:
    if not sizes:
        raise ConfigError("cudagraph_capture_sizes", sizes, "give one that is no larger than max_num_batched_tokens")
    if most is not None and most != sizes[-1]:
        raise NoStartError(
            f"max_cudagraph_capture_size = {most} is not the largest of cudagraph_capture_sizes, which is {sizes[-1]}: "
            "give one of the two"
        )
    return sizes
