"""How a checkpoint's weights are stored: ``quantization_config``, method by method.

Which modules a method leaves alone is read as vLLM reads it: names, patterns or parts of names, in the checkpoint's
spelling (``model.layers.3.self_attn``). Embeddings, norms and routers are never quantised, output heads hardly ever.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tokenyard.errors import shown
from tokenyard.models.fields import Fields, field_names
from tokenyard.models.formats import WeightFormat, plain_format
from tokenyard.models.reading import by_matrix
from tokenyard.models.reading.by_matrix import torchao_rule
from tokenyard.models.reading.module_pattern import MOST_CHARACTERS, PatternError, Work, glob_pattern, module_pattern
from tokenyard.quick_dataclass import dataclass

Matches = Callable[[str, str], bool]
"""(module, entry of the list of modules left alone) -> whether it is meant."""


@dataclass(frozen=True, kw_only=True)
class Quantization:
    """Formats of a checkpoint's weights, by module."""

    method: str | None
    plain: WeightFormat
    """Format of what is not quantised."""
    linear: WeightFormat
    own_experts: WeightFormat | None = None
    """Format of experts, where it is another."""
    excluded: tuple[str, ...] = ()
    matches: Matches = lambda module, entry: module == entry
    named: tuple[tuple[str, WeightFormat], ...] = ()
    """Modules with a format of their own, or parts of modules."""
    globs: bool = False
    """They are named by patterns, experts too."""
    rule: by_matrix.Rule | None = None
    """How single by_matrix.matrices are stored, where they differ."""
    held: bool = False
    """The rule names by_matrix.matrices as vLLM holds them, several in one."""
    experts_in_one: bool = False
    """It names all experts of a layer by the module that they are."""
    takes_head: bool = False
    """The output head is quantised like other by_matrix.matrices, unless it is left alone."""
    kv_cache_dtype: str | None = None
    """What the checkpoint asks for; None: nothing."""

    expert_group_bits: float = 0
    """What a group of experts' integers has besides them, and that the groups may be halved; 0: as elsewhere."""

    def of(self, module: str, *, experts: bool = False) -> WeightFormat:
        """The format of the weights of ``module``, or of the experts in it."""
        found = self._of(module, experts=experts)
        if not experts or not self.expert_group_bits or not found.group_size:
            return found
        return replace(found, group_bits=self.expert_group_bits, groups_halve=True)

    def of_tower(self, module: str) -> WeightFormat:
        """The format of a matrix of an encoder, by the name that vLLM has for it: most files leave them alone."""
        if self.method not in _TAKE_TOWERS or (self.method == "modelopt" and any(each in module for each in _SEES)):
            return self.plain
        names = tuple(f"{begin}{name}" for begin in ("", "model.") for name in by_matrix.parts_of(module))
        if any(self.matches(name, entry) for entry in self.excluded for name in names):
            return self.plain
        return self.rule(module) if self.rule is not None else self.linear

    def _of(self, module: str, *, experts: bool) -> WeightFormat:
        if self.method != "fp8" and any(self.matches(module, entry) for entry in self.excluded):
            return self.plain
        if self.rule is not None:
            inside = by_matrix.matrices(module, experts=experts, held=self.held, experts_in_one=self.experts_in_one)
            return by_matrix.blended([(self.rule(name), share) for name, share in inside])
        if self.globs or not experts:
            meant = self.matches if self.globs else _named
            found = next((each for name, each in self.named if meant(module, name)), None)
            if found is not None:
                return found
        return self.own_experts or self.linear if experts else self.linear


_TAKE_TOWERS = ("fp8", "mxfp8", "compressed-tensors", "modelopt", "quark", "torchao")
"""Methods that leave alone what a file names, and nothing else. GPTQ and AWQ look at the checkpoint's tensors."""
_SEES = ("vision_tower", "vision_model", "vit_large_projector")
"""ModelOpt's files never quantise these."""
_MX_SCALE = 8
"""Bits of a scale of MXFP4 and MXFP8."""
_MX_BLOCKS = [32, 32]
MXFP4 = WeightFormat(name="mxfp4", bits=4, group_size=32, group_bits=_MX_SCALE)


def read_quantization(fields: Fields | None, dtype: str) -> Quantization:
    """Read ``quantization_config``; ``dtype`` is that of weights that are not quantised.

    Raises ConfigError naming a method or a setting that is not known.
    """
    plain = plain_format(dtype)
    if fields is None:
        return Quantization(method=None, plain=plain, linear=plain)
    method = fields.text("quant_method").lower().replace("_", "-") or _by_producer(fields)
    if method in METHODS:
        return METHODS[method](fields, plain)
    raise fields.error("quant_method", f"is not known: use one of {', '.join(sorted(METHODS))}")


