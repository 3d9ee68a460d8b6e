"""Descriptions of models from vLLM's own classes, on a machine with or without a GPU (``tokenyard describe``)."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from tokenyard.errors import CannotDescribeError
from tokenyard.models.gpus import named_gpu

__all__ = ["described_by_vllm"]


def described_by_vllm(raw: dict[str, Any], *, name: str, gpu: str = "h100", dtype: str = "auto") -> Any:
    """The :class:`~tokenyard.vllm.describing.describe.Description` of a ``config.json``, by the vLLM that is installed.

    vLLM is made to believe in ``gpu``. Raises CannotDescribeError where there is no vLLM.
    """
    if find_spec("vllm") is None:
        raise CannotDescribeError("there is no vLLM here: run it with the Python that vLLM is installed for")
    device = named_gpu(gpu)
    from tokenyard.vllm.describing import pretend_gpu as pretend

    pretend.pretend_gpu(device.memory_bytes, device.compute_capability, f"NVIDIA {device.name.upper()}")
    pretend.pretend_torchvision()
    pretend.pretend_flashinfer()
    pretend.pretend_tokenizer()
    from tokenyard.vllm.describing.describe import describe

    return describe(raw, name=name, dtype=dtype)
