"""A model as vLLM builds it for one rank, on torch's meta device, and its planner's answers for it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from tokenyard.vllm.describing.pretend_gpu import pretend_groups
from tokenyard.vllm.describing.stand_in import with_factors

MAX_NUM_BATCHED_TOKENS = 8192
MAX_NUM_SEQS = 256


def versions() -> dict[str, str]:
    """Versions that the answers belong to."""
    import transformers
    import vllm

    return {"vllm": vllm.__version__.partition("+")[0], "transformers": transformers.__version__}


class NoDevice(TorchFunctionMode):  # type: ignore[misc]
    """What is meant for the GPU is made on the meta device, and numbers that a model asks it for are ones."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = dict(kwargs or {})
        if "cuda" in str(options.get("device", "")):
            options["device"] = "meta"
        options.pop("pin_memory", None)
        name = getattr(func, "__name__", "")
        if name == "tensor" and isinstance(args[0], int | float):
            options.setdefault("device", "cpu")  # numbers from which a model computes its sizes
        if name in _COPIES and isinstance(args[0], torch.Tensor) and args[0].is_meta:
            return _COPIES[name](args[0])
        if name == "to" and isinstance(args[0], torch.Tensor) and args[0].is_meta and "device" in options:
            options["device"] = "meta"
        if name == "__getitem__" and _is_mask(args[1]) and args[0].is_meta:
            return args[0].flatten(0, args[1].dim() - 1)  # all that a mask may choose
        return func(*args, **options)


def _is_mask(index: Any) -> bool:
    return isinstance(index, torch.Tensor) and index.dtype == torch.bool and index.is_meta


def _ones(tensor: torch.Tensor) -> torch.Tensor:
    return torch.ones(tensor.shape, dtype=tensor.dtype, device="cpu")


_COPIES: dict[str, Callable[[torch.Tensor], Any]] = {
    "tolist": lambda tensor: _ones(tensor).tolist(),
    "item": lambda _tensor: 1,
    "cpu": lambda tensor: tensor,
    "numpy": lambda tensor: _ones(tensor.float()).numpy(),
    "__bool__": lambda _tensor: True,
    "__int__": lambda _tensor: 1,
    "__float__": lambda _tensor: 1.0,
}
"""What would copy values out of a tensor that has none."""


