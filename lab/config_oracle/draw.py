"""Numbered cases: the same number is the same case, whichever vLLM it is tried with.

``drawn.json`` has what is drawn: GPUs, variables, and by part of a line its flags, each with a chance. A ``value`` is
one of several, empty where the flag has none; ``json`` is the same as an object; ``maybe`` words are all or none of
them, and ``one`` of several words. Flags that make of the command something else than a server, that read a file or
look for a driver, are ``left_out``.
"""

from __future__ import annotations

import json
import random
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tokenyard.models.named import MODELS, named_model

__all__ = ["CONFIGS", "DRAFTS", "Case", "as_text", "draw", "each_method", "recorded"]

CONFIGS = Path(__file__).resolve().parents[2] / "src" / "tokenyard" / "models" / "configs"
RECORDED = Path(__file__).resolve().parents[2] / "src" / "tokenyard" / "deploy" / "vllm_serve" / "recorded"
DRAFTS = "/drafts/"
"""What stands in front of the name of a drawn draft model, for `theirs` to put a folder in its place."""

_DRAWN = json.loads(Path(__file__).with_name("drawn.json").read_text(encoding="utf-8"))
_ENOUGH = str(1 << 40)
"""Bytes of KV cache: whatever is asked for fits."""


@dataclass(frozen=True, slots=True)
class Case:
    """One line, and where it is run."""

    number: int
    gpu: str
    model: str
    """One of those that are known by name; its config.json is the one we carry."""
    words: tuple[str, ...]
    """Behind the model."""
    variables: tuple[tuple[str, str], ...] = ()
    has_any_flags: bool = False
    """Flags of every kind are among them, some of which vLLM keeps for what it reads next."""
    ignores: bool = False
    """Whether we are told to pass over what we do not model."""

    @property
    def line(self) -> str:
        """As a user would paste it."""
        assigned = [f"{name}={value}" for name, value in self.variables]
        return shlex.join([*assigned, "vllm", "serve", self.model, *self.words])


def as_text(cases: Iterable[Case]) -> str:
    """One JSON object a line."""
    return "".join(json.dumps(asdict(case)) + "\n" for case in cases)


def recorded(text: str) -> list[Case]:
    """What :func:`as_text` wrote."""
    found = [json.loads(line) for line in text.splitlines()]
    pairs = [tuple((name, value) for name, value in each.pop("variables")) for each in found]
    return [
        Case(**{**each, "words": tuple(each["words"]), "variables": variables})
        for each, variables in zip(found, pairs, strict=True)
    ]


def each_method(methods: Iterable[str]) -> list[Case]:
    """Every one of these methods of ``--quantization`` asked for with weights of every kind that is known by name."""
    weights: dict[object, str] = {}
    for name in sorted(MODELS):
        model = named_model(name)
        kind = (model.quantization, model.has_experts, model.weight_format, model.kv_cache_dtype)
        weights.setdefault(kind, name)
    asked = [(model, method) for model in weights.values() for method in sorted(methods)]
    return [
        Case(number, "b200", model, ("--quantization", method, "--kv-cache-memory-bytes", _ENOUGH))
        for number, (model, method) in enumerate(asked)
    ]


class _Drawing:
    """The words of one case."""

    def __init__(self, source: random.Random) -> None:
        self.source = source
        self.words: list[str] = []

    def take(self, kind: str, chance: float, *said: Any) -> None:
        """One flag of ``drawn.json``."""
        if kind == "one":  # of several words
            kind, said = "maybe", (self.source.choice(*said),)
        if self.source.random() >= chance:
            return
        if kind != "maybe":
            flag, values = said
            value = self.source.choice(values)
            said = (flag, json.dumps(value) if kind == "json" else value)
        self.words += filter(None, said)


def draw(number: int, version: str) -> Case:
    """The case of this number. ``version`` says which other flags there are to draw from: 0.22 or 0.33."""
    source = random.Random(number)
    gpu, model = source.choice(_DRAWN["gpus"]), source.choice(sorted(path.stem for path in CONFIGS.glob("*.json")))
    drawing = _Drawing(source)
    # Of few flags each: what differs is then seen alone, and both sides seldom refuse.
    for part in source.sample(list(_DRAWN["parts"].values()), source.randint(1, 3)):
        for flag in part:
            drawing.take(*flag)
    _leave_out_what_seldom_goes(drawing, json.loads((CONFIGS / f"{model}.json").read_text()))
    has_any = source.random() < 0.3
    drawing.words += _any_flags(source, version) if has_any else ()
    drawing.take("maybe", 0.85, "--kv-cache-memory-bytes", _ENOUGH)  # else most GPUs are too small for most models
    variables = [tuple(source.choice(_DRAWN["variables"]))] if source.random() < 0.12 else []
    return Case(number, gpu, model, tuple(drawing.words), tuple(variables), has_any, ignores=source.random() < 0.3)


def _leave_out_what_seldom_goes(drawing: _Drawing, config: dict[str, Any]) -> None:
    """Most lines that vLLM would refuse for the model are drawn without what it refuses."""
    if drawing.source.random() < 0.1:
        return
    text = json.dumps(config)
    words = drawing.words
    if "expert" not in text:
        words = [word for word in words if word != "--enable-expert-parallel"]
    if "nextn" not in text and "qwen3_next" not in text:
        words = [word.replace('"method": "mtp"', '"method": "ngram", "prompt_lookup_max": 3') for word in words]
    drawing.words = [word.replace('"method": "suffix"', '"method": "ngram_gpu"') for word in words]


def _any_flags(source: random.Random, version: str) -> Iterator[str]:
    """A few flags of whatever kind, with one of their values."""
    flags = json.loads((RECORDED / f"{version}.json").read_text())["flags"]
    for flag in source.sample(flags, source.randint(1, 3)):
        words = list(_one(flag, source))
        yield from words


def _one(flag: dict[str, Any], source: random.Random) -> Iterator[str]:
    name, kind = "--" + flag["name"], flag["kind"]
    if flag["name"] in _DRAWN["left_out"] or flag.get("values"):
        return
    if kind in ("switch", "pair"):
        yield source.choice([name, *[off for off in flag.get("off_names", ()) if off.startswith("--no-")]])
    elif flag.get("choices"):
        yield name
        yield source.choice(flag["choices"])
    elif kind in ("int", "readable_int", "readable_int_or_auto"):
        yield name
        yield str(source.choice([1, 2, 16, flag.get("default", 4)]))
    elif kind == "float":
        yield name
        yield str(flag.get("default", 0.5))
