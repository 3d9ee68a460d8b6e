"""GPUs by name, by what drivers and clouds call them, by slice, or from a file of one's own.

Sizing the KV cache and estimating a step's duration need to know of a GPU what :class:`GPU` holds; ``gpus.toml`` has
the figures with their sources. What a kernel reaches of a data sheet is the latency model's business.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from tokenyard.errors import ConfigError, FileError, near_names
from tokenyard.files import MIB, packaged, read_input
from tokenyard.patterns import lazy_pattern
from tokenyard.plugins import called, foreign
from tokenyard.quick_dataclass import dataclass
from tokenyard.units import GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class GPU:
    """One accelerator, and the machine that it usually is in."""

    name: str
    memory_bytes: int
    """Device memory that the driver hands to one process, in bytes."""
    memory_bandwidth: float
    """Device memory, bytes per second."""
    bf16_flops: float
    """Dense bfloat16 tensor throughput, FLOP per second."""
    pcie_bandwidth: float
    """Host to device, bytes per second."""
    link_bandwidth: float
    """Bandwidth to the other GPUs of the node, bytes per second: NVLink where there is one, else PCIe."""
    compute_capability: tuple[int, int] = (0, 0)
    """CUDA's, major and minor: by it vLLM chooses kernels and some defaults; (0, 0): no CUDA."""
    generation: str = "unknown"
    """Its architecture."""
    float8_flops: float = 0.0
    """FLOP per second of the units for it; 0: there are none."""
    int8_flops: float = 0.0
    float4_flops: float = 0.0
    gpus_per_machine: int = 8
    domain: int = 0
    """GPUs of several machines that one switch joins (NVL72); 0: there is none."""
    network_bandwidth: float = 50e9
    """One GPU's port between machines, bytes per second: 400 Gbit/s unless stated otherwise, an assumption."""
    source: str = ""
    """Where the figures come from."""


_GIGA, _TERA = 1e9, 1e12
_FORMATS = ("float8", "int8", "float4")
_SCALED = {
    "memory_bandwidth": ("bandwidth", _GIGA), "pcie_bandwidth": ("pcie", _GIGA), "link_bandwidth": ("link", _GIGA),
    "network_bandwidth": ("network", _GIGA), "bf16_flops": ("bfloat16", _TERA), "float8_flops": ("float8", _TERA),
    "int8_flops": ("int8", _TERA), "float4_flops": ("float4", _TERA),
}  # fmt: skip
_PLAIN = {"generation": "generation", "gpus_per_machine": "per_machine", "domain": "domain", "source": "source"}
"""Fields of a GPU, and the keys of an entry that say them."""
_NUMBERS = ("memory", "bandwidth", "bfloat16", "pcie")
"""Keys that an entry must have."""
_OPTIONAL = ("link", "network", "domain", "per_machine", *_FORMATS)
_TEXTS = ("name", "generation", "capability", "source")
_LISTS = ("devices", "instances", "mig", "sizes")
_DATA: Mapping[str, Any] = tomllib.loads(packaged("tokenyard.models", "gpus.toml").decode())


def _gpu(name: str, entry: Mapping[str, Any]) -> GPU:
    """The GPU of an entry that was checked."""
    times = _DATA["generations"].get(entry.get("generation"), {})
    whole = {"link": entry["pcie"], **{kind: times.get(kind, 0) * entry["bfloat16"] for kind in _FORMATS}, **entry}
    major, _, minor = entry.get("capability", "0.0").partition(".")
    scaled = {field: whole[key] * unit for field, (key, unit) in _SCALED.items() if key in whole}
    plain = {field: entry[key] for field, key in _PLAIN.items() if key in entry}
    memory = int(entry["memory"] * GIB)
    return GPU(name=name, memory_bytes=memory, compute_capability=(int(major), int(minor)), **scaled, **plain)


GPUS: dict[str, GPU] = {name: _gpu(name, entry) for name, entry in _DATA["gpus"].items()}
"""Name, as ``--gpu`` takes it -> GPU."""
INSTANCES: tuple[tuple[re.Pattern[str], str, int], ...] = tuple(
    (lazy_pattern(pattern), name, count)
    for name, entry in _DATA["gpus"].items()
    for pattern, count in entry.get("instances", {}).items()
)
"""What clouds call machines, the GPU, and how many they have."""
_DEVICES = [
    (lazy_pattern(rf"\b(?:{pattern})\b"), name)
    for name, entry in _DATA["gpus"].items()
    for pattern in entry.get("devices", ())
]
_SLICE = lazy_pattern(r"(?:\bmig\b)?[\s:_-]*\b(?P<arithmetic>\d{1,2})g\.(?P<memory>\d{1,3})gb(?:\+\w+)?\b")
_MEMORY_SLICES = 8
_NEARLY = 0.04
"""By how much the memory in a slice's name may be off: drivers round it in several ways."""
_MOST_TEXT = 200
_MOST_BYTES = MIB


