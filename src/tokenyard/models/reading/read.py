"""A model from a config.json: opens the file, picks the row, checks what is left over."""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from tokenyard.core.profiles import NEWEST, release_facts
from tokenyard.errors import MISSING, ConfigError, FileError, near_names
from tokenyard.files import MIB, Bounds, is_nested_deeper, read_input
from tokenyard.models.class_defaults import class_defaults, section_type
from tokenyard.models.described import described_model, is_described
from tokenyard.models.fields import Fields, field_names
from tokenyard.models.formats import DTYPE_BYTES, NO_FLOAT16, dtype_bytes
from tokenyard.models.images.largest import with_largest_images
from tokenyard.models.images.processors import processors_beside
from tokenyard.models.reading.by_matrix import blended
from tokenyard.models.reading.params import KNOWN, PARAMS, config_of_params, is_params
from tokenyard.models.reading.pieces import ConfigReader, listed
from tokenyard.models.reading.quantization import Quantization, read_quantization
from tokenyard.models.reading.row import ArchitectureRow, read_row
from tokenyard.models.reading.table import ROWS, named_row, only_pools
from tokenyard.models.recorded import recorded
from tokenyard.models.spec import EncoderSpec, ModelSpec
from tokenyard.patterns import lazy_pattern
from tokenyard.units import GIB

# ---------------------------------------------------------------------------------------------------------------------
# Which versions of vLLM have a class for an architecture, where not all of them have.
#
# ``lab/record_architectures.py`` has read their registries. An architecture without a class may
# run by the code of ``transformers``, whose memory and time are others.


def versions_with_classes() -> Mapping[str, list[str]]:
    """Architecture -> the versions that have a class for it, oldest first; none for those that all have."""
    found: dict[str, list[str]] = recorded("versions")["versions"]
    return found


def versions_looked_into() -> Sequence[str]:
    """The versions whose registries were read, oldest first."""
    found: list[str] = recorded("versions")["looked_into"]
    return found


def versions_instead(architecture: str, version: str) -> Sequence[str]:
    """The versions that have a class for an architecture, where ``version`` has none; nothing where it has, or where
    all have. A version whose registry was not read is as the newest that was.
    """
    read = versions_looked_into()
    have = versions_with_classes().get(architecture, read)
    return () if (version if version in read else read[-1]) in have else have


def versions_said(architecture: str) -> str:
    """A part of a sentence about an architecture that is not read here: which versions have a class, where some do."""
    have = versions_with_classes().get(architecture, ())
    return f" (vLLM {', '.join(have)} {'have' if len(have) > 1 else 'has'} a class for it)" if have else ""


def dropped_before() -> Mapping[str, str]:
    """The architectures that were dropped before the first version here, and the last version that had each."""
    found: dict[str, str] = recorded("versions")["gone"]
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Fields that were not asked for: which of them might change memory or time.
#
# A field that neither a family nor a rule knows, and whose name says that it may matter, is an error that names it, or
# a note where ``--ignore-unmodelled`` asks for that. A wrong answer that looks right is worse.

_MATTERS = lazy_pattern(
    r"window|layer|expert|head|dim$|_dim|_size$|rank|interval|period|pattern|mamba|ssm|conv|linear|kv_|^num_|quant|share"
    r"|lora|state|chunk|moe|mlp|attn|attention|sparse|block|index|adapter|depth|hidden"
)
"""What a name has in it if the field may matter."""

