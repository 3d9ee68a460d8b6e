"""Models known by name."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from tokenyard.arguments import given_path
from tokenyard.errors import ConfigError, near_names
from tokenyard.files import packaged
from tokenyard.models.reading.params import PARAMS
from tokenyard.models.reading.read import model_from_config, name_in, read_config, read_model_file
from tokenyard.models.spec import ModelSpec
from tokenyard.patterns import lazy_pattern
from tokenyard.plugins import called, foreign, is_foreign

# ---------------------------------------------------------------------------------------------------------------------
# Names of the Hugging Face hub: what models known by name are called there, and which known model a name stands for.
#
# :func:`model_called` reads whatever a model may be called: everything that takes a model takes it so.

# ---------------------------------------------------------------------------------------------------------------------
# What a model known by name is called on the Hugging Face hub: what ``vllm serve`` is given to start it.
#
# Where a model comes in several tunings it is the one that answers in turns; they have the same shape, so the same
# settings hold for all of them. Of quantised weights it is one publication of several; ``llama-3.1-70b-fp8-kv`` has
# none that is known. Sizes in ``configs/`` are facts of the ``config.json`` on that page; parameters of each were
# compared with the published number, and ``models/sources.toml`` says what a public copy confirmed and what none did.
# The names themselves are data: ``hub_names.json``.


class KnownModel(msgspec.Struct, frozen=True, array_like=True):
    """What a name of the hub stands for."""

    name: str
    """Name of the model whose shape it has."""
    max_model_len: int | None = None
    """Its own, in tokens, where that is another than the known model's."""
    quantised_as: str | None = None
    """Name of a model whose quantisation its weights are taken to have; None: they are as the known model's."""


class HubNames(msgspec.Struct, frozen=True):
    """``hub_names.json``."""

    ids: dict[str, str]
    """Our name -> theirs."""
    same_shape: dict[str, KnownModel]
    """Models that differ from a known one in weights alone, and some in length."""
    makers: tuple[str, ...]
    """What names begin with that says who made a model."""
    quantised: tuple[str, ...]
    """Parts of names that say how weights are quantised."""
    like: dict[str, str]
    """Method -> a model that is known with it: its format is the one in which most are published."""
    pools: tuple[str, ...]
    """Decoders that vLLM serves for their embeddings, by a file beside their config.json."""
    formats: dict[str, dict[str, Any]]
    """Formats of which no model is known by name, as ``quantization_config`` would say them."""
    left_alone: dict[str, list[str]]
    """``quant_method`` -> what is taken to be left in 16 bits of models with encoders, states or experts."""
    other_lengths: dict[str, int]
    """Patterns of versions that were made for other contexts than the known model of their shape: their tokens."""


@cache
def hub_names() -> HubNames:
    """What is known of the hub's names; read once."""
    return msgspec.json.decode(packaged("tokenyard.models", "hub_names.json"), type=HubNames)


def hub_id(model: str) -> str | None:
    """The name by which the hub knows a model of ours; None for a path, and for names of others."""
    return hub_names().ids.get(model.lower())


# ---------------------------------------------------------------------------------------------------------------------
# Names of the Hugging Face hub, and which of the models known by name they are.