def named_gpu(name: str) -> GPU:
    """The GPU called ``name``: ours (case and ``_`` for ``-`` do not matter), its driver's (``NVIDIA L40S``), that of a
    cloud's machine (``g5.xlarge``), a slice of one (``h100-3g.40gb``), or of a file that ends in ``.toml``; or
    ``FILE.py:NAME``, or a name of the entry points ``tokenyard.gpus``: a GPU, or a function that makes one.

    Raises ConfigError listing our names, or naming the field of the file.
    """
    text = name.strip().lower() if isinstance(name, str) else ""
    if text.endswith(".toml"):
        return _of_file(Path(name))
    gpu = GPUS.get(text.replace("_", "-")) or gpu_of_instance(text)
    words = re.sub(r"[_\s]+", " ", text)
    if gpu is None and _begins_as_a_device(words):
        gpu = gpu_of_device(words)
    if gpu is None and text and (own := foreign("gpu", name.strip())) is not None:
        gpu = called(own, "gpu", name) if callable(own) else own
        if not isinstance(gpu, GPU):
            raise ConfigError("gpu", name, "it has to be a tokenyard.models.GPU, or a function that makes one")
    if gpu is None:
        _check_slice(name, words)
        near = [each for each in near_names(text, GPUS, n=3) if _NUMBERS_IN.findall(each) == _NUMBERS_IN.findall(text)]
        instead = f"{' or '.join(near)} may be meant; " if near else ""
        fix = f"{instead}use one of: {', '.join(GPUS)}; or a file with its figures (docs/gpus.md)"
        raise ConfigError("gpu", name, fix)
    return gpu


_NUMBERS_IN = lazy_pattern(r"\d+")
_SIZE_IN = lazy_pattern(r"\b(\d{1,4}) ?gi?b\b")
_SIZE_OFF = 0.1
_GB = 1e9
_MAKERS = lazy_pattern(r"(nvidia|amd|tesla|geforce|rtx|instinct|intel|habana)\b")


def _begins_as_a_device(text: str) -> bool:
    """Whether it names one device, and is no sentence about some (``2 x h100``)."""
    return bool(_MAKERS.match(text)) or any(pattern.match(text) for pattern, _ in _DEVICES)


_SAYS_ITS_GPU = tuple(
    lazy_pattern(pattern)
    for pattern in (
        r"[bv]m\.gpu\.(?P<gpu>[a-z][a-z\d]*)(?:-v\d)?\.(?P<count>\d{1,2})",  # Oracle: BM.GPU.B300.8
        r"gx\d[a-z]*-\d+x\d+x(?P<count>\d{1,2})(?P<gpu>[a-z]\w*)",  # IBM: gx3d-160x1792x8gaudi3
        r"gpu_(?P<count>\d{1,2})x_(?P<gpu>[a-z]\w*)",  # Lambda: gpu_8x_h100_sxm5
        r"gpu-(?P<gpu>[a-z][a-z\d]*?)x(?P<count>\d{1,2})-\d+gb",  # DigitalOcean: gpu-mi300x8-1536gb
    )
)
"""Names of machines that say which GPUs they have, and how many."""


def gpu_of_instance(name: str) -> GPU | None:
    """The GPU of a cloud's machine (``a3-highgpu-8g``), which knows how many that has; None for others."""
    short = name.lower()[:_MOST_TEXT].removeprefix("ml.")  # SageMaker's
    azure = f"standard_{short}"
    for pattern, gpu, count in INSTANCES:
        if pattern.fullmatch(short) or pattern.fullmatch(azure):
            return replace(GPUS[gpu], gpus_per_machine=count)
    said = next((found for pattern in _SAYS_ITS_GPU if (found := pattern.fullmatch(short))), None)
    device = None if said is None else gpu_of_device(said["gpu"].replace("_", " "))
    return None if said is None or device is None else replace(device, gpus_per_machine=max(1, int(said["count"])))


def gpu_of_device(name: str) -> GPU | None:
    """The GPU that a driver calls ``name`` (``NVIDIA H100 80GB HBM3``), or that has this name here; None for others.

    The longest match counts: an ``L40S`` is no ``L40``. ``MIG 3g.40gb`` in it makes it a slice.
    """
    if name in GPUS:
        return GPUS[name]
    words = name.lower()[:_MOST_TEXT].replace("-", " ")
    cut = _SLICE.search(words)
    gpu = _whole_device(words if cut is None else words[: cut.start()])
    if cut is None:
        return None if re.search(r"\bmig\b", words) else gpu
    return None if gpu is None else _slice(gpu, int(cut["arithmetic"]), int(cut["memory"]))


