"""What vLLM itself makes of a line, on a machine that has no GPU."""

from __future__ import annotations

import contextlib
import io
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from config_oracle.drafts import draft_config
from config_oracle.draw import CONFIGS, DRAFTS, Case
from tokenyard.models.named import named_model
from tokenyard.vllm.describing.pretend_gpu import pretend_another, pretend_gpu, pretend_installed
from tokenyard.vllm.describing.stand_in import with_factors

__all__ = ["Refused", "Theirs"]

_PARSERS = tuple(f"vllm.entrypoints.{where}.cli_args" for where in ("common", "launchers", "openai"))
"""Where vLLM makes the parser of `vllm serve`, the newest versions first."""
_CAPABILITIES = {
    "a10": (8, 6),
    "a100-40gb": (8, 0),
    "a100-80gb": (8, 0),
    "h100": (9, 0),
    "h200": (9, 0),
    "b200": (10, 0),
    "b300": (10, 3),
    "gb200": (10, 0),
    "l4": (8, 9),
    "l40s": (8, 9),
    "rtx4090": (8, 9),
    "rtx5090": (12, 0),
    "rtxpro6000": (12, 0),
}


class Refused(Exception):  # noqa: N818 - an answer, no error of ours
    """vLLM would not start: says why."""


class Theirs:
    """vLLM, with one GPU at a time."""

    def __init__(self) -> None:
        pretend_gpu(80 << 30, (9, 0), "h100")
        pretend_installed()
        setattr(import_module("vllm.config.vllm"), "HAS_TRITON", True)  # noqa: B010 - as wherever a GPU is
        self._folders = tempfile.TemporaryDirectory()
        arguments, flexible = import_module("vllm.engine.arg_utils"), import_module("vllm.utils.argparse_utils")
        self._arguments = arguments.AsyncEngineArgs
        self._parser = _parser_module().make_arg_parser(flexible.FlexibleArgumentParser(prog="vllm serve"))
        self._usage = import_module("vllm.usage.usage_lib").UsageContext.OPENAI_API_SERVER

    @property
    def version(self) -> str:
        """vLLM's version."""
        return str(import_module("vllm").__version__).partition("+")[0]

    @property
    def known_as(self) -> str:
        """The version as we name it: 0.33."""
        return ".".join(self.version.split(".")[:2])

    @property
    def methods(self) -> set[str]:
        """What it knows for ``--quantization``, by name."""
        return set(import_module("vllm.model_executor.layers.quantization").QUANTIZATION_METHODS)

    def warm(self, models: Sequence[str]) -> None:
        """Have vLLM look at these models' classes, which takes seconds and is the same on all GPUs."""
        for model in models:
            with contextlib.suppress(Refused):
                self.settle(Case(0, "h100", model, ()))

    def take(self, gpu: str, memory_bytes: int) -> None:
        """Go on with this GPU. What vLLM has cached of another stays: use a process for each."""
        pretend_another(memory_bytes, _CAPABILITIES[gpu], f"NVIDIA {gpu.upper()}")

    def settle(self, case: Case) -> dict[str, Any]:
        """Everything that is compared. Raises Refused."""
        drafts = self._drafts(case.model)
        words = [word.replace(DRAFTS, f"{drafts}/") for word in case.words]
        with _variables(case.variables), contextlib.redirect_stderr(io.StringIO()) as said:
            try:
                asked = self._parser.parse_args(["--model", str(self._model(case.model)), *words])
                config = self._arguments.from_cli_args(asked).create_engine_config(self._usage)
            except SystemExit:
                raise Refused(said.getvalue().strip().splitlines()[-1]) from None
            except Exception as error:
                raise Refused(f"{type(error).__name__}: {str(error)[:400]}") from error
            if config.lora_config is not None and not _takes_adapters(config):
                raise Refused(f"{config.model_config.architecture} takes no adapters, which is seen as it is loaded")
            return _settled(config)

    def _drafts(self, target: str) -> Path:
        """Folders of draft models that have the vocabulary of ``target``."""
        vocabulary = named_model(target).vocab_size
        folder = Path(self._folders.name, f"drafts-{vocabulary}")
        if not folder.exists():
            folder.mkdir()
            for kind in ("eagle", "eagle3", "small"):
                _write(folder / kind, draft_config(kind, vocabulary))
        return folder

    def _model(self, name: str) -> Path:
        folder = Path(self._folders.name, name)
        if not folder.exists():
            _write(folder, _config(name))
        return folder


def _takes_adapters(config: Any) -> bool:
    """What vLLM asks of the model's class as it loads it; True where the class cannot be imported here."""
    models = import_module("vllm.model_executor.models")
    try:
        found, _ = models.ModelRegistry.resolve_model_cls(config.model_config.architectures, config.model_config)
    except (ImportError, ValueError, RuntimeError):
        return True
    return bool(models.supports_lora(found))