_TUNED = (
    r"instruct|it|pt|chat|hf|base|preview|thinking|text|\d{4}|[45]-?bit|bf16|main|original|exp|terminus"
    r"|dynamic|\d+k"
)
_TUNING_WORDS = lazy_pattern(rf"(?:-(?:{_TUNED}))+$")
_TUNING = lazy_pattern(rf"(?:-(?:{_TUNED}|v\d+(?:\.\d+)*))+$")
"""What says how a model was tuned or packed, not what shape it has."""
_TUNING_BEFORE_VERSION = lazy_pattern(rf"(?:-(?:{_TUNED}))+(-v\d+(?:\.\d+)*)$")
_EXPERTS = lazy_pattern(r"-17b-\d+e(?=-|$)")
"""Llama 4's sizes, which its short names leave out."""
_MAKERS = hub_names().makers
_QUANTISED = hub_names().quantised
_PRECISION = lazy_pattern(
    r"(?:[-_]qat)?[-_.](?:quantized\.)?(?P<method>nvfp4|fp4|mxfp4|mxfp8|awq|fp8|gptq|w4a16|w8a8|int4|int8)"
    r"(?P<more>(?:[-_](?:int4|int8|4bit|dynamic|block|ct|qad|w4a4|w4a16|v\d))*)$",
    re.IGNORECASE,
)
"""How the name of a quantised model ends that says its method plainly, and nothing else."""
_LIKE = hub_names().like
_BY_NVIDIA = "nvidia/"
_BY_RED_HAT = ("redhatai/", "neuralmagic/", "nm-testing/")
_IN_BLOCKS = ("qwen/", "deepseek-ai/", "zai-org/glm-5", "minimaxai/", "stepfun-ai/", "tencent/", "inclusionai/")
"""Owners whose FP8 weights have scales by blocks of 128 x 128, as those of qwen3-32b-fp8."""
_BITS_OF = {"awq", "gptq"}
"""Methods whose names are followed by their bits, which are four where a name says nothing."""
_OTHER_LENGTHS = [(lazy_pattern(pattern), length) for pattern, length in hub_names().other_lengths.items()]
_LENGTH_IN_NAME = lazy_pattern(r"-(\d+)k(?=-|$)")


def known_as(name: str, known: Collection[str]) -> KnownModel | None:
    """Which of the ``known`` models a name of the hub stands for.

    ``meta-llama/Llama-3.1-8B-Instruct`` is ``llama-3.1-8b``, and ``Qwen3-4B-Instruct-2507`` is ``qwen3-4b`` with more
    context. None if it is none of them. A name that says how weights are quantised, or that they are not, stands for a
    model of which that is true, and for no other; so does a name that says a length (``-32k``). Where no such model is
    known, the ending of a name (``-AWQ``, ``-FP8``) may say how the weights of a known one were quantised.
    """
    name = name.rstrip("/")
    short = name.rsplit("/", 1)[-1].lower().replace("_", "-").replace("quantized.", "")
    for maker in _MAKERS:
        short = short.removeprefix(maker)
    short = _EXPERTS.sub("", short.replace("llama3", "llama-3").replace("llama-3-1", "llama-3.1"))
    other = next((length for pattern, length in _OTHER_LENGTHS if pattern.match(name.lower())), None)
    for candidate in _candidates(short):
        if (
            candidate.name in known
            and not _contradicts(short, candidate.name)
            and not _is_another_file(name, candidate.name)
        ):
            return KnownModel(candidate.name, candidate.max_model_len or other, candidate.quantised_as)
    return _quantised(name, known)


def _quantised(name: str, known: Collection[str]) -> KnownModel | None:
    """A known model whose weights were quantised later, where the name says how: ``Qwen3-8B-AWQ``."""
    found = _PRECISION.search(name)
    plain = None if found is None else known_as(name[: found.start()], known)
    if found is None or plain is None or found.start() == 0:
        return None
    return msgspec.structs.replace(plain, quantised_as=_format_named(name.lower(), found, model_spec(plain.name)))


def _format_named(name: str, found: re.Match[str], model: ModelSpec) -> str:
    """The format that the end of a name says, by whose it mostly is: a known model's, or one of :attr:`formats`."""
    method, more = found["method"].lower(), found["more"].lower()
    if method == "gptq" and "int8" in more:
        return "gptq in 8 bits"
    if method == "mxfp4":
        return "mxfp4 of experts, with all else in 16 bits"
    if method == "fp8" and name.startswith(_BY_NVIDIA):
        return "NVIDIA's fp8, with KV in fp8"
    if method == "fp8" and (name.startswith(_IN_BLOCKS) or "block" in more):
        return "qwen3-32b-fp8"
    if method in ("nvfp4", "fp4") and name.startswith(_BY_RED_HAT):
        return "nvfp4 as compressed-tensors writes it, with KV in 16 bits"
    if method in ("nvfp4", "fp4") and not _is_plain(model):
        return "NVIDIA's nvfp4 of experts and MLPs, with attention in 16 bits and KV in fp8"
    return _LIKE[method]


