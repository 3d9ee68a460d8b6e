"""A latency model by name, as ``--latency`` takes it."""

from __future__ import annotations

import os
from math import inf
from pathlib import Path
from typing import Any

from tokenyard.arguments import given_text, suggests_keywords
from tokenyard.core.config import SpeculativeConfig
from tokenyard.core.params import has_member
from tokenyard.errors import ConfigError
from tokenyard.models.gpus import GPU, named_gpu
from tokenyard.models.named import model_called
from tokenyard.models.spec import ModelSpec
from tokenyard.plugins import called, foreign
from tokenyard.steptime.calibrated import CalibratedLatency, drafting_of
from tokenyard.steptime.encoders import timed_encoders
from tokenyard.steptime.fitted import fit_trace
from tokenyard.steptime.formula import DEFAULT_CAPTURE_SIZE, Parallelism
from tokenyard.steptime.model import ConstantLatency, LatencyModel
from tokenyard.steptime.roofline import RooflineLatency
from tokenyard.steptime.table_sources import is_aic_folder, is_lss_folder, load_aic, load_lss
from tokenyard.steptime.tables import TableLatency

_OURS = ("calibrated", "roofline", "constant", "table", "fitted")
_KINDS = "calibrated, roofline, constant:SECONDS, table:FOLDER, fitted:TRACE or FILE.py:NAME"


@suggests_keywords()
def load_latency(
    spec: str,
    *,
    model: ModelSpec | str | None = None,
    gpu: GPU | str | None = None,
    tensor_parallel_size: int = 1,
    kv_cache_dtype: str | None = None,
    speculative: SpeculativeConfig | None = None,
    drafter: ModelSpec | None = None,
    data_parallel_size: int = 1,
    enable_expert_parallel: bool = False,
    pipeline_parallel_size: int = 1,
    gpus_per_machine: int = 0,
    enforce_eager: bool = False,
    host_speed: float = 1.0,
    max_cudagraph_capture_size: int = DEFAULT_CAPTURE_SIZE,
    enable_lora: bool = False,
    has_adapters: bool = False,
    has_images: bool = False,
    decode_context_parallel_size: int = 1,
    async_scheduling: bool = True,
    version: str | None = None,
) -> LatencyModel:
    """``calibrated`` or ``roofline`` (of ``gpu`` and ``model``), ``constant:SECONDS``, ``table:FOLDER`` (of ``model``)
    or ``fitted:TRACE``; or ``FILE.py:NAME``, or a name of the entry points ``tokenyard.latency``: a class or function
    that takes ``model``, ``gpu`` and ``tensor_parallel_size``, or those of them that it names.

    ``model`` is what ``--model`` takes (a name of ours or of the hub, the path of a config.json), ``gpu`` a named GPU;
    ``kv_cache_dtype`` and what follows concern the calibrated one alone. ``data_parallel_size`` counts ranks that step
    together, and is 1 where each steps alone; ``has_adapters``: requests name LoRA adapters; ``has_images``: steps
    compute pictures, whose encoder takes time if its sizes are known; ``gpus_per_machine``: 0 is the usual number;
    ``version`` is vLLM's, on which the known error of the times depends.

    Raises ConfigError naming what is wrong or missing, TraceError for a trace that cannot be read.
    """
    kind, _, argument = given_text("latency", spec, f"use {_KINDS}").partition(":")
    _check_kinds(model, gpu, speculative)
    if kind not in _OURS and (own := foreign("latency", spec)) is not None:
        return _own(own, spec, model, gpu, tensor_parallel_size)
    if kind == "constant":
        return ConstantLatency(seconds=_seconds(spec, argument))
    if kind == "fitted" and argument:
        return fit_trace(argument)
    if kind not in ("calibrated", "roofline", "table") or (kind == "table") != bool(argument):
        raise ConfigError("latency", spec, f"use {_KINDS}")
    if model is None:
        raise ConfigError("model", None, f"name a model for the {kind} latency")
    model = model_called(model) if isinstance(model, str) else model
    gpu = named_gpu(gpu) if isinstance(gpu, str) else gpu
    if kind == "table":
        return load_tables(argument, model, gpu=gpu, tensor_parallel_size=tensor_parallel_size)
    if gpu is None:
        raise ConfigError("gpu", None, f"name a GPU for the {kind} latency")
    if kind == "calibrated":
        return CalibratedLatency(
            model,
            gpu,
            parallel=Parallelism(
                tensor=tensor_parallel_size,
                data=data_parallel_size,
                pipeline=pipeline_parallel_size,
                expert=enable_expert_parallel,
                gpus_per_machine=gpus_per_machine,
            ),
            kv_cache_dtype=kv_cache_dtype,
            capture_size=max_cudagraph_capture_size,
            eager=enforce_eager,
            host_speed=host_speed,
            drafting=drafting_of(model, speculative, drafter),
            lora=has_adapters,
            lora_enabled=enable_lora,
            context_ranks=decode_context_parallel_size,
            encoders=timed_encoders(model) if has_images else (),
            prepared_ahead=async_scheduling,
            version=version,
        )
    return RooflineLatency(model, gpu, tensor_parallel_size=tensor_parallel_size)


def _check_kinds(model: object, gpu: object, speculative: object) -> None:
    """Raise ConfigError for what is neither a name nor what it names."""
    for field, value, kind, fix in (
        ("model", model, ModelSpec | str, "give the name of a model, the path of a config.json, or a ModelSpec"),
        ("gpu", gpu, GPU | str, "give the name of a GPU, or a GPU"),
        ("speculative", speculative, SpeculativeConfig, "give a SpeculativeConfig, or leave it out"),
    ):
        if value is not None and not isinstance(value, kind):
            raise ConfigError(field, value, fix)


def _own(make: Any, spec: str, model: ModelSpec | str | None, gpu: GPU | str | None, tp: int) -> LatencyModel:
    """One of another's making."""
    model = model_called(model) if isinstance(model, str) else model
    gpu = named_gpu(gpu) if isinstance(gpu, str) else gpu
    is_made = has_member(make, "step_seconds") and not isinstance(make, type)
    made: Any = make if is_made else called(make, "latency", spec, model=model, gpu=gpu, tensor_parallel_size=tp)
    if not has_member(made, "step_seconds"):
        raise ConfigError("latency", spec, "it has to make an object with step_seconds() (docs/latency.md)")
    model_made: LatencyModel = made
    return model_made


def load_tables(
    folder: str | os.PathLike[str], model: ModelSpec, *, gpu: GPU | None = None, tensor_parallel_size: int = 1
) -> TableLatency:
    """Kernel timings of a folder, in whichever of the known formats it holds."""
    path = Path(folder)
    if not path.is_dir():
        raise ConfigError("latency", str(path), "is not a folder")
    if is_lss_folder(path):
        return load_lss(path, model, gpu=gpu, tensor_parallel_size=tensor_parallel_size)
    if not is_aic_folder(path):
        raise ConfigError("latency", str(path), "holds neither tp<N>_attention.csv nor aic_<gpu>_..._gemm.csv")
    if gpu is None:
        raise ConfigError("gpu", None, "give --gpu: the folder holds tables of several GPUs")
    return load_aic(path, model, gpu, tensor_parallel_size=tensor_parallel_size)


def _seconds(spec: str, argument: str) -> float:
    try:
        seconds = float(argument)
        if not 0 <= seconds < inf:
            raise ValueError("no duration")
        return seconds
    except ValueError:
        raise ConfigError("latency", spec, "give seconds, for example constant:0.02") from None
