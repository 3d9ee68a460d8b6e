"""Decoders that the table does not have, read by the fields that most files have; and what a checkpoint's files weigh.

A field that may matter and that such a decoder does not have is an error, as everywhere; so is a checkpoint whose files
do not weigh what the fields come to. Of a decoder behind towers the files say what the towers weigh.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from tokenyard.errors import ConfigError, FileError
from tokenyard.files import MIB, read_input
from tokenyard.models.fields import field_names
from tokenyard.models.formats import dtype_bytes
from tokenyard.models.reading.versions import versions_said
from tokenyard.models.spec import EncoderSpec, ModelSpec
from tokenyard.units import GIB

ORDINARY = "ordinary"
"""The row with grouped attention and MLPs or experts, under the names that most files have."""
INNER = ("text_config", "llm_config", "language_config", "text", "decoder")
"""Sections in which files keep a decoder behind towers."""
TYPES: Mapping[str, str] = field_names()["types"]
"""The decoder's ``model_type`` -> the architecture whose row reads it."""


# ---------------------------------------------------------------------------------------------------------------------
# What the files of a checkpoint weigh.

_INDEX = "model.safetensors.index.json"
_MOST_HEADER = 256 * MIB
_MOST_FILES = 2000
_CLOSE = 0.03
"""Share by which files may differ from fields: norms, biases, an output head that is stored though it is tied."""


def checkpoint_bytes(folder: Path) -> int | None:
    """Bytes of all tensors of the checkpoint in ``folder``; None where there is none.

    Raises ConfigError for one that cannot be read.
    """
    index = folder / _INDEX
    try:
        if index.is_file():
            total = msgspec.json.decode(read_input(index, _MOST_HEADER))["metadata"]["total_size"]
            if not isinstance(total, int | float) or total <= 0:
                raise ConfigError(f"{index}: total_size", total, "give the bytes of all tensors")
            return int(total)
        files = sorted(folder.glob("*.safetensors"))[:_MOST_FILES]
        return sum(size for file in files for size in _sizes(file)) or None
    except FileError as error:
        raise ConfigError("model", str(folder), error.problem) from None
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, OSError) as error:
        raise ConfigError("model", str(folder), f"holds safetensors that cannot be read: {error}") from None


def _sizes(file: Path) -> Iterator[int]:
    """Bytes of every tensor, by the file's header."""
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        if not 0 < length <= _MOST_HEADER:
            raise ValueError(f"{file.name} has a header of {length} bytes")
        header = msgspec.json.decode(opened.read(length))
    for name, tensor in header.items():
        if name != "__metadata__":
            begin, end = tensor["data_offsets"]
            yield end - begin


def weighed(spec: ModelSpec, where: str, raw: Mapping[str, Any], *, has_towers: bool) -> ModelSpec:
    """A model that was read by ordinary fields, with what its checkpoint's files say beside it.

    Raises ConfigError where files and fields contradict each other, and where nothing says what its towers weigh.
    """
    file = Path(where)
    total = checkpoint_bytes(file.parent) if file.is_file() else None
    how = f"{spec.architecture} is not in the table of models: read as an ordinary decoder"
    if total is None:
        if has_towers:
            where_else = versions_said(spec.architecture)
            known = f"is not known{where_else}, and nothing says what its encoders weigh"
            fix = f"{known}: put it beside its {_INDEX}, or {_DESCRIBE}"
            raise ConfigError(f"{where}: architectures", spec.architecture, fix)
        return replace(spec, notes=(*spec.notes, f"{how}; its weights follow from the fields of its config.json"))
    stored = str(raw.get("torch_dtype") or raw.get("dtype") or spec.dtype).removeprefix("torch.")
    if spec.quantization is None and stored == "float32":
        total = total * dtype_bytes(spec.dtype) // 4
    ours = spec.weight_bytes()
    rest = total - ours
    said = f"{how}; its files hold {total / GIB:,.2f} GiB, its fields come to {ours / GIB:,.2f}"
    if rest < -_CLOSE * ours or (not has_towers and rest > _CLOSE * ours):
        raise ConfigError(
            f"{where}: architectures", spec.architecture, f"{said}: they contradict each other, {_DESCRIBE}"
        )
    if not has_towers or rest <= 0:
        return replace(spec, notes=(*spec.notes, said))
    tower = EncoderSpec(kind="vision", num_parameters=rest // 2 or 1, replicated_parameters=0)
    note = f"{said}: the rest is taken for its encoders, shared out over GPUs"
    return replace(spec, encoders=(tower,), supports_multimodal=True, notes=(*spec.notes, note))


_DESCRIBE = "`tokenyard describe` beside an installed vLLM writes a file that every command takes"
