"""The engine's flags behind published points, which the table of points does not hold.

The points of MiniMax-M2.5, Kimi-K2.5, gpt-oss-120b and Llama-3.1-70B are InferenceX's (SemiAnalysis): its benchmark
scripts say how the server was started, and that the load is vLLM's random data set with lengths drawn from 80 to 100 %
of the nominal ones, ten requests per user, all sent at the start, and the mean of TTFT and TPOT. Scripts changed with
time, so a recipe is chosen by the date of the measurement. For all other points: vLLM's defaults, lengths that vary by
10 %.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tokenyard.sim.latency.steptime.formula import DEFAULT_CAPTURE_SIZE

__all__ = ["Recipe", "recipe_of"]

_BIG_GRAPHS = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How the server was started, and what was sent."""

    max_num_batched_tokens: int = 8192
    kv_cache_dtype: str | None = None
    gpu_memory_utilization: float = 0.9
    always_expert_parallel: bool = False
    """The script turned expert parallelism on whatever the record says."""
    knows_data_parallel: bool = True
    """False: the script ignored data-parallel attention, and ran tensor with expert parallelism instead."""
    capture_size: int = DEFAULT_CAPTURE_SIZE
    shortest: float = 0.8
    """Share of the nominal lengths from which lengths are drawn."""


def recipe_of(model_path: str, precision: str, gpu: str, measured: str, version: str, input_tokens: int) -> Recipe:
    """The recipe of a point; ``measured`` is the date, as 2026-04-03, or nothing where it is not known."""
    name = model_path.rsplit("/", 1)[-1].lower()
    for start, rule in _RULES.items():
        if name.startswith(start):
            return rule(precision, gpu, measured, version, input_tokens)
    return Recipe(shortest=0.9)


def _minimax(precision: str, gpu: str, measured: str, version: str, input_tokens: int) -> Recipe:
    if gpu == "h100":
        return Recipe(knows_data_parallel=False)
    if gpu == "h200":
        return Recipe(
            gpu_memory_utilization=0.95, always_expert_parallel=measured >= "2026-03-13", knows_data_parallel=False
        )
    if precision == "fp8" and measured < "2026-04-03":
        return Recipe(gpu_memory_utilization=0.95, always_expert_parallel=True, knows_data_parallel=False)
    if version.startswith("nightly"):
        return Recipe(kv_cache_dtype="fp8", knows_data_parallel=precision == "fp4")
    return Recipe(
        max_num_batched_tokens=2 * input_tokens,
        kv_cache_dtype="fp8",
        capture_size=_BIG_GRAPHS,
        knows_data_parallel=precision == "fp4",
    )


def _kimi(precision: str, gpu: str, measured: str, version: str, input_tokens: int) -> Recipe:
    if precision == "int4":
        return Recipe(gpu_memory_utilization=0.95, knows_data_parallel=False)
    if gpu == "b200" and measured >= "2026-04-20":
        return Recipe(
            max_num_batched_tokens=2 * input_tokens,
            kv_cache_dtype="fp8",
            capture_size=_BIG_GRAPHS,
            knows_data_parallel=False,
        )
    return Recipe(kv_cache_dtype="fp8", knows_data_parallel=False)


def _gpt_oss(precision: str, gpu: str, measured: str, version: str, input_tokens: int) -> Recipe:
    late = measured >= "2025-12"
    return Recipe(
        kv_cache_dtype="fp8" if gpu == "b200" and late else None,
        capture_size=_BIG_GRAPHS if late else DEFAULT_CAPTURE_SIZE,
        knows_data_parallel=False,
    )


def _llama_70b(precision: str, gpu: str, measured: str, version: str, input_tokens: int) -> Recipe:
    """On Blackwell graphs were captured for decodes alone."""
    capture_size = 0 if gpu.startswith("b") else DEFAULT_CAPTURE_SIZE
    return Recipe(kv_cache_dtype="fp8", capture_size=capture_size, knows_data_parallel=False)


_RULES: dict[str, Callable[[str, str, str, str, int], Recipe]] = {
    "minimax-m2": _minimax,
    "kimi-k2": _kimi,
    "gpt-oss": _gpt_oss,
    "llama-3.1-70b": _llama_70b,
}