_HARMLESS_RULES = lazy_pattern(
    r"_tokens?_(id|ids|index|indices)$"  # of the vocabulary
    r"|dropout|_pdrop$|layerdrop|jitter|_loss|_coeff?$|_penalty$"  # training
    r"|^(initializer|gradient|mask_feature|mask_time)_"
    r"|_init(ializer)?(_\w+)?$"
    r"|_eps$|epsilon$|_multipliers?$|(?<!rope)_scal(e|ing)(_factor)?$|_softcap(ping)?$"  # activations are scaled by it
    r"|(^|_)act(ivation)?(_function|_func|_fn)?$|renorm"
    r"|^(output|classifier|summary|pad)_|^use_cache|_implementation(_autoset)?$"  # of the library that wrote the file
    r"|flash_att(n|ention)|memory_efficient_attention"  # kernels of that library
    r"|^(torch|moe_router|router|head)_dtype$|_fp32$|^scale_|^vision_feature_|rope_theta$|rope_interleaved?$|^no_rope_layers$"
    r"|(^|_)(mtp|nextn)_|^dspark_|router_bias$"  # draft heads, which are no part of the model
)
"""Names of fields that change neither memory nor time, whatever the model."""

_HARMLESS = frozenset(field_names()["harmless"])
"""Further names that look as if they mattered and do not."""

_OF_EVERY_FILE = frozenset(field_names()["of_every_file"])
"""What the base class of ``transformers`` 4 wrote into files, whatever the model: ways to generate, and training."""


def harmless_by_rule(name: str) -> bool:
    """Whether a field of this name changes neither memory nor time, whatever the model."""
    return bool(_HARMLESS_RULES.search(name))


def may_matter(name: str) -> bool:
    """Whether a field of this name may change memory or time, as far as rules say."""
    return bool(_MATTERS.search(name)) and name not in _HARMLESS | _OF_EVERY_FILE and not harmless_by_rule(name)


def _may_be_read(name: str, architecture: str) -> bool:
    """Whether vLLM's code for an architecture names the field; every field where its code was not looked at."""
    named = recorded("field_names")  # module -> words in it, architecture -> modules of its code
    words, modules = named["modules"], named["architectures"]
    return architecture not in modules or any(name in words[module] for module in modules[architecture])


def check_unread(reading: ConfigReader, architecture: str) -> None:
    """Raise the error for the first field of the file that may matter and that was not read, or note them all.

    ``architecture`` is the one whose row has read it.

    Of a ``params.json`` any may matter: it holds what its format names, in words of its own that no code reads.
    """
    is_params = bool(reading.outer.get(PARAMS))
    proved = recorded("unread").get(architecture, ())  # lab/record_registry.py looked on while vLLM built it
    sections = [reading.fields] if reading.outer is reading.fields else [reading.fields, reading.outer]
    for section in sections:
        for name, value in section.unread().items():
            if is_params:
                matters = name not in KNOWN and not harmless_by_rule(name)
            else:
                matters = may_matter(name) and name not in proved and _may_be_read(name, architecture)
            if matters and _says_something(value):
                _report(reading, section, name)


def _says_something(value: Any) -> bool:
    return value not in (None, False, 0, "", [], {}, 0.0)


def _report(reading: ConfigReader, section: Fields, name: str) -> None:
    if not reading.ignore:
        raise section.error(
            name, "is not modelled and may change memory or time: --ignore-unmodelled goes on without it"
        )
    reading.ignored.append(f"{name} = {section.get(name)!r}")


# ---------------------------------------------------------------------------------------------------------------------
# Decoders that the table does not have, read by the fields that most files have; and what a checkpoint's files weigh.
#
# A field that may matter and that such a decoder does not have is an error, as everywhere; so is a checkpoint whose
# files do not weigh what the fields come to. Of a decoder behind towers the files say what the towers weigh.

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


# ---------------------------------------------------------------------------------------------------------------------

# ---------------------------------------------------------------------------------------------------------------------
# A model from a ``config.json``: opens the file, picks the row, checks that nothing was overlooked.
#
# Configuration classes have defaults that files leave out. Those we know stand in the rows; where a field is missing
# still, ``transformers`` provides them if it is installed (the ``hf`` extra).