def _by_producer(fields: Fields) -> str:
    """The method of a file that names none: ModelOpt writes its own section, and its name beside it."""
    producer, inner = fields.section("producer"), fields.section("quantization")
    is_its_own = inner is not None and (producer is not None and producer.text("name") == "modelopt")
    return "modelopt" if is_its_own and inner is not None and inner.text("quant_algo") else ""


# ---- modules that are left alone


_MOST_ENTRIES = 10_000

_LARGE = frozenset(field_names()["large"])
"""Parts of a module that are most of it: where one of them is left alone, the module counts as left alone."""


def _holds(module: str, entry: str) -> bool:
    """``entry`` is most of the module."""
    return entry.startswith(f"{module}.") and entry.rpartition(".")[2] in _LARGE


def _named(module: str, entry: str) -> bool:
    """The module itself, one around it or most of it."""
    return module == entry or module.startswith(f"{entry}.") or _holds(module, entry)


def _part_of_name(module: str, entry: str) -> bool:
    """``entry`` occurs among the dotted parts of the name."""
    return f".{entry}." in f".{module}." or _holds(module, entry)


def _patterns(fields: Fields, *names: str) -> Matches:
    """Entries of these fields with ``*``, and with ``re:`` for a regular expression, whose work is counted."""
    work = Work()

    def matches(module: str, entry: str) -> bool:
        try:
            return _pattern(module, entry, work)
        except PatternError as error:
            raise fields.error(fields.first(*names), f"{shown(entry)} {error}; name the modules instead") from None

    return matches


def _pattern(module: str, entry: str, work: Work) -> bool:
    """Whether the module is meant; what an entry says of a part counts for the whole."""
    if entry.startswith("re:"):
        matches = module_pattern(entry[3:]).matches
        names = (module, f"{module}.x", f"{module}.q_proj", f"{module}.up_proj")
        return any(matches(name, work) for name in names)
    if "*" in entry:
        whole, below = glob_pattern(entry), glob_pattern(f"{entry}.*")
        return whole.matches(module, work) or below.matches(module, work) or whole.matches(f"{module}.x", work)
    return _named(module, entry)


def _excluded(fields: Fields, *names: str, patterns: bool = False) -> tuple[str, ...]:
    """Modules that are left alone; ``patterns`` where entries may be regular expressions."""
    name = fields.first(*names)
    entries = tuple(str(entry) for entry in fields.items(name))
    if len(entries) > _MOST_ENTRIES:
        raise fields.error(name, f"has {len(entries):,} entries, and no more than {_MOST_ENTRIES:,} are read")
    for entry in entries:
        if len(entry) > MOST_CHARACTERS + len("re:"):
            raise fields.error(name, f"an entry has {len(entry):,} characters, of {MOST_CHARACTERS} that are read")
        if patterns and (entry.startswith("re:") or "*" in entry):
            try:
                module_pattern(entry[3:]) if entry.startswith("re:") else glob_pattern(f"{entry}.*")
            except PatternError as error:
                raise fields.error(name, f"{shown(entry)} {error}; name the modules instead") from None
    return entries


# ---- methods


def _fp8(fields: Fields, plain: WeightFormat) -> Quantization:
    block = fields.items("weight_block_size")
    size = int(block[0]) * int(block[1]) if len(block) == 2 else 0
    fields.harmless("activation_scheme", "activation_scale_ub", "fmt", "scale_fmt", "dequantize", "use_deep_gemm")
    weights = WeightFormat(
        name="fp8",
        bits=8,
        group_size=size,
        group_bits=32 if size else 0,
        compute="float8",
        alignment=int(block[1]) if size else 1,
    )
    if block == _MX_BLOCKS:  # vLLM repeats the scales along the rows
        weights = WeightFormat(name="mxfp8", bits=8, group_size=block[1], group_bits=_MX_SCALE, compute="float8")
    excluded = _excluded(fields, "modules_to_not_convert", "ignored_layers")
    return Quantization(
        method="fp8",
        plain=plain,
        linear=weights,
        excluded=excluded,
        matches=lambda module, entry: module == entry,
        rule=by_matrix.whole_names_rule(excluded, _LARGE, weights, plain),
        held=True,
        experts_in_one=True,
    )


def _mxfp4(fields: Fields, plain: WeightFormat) -> Quantization:
    fields.harmless("modules_to_not_convert", "dequantize")  # attention, router, embedding and head, always
    return Quantization(method="mxfp4", plain=plain, linear=plain, own_experts=MXFP4)


