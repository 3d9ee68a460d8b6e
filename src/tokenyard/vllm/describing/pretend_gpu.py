"""Makes vLLM believe in a GPU: configurations, attention backends and model classes are then the ones it would use.

Nothing is computed: models are built on torch's ``meta`` device. Compiled extensions are replaced by stand-ins that
only exist, tensor-parallel groups by ones that only have a size.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
import types
from collections import defaultdict
from collections.abc import Callable, MutableSequence, Sequence
from contextlib import suppress
from typing import Any
from unittest.mock import MagicMock

COMPILED = [
    "vllm._C",
    "vllm._C_stable_libtorch",
    "vllm._moe_C",
    "vllm._moe_C_stable_libtorch",
    "vllm._flashkda_C",
    "vllm._flashmla_C",
    "vllm._flashmla_extension_C",
    "vllm.cumem_allocator",
    "vllm.third_party.deep_gemm",
    "vllm.third_party.flashmla",
    "cutlass",
    "deep_gemm",
    "humming",
    "vllm.vllm_flash_attn",
]
"""Extensions of vLLM's GPU wheel."""
NAMESPACES = ("_C", "_C_cache_ops", "_C_cuda_utils", "_C_stable_libtorch", "_flashkda_C", "_flashmla_C", "_moe_C")
"""Where they register their operators."""


class _StandIn(types.ModuleType):
    """A module that has every attribute."""

    __path__: MutableSequence[str] = []  # noqa: RUF012 - as every package has it
    __file__ = "stand-in"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock(name=f"{self.__name__}.{name}")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds stand-ins for the compiled extensions."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if any(fullname == name or fullname.startswith(f"{name}.") for name in COMPILED):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """There is nothing to run."""


_MOST_DEVICES = 1 << 10
"""More than any line asks for: how many a machine has is not vLLM's to say."""


class _Device:
    """The GPU that there seems to be."""

    memory_bytes = 0
    capability = (0, 0)
    name = ""


def pretend_another(memory_bytes: int, capability: tuple[int, int], name: str) -> None:
    """Exchange the GPU. Answers that vLLM has kept of the one before stay: fork a process first."""
    _Device.memory_bytes, _Device.capability, _Device.name = memory_bytes, capability, name


def pretend_installed() -> None:
    """Ray is installed, and not running; what reads images is there. Call it before vLLM's models are imported."""
    pretend_torchvision()
    COMPILED.append("ray")
    import ray

    ray.is_initialized = lambda: False


def pretend_torchvision() -> None:
    """What reads images and sound is there. Call it before vLLM's models are imported."""
    import transformers.utils.import_utils  # looks what is installed, and gets the true answer

    COMPILED.extend(("torchvision", "torchaudio"))
    import torch
    import torchaudio.functional as sound  # `from torchaudio import functional` were an attribute of the stand-in

    sound.melscale_fbanks = lambda **sizes: torch.zeros(sizes["n_freqs"], sizes["n_mels"])
    for name in ("AutoImageProcessor", "AutoVideoProcessor"):
        # Where there is no torchvision these refuse everything, and models of earlier versions register theirs.
        if "_backends" in vars(getattr(transformers, name, object)):
            setattr(transformers, name, type(name, (), {"register": _no_class, "from_pretrained": _no_files}))


def _no_class(*_args: Any, **_options: Any) -> None:
    """Nothing asks for it again."""


def _no_files(*_args: Any, **_options: Any) -> Any:
    raise OSError("there are no files of a processor here")


def pretend_flashinfer() -> None:
    """FlashInfer is there with its kernels, as in vLLM's images. Call it before attention backends are imported."""
    COMPILED.extend(("flashinfer", "flashinfer_cubin"))
    import flashinfer.utils as kernels

    kernels.get_trtllm_gen_multi_ctas_kv_counter_bytes = lambda *_sizes: 0  # of a buffer
    with suppress(ImportError):
        import tvm_ffi  # noqa: F401 - it looks at CUDA's bindings when it is imported, and takes a stand-in for them
    COMPILED.append("cuda")


def pretend_tokenizer() -> None:
    """A model whose files are not there has a tokenizer: some classes count the tokens of a picture with it."""
    with suppress(ImportError):
        from vllm.multimodal.processing.context import InputProcessingContext

        tokenizer = MagicMock(name="tokenizer", pad_token_id=0)
        tokenizer.encode.return_value = [1]
        tokenizer.convert_tokens_to_ids.return_value = 1
        tokenizer.get_vocab.return_value = {}
        tokenizer.return_value = MagicMock(input_ids=[[1]])
        tokenizer.__len__.return_value = 1000
        tokenizer.vocab = defaultdict(lambda: 1)
        InputProcessingContext.get_tokenizer = lambda _context: tokenizer
        from vllm import tokenizers
        from vllm.multimodal import registry  # has it by a name of its own

        tokenizers.cached_tokenizer_from_config = lambda *_args, **_options: tokenizer
        registry.cached_tokenizer_from_config = tokenizers.cached_tokenizer_from_config
        _pretend_processors()
    with suppress(ImportError):  # hashes of DeepSeek V4.1's tokens have no weights, and are made with its tokenizer
        from vllm.models.deepseek_v41.nvidia import model as hashing

        hashing.NgramHashState = _no_hashes
    with suppress(ImportError, AttributeError):  # asks for one when it is made, since 0.33
        from vllm.multimodal.processing.processor import BaseMultiModalProcessor

        BaseMultiModalProcessor.requires_tokenizer = False


def _no_hashes(*_args: Any, **_options: Any) -> Any:
    import torch

    return torch.nn.Module()