def _config(model: str) -> dict[str, Any]:
    return with_factors(json.loads((CONFIGS / f"{model}.json").read_text()))


def _write(folder: Path, config: dict[str, Any]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))


def _parser_module() -> Any:
    for name in _PARSERS:
        with contextlib.suppress(ModuleNotFoundError):
            return import_module(name)
    raise SystemExit("this vLLM makes its parser elsewhere: add the module to _PARSERS")


@contextlib.contextmanager
def _variables(given: tuple[tuple[str, str], ...]) -> Iterator[None]:
    """Within it the variables are set; what vLLM sets itself is gone afterwards."""
    before = dict(os.environ)
    os.environ.update(given)
    os.environ.update(VLLM_LOGGING_LEVEL="ERROR", RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")  # as torchrun sets them
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _settled(config: Any) -> dict[str, Any]:
    scheduler, cache, parallel = config.scheduler_config, config.cache_config, config.parallel_config
    graphs, drafts, lora = config.compilation_config, config.speculative_config, config.lora_config
    model = config.model_config
    dtype = str(model.dtype).removeprefix("torch.")
    has_graphs = graphs.cudagraph_mode.name != "NONE"
    return {
        "max_num_batched_tokens": scheduler.max_num_batched_tokens,
        "token_budget": scheduler.max_num_scheduled_tokens or scheduler.max_num_batched_tokens,
        "max_num_seqs": scheduler.max_num_seqs,
        "max_num_active_seqs": getattr(scheduler, "max_num_active_seqs", None) or scheduler.max_num_seqs,
        # Of -1, which is fitted when blocks are planned: what it is fitted from.
        "max_model_len": model.max_model_len,
        "policy": scheduler.policy,
        "async_scheduling": bool(scheduler.async_scheduling),
        "enable_chunked_prefill": bool(scheduler.enable_chunked_prefill),
        "long_prefill_token_threshold": scheduler.long_prefill_token_threshold,
        "scheduler_reserve_full_isl": scheduler.scheduler_reserve_full_isl,
        "disable_chunked_mm_input": scheduler.disable_chunked_mm_input,
        "watermark": getattr(scheduler, "watermark", 0.0),
        "prefill_schedule_interval": getattr(scheduler, "prefill_schedule_interval", 1),
        "scheduler_cls": None if scheduler.scheduler_cls is None else str(scheduler.scheduler_cls),
        "enable_prefix_caching": bool(cache.enable_prefix_caching),
        "block_size": cache.block_size if cache.user_specified_block_size and not model.is_hybrid else None,
        "cache_dtype": _cache_dtype(cache.cache_dtype, model),
        "gpu_memory_utilization": cache.gpu_memory_utilization,
        "kv_cache_memory_bytes": cache.kv_cache_memory_bytes,
        "num_gpu_blocks_override": cache.num_gpu_blocks_override,
        "mamba_cache_mode": cache.mamba_cache_mode if model.is_hybrid or model.is_attention_free else "none",
        "tensor_parallel_size": parallel.tensor_parallel_size,
        "pipeline_parallel_size": parallel.pipeline_parallel_size,
        "data_parallel_size": parallel.data_parallel_size,
        "decode_context_parallel_size": parallel.decode_context_parallel_size,
        "prefill_context_parallel_size": parallel.prefill_context_parallel_size,
        "enable_expert_parallel": parallel.enable_expert_parallel,
        "enforce_eager": not has_graphs,
        "cudagraph_mode": graphs.cudagraph_mode.name,
        "cudagraph_capture_sizes": sorted(graphs.cudagraph_capture_sizes) if has_graphs else [],
        "max_cudagraph_capture_size": graphs.max_cudagraph_capture_size if has_graphs else 0,
        "num_speculative_tokens": 0 if drafts is None else drafts.num_speculative_tokens,
        "use_eagle": drafts is not None and bool(drafts.use_eagle()),
        "max_loras": 0 if lora is None else lora.max_loras,
        "max_lora_rank": 0 if lora is None else lora.max_lora_rank,
        "kv_connector": None if config.kv_transfer_config is None else config.kv_transfer_config.kv_connector,
        "dtype": dtype,
        "quantized": model.quantization is not None,
    }


def _cache_dtype(name: str, model: Any) -> str | None:
    """dtype of the KV cache; None where every layer looks for itself what the checkpoint has scales for."""
    if name != "auto":
        return name
    quantized = getattr(model.hf_config, "quantization_config", None) or {}
    return None if quantized.get("kv_cache_scheme") else str(model.dtype).removeprefix("torch.")
