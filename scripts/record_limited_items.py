"""Records the picture that vLLM measures memory with where a line limits its size, and what the sizes leave alone.

``--limit-mm-per-prompt '{"image": {"count": 2, "width": 512}}'`` makes the picture smaller that a class builds to
measure with. vLLM's own builders of such pictures, and its own processing classes, are asked about drawn sizes, beside
the stand-ins of ``record_image_tokens.py``, as which this is run:

    PYTHONPATH=src:scripts nice python scripts/record_limited_items.py [ARCHITECTURE ...]

Its last line says how often ``tokenyard`` takes as large a picture. ``limits.json`` names the classes that know the
largest item by themselves, whose budgets stay as they are whatever a line says; and those that were asked, which heed
sizes or do not.
"""

from __future__ import annotations

import gzip
import inspect
import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from random import Random
from types import SimpleNamespace
from typing import Any

from planner.limited import compared
from record_image_tokens import CASES, CHANGES, FAMILIES, MODELS, PUBLISHED, Asked, class_called, set_fields
from tokenyard.models.gpus import GPUS
from tokenyard.vllm.describing.pretend_gpu import (
    pretend_flashinfer,
    pretend_gpu,
    pretend_tokenizer,
    pretend_torchvision,
)

OUT = MODELS / "limited_items.json.gz"
TABLE = MODELS.parents[2] / "src" / "tokenyard" / "models" / "images" / "limits.json"
SIZES = 40
"""Drawn for each case of a family."""


def main() -> int:
    """Ask about every family, and write the answers and the table."""
    gpu = GPUS["h100"]
    pretend_gpu(gpu.memory_bytes, gpu.compute_capability, f"NVIDIA {gpu.name.upper()}")
    pretend_torchvision()
    pretend_flashinfer()
    pretend_tokenizer()
    logging.disable(logging.CRITICAL)
    import vllm.multimodal.processing.dummy_inputs as building

    from tokenyard.vllm.describing.built import versions

    # no picture is made: some are as large as ten million pixels along an edge
    building.Image = SimpleNamespace(new=lambda _mode, size, **_: SimpleNamespace(size=size), Image=object)
    registry = json.loads(gzip.decompress((MODELS / "registry.json.gz").read_bytes()))["architectures"]
    configs = {
        each["architecture"]: case["config"]
        for each in registry
        for case in each["cases"]
        if case["variant"] == "default"
    }
    known: dict[str, Any] = json.loads(gzip.decompress(OUT.read_bytes()))["families"] if OUT.exists() else {}
    for name in sys.argv[1:] or sorted(FAMILIES):
        try:
            known[name] = [_case(name, case, configs[name]) for case in range(CASES)]
            print(name, known[name][0]["heeded"], known[name][0]["limited"][:2], flush=True)
        except Exception as error:  # noqa: BLE001 - one family that cannot be asked must not hide the others
            known.pop(name, None)
            print(f"{name}: {type(error).__name__}: {str(error)[:200]}", flush=True)
    content = json.dumps({"versions": versions(), "families": known}, sort_keys=True)
    OUT.write_bytes(gzip.compress(content.encode(), mtime=0))
    heeding = {name: cases[0]["heeded"] for name, cases in sorted(known.items())}
    TABLE.write_text(json.dumps({"own_budgets": sorted(_own_budgets()), "heeding": heeding}, indent=1) + "\n")
    pairs = [pair for name, cases in known.items() for case in cases for pair in compared(name, case)]
    same = [ours == theirs for ours, theirs in pairs]
    print(f"{sum(same):,} of {len(same):,} limited pictures of {len(known)} families are vLLM's")
    return 0


def _own_budgets() -> Iterator[str]:
    """Architectures whose class says how many embeddings the largest item has, rather than to build one."""
    from vllm.model_executor.models.registry import _MULTIMODAL_MODELS
    from vllm.multimodal.processing import BaseProcessingInfo

    for name in _MULTIMODAL_MODELS:
        try:
            info = class_called(name)._processor_factory.info  # noqa: SLF001
        except Exception as error:  # noqa: BLE001 - whatever a module does when it is imported
            print(f"{name}: {type(error).__name__}: {str(error)[:100]}", flush=True)
            continue
        if inspect.isfunction(info):  # LLaVA's and Mistral's, which choose among classes that build one
            continue
        asked = info.get_mm_max_tokens_per_item
        if asked is not BaseProcessingInfo.get_mm_max_tokens_per_item and "return None" not in inspect.getsource(asked):
            yield name


def _case(name: str, number: int, default: Mapping[str, Any]) -> dict[str, Any]:
    from planner.draw import config_class

    rule, asking, processor = FAMILIES[name]
    raw, settings = deepcopy(dict(default)), deepcopy(processor)
    set_fields(raw, PUBLISHED.get(name, {}))
    edge = (raw.get("vision_config") or {}).get("image_size")
    tile = edge if isinstance(edge, int) else 448
    random = Random(f"{name} {number} limits")
    if number and rule in CHANGES:
        drawn, others = CHANGES[rule](Random(f"{name} {number} fields"), tile)
        settings |= others
        set_fields(raw, drawn)
    config = config_class(name)(**{key: deepcopy(value) for key, value in raw.items() if key != "architectures"})
    asked = Asked(name, config, settings)
    count = asking(asked, settings)
    heeded, build = _builder(name, asked)
    limited = []
    for _ in range(SIZES if heeded else 0):
        sizes = {edge: random.choice((1, 64, 224, 500, 512, 1000, 1024, 1999, 4096, 20_000)) for edge in _edges(random)}
        picture = build(sizes)
        try:
            tokens = count(*picture)
        except (ValueError, ZeroDivisionError):  # vLLM does not start
            tokens = None
        limited.append([sizes.get("width"), sizes.get("height"), *picture, tokens])
    return {"config": {**raw, "architectures": [name]}, "processor": settings, "heeded": heeded, "limited": limited}


def _edges(random: Random) -> tuple[str, ...]:
    return random.choice((("width",), ("height",), ("width", "height"), ("width", "height")))


def _builder(name: str, asked: Asked) -> tuple[bool, Callable[[dict[str, int]], tuple[int, int]]]:
    """Whether the class heeds sizes, and width and height of the picture that vLLM builds with them."""
    from vllm.config.multimodal import ImageDummyOptions, MultiModalDummyOptions

    made_by = class_called(name)._processor_factory.dummy_inputs  # noqa: SLF001
    heeded = "overrides" in inspect.getsource(made_by.get_dummy_mm_data)
    builder = made_by(asked.info)

    def build(sizes: dict[str, int]) -> tuple[int, int]:
        options = ImageDummyOptions(**sizes)
        try:
            pictures = builder.get_dummy_mm_data(32_768, {"image": 1}, MultiModalDummyOptions({"image": options}))
            (picture,) = pictures["image"]
        except (AttributeError, TypeError, ImportError):  # it asks for more: for its videos, for a processor's file
            size = asked.info.get_image_size_with_most_features()
            (picture,) = builder._get_dummy_images(  # noqa: SLF001
                width=size.width, height=size.height, num_images=1, overrides=options
            )
        wide, high = picture.size
        if not (isinstance(wide, int) and isinstance(high, int)):
            raise TypeError(f"the largest picture is {wide} by {high}")
        return wide, high

    return heeded, build


if __name__ == "__main__":
    sys.exit(main())