def _modelopt(fields: Fields, plain: WeightFormat) -> Quantization:
    inner = fields.section("quantization") or fields
    fields.harmless("producer", "config_groups", "quantization")
    algorithm = inner.text("quant_algo").upper()
    if algorithm == "MIXED_PRECISION" or inner.get("quantized_layers"):
        return _mixed_modelopt(fields, plain)
    kv = inner.text("kv_cache_quant_algo").upper()
    scheme = inner.section("kv_cache_scheme")
    if scheme is not None:
        scheme.harmless("dynamic", "type")
        kv = kv or ("FP8" if scheme.count("num_bits", 16) == 8 else "")
    if kv not in ("", "FP8", "NVFP4"):
        raise inner.error("kv_cache_quant_algo", "use FP8 or NVFP4")
    weights = _modelopt_format(inner, algorithm)
    return Quantization(
        method="modelopt",
        plain=plain,
        linear=weights,
        excluded=_excluded(inner, "ignore", "exclude_modules", patterns=True),
        matches=_patterns(inner, "ignore", "exclude_modules"),
        takes_head=True,
        kv_cache_dtype="fp8" if kv == "FP8" else "nvfp4" if kv else None,
    )


_OF_INTEGERS: tuple[str, ...] = tuple(field_names()["integers"])
"""Settings of these methods that change neither size nor arithmetic."""


def _integer(method: str) -> Callable[[Fields, WeightFormat], Quantization]:
    """AWQ, GPTQ and AutoRound: integers in groups with a scale and a zero point each."""

    def read(fields: Fields, plain: WeightFormat) -> Quantization:
        bits = fields.count(fields.first("bits", "w_bit"))
        size = fields.count(fields.first("group_size", "q_group_size"), 128, low=-1)
        fields.harmless(*_OF_INTEGERS)

        scale = _MX_SCALE if "mx_fp" in fields.text("data_type") else 16  # without zero points

        def stored(bits: int, size: int) -> WeightFormat:
            return WeightFormat(
                name=f"{method}-int{bits}" if scale > _MX_SCALE else f"mxfp{bits}",
                bits=bits,
                group_size=max(size, 0),
                group_bits=0 if size <= 0 else scale + bits if scale > _MX_SCALE else scale,
                alignment=max(size, 1) if method == "awq" else 1,
            )

        weights, excluded = stored(bits, size), _excluded(fields, "modules_to_not_convert")
        dynamic, chosen = by_matrix.dynamic_rule(fields, stored, plain), by_matrix.chosen_rule(fields, weights, plain)
        left_alone = by_matrix.left_alone_rule(excluded, weights, plain) if method == "awq" else None
        return Quantization(
            method=method,
            plain=plain,
            linear=weights,
            excluded=() if method == "awq" else excluded,
            matches=_part_of_name,
            rule=left_alone or dynamic or chosen or by_matrix.extra_rule(fields, stored, plain),
            held=not fields.get("extra_config"),
            experts_in_one=True,
            expert_group_bits=0
            if scale == _MX_SCALE
            else 16
            if method != "awq" and fields.get("sym", True)
            else 16 + bits,
        )

    return read


def _bitsandbytes(fields: Fields, plain: WeightFormat) -> Quantization:
    four = fields.flag("load_in_4bit", default=bool(fields.get("_load_in_4bit", False)))
    double = fields.flag("bnb_4bit_use_double_quant")
    fields.harmless(
        "load_in_8bit", "_load_in_8bit", "bnb_4bit_quant_type", "bnb_4bit_compute_dtype", "bnb_4bit_quant_storage",
        "llm_int8_threshold", "llm_int8_has_fp16_weight", "llm_int8_enable_fp32_cpu_offload",
    )  # fmt: skip
    scales = 8 + 32 / 256 if double else 32
    four_bits = WeightFormat(name="bnb-nf4", bits=4, group_size=64, group_bits=scales)
    weights = four_bits if four else WeightFormat(name="bnb-int8", bits=8, compute="int8")
    return Quantization(
        method="bitsandbytes",
        plain=plain,
        linear=weights,
        excluded=_excluded(fields, "llm_int8_skip_modules"),
        matches=_part_of_name,
    )


def _modelopt_format(fields: Fields, algorithm: str) -> WeightFormat:
    if algorithm in ("NVFP4", "NVFP4_AWQ", "W4A16_NVFP4"):
        size = fields.count("group_size", 16)
        compute = "bfloat16" if algorithm.startswith("W4A16") else "float4"
        return WeightFormat(name="nvfp4", bits=4, group_size=size, group_bits=8, compute=compute)
    fields.harmless("group_size")
    if algorithm.startswith("FP8"):
        return WeightFormat(name="fp8", bits=8, compute="float8")
    if algorithm == "MXFP8":
        return WeightFormat(name="mxfp8", bits=8, group_size=32, group_bits=8, compute="float8")
    raise fields.error("quant_algo", "is not known: use FP8, MXFP8, NVFP4 or W4A16_NVFP4")