_DTYPES = {"half": "float16", "float": "float32", "float32": "float32", "float16": "float16", "bfloat16": "bfloat16"}
_MOST_BYTES = 16 * MIB
"""The largest config.json that is read; one has a few kilobytes."""
_LONG_ROPE = ("su", "longrope")
_PLAIN_ROPE = ("default", "llama3", "mrope", "proportional")
"""Kinds of rotary scaling after which the context is what ``max_position_embeddings`` says."""


def read_config(path: Path | str) -> tuple[Path, dict[str, Any]]:
    """The JSON object in ``path``, or in the ``config.json`` of the folder ``path``, and the file it came from.

    Where a folder has none, its ``params.json`` is read, as the ``config.json`` that it comes to. Where a file says
    nothing of a quantisation, what ModelOpt's earlier versions wrote beside it counts.
    """
    file = Path(path)
    if file.is_dir():
        file = next((each for name in ("config.json", PARAMS) if (each := file / name).is_file()), file / "config.json")
    raw = _object_in(file)
    if is_params(raw):
        return file, config_of_params(raw, str(file))
    beside = file.with_name(_QUANTIZED_BESIDE)
    if file.name == "config.json" and raw.get("quantization_config") is None and beside.is_file():
        raw = {**raw, "quantization_config": _object_in(beside)}
    return file, raw


_QUANTIZED_BESIDE = "hf_quant_config.json"


def _object_in(file: Path) -> dict[str, Any]:
    """The JSON object that a file holds. Raises ConfigError."""
    try:
        text = read_input(file, _MOST_BYTES).removeprefix(BOM_UTF8)
        if is_nested_deeper(text, Bounds.from_env().nesting):
            raise RecursionError("it is nested too deeply")
        raw = _decoded(text)
    except FileError as error:
        raise ConfigError("model", str(file), error.problem) from None
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ConfigError("model", str(file), f"is not JSON: {error}") from None
    if not isinstance(raw, dict):
        raise ConfigError("model", str(file), "must hold a JSON object")
    return raw


def _decoded(text: bytes) -> Any:
    """What the file holds. Python writes numbers into it that JSON does not have: ``Infinity``, ``NaN``."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        if not any(word in text for word in (b"Infinity", b"NaN")):
            raise
        return json.loads(text)


def read_model_file(path: Path | str, *, dtype: str = "auto") -> ModelSpec:
    """Read a Hugging Face ``config.json`` (or the folder with one in it). Arguments as :func:`model_from_config`."""
    file, raw = read_config(path)
    return model_from_config(raw, name=name_in(file, raw), where=str(file), dtype=dtype)


def name_in(file: Path, raw: Mapping[str, Any]) -> str:
    """What a model is called that is read from a file: by its content, else by the folder or the file."""
    return (
        str(raw.get("_name_or_path") or "")
        or (file.parent.name if file.stem in ("config", "params") else "")
        or file.stem
    )


def model_from_config(
    raw: Mapping[str, Any],
    *,
    name: str,
    where: str,
    dtype: str = "auto",
    ignore_unmodelled: bool = False,
    vllm_version: str = NEWEST.vllm_version,
) -> ModelSpec:
    """A model from what a ``config.json`` holds.

    ``dtype`` is ``--dtype``: ``auto`` takes the file's, and bfloat16 for float32. Raises ConfigError naming the file
    (``where``) and the field that is missing, mistyped or not modelled; with ``ignore_unmodelled`` the last are noted
    in the result's ``ignored`` instead. The longest context is as ``vllm_version`` reads it.
    """
    if is_described(raw):
        return described_model(raw, where=where, dtype=dtype)
    known: Mapping[str, Any] = {}
    while True:
        try:
            return _read(raw, name, where, dtype, known, vllm_version, ignore=ignore_unmodelled)
        except ConfigError as error:
            if known or error.code != MISSING:
                raise
            known = _defaults_of_transformers(raw)
            if not known:
                raise


def _defaults_of_transformers(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Defaults of the configuration class, by ``transformers``; empty where it is absent or does not know it."""
    try:
        from transformers import CONFIG_MAPPING  # noqa: PLC0415 - an extra
    except ImportError:
        return {}
    text = raw.get("text_config")
    try:
        defaults = CONFIG_MAPPING[(text if isinstance(text, dict) else raw).get("model_type")]().to_dict()
    except Exception:  # noqa: BLE001 - whatever a foreign class does, the error to report is the missing field
        return {}
    return {key: value for key, value in defaults.items() if value is not None}