def _is_plain(model: ModelSpec) -> bool:
    """Whether a model is all dense layers of attention: its quantised files leave nothing alone but the head."""
    return not (model.encoders or model.has_states or model.has_experts)


def _quantization_config(format_of: str, model: ModelSpec) -> dict[str, Any]:
    """The ``quantization_config`` of a format, which leaves alone what such files of such models mostly do."""
    told = hub_names().formats.get(format_of) or config_of(format_of)[2]["quantization_config"]
    alone = hub_names().left_alone.get(told["quant_method"], [])
    if _is_plain(model) or not alone:
        return dict(told)
    name = "ignore" if told["quant_method"] in ("compressed-tensors", "modelopt") else "modules_to_not_convert"
    return {**told, name: [*(told.get(name) or ()), *alone]}


def _owner(name: str) -> str:
    return name.rpartition("/")[0].lower()


def _is_another_file(name: str, known: str) -> bool:
    """Whether NVIDIA quantised the model itself: keys and values of its files are not those of other makers' files."""
    if not name.lower().startswith(_BY_NVIDIA) or _PRECISION.search(name) is None:
        return False
    return _owner(hub_names().ids.get(known, "")) != "nvidia" and "quantization_config" in config_of(known)[2]


def _contradicts(short: str, known: str) -> bool:
    """Whether a name says of its weights or of its length what is not so of the known model."""
    config = config_of(known)[2]
    if "bf16" in short.split("-") and "quantization_config" in config:
        return True
    length = _LENGTH_IN_NAME.search(short)
    if length is None:
        return False
    tokens = config.get("text_config", config).get("max_position_embeddings", 0)
    return int(length[1]) not in (tokens // 1000, tokens // 1024)


def _candidates(short: str) -> Iterator[KnownModel]:
    """From the name as it is to the shape alone; quantisation stays, at the end."""
    yield KnownModel(short)
    parts = short.split("-")
    ends = [part for part in parts if part in _QUANTISED]
    if _BITS_OF & set(ends):
        ends = [end for end in ends if end != "int4"]
    plain = "-".join(part for part in parts if part not in _QUANTISED)
    with_version = _TUNING_WORDS.sub("", _TUNING_BEFORE_VERSION.sub(r"\1", plain))
    for name in (plain, with_version, _TUNING.sub("", plain)):
        same = hub_names().same_shape.get(name, KnownModel(name))
        endings = [[name, *ends]] if same.name == name else [[name, *ends], [same.name, *ends]]
        for words in endings:
            yield msgspec.structs.replace(same, name="-".join(words))
            if words[-1] == "bnb":
                yield msgspec.structs.replace(same, name="-".join([*words, "4bit"]))
            if words[-1] == "fp4":
                yield msgspec.structs.replace(same, name="-".join([*words[:-1], "nvfp4"]))


# ---------------------------------------------------------------------------------------------------------------------
# A model by whatever it may be called: our name, a name of the hub, a path, a name of a plug-in.


class Called(msgspec.Struct, frozen=True):
    """What a name stands for."""

    name: str
    """The model's own."""
    where: str
    """Its file, as errors name it."""
    raw: dict[str, Any]
    """What that holds."""
    max_model_len: int | None = None
    """Its context, where that is another than the file's."""
    notes: tuple[str, ...] = ()
    """What was taken from the name."""


def _is_path(asked: str) -> bool:
    """Whether a model's name can be that of a folder alone, none of the hub."""
    return asked.startswith(("/", ".", "~")) or ("://" not in asked and asked.rstrip("/").count("/") > 1)


def config_called(asked: str) -> Called:
    """The ``config.json`` of a model by any name that it has; a file that is there, in a folder or in the hub's cache,
    counts before its name.

    ConfigError as :func:`tokenyard.models.named.model_spec`.
    """
    given_path("model", asked)
    known = None if not isinstance(asked, str) or Path(asked).is_dir() else known_as(asked, MODELS)
    if known is None:
        return Called(*config_of(asked))
    if cached_folder(asked) is not None:
        note = f"read from its config.json in the hub's cache, not by its name as {known.quantised_as or known.name}"
        return Called(*config_of(asked), notes=(note,))
    name, where, raw = config_of(known.name)
    absent = (f"there is no {asked} here: taken for what its last part is known for",) if _is_path(asked) else ()
    if known.quantised_as is None:
        file = hub_names().ids.get(known.name, "")
        if _owner(asked) and _owner(asked) != _owner(file) and not absent and "quantization_config" in raw:
            said = f"read by its name as {file}, another maker's file: name its config.json to read what it is"
            return Called(name, where, raw, known.max_model_len, (said,))
        return Called(name, where, raw, known.max_model_len, absent)
    raw = _without_quantization(raw)
    raw["quantization_config"] = _quantization_config(known.quantised_as, model_spec(known.name))
    like = known.quantised_as if known.quantised_as in hub_names().formats else f"those of {known.quantised_as}"
    form = f"the shape of {known.name} with weights quantised as {like}"
    note = f"read by its name: {form}; name its config.json to read what they are"
    return Called(asked, where, raw, known.max_model_len, (*absent, note))


def _without_quantization(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A config.json as if weights were not quantised, in its sections as well."""
    return {
        name: _without_quantization(value) if isinstance(value, Mapping) else value
        for name, value in raw.items()
        if name != "quantization_config"
    }


def model_called(asked: str) -> ModelSpec:
    """The model of a name, as :func:`config_called` finds it. Errors as :func:`tokenyard.models.named.model_spec`."""
    if asked in MODELS:
        return model_spec(asked)
    found = config_called(asked)
    model = model_from_config(found.raw, name=found.name, where=found.where)
    if found.max_model_len is not None:
        model = replace(model, max_model_len=found.max_model_len)
    return replace(model, notes=(*model.notes, *found.notes)) if found.notes else model


# ---------------------------------------------------------------------------------------------------------------------

# ---------------------------------------------------------------------------------------------------------------------
# Models known by name: their ``config.json``, reduced to the facts that matter, in ``configs/``.

_CONFIGS = Path(__file__).parent / "configs"


class _Named(Mapping[str, ModelSpec]):
    """Name -> model; a model is read on first use."""

    def __getitem__(self, name: str) -> ModelSpec:
        return _named(name, "auto")

    def __iter__(self) -> Iterator[str]:
        return iter(_names())

    def __len__(self) -> int:
        return len(_names())


MODELS: Mapping[str, ModelSpec] = _Named()
"""Name, as ``--model`` takes it -> file."""


@cache
def _names() -> tuple[str, ...]:
    return tuple(sorted(file.stem for file in _CONFIGS.glob("*.json")))


@cache
def _named(name: str, dtype: str) -> ModelSpec:
    if name not in _names():
        raise KeyError(name)
    file, raw = read_config(_CONFIGS / f"{name}.json")
    model = model_from_config(raw, name=name, where=file.name, dtype=dtype)
    unconfirmed = sources().get(name, {}).get("unconfirmed")
    if unconfirmed is None:
        return model
    note = f"known by name, not confirmed by a public file: {unconfirmed}; give its config.json to be sure"
    return replace(model, notes=(*model.notes, note))


@cache
def sources() -> Mapping[str, Mapping[str, str]]:
    """Name -> ``source``, the public file that confirmed it, and ``unconfirmed``, what none did: ``sources.toml``."""
    return tomllib.loads(packaged("tokenyard.models", "sources.toml").decode())


def named_model(name: str, *, dtype: str = "auto") -> ModelSpec:
    """The model called ``name`` (case does not matter), or ConfigError with the names that are most like it."""
    if not isinstance(name, str) or name.lower() not in _names():
        close = near_names(str(name).rsplit("/", 1)[-1].lower(), _names(), n=5, cutoff=0.5)
        named = f", or a name that is known, for example {', '.join(close)}" if close else ", or a name that is known"
        where = ""
        if isinstance(name, str) and _HUB_NAME.fullmatch(name):
            where = f" and not in the hub's cache ({next(_hub_caches())}/models--{name.replace('/', '--')})"
        if isinstance(name, str) and "gguf" in name.lower():
            raise ConfigError("model", name, "is a GGUF file, which is not read: name the model that it was made of")
        fix = f"is not known by name{where}: give the path of its config.json{named}"
        fix += " (models are the last list of `tokenyard workloads`)"
        raise ConfigError("model", name, fix)
    return _named(name.lower(), dtype)


# ---------------------------------------------------------------------------------------------------------------------
# Models that lie in the cache of the Hugging Face hub: what ``vllm serve`` has loaded before.

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_REVISION = re.compile(r"[0-9a-f]{7,64}")


def _hub_caches() -> Iterator[Path]:
    """Where the hub's files are kept, by its own variables."""
    if os.environ.get("HF_HUB_CACHE"):
        yield Path(os.environ["HF_HUB_CACHE"])
    if os.environ.get("HF_HOME"):
        yield Path(os.environ["HF_HOME"]) / "hub"
    cache_home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    yield Path(cache_home).expanduser() / "huggingface" / "hub"


def cached_folder(name: str) -> Path | None:
    """The folder with the newest ``config.json`` of ``owner/model`` in the hub's cache; None where there is none."""
    if not isinstance(name, str) or not _HUB_NAME.fullmatch(name):
        return None
    for cache_folder in _hub_caches():
        folder = cache_folder / f"models--{name.replace('/', '--')}"
        reference = folder / "refs" / "main"
        try:
            revision = reference.read_text().strip() if reference.is_file() else ""
            kept = [folder / "snapshots" / revision] if _REVISION.fullmatch(revision) else []
            kept += sorted((folder / "snapshots").glob("*"), key=lambda each: each.stat().st_mtime, reverse=True)
        except OSError:
            continue
        for each in kept:
            if any((each / name).is_file() for name in ("config.json", PARAMS)):
                return each
    return None


def config_of(name_or_path: str) -> tuple[str, str, dict[str, Any]]:
    """The name, the file and the content of a model's ``config.json``; ConfigError as :func:`model_spec`."""
    path = Path(name_or_path)
    if path.suffix == ".json" or path.is_dir():
        file, raw = read_config(path)
        return name_in(file, raw), str(file), raw
    cached = cached_folder(name_or_path)
    if cached is not None:
        file, raw = read_config(cached)
        return name_or_path, str(file), raw
    try:
        known = named_model(name_or_path).name
    except ConfigError:
        own = foreign("model", name_or_path)
        if own is None:
            raise
        made = called(own, "model", name_or_path) if callable(own) else own
        if not isinstance(made, dict):
            fix = "it has to be a dictionary as a config.json or a description holds, or a function that makes one"
            raise ConfigError("model", name_or_path, fix) from None
        return name_or_path, name_or_path, made
    file, raw = read_config(_CONFIGS / f"{known}.json")
    return known, file.name, raw


def model_spec(name_or_path: str, *, dtype: str = "auto") -> ModelSpec:
    """A named model, one in the hub's cache, or that of a ``config.json``, of its folder, or of a description; or
    ``FILE.py:NAME``, or a name of the entry points ``tokenyard.models``: what such a file holds, as a dictionary.

    Arguments and errors as :func:`tokenyard.models.reading.read.model_from_config`.
    """
    path = Path(name_or_path)
    if path.suffix == ".json" or path.is_dir():
        return read_model_file(path, dtype=dtype)
    if cached_folder(name_or_path) is None:
        try:
            return named_model(name_or_path, dtype=dtype)
        except ConfigError:
            if not is_foreign("model", name_or_path):
                raise
    name, where, raw = config_of(name_or_path)
    return model_from_config(raw, name=name, where=where, dtype=dtype)