def _mixed_modelopt(fields: Fields, plain: WeightFormat) -> Quantization:
    """A format for each module that is named (Nemotron 3): experts' and others' are those of the most modules."""
    inner = fields.section("quantization") or fields
    layers = inner.section("quantized_layers")
    inner.harmless("kv_cache_quant_algo", "kv_cache_scheme", "exclude_modules", "ignore", "config_groups", "quant_algo")
    named = {name: layers.section(name) for name in sorted(layers.unread())} if layers is not None else {}
    formats = {name: _modelopt_format(each, each.text("quant_algo").upper()) for name, each in named.items() if each}
    if not formats:
        raise inner.error("quantized_layers", "name the modules that are quantised")
    kv = inner.text("kv_cache_quant_algo").upper()
    return Quantization(
        method="modelopt",
        plain=plain,
        linear=plain,
        own_experts=_commonest([each for name, each in formats.items() if ".experts." in name] or [plain]),
        named=tuple(formats.items()),
        kv_cache_dtype="fp8" if kv == "FP8" else "nvfp4" if kv == "NVFP4" else None,
    )


def _commonest(formats: list[WeightFormat]) -> WeightFormat:
    return max(formats, key=formats.count)


def _quark(fields: Fields, plain: WeightFormat) -> Quantization:
    """AMD's: one format for all, as its ``global_quant_config`` says, and others for the modules that are named."""
    whole, layers = fields.section("global_quant_config"), fields.section("layer_quant_config")
    fields.harmless("layer_type_quant_config", "export", "version")
    if whole is None:
        raise fields.error("global_quant_config", "say how weights are quantised")
    named = {name: layers.section(name) for name in layers.unread()} if layers is not None else {}
    found, matches = _quark_format(whole, plain), _patterns(fields, "layer_quant_config", "exclude")
    return Quantization(
        method="quark",
        plain=plain,
        linear=found,
        excluded=_excluded(fields, "exclude", patterns=True),
        matches=lambda module, entry: any(
            matches(name, entry) for name in (module, f"{module}.o_proj", f"{module}.down_proj")
        ),
        named=tuple((name, _quark_format(each, plain)) for name, each in named.items() if each is not None),
        globs=True,
        kv_cache_dtype="fp8" if fields.get("kv_cache_quant_config") else None,
    )


def _quark_format(layer: Fields, plain: WeightFormat) -> WeightFormat:
    """How these modules are stored: as the last of several steps leaves them, plain where nothing is given."""
    steps = layer.get("weight")
    last = steps[-1] if isinstance(steps, list) and steps else steps
    if last is None:
        return plain
    weights = Fields(f"{layer.where}: weight", last) if isinstance(last, dict) else None
    if weights is None:
        raise layer.error("weight", "give an object")
    kind = weights.text("dtype")
    if kind.startswith("fp8"):
        return WeightFormat(name="fp8", bits=8, compute="float8")
    if kind in ("fp4", "mxfp4"):
        return replace(MXFP4, compute="float4")
    if kind in ("int8", "int4", "uint4"):
        size, bits = weights.count("group_size", 0, low=0), int(kind[-1])
        return WeightFormat(name=f"int{bits}", bits=bits, group_size=size, group_bits=16 + bits if size else 0)
    raise weights.error("dtype", "is not known: use fp8_e4m3, fp4, int8 or int4")


def _mxfp8(fields: Fields, plain: WeightFormat) -> Quantization:
    fields.harmless("activation_scheme", "weight_block_size", "scale_fmt")
    weights = WeightFormat(name="mxfp8", bits=8, group_size=32, group_bits=8, compute="float8")
    excluded = _excluded(fields, "modules_to_not_convert", "ignored_layers")
    matches: Matches = lambda module, entry: _part_of_name(module, entry) or _named(module, entry)  # noqa: E731
    return Quantization(method="mxfp8", plain=plain, linear=weights, excluded=excluded, matches=matches)