def _read(
    raw: Mapping[str, Any],
    name: str,
    where: str,
    dtype: str,
    defaults: Mapping[str, Any],
    version: str,
    *,
    ignore: bool,
) -> ModelSpec:
    reading = _reading(raw, where, dtype, defaults, ignore=ignore)
    fields = reading.fields
    try:
        of_row = read_row(_row(reading.architecture, fields), reading)
        encoders = _stored(of_row["encoders"], reading)
        of_row["encoders"] = with_largest_images(encoders, reading.architecture, raw, processors_beside(where))
        spec = _spec(name, reading, of_row, version)
        if all(layer.attends_to_all for layer in spec.layers):
            # Where one is given, vLLM puts layers into one group, in which these are in any case.
            fields.harmless("attention_chunk_size")
        check_unread(reading, _read_as(reading.architecture, fields))
        spec = replace(spec, ignored=tuple(reading.ignored)) if reading.ignored else spec
        if reading.architecture in ROWS:
            return spec
        return weighed(spec, where, raw, has_towers=reading.outer is not reading.fields)
    except ConfigError as error:
        if where in error.field:
            raise
        raise ConfigError(f"{where}: {error.field}", error.value, error.marked_fix) from None


def _spec(name: str, reading: ConfigReader, of_row: dict[str, Any], version: str) -> ModelSpec:
    """The model whose fields, layers and encoders have been read."""
    architecture, fields, quant = reading.architecture, reading.fields, reading.quant
    given = of_row["max_model_len"]
    length, longest = (given, 0) if given else _context_lengths(fields, version)
    of_row["embedding_on_every_stage"] |= listed("embedding on every stage", architecture)
    return ModelSpec(
        **{**of_row, "max_model_len": length},
        name=name,
        architecture=architecture,
        model_type=fields.text("model_type"),
        longest_model_len=longest,
        dtype=reading.dtype,
        quantization=quant.method,
        head_weights=quant.of("lm_head") if _quantizes_head(reading) else None,
        supports_multimodal=bool(of_row["encoders"]),
        head_on_every_stage=listed("head on every stage", architecture),
        runs_in_stages=not (of_row["max_encoder_tokens"] or listed("no pipeline", architecture)),
        kv_cache_dtype=quant.kv_cache_dtype,
    )


def _row(architecture: str, fields: Fields) -> ArchitectureRow:
    """The architecture's row; that of its decoder's ``model_type``, or of ordinary decoders, where it has none."""
    name = _read_as(architecture, fields)
    return ROWS[name] if name in ROWS else named_row(ORDINARY)


def _read_as(architecture: str, fields: Fields) -> str:
    """The architecture whose row it is."""
    return architecture if architecture in ROWS else TYPES.get(fields.text("model_type"), architecture)


def _inner(raw: Mapping[str, Any]) -> str | None:
    """The section with the decoder, if it has one of its own."""
    return next((name for name in INNER if isinstance(raw.get(name), dict)), None)