def _whole_device(words: str) -> GPU | None:
    """The GPU that a name speaks of, whatever part of it is meant."""
    if "laptop" in words:
        return None
    found = [(match.end() - match.start(), gpu) for pattern, gpu in _DEVICES if (match := pattern.search(words))]
    longest = max((length for length, _ in found), default=0)
    names = {gpu for length, gpu in found if length == longest}
    gpu = GPUS[names.pop()] if len(names) == 1 else None
    return gpu if gpu is None or _has_size(gpu, words) else None


def _has_size(gpu: GPU, words: str) -> bool:
    """Whether the memory that a name says, if it says one, is that of the GPU: an RTX 4090 of 48 GB is another card."""
    said = _SIZE_IN.search(words)
    if said is None or int(said[1]) in _DATA["gpus"][gpu.name].get("sizes", ()):
        return True
    return any(abs(int(said[1]) * unit / gpu.memory_bytes - 1) <= _SIZE_OFF for unit in (_GB, GIB))


def _check_slice(name: str, words: str) -> None:
    """Raise ConfigError if it is a slice that its GPU does not have."""
    words = words.replace("-", " ")
    cut = _SLICE.search(words)
    gpu = None if cut is None else _whole_device(words[: cut.start()])
    if gpu is None or gpu_of_device(words) is not None:
        return
    slices = [f"{gpu.name}-{each}" for each in _DATA["gpus"][gpu.name].get("mig", ())]
    has = f"its slices are {', '.join(slices)}" if slices else "it cannot be cut into any"
    raise ConfigError("gpu", name, f"{gpu.name} has no such slice: {has}")


def _slice(gpu: GPU, arithmetic: int, memory_gb: int) -> GPU | None:
    """A MIG slice: its share of the parts of arithmetic, of memory and bandwidth in eighths; it has no links.

    None if the GPU cannot be cut so.
    """
    slices = [_SLICE.fullmatch(each) for each in _DATA["gpus"][gpu.name].get("mig", ())]
    named = [(int(each["arithmetic"]), int(each["memory"])) for each in slices if each is not None]
    if not any(parts == arithmetic and abs(memory_gb - size) <= size * _NEARLY for parts, size in named):
        return None
    whole_arithmetic, whole_memory = max(named)
    parts = round(memory_gb * _MEMORY_SLICES / whole_memory)
    share, memory = arithmetic / whole_arithmetic, parts / _MEMORY_SLICES
    return replace(
        gpu,
        name=f"{gpu.name}-{arithmetic}g.{memory_gb}gb",
        memory_bytes=int(gpu.memory_bytes * memory),
        memory_bandwidth=gpu.memory_bandwidth * memory,
        **{field: getattr(gpu, field) * share for field in _SCALED if field.endswith("_flops")},
        link_bandwidth=gpu.pcie_bandwidth,
        gpus_per_machine=1,
        domain=0,
    )


@cache
def _of_file(path: Path) -> GPU:
    """The GPU of a file of one's own. Raises ConfigError naming file and field."""
    try:
        entry = tomllib.loads(read_input(path, _MOST_BYTES).decode())
    except FileError as error:
        raise ConfigError("gpu", str(path), error.problem) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError("gpu", str(path), f"is not TOML: {error}") from None
    for key, value in entry.items():
        _check(path, key, value)
    for key in _NUMBERS:
        if key not in entry:
            raise ConfigError(f"{path}: {key}", None, "is missing: give a number (docs/gpus.md says in which unit)")
    return _gpu(entry.get("name", path.stem), {**entry, "source": entry.get("source", str(path))})


def _check(path: Path, key: str, value: Any) -> None:
    where = f"{path}: {key}"
    if key in (*_NUMBERS, *_OPTIONAL):
        low = 0 if key in _FORMATS else 1e-3
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= _TERA:
            raise ConfigError(where, value, "give a number above 0")
        if key in ("domain", "per_machine") and (not isinstance(value, int) or value > 1 << 20):
            raise ConfigError(where, value, "give a whole number of GPUs")
    elif key == "capability":
        if not isinstance(value, str) or not re.fullmatch(r"\d{1,2}\.\d", value):
            raise ConfigError(where, value, 'give CUDA\'s compute capability as a text: "9.0"')
    elif key == "generation":
        if value not in _DATA["generations"]:
            raise ConfigError(where, value, f"use one of: {', '.join(_DATA['generations'])}, or leave it out")
    elif key not in (*_TEXTS, *_LISTS):
        known = ", ".join((*_NUMBERS, *_OPTIONAL, *_TEXTS))
        raise ConfigError(where, value, f"is not known: use {known}")
    elif key in _TEXTS and not isinstance(value, str):
        raise ConfigError(where, value, "give a text")