def _compressed_tensors(fields: Fields, plain: WeightFormat) -> Quantization:
    groups = fields.section("config_groups")
    named = [] if groups is None else [groups.section(name) for name in sorted(groups.unread())]
    given = [group for group in named if group is not None]
    if not given:
        raise fields.error("config_groups", "give at least one group")
    fields.harmless("format", "quantization_status", "global_compression_ratio", "sparsity_config", "transform_config")
    fields.harmless("version")
    formats = [_group_format(group) for group in given]
    excluded = _excluded(fields, "ignore", patterns=True)
    targets = [entry for group in given for entry in _excluded(group, "targets", patterns=True)]
    matches = _patterns(fields, "ignore")
    several = len({*formats}) > 1
    all_linear = next(
        (each for each, group in zip(formats, given, strict=True) if "Linear" in group.items("targets")), plain
    )
    only_experts = all("expert" in each for each in targets)
    scheme = fields.section("kv_cache_scheme")
    kv_bits = scheme.count("num_bits", 8) if scheme is not None else 16
    return Quantization(
        method="compressed-tensors",
        plain=plain,
        linear=plain if only_experts else formats[0],
        own_experts=formats[0],
        excluded=excluded,
        matches=matches,
        rule=_groups_rule(fields, given, formats, excluded, matches, all_linear, plain) if several else None,
        kv_cache_dtype="fp8" if kv_bits == 8 else None,
    )


def _groups_rule(
    fields: Fields,
    groups: list[Fields],
    formats: list[WeightFormat],
    excluded: tuple[str, ...],
    matches: Matches,
    all_linear: WeightFormat,
    plain: WeightFormat,
) -> by_matrix.Rule:
    """Groups of several formats: the first whose target names the matrix, else the one of all linear layers."""
    named = [
        (str(target), each)
        for group, each in zip(groups, formats, strict=True)
        for target in group.items("targets")
        if target != "Linear"
    ]
    work = Work()

    def rule(name: str) -> WeightFormat:
        if any(matches(name, entry) for entry in excluded):
            return plain
        for target, each in named:
            expression = target.removeprefix("re:")
            if target == name or (
                expression != target
                and by_matrix.found_in(fields, "config_groups", expression, name, work, anywhere=False)
            ):
                return each
        return all_linear

    return rule


def _group_format(group: Fields) -> WeightFormat:
    weights = group.section("weights")
    if weights is None:
        raise group.missing("weights", "say how weights are quantised")
    bits, kind = weights.count("num_bits"), weights.text("type", "int")
    size = weights.count("group_size", 0, low=-1) if weights.text("strategy") not in ("channel", "tensor") else 0
    activations = group.section("input_activations")
    low = activations.count("num_bits", 16) if activations is not None else 16
    if kind == "float":
        block, is_mx = weights.get("block_structure"), bits == 8 and "uint8" in str(weights.get("scale_dtype"))
        scale = _MX_SCALE if bits == 4 or is_mx else 32
        name = {4: "mxfp4" if size == 32 else "nvfp4", 8: "mxfp8" if is_mx else "fp8"}.get(bits, f"fp{bits}")
        alignment = max([1, *(side for side in block if isinstance(side, int))]) if isinstance(block, list) else 1
    else:
        scale, name, alignment = 16, f"int{bits}", max(size, 1)
    compute = {(8, "float"): "float8", (8, "int"): "int8", (4, "float"): "float4"}.get((low, kind), "bfloat16")
    size, scale = (size, scale) if size > 0 else (0, 0)
    return WeightFormat(name=name, bits=bits, group_size=size, group_bits=scale, compute=compute, alignment=alignment)


def _torchao(fields: Fields, plain: WeightFormat) -> Quantization:
    fields.harmless(
        "include_input_output_embeddings", "untie_embedding_weights", "quant_type_kwargs", "modules_to_not_convert"
    )
    weights, rule = torchao_rule(fields, plain)
    return Quantization(
        method="torchao",
        plain=plain,
        linear=weights,
        own_experts=plain,
        rule=rule,
        held=True,
        experts_in_one=True,
    )


METHODS: dict[str, Callable[[Fields, WeightFormat], Quantization]] = {
    "auto-round": _integer("auto-round"),
    "autoround": _integer("auto-round"),
    "awq": _integer("awq"),
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _compressed_tensors,
    "fp8": _fp8,
    "gptq": _integer("gptq"),
    "gptqmodel": _integer("gptq"),
    "awq-marlin": _integer("awq"),
    "fbgemm-fp8": _fp8,
    "gptq-marlin": _integer("gptq"),
    "modelopt": _modelopt,
    "modelopt-fp4": _modelopt,
    "modelopt-mixed": _modelopt,
    "modelopt-mxfp8": _modelopt,
    "mxfp8": _mxfp8,
    "quark": _quark,
    "mxfp4": _mxfp4,
    "torchao": _torchao,
}
"""``quant_method``, with ``-`` for ``_`` -> its reader."""