def _reading(
    raw: Mapping[str, Any], where: str, dtype: str, defaults: Mapping[str, Any], *, ignore: bool
) -> ConfigReader:
    outer = Fields(where, raw)
    names = outer.items("architectures")
    if not names:
        raise outer.missing("architectures", f"name one of the {len(ROWS)} of the table of models, as LlamaForCausalLM")
    architecture = next((name for name in names if name in ROWS), str(names[0]))
    if (last := dropped_before().get(architecture)) is not None:
        fix = f"is an architecture that vLLM {last} was the last to have a class for"
        raise outer.error("architectures", f"{fix}: running it by transformers' code is not modelled")
    if architecture not in ROWS and not _is_decoder(raw):
        near = near_names(architecture, ROWS, n=3)
        instead = f"; near it are {', '.join(near)}" if near else ""
        unread = f"is not known{versions_said(architecture)}, and its fields are not those of an ordinary decoder"
        fix = f"{unread}: the table of models lists {len(ROWS)}"
        raise outer.error("architectures", f"{fix} that are{instead}; `tokenyard describe` reads others beside vLLM")
    wrapped = next((name for name in _WRAPPED if isinstance(raw.get(name), dict) and _inner(raw[name])), None)
    if wrapped is not None:
        raw = {**{name: raw[name] for name in _OF_ALL if name in raw}, **raw[wrapped]}
        outer = Fields(f"{where}: {wrapped}", raw)
    inner = _inner(raw)
    section = raw if inner is None else raw[inner]
    kind = (
        section.get("model_type")
        if inner is None
        else section_type(raw.get("model_type"), inner, section.get("model_type"))
    )
    left_out = class_defaults(kind)
    known = {**left_out, **_row(architecture, Fields(where, section)).defaults, **defaults}
    fields = None if inner is None else outer.section(inner, known)
    if fields is None:
        outer = fields = Fields(where, raw, known)
    outer.harmless("architectures", "model_type")
    fields.harmless("architectures", "model_type")
    chosen = _dtype(outer, fields, dtype, is_pooling=only_pools(architecture))
    within = fields.section("quantization_config")  # where both have one, that of the file counts
    earlier = outer.section("compression_config")  # what compressed-tensors called it
    quant = read_quantization(outer.section("quantization_config") or within or earlier, chosen)
    return ConfigReader(fields=fields, outer=outer, quant=quant, architecture=architecture, dtype=chosen, ignore=ignore)


_WRAPPED = ("thinker_config", "vlm_config", "config")
"""Sections with all that vLLM builds: a model beside what talks, one whose embeddings are compared, Moondream 3."""
_OF_ALL = (
    "quantization_config",
    "dtype",
    "torch_dtype",
    "joint_head_config",
    "embedding_dim",
    "embed_dim",
    "dim",
    "colbert_dim",
)
"""What counts of the file around it."""

_ORDINARY = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")


def _is_decoder(raw: Mapping[str, Any]) -> bool:
    """Whether a file of an unknown architecture has what every decoder has, and is not of an encoder alone."""
    inner = next((raw[name] for name in INNER if isinstance(raw.get(name), dict)), raw)
    return all(name in inner for name in _ORDINARY) and not raw.get("is_encoder_decoder")


def _dtype(outer: Fields, fields: Fields, wanted: str, *, is_pooling: bool) -> str:
    """What vLLM computes in: as requested, else the file's; ``auto`` turns float32, and no answer, into half of it."""
    if wanted != "auto":
        if wanted not in _DTYPES:
            raise ConfigError("dtype", wanted, f"use one of: auto, {', '.join(_DTYPES)}")
        return _DTYPES[wanted]
    takes_float16 = outer.text("model_type") not in NO_FLOAT16
    half = "float16" if is_pooling and takes_float16 else "bfloat16"
    for section in (outer, fields):
        name = section.first("dtype", "torch_dtype")
        value = section.get(name)
        if value is None:
            continue
        value = value.removeprefix("torch.") if isinstance(value, str) else value
        if not isinstance(value, str) or value not in DTYPE_BYTES:
            raise section.error(name, f"use one of: {', '.join(DTYPE_BYTES)}")
        return half if value == "float32" or (value == "float16" and not takes_float16) else value
    return half