def _pretend_processors() -> None:
    """What prepares pictures and sound is there too, where its files are not."""
    from vllm.transformers_utils import processor

    def or_stand_in(get: Callable[..., Any]) -> Callable[..., Any]:
        def found(*args: Any, **options: Any) -> Any:
            try:
                return get(*args, **options)
            except (OSError, RuntimeError):
                return MagicMock(name="processor")

        return found

    for name in (
        "cached_get_processor", "cached_get_image_processor", "cached_get_feature_extractor",
        "cached_get_video_processor", "cached_processor_from_config", "cached_image_processor_from_config",
        "cached_feature_extractor_from_config", "cached_video_processor_from_config",
    ):  # fmt: skip
        if hasattr(processor, name):
            setattr(processor, name, or_stand_in(getattr(processor, name)))


def pretend_gpu(memory_bytes: int, capability: tuple[int, int], name: str) -> None:
    """Install a GPU of this memory and compute capability. Call it before anything else of vLLM is imported."""
    pretend_another(memory_bytes, capability, name)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_PLUGINS", "")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # Triton may do without a driver then
    sys.meta_path.insert(0, _Finder())
    _forgive_missing_operators()
    from vllm import platforms

    platforms.vllm_version_matches_substr = lambda _substring: False  # no CPU build
    from vllm.platforms.cuda import CudaPlatformBase
    from vllm.platforms.interface import DeviceCapability

    class PretendedGPU(CudaPlatformBase):  # type: ignore[misc,unused-ignore]
        """Answers what configurations ask."""

        get_cuda_runtime_major = staticmethod(lambda: 13)  # as in vLLM's images

        @classmethod
        def get_device_capability(cls, device_id: int = 0) -> Any:
            return DeviceCapability(*_Device.capability)

        @classmethod
        def has_device_capability(cls, capability_wanted: int | tuple[int, int], device_id: int = 0) -> bool:
            wanted = divmod(capability_wanted, 10) if isinstance(capability_wanted, int) else capability_wanted
            return _Device.capability >= tuple(wanted)

        @classmethod
        def get_device_name(cls, device_id: int = 0) -> str:
            return _Device.name

        @classmethod
        def get_device_uuid(cls, device_id: int = 0) -> str:
            return "GPU-0"

        @classmethod
        def get_device_total_memory(cls, device_id: int = 0) -> int:
            return _Device.memory_bytes

        @classmethod
        def is_fully_connected(cls, device_ids: list[int]) -> bool:
            return True

        @classmethod
        def current_device(cls) -> str:
            return "meta"

        @classmethod
        def num_compute_units(cls, device_id: int = 0) -> int:
            return 132

        @classmethod
        def device_count(cls) -> int:
            return _MOST_DEVICES

    platforms._current_platform = PretendedGPU()  # noqa: SLF001
    _pretend_operators()
    _inspect_here()


def _inspect_here() -> None:
    """Model classes are looked at in this process, where the stand-ins are, and not in one of their own."""
    from vllm.model_executor.models import registry

    registry._run_in_subprocess = lambda function: function()  # noqa: SLF001


def _forgive_missing_operators() -> None:
    """Fake kernels of operators that are not there are ignored."""
    import torch

    register = torch.library.register_fake

    def register_fake(op: Any, *args: Any, **options: Any) -> Callable[[Any], Any]:
        def decorate(function: Any) -> Any:
            try:
                return register(op, *args, **options)(function)
            except Exception:  # noqa: BLE001 - whatever it is, the operator is not there
                return function

        return decorate

    torch.library.register_fake = register_fake


def _pretend_operators() -> None:
    """Operators that were never compiled exist and say yes."""
    import torch
    import vllm._custom_ops  # noqa: F401 - registers what there is, before the rest is pretended

    namespace = torch._ops._OpNamespace  # noqa: SLF001
    real = namespace.__getattr__

    def operator(self: Any, name: str) -> Any:
        try:
            return real(self, name)
        except AttributeError:
            if self.name in NAMESPACES and not name.startswith("__"):
                return MagicMock(name=name, return_value=True)
            raise

    namespace.__getattr__ = operator
    for name in ("Stream", "Event", "current_stream", "default_stream"):
        setattr(torch.cuda, name, MagicMock(name=name))
    torch.cuda.get_device_capability = lambda *_device: _Device.capability
    torch.cuda.get_device_properties = lambda *_device: MagicMock(
        total_memory=_Device.memory_bytes, major=_Device.capability[0], minor=_Device.capability[1],
        multi_processor_count=132, shared_memory_per_block_optin=227 << 10, warp_size=32,
    )  # fmt: skip
    if hasattr(torch, "accelerator"):
        torch.accelerator.current_device_index = lambda: 0


def pretend_groups(tensor_parallel_size: int, num_stages: int = 1, stage: int = 0) -> None:
    """Be the first rank of a tensor-parallel group of this size in one stage of a pipeline, alone in all others."""
    import vllm.distributed.parallel_state as state

    for name in ("_WORLD", "_TP", "_EP", "_ETP"):
        setattr(state, name, _group(tensor_parallel_size))
    for name in ("_DP", "_DCP", "_PCP"):
        setattr(state, name, _group(1))
    for name in ("_PP",):
        setattr(state, name, _group(num_stages, stage))


def _group(size: int, rank: int = 0) -> MagicMock:
    group = MagicMock(world_size=size, rank=rank, rank_in_group=rank, local_rank=rank, ranks=list(range(size)))
    group.configure_mock(is_first_rank=rank == 0, is_last_rank=rank == size - 1, first_rank=0, last_rank=size - 1)
    group.configure_mock(use_device_communicator=False, unique_name="pretended", next_rank=0, prev_rank=0)
    for part in (group.device_group, group.cpu_group):
        part.size.return_value, part.rank.return_value = size, rank
    return group
