"""Whether vLLM schedules a step before the one before has ended: as asked, else by version, drafts and executor."""

from __future__ import annotations

from tokenyard.config import SpeculativeConfig, SpeculativeMethod, async_scheduling_by_default
from tokenyard.errors import NoStartError
from tokenyard.kv.sizing.layer_cache import Planner

__all__ = ["schedules_ahead"]


def schedules_ahead(
    *,
    version: Planner,
    asked: bool | None,
    speculative: SpeculativeConfig | None = None,
    backend: str | None = None,
    pipeline_parallel_size: int = 1,
    use_v2_model_runner: bool = True,
    use_ray_v2_executor: bool = True,
) -> bool:
    """``asked`` is what ``--[no-]async-scheduling`` says, None if neither is given.

    The two switches are ``VLLM_USE_V2_MODEL_RUNNER`` (heeded in 0.33) and ``VLLM_USE_RAY_V2_EXECUTOR_BACKEND`` (0.22).
    Raises NoStartError where vLLM cannot do what was asked.
    """
    if asked is False:
        return False
    if version == "0.22":
        problem = _problem_022(speculative, backend, asked=asked is True, ray_is_ahead=use_ray_v2_executor)
    else:
        problem = _problem(speculative, backend, pipeline_parallel_size, use_v2=use_v2_model_runner)
    if asked and problem is not None:
        raise NoStartError(f"async_scheduling does not go with {problem}: leave it out")
    return problem is None


def _problem_022(
    speculative: SpeculativeConfig | None, backend: str | None, *, asked: bool, ray_is_ahead: bool
) -> str | None:
    """A draft model is no default, but may be asked for."""
    if backend == "ray" and not ray_is_ahead:
        return "VLLM_USE_RAY_V2_EXECUTOR_BACKEND=0"
    if speculative is None or async_scheduling_by_default(speculative):
        return None
    if asked and speculative.method is SpeculativeMethod.DRAFT_MODEL:
        return None
    return f"drafts of method {speculative.method}"


def _problem(
    speculative: SpeculativeConfig | None, backend: str | None, pipeline_parallel_size: int, *, use_v2: bool
) -> str | None:
    """Only the older model runner has any; vLLM takes it for a pipeline that is launched from outside as well."""
    if use_v2 and not (backend == "external_launcher" and pipeline_parallel_size > 1):
        return None
    if speculative is not None and speculative.method is SpeculativeMethod.NGRAM:
        return f"drafts of method {speculative.method} in the V1 model runner"
    if pipeline_parallel_size > 1:
        return "a pipeline in the V1 model runner"
    return None