def _stored(encoders: tuple[EncoderSpec, ...], reading: ConfigReader) -> tuple[EncoderSpec, ...]:
    """The encoders as they are stored: in the model's dtype, but for what the file's quantisation takes of them."""
    quant = reading.quant
    # architecture -> matrices of its encoders that vLLM quantises unless a file leaves them alone -> their share
    named = recorded("towers").get(reading.architecture, {}) if quant.method and encoders else {}
    uneven = _left_alone(quant, reading.outer.section("vision_config")) if named else ()
    formats = [(quant.of_tower(module), share) for module, share in named.items() if not module.endswith(uneven)]
    taken = [(each, share) for each, share in formats if each != quant.plain]
    if not taken:
        return encoders
    rest = 1.0 - sum(share for _, share in taken)
    weights = blended([*taken, (quant.plain, rest)]) if rest > 0 else blended(taken)
    return tuple(replace(each, weights=weights) for each in encoders)


_UNEVEN = ("vision_model.encoder.layers.0.mlp.fc1", "vision_model.encoder.layers.0.mlp.fc2")
_MULTIPLE = 64


def _left_alone(quant: Quantization, tower: Fields | None) -> tuple[str, ...]:
    """Which of a SigLIP's MLPs vLLM leaves alone for its sizes; torchao those whose rows are no whole groups."""
    sizes = [tower.get(name) for name in ("hidden_size", "intermediate_size")] if tower is not None else []
    groups = quant.linear.group_size or 1
    if quant.method == "torchao":
        return _UNEVEN[1:] if any(isinstance(size, int) and size % groups for size in sizes[1:]) else ()
    return _UNEVEN if any(isinstance(size, int) and size % _MULTIPLE for size in sizes) else ()


def _quantizes_head(reading: ConfigReader) -> bool:
    """vLLM quantises an output head only where the file says so; ModelOpt's files say where not."""
    section = reading.outer.section("quantization_config")
    if section is None:
        return False
    return bool(section.get("lm_head")) or "lm_head" in (section.get("extra_config") or ()) or reading.quant.takes_head


_LENGTHS: tuple[str, ...] = tuple(field_names()["lengths"])
"""Fields that may say how long a context is; the smallest counts."""


def _context_lengths(fields: Fields, version: str) -> tuple[int, int]:
    """The context that vLLM takes, and the longest that may be requested, 0 if that is none longer: the smallest length
    that a file names, or its ``model_max_length``, times the factor of a rotary scaling.

    YaRN's counts from the original length in earlier versions; later ones take files to count it in. LongRoPE has
    the original length unless a longer one is requested.
    """
    fields.harmless("model_max_length", *_LENGTHS)
    given = [name for name in _LENGTHS if fields.get(name) is not None] or _LENGTHS[:1]
    longest = "model_max_length" if fields.get("model_max_length") else ""
    base = fields.count(longest) if longest else min(map(fields.count, given))
    if "gemma3" in fields.text("model_type"):
        return base, 0
    factor = 1.0
    for scaling in _scalings(fields):
        kind = scaling.text(scaling.first("rope_type", "type"), "default")
        if kind in _LONG_ROPE:
            return fields.count("original_max_position_embeddings", base), base
        if kind == "yarn":
            original = scaling.count("original_max_position_embeddings", base)
            if release_facts(version).yarn_counts_factor:
                base, factor = original, scaling.number("factor", 1.0)
        elif kind not in _PLAIN_ROPE:
            factor = scaling.number("factor", 1.0)
    return int(base * factor), 0


def _scalings(fields: Fields) -> Iterator[Fields]:
    """Rotary scalings: one of all layers, or of each kind of layer."""
    whole = fields.section("rope_scaling") or fields.section("rope_parameters")
    if whole is None:
        return
    kinds = [name for name in whole.unread() if isinstance(whole.get(name), dict) and name.endswith("attention")]
    yield from (each for name in kinds if (each := whole.section(name)) is not None)
    if not kinds:
        yield whole