class BuiltModel:
    """A model on the meta device, as the first rank of a tensor-parallel group holds it."""

    def __init__(
        self,
        config: dict[str, Any],
        tensor_parallel_size: int,
        options: dict[str, Any],
        *,
        stage: int = 0,
        files: Mapping[str, Any] | None = None,
    ) -> None:
        """``config`` is what a ``config.json`` holds, ``options`` are arguments of vLLM's ``EngineArgs``; ``stage`` is
        one of the pipeline's that they ask for. ``files`` lie beside it: by their paths, what they hold.
        """
        from vllm.engine.arg_utils import EngineArgs
        from vllm.model_executor.model_loader.utils import initialize_model
        from vllm.platforms import current_platform
        from vllm.utils.torch_utils import set_default_torch_dtype
        from vllm.v1.worker.workspace import init_workspace_manager

        pretend_groups(tensor_parallel_size, options.get("pipeline_parallel_size", 1), stage)
        init_workspace_manager(torch.device("meta"))
        with tempfile.TemporaryDirectory() as folder:
            for path, content in {"config.json": with_factors(config), **(files or {})}.items():
                Path(folder, path).parent.mkdir(exist_ok=True)
                Path(folder, path).write_text(json.dumps(content))
            given = {
                "skip_tokenizer_init": True,
                "load_format": "dummy",
                "enforce_eager": True,
                "tensor_parallel_size": tensor_parallel_size,
                "distributed_executor_backend": "mp" if tensor_parallel_size > 1 else None,
                "max_num_batched_tokens": MAX_NUM_BATCHED_TOKENS,
                "max_num_seqs": MAX_NUM_SEQS,
            }
            arguments = EngineArgs(model=folder, **{**given, **options})
            self.config = arguments.create_engine_config()
            with set_default_torch_dtype(self.config.model_config.dtype), torch.device("meta"), NoDevice():
                self.model = initialize_model(self.config)
        current_platform.update_block_size_for_backend(self.config)
        self.find_specs()

    def find_specs(self) -> None:
        """Ask every layer what it keeps, those of models that were built beside this one included."""
        from vllm.config.vllm import set_current_vllm_config

        with set_current_vllm_config(self.config):
            self.specs = self._specs()

    def _specs(self) -> dict[str, Any]:
        """Layer name -> KVCacheSpec, as the worker collects them."""
        from vllm.config.vllm import get_layers_from_vllm_config
        from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
        from vllm.v1.kv_cache_interface import AttentionSpec

        try:
            from vllm.v1.worker.utils import customize_attention_spec
        except ImportError:  # before 0.33
            customize_attention_spec = None
        specs = {}
        for name, layer in get_layers_from_vllm_config(self.config, AttentionLayerBase).items():
            if getattr(layer, "kv_sharing_target_layer_name", None):
                continue
            spec = layer.get_kv_cache_spec(self.config)
            if spec is None:
                continue
            if customize_attention_spec is not None and isinstance(spec, AttentionSpec):
                spec = customize_attention_spec(layer.get_attn_backend(), spec)
            specs[name] = spec
        return specs

    def cached_layers(self) -> dict[str, tuple[Any, Any]]:
        """Where a layer that attends stands in the model -> the layer, and what it keeps; None if nothing of its own.

        The names that their makers gave them may be others: ``0.attn`` stands beside the first layer of a model that
        runs by the code of ``transformers`` (before 0.33).
        """
        from vllm.config.vllm import get_layers_from_vllm_config
        from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase

        places = {id(module): place for place, module in self.model.named_modules()}
        layers = get_layers_from_vllm_config(self.config, AttentionLayerBase)
        numbered = f"{self._longest_list()}." if any(name[0].isdigit() for name in layers) else ""
        return {
            places.get(id(layer), f"{numbered}{name}"): (layer, self.specs.get(name)) for name, layer in layers.items()
        }

    def _longest_list(self) -> str:
        """Where the list of layers with the most parameters stands in the model."""
        lists = [each for each in self.model.named_modules() if isinstance(each[1], torch.nn.ModuleList)]
        return str(max(lists, key=lambda each: sum(p.numel() for p in each[1].parameters()))[0])

    def weights(self) -> tuple[int, int]:
        """Parameters and bytes on this rank."""
        parameters = list(self.model.parameters())
        return sum(p.numel() for p in parameters), sum(p.numel() * p.element_size() for p in parameters)

    def backends(self) -> list[str]:
        """Names of the attention backends chosen."""
        from vllm.config.vllm import get_layers_from_vllm_config
        from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase

        layers = get_layers_from_vllm_config(self.config, AttentionLayerBase).values()
        return sorted({layer.get_attn_backend().get_name() for layer in layers})

    def plan(self, available_bytes: int) -> dict[str, Any]:
        """What the planner says of so much memory: blocks, groups and capacity, or why it refuses."""
        try:
            return self._plan(available_bytes)
        except ValueError as error:
            text = str(error)
            _, _, after = text.partition("estimated maximum model length is ")
            estimate = int(after.split(".")[0]) if after else 0
            return {"refused": text.split(".", maxsplit=1)[0], "estimated_max_model_len": estimate}

    def _plan(self, available_bytes: int) -> dict[str, Any]:
        configs, capacity = self._planner()(available_bytes)
        result = configs[0]
        # a model that pools and sees both ways keeps nothing
        tokens, concurrency = capacity(result) if self.specs else (0, 0.0)
        groups = [_group(group) for group in result.kv_cache_groups]
        return {"num_blocks": result.num_blocks, "groups": groups, "tokens": tokens, "concurrency": concurrency}

    def _planner(self) -> Any:
        """The planner of this version: available bytes -> (configurations, capacity of one).

        The layout of the cache has to be resolved first since 0.29; planning has a module of its own since 0.33, which
        is given the groups of all workers.
        """
        from vllm.v1.attention.backends import utils as backends
        from vllm.v1.core import kv_cache_utils as utils

        specs = [dict(self.specs)]
        if hasattr(backends, "resolve_kv_cache_layout"):
            backends.resolve_kv_cache_layout(self.config, self._layouts(), list(self.specs.values()))
        try:
            from vllm.v1.core import kv_cache_planning as planning
        except ImportError:
            return lambda memory: (utils.get_kv_cache_configs(self.config, specs, [memory]), self._capacity)
        groups = planning.get_global_kv_cache_groups(self.config, specs)
        return lambda memory: (planning.get_kv_cache_configs(self.config, specs, [memory], groups), self._capacity)

    def _capacity(self, result: Any) -> tuple[int, float]:
        """Tokens that a configuration holds, and requests of the longest length; one function gives both since 0.24."""
        from vllm.v1.core import kv_cache_utils as utils

        if hasattr(utils, "get_kv_cache_capacity"):
            tokens, concurrency = utils.get_kv_cache_capacity(self.config, result)
            return int(tokens), float(concurrency)
        concurrency = float(utils.get_max_concurrency_for_kv_cache_config(self.config, result))
        return int(concurrency * self.config.model_config.max_model_len), concurrency

    def _layouts(self) -> Any:
        """Layouts that all attention backends support."""
        from vllm.config.vllm import get_layers_from_vllm_config
        from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
        from vllm.v1.attention.backends.utils import get_supported_kv_cache_layouts

        layers = get_layers_from_vllm_config(self.config, AttentionLayerBase).values()
        backends = list({layer.get_attn_backend(): None for layer in layers})
        return [[layout.name for layout in get_supported_kv_cache_layouts(backends)]]


def _group(group: Any) -> dict[str, Any]:
    """A KV cache group as the fixture notes it."""
    spec = group.kv_cache_spec
    inner = list(getattr(spec, "kv_cache_specs", {"": spec}).values())
    first = inner[0]
    window = getattr(first, "sliding_window", None) or getattr(first, "attention_chunk_size", None) or 0
    return {
        "kind": type(first).__name__,
        "block_size": spec.block_size,
        "num_layers": len(group.layer_names),
        "page_bytes": spec.page_size_bytes,
        "window": window,
    }
