"""A model's description from vLLM's own classes: what ``tokenyard describe`` writes.

vLLM builds the model on torch's ``meta`` device, as one GPU holds it and as the first of two do: what halves is shared
out, what does not is held by each. Attention and states say what they keep; matrices with three dimensions are experts;
the rest of a layer is what every token goes through. The description is then asked for blocks and weights, and what
differs from vLLM's own planner is noted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from math import prod
from typing import Any

from tokenyard.errors import CannotDescribeError, TokenyardError
from tokenyard.memory.kv_plan import plan_kv_cache
from tokenyard.models.described import DESCRIBED_BY
from tokenyard.models.fields import Fields
from tokenyard.models.formats import WeightFormat
from tokenyard.models.layers import DenseMLP, LayerSpec, MoE
from tokenyard.models.mixers import (
    Attends,
    GatedDeltaNet,
    Indexer,
    LatentAttention,
    LinearAttention,
    Mamba1,
    Mamba2,
    Mixer,
    ShortConvolution,
    SoftmaxAttention,
)
from tokenyard.models.reading.quantization import Quantization, read_quantization
from tokenyard.models.spec import EncoderSpec, ModelSpec
from tokenyard.quick_dataclass import dataclass

_AVAILABLE = 70 << 30
"""Bytes for the KV cache with which both planners are compared."""
_LAYER = re.compile(r"^(?P<prefix>(?:.*?\.)?)(?P<number>\d+)\.")
_TOWERS = re.compile(
    r"vis(ion|ual)|image|audio|sound|speech|whisper|encoder|projector|connector|merger|aligner|resampl|mm_"
)
_EMBEDS = re.compile(r"(embed\w*|wte)\.weight$")
_COLUMNS = 32
"""Widths are multiples of it."""
_LARGEST_DIFFERENCE = 0.012
"""Share of the weights, as for the table of models."""


@dataclass(frozen=True, kw_only=True)
class Description:
    """A model, and how its description compares with vLLM's planner."""

    model: ModelSpec
    differences: tuple[str, ...] = ()
    """What differs, one sentence each; nothing where all is equal."""


@dataclass(kw_only=True)
class _Weights:
    """Parameters of some part, in elements of the model's dtype."""

    shared: int = 0
    """Parameters that are sharded over a tensor-parallel group, of the whole group."""
    replicated: int = 0
    experts: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    """Matrices with one for every expert."""


def describe(raw: Mapping[str, Any], *, name: str, dtype: str = "auto") -> Description:
    """Describe the model of a ``config.json`` by vLLM's classes.

    ``raw`` is what the file holds, ``name`` what the model is called. Raises CannotDescribeError where vLLM cannot
    build it, or where its layers are of a kind that a description does not have.
    """
    from tokenyard.vllm.describing.built import BuiltModel, versions
    from tokenyard.vllm.describing.stand_in import is_known, stand_in

    plain = {key: value for key, value in raw.items() if key not in ("quantization_config", "compression_config")}
    options = {"dtype": dtype, "trust_remote_code": False}
    notes = [f"{DESCRIBED_BY}{versions()['vllm']}"]
    model_type = str(raw.get("model_type") or "")
    if model_type and not is_known(model_type):
        stand_in(plain)
        notes.append(f"no configuration class for {model_type} is installed: what its file leaves out is not known")
    try:
        one = BuiltModel(plain, 1, options)
        seen_one, specs = _parameters(one), one.cached_layers()
        length, chosen = (
            one.config.model_config.max_model_len,
            str(one.config.model_config.dtype).removeprefix("torch."),
        )
        theirs = {1: _answer(one)}
    except Exception as error:
        # which architectures there are, and what it was given, fill pages
        reason = " ".join(re.split(r"Supported architectures|\[type=", str(error))[0].split())
        raise CannotDescribeError(f"{name}: vLLM cannot build it here: {type(error).__name__}: {reason}") from error
    try:
        two = BuiltModel(plain, 2, options)
        seen_two = _parameters(two)
        theirs[2] = _answer(two)
    except Exception:  # noqa: BLE001 - whatever it is: heads that two GPUs cannot share, most often
        seen_two = {}
    section = raw.get("quantization_config")
    quant = read_quantization(None if section is None else Fields(name, section), chosen)
    text = one.config.model_config.hf_text_config
    reader = _Reader(
        text=text,
        one=seen_one,
        two=seen_two,
        layers=specs,
        quant=quant,
        dtype=chosen,
        name=name,
        per_token=_per_token(one.model),
    )
    model = reader.model(raw, length, tuple(notes))
    return Description(model=model, differences=tuple(_differences(model, theirs, one)) if section is None else ())


def _parameters(built: Any) -> dict[str, tuple[tuple[int, ...], int]]:
    """Name -> shape and bytes."""
    return {name: (tuple(p.shape), p.numel() * p.element_size()) for name, p in built.model.named_parameters()}


def _per_token(model: Any) -> int:
    """How many experts a token visits, by the modules that hold experts; 0 where none says it."""
    routed = (getattr(module, "top_k", 0) for name, module in model.named_modules() if "expert" in name)
    return max((top for top in routed if isinstance(top, int)), default=0)


@dataclass(frozen=True, kw_only=True)
class _Reader:
    """What was seen of a model, being read."""

    text: Any
    """The decoder's configuration."""
    one: Mapping[str, tuple[tuple[int, ...], int]]
    two: Mapping[str, tuple[tuple[int, ...], int]]
    layers: Mapping[str, tuple[Any, Any]]
    quant: Quantization
    dtype: str
    name: str
    per_token: int = 0
    """Experts that a token visits, by the model's modules; 0 where they do not say it."""

    @property
    def hidden(self) -> int:
        """How wide the model is; where its configuration says nothing, as wide as the largest table of embeddings."""
        said = getattr(self.text, "hidden_size", None)
        if isinstance(said, int):
            return said
        return self._largest_table()[1]

    @property
    def vocabulary(self) -> int:
        """How many tokens it knows, likewise."""
        said = getattr(self.text, "vocab_size", None)
        return said if isinstance(said, int) else self._largest_table()[0]

    def _largest_table(self) -> tuple[int, int]:
        tables = [shape for name, (shape, _) in self.one.items() if len(shape) == 2 and _EMBEDS.search(name)]
        if not tables:
            raise CannotDescribeError(f"{self.name}: its configuration says neither hidden_size nor vocab_size")
        rows, width = max(tables)
        return rows, width

    def model(self, raw: Mapping[str, Any], length: int, notes: tuple[str, ...]) -> ModelSpec:
        """The whole model."""
        prefixes = self._prefixes()
        matches = [match for name in self.one if (match := _LAYER.match(name)) and match["prefix"] in prefixes]
        numbered = sorted({(prefixes.index(match["prefix"]), int(match["number"])) for match in matches})
        inside = tuple(f"{prefixes[which]}{number}." for which, number in numbered)
        outside = [name for name in self.one if not name.startswith(inside)]
        embeddings = [name for name in outside if self._is_embedding(name)]
        towers = [name for name in outside if name not in embeddings and _TOWERS.search(name)]
        others = [name for name in outside if name not in embeddings and name not in towers]
        found = [self._layer(at) for at in inside]
        first, again = [layer for layer, _ in found], [layer for _, more in found for layer in more]
        beside = self._sum(others)
        encoder = self._sum(towers)
        encoders: tuple[EncoderSpec, ...] = ()
        if towers:
            total = encoder.shared + encoder.replicated
            kind = "audio" if any("audio" in each for each in towers) else "vision"
            encoders = (
                EncoderSpec(
                    kind=kind, num_parameters=total, replicated_parameters=encoder.replicated, weights=self.quant.plain
                ),
            )
        return ModelSpec(
            name=self.name,
            architecture=str(next(iter(raw.get("architectures") or ()), "")),
            model_type=str(getattr(self.text, "model_type", "")),
            layers=(*first, *again),
            hidden_size=self.hidden,
            vocab_size=self.vocabulary,
            max_model_len=length,
            dtype=self.dtype,
            quantization=self.quant.method,
            tie_word_embeddings=len(embeddings) < 2,
            other_parameters=beside.replicated,
            embedding_parameters=beside.shared,
            encoders=encoders,
            supports_multimodal=bool(encoders),
            kv_cache_dtype=self.quant.kv_cache_dtype,
            notes=notes,
        )

    def _prefixes(self) -> list[str]:
        """What the names of the decoder's layers begin with; models that reason in loops have two lists of them."""
        kept = [match["prefix"] for name, (_, spec) in self.layers.items() if spec and (match := _LAYER.match(name))]
        if not kept:
            raise CannotDescribeError(f"{self.name} has no layers that vLLM keeps something for")
        return list(dict.fromkeys(kept))

    def _is_embedding(self, name: str) -> bool:
        shape = self.one[name][0]
        return len(shape) == 2 and shape[1] == self.hidden and 0 <= shape[0] - self.vocabulary < 256

    def _sum(self, names: list[str]) -> _Weights:
        found, size = _Weights(), 4 if self.dtype == "float32" else 2
        for name in names:
            shape, num_bytes = self.one[name]
            if len(shape) == 3 and "expert" in name:
                found.experts.append((name, shape))
                continue
            shared = min(num_bytes, self._shared_bytes(name)) // size
            found.shared += shared
            found.replicated += num_bytes // size - shared
        return found

    def _shared_bytes(self, name: str) -> int:
        """Bytes of a parameter that are shared out: two GPUs hold half of them each, and what both hold besides."""
        shape, num_bytes = self.one[name]
        if name not in self.two:
            return num_bytes if len(shape) > 1 and not self.two else 0
        return max(0, 2 * (num_bytes - self.two[name][1]))

    def _layer(self, at: str) -> tuple[LayerSpec, list[LayerSpec]]:
        """A layer, and those that go through its weights again with keys and values of their own."""
        names = [name for name in self.one if name.startswith(at)]
        mixers, repeated = self._mixers_of(at)
        weights = self._sum(names)
        parted = [mixer for mixer in mixers if self.two and self._parts(mixer)]
        held = sum(2 * mixer.num_parameters(2) - mixer.num_parameters(1) for mixer in parted)
        shared = weights.shared - sum(mixer.num_parameters(1) for mixer in mixers) + held
        replicated = weights.replicated - held
        if shared < 0:
            replicated, shared = replicated + shared, 0
        mlp = self._mlp(at, weights, shared, max(0, replicated))
        norms = 0 if mlp is not None else max(0, replicated + shared)
        layer = LayerSpec(mixers=tuple(mixers), mlp=mlp, norm_parameters=norms)
        return layer, [LayerSpec(mixers=(mixer,), mlp=mlp, repeats=True) for mixer in repeated]

    def _mixers_of(self, at: str) -> tuple[list[Mixer], list[Mixer]]:
        """What mixes tokens in a layer, and what does so with the same projections a further time (loops)."""
        own: list[Mixer] = []
        repeated: list[Mixer] = []
        together: dict[str, list[Mixer]] = {}
        for place, (layer, spec) in self.layers.items():
            if place.startswith(at) and not place.endswith("indexer.k_cache"):
                together.setdefault(self._projections(at, place), []).extend(self._mixers(place, layer, spec))
        for module, mixers in together.items():
            room = self._sum([name for name in self.one if name.startswith(f"{module}.")]).shared
            wanted = sum(mixer.num_parameters(1) for mixer in mixers)
            again = all(isinstance(mixer, SoftmaxAttention) for mixer in mixers) and wanted > room
            own += mixers[:1] if again else mixers
            repeated += mixers[1:] if again else []
        return own, repeated

    def _projections(self, at: str, place: str) -> str:
        """The module around what attends that has parameters."""
        module = place
        while len(module) > len(at) and not any(name.startswith(f"{module}.") for name in self.one):
            module = module.rpartition(".")[0]
        return module

    def _parts(self, mixer: Mixer) -> bool:
        """Whether two GPUs can share it."""
        return LayerSpec(mixers=(mixer,)).why_not_parted(2) is None

    def _mlp(self, at: str, weights: _Weights, shared: int, replicated: int) -> DenseMLP | MoE | None:
        if weights.experts:
            return self._experts(at, weights, shared, replicated)
        width, rest = self._width(shared, 3)
        if not width:
            return None
        return DenseMLP(
            hidden_size=self.hidden, width=width, extra_parameters=replicated + rest, weights=self.quant.of(f"{at}mlp")
        )

    def _width(self, parameters: int, matrices: int) -> tuple[int, int]:
        """How wide an MLP of so many parameters is, and what is left over: GPUs share columns by the dozen."""
        width = parameters // (matrices * self.hidden) // _COLUMNS * _COLUMNS
        return width, parameters - width * matrices * self.hidden

    def _experts(self, at: str, weights: _Weights, shared: int, replicated: int) -> MoE:
        shapes = [shape for _, shape in weights.experts]
        down = next((shape for shape in shapes if shape[1] == self.hidden), shapes[-1])
        count, width = down[0], down[2]
        elements = sum(prod(shape) for shape in shapes)
        gated = elements > 2.5 * count * width * self.hidden
        shared_width, rest = self._width(shared, 3 if gated else 2)
        return MoE(
            hidden_size=self.hidden,
            num_experts=count,
            num_experts_per_tok=min(count, self._per_token()),
            width=width,
            shared_width=shared_width,
            gated=gated,
            extra_parameters=replicated + rest,
            weights=self.quant.of(f"{at}mlp.experts", experts=True),
            shared_weights=self.quant.of(f"{at}mlp.shared_experts"),
        )

    def _per_token(self) -> int:
        if self.per_token > 0:
            return self.per_token
        for name in ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_top_k", "moe_k", "top_k_experts"):
            value = getattr(self.text, name, None)
            if isinstance(value, list) and value:
                value = value[0]
            if isinstance(value, int) and value > 0:
                return value
        raise CannotDescribeError(f"{self.name} has experts, and its file does not say how many a token visits")

    def _mixers(self, name: str, layer: Any, spec: Any) -> Iterator[Mixer]:
        module = name.rpartition(".")[0]
        weights = self.quant.of(module)
        kind = type(spec).__name__ if spec is not None else ""
        if kind == "MambaSpec":
            yield self._state(spec, weights)
        elif "MLA" in kind and hasattr(layer, "kv_lora_rank"):
            yield self._latent(layer, weights)
        elif kind in ("FullAttentionSpec", "SlidingWindowSpec", "ChunkedLocalAttentionSpec") or spec is None:
            yield self._attention(layer, spec, weights)
        else:
            raise CannotDescribeError(f"{self.name}: {name} keeps a {kind}, which a description does not have")

    def _attention(self, layer: Any, spec: Any, weights: WeightFormat) -> SoftmaxAttention:
        window = getattr(spec, "sliding_window", None) or 0
        chunk = getattr(spec, "attention_chunk_size", None) or 0
        size = int(layer.head_size)
        value = int(getattr(layer, "head_size_v", None) or size)
        return SoftmaxAttention(
            hidden_size=self.hidden,
            num_heads=int(layer.num_heads),
            num_kv_heads=int(layer.num_kv_heads),
            head_size=size,
            head_size_v=0 if value == size else value,
            attends=Attends.CHUNKED if chunk else Attends.SLIDING_WINDOW if window else Attends.FULL,
            window=int(chunk or window),
            shares_kv=spec is None,
            weights=weights,
        )

    def _latent(self, layer: Any, weights: WeightFormat) -> LatentAttention:
        topk = int(getattr(self.text, "index_topk", None) or 0)
        has_indexer = topk and any("indexer" in name for name in self.layers)
        indexer = None
        if has_indexer:
            indexer = Indexer(
                num_heads=int(self.text.index_n_heads), head_size=int(self.text.index_head_dim), topk=topk
            )
        return LatentAttention(
            hidden_size=self.hidden,
            num_heads=int(layer.num_heads),
            kv_lora_rank=int(layer.kv_lora_rank),
            qk_nope_head_dim=int(layer.qk_nope_head_dim),
            qk_rope_head_dim=int(layer.qk_rope_head_dim),
            v_head_dim=int(layer.v_head_dim),
            q_lora_rank=int(getattr(layer, "q_lora_rank", None) or 0),
            indexer=indexer,
            weights=weights,
        )

    def _state(self, spec: Any, weights: WeightFormat) -> Mixer:
        """The state by its shapes: convolution, and recurrent state by heads."""
        shapes = [tuple(int(size) for size in shape) for shape in spec.shapes]
        dtypes = [str(each).removeprefix("torch.") for each in spec.dtypes]
        common: dict[str, Any] = {
            "hidden_size": self.hidden, "conv_dtype": dtypes[0], "state_dtype": dtypes[-1], "weights": weights,
        }  # fmt: skip
        unknown = f"{self.name}: keeps states of shapes {shapes}, which a description does not have"
        if len(shapes) == 1 and len(shapes[0]) == 3 and shapes[0][1] == shapes[0][2]:
            heads, size, _ = shapes[0]
            return LinearAttention(num_heads=heads, head_size=size, conv_kernel=0, **common)
        if len(shapes[0]) != 2:
            raise CannotDescribeError(unknown)
        tail, channels = shapes[0]
        common["conv_kernel"] = tail + 1
        if len(shapes) == 1:
            return ShortConvolution(width=channels, **common)
        if len(shapes) == 2 and len(shapes[1]) == 2:
            inner, state = shapes[1]
            return Mamba1(intermediate_size=inner, state_size=state, time_step_rank=-(-self.hidden // 16), **common)
        if len(shapes) == 2 and len(shapes[1]) == 3:
            heads, size, state = shapes[1]
            if "gdn" in str(spec.mamba_type).lower() or "linear" in str(spec.mamba_type).lower():
                keys = (channels - heads * size) // (2 * state)
                return GatedDeltaNet(
                    num_key_heads=keys, num_value_heads=heads, key_head_size=state, value_head_size=size, **common
                )
            inner = heads * size
            return Mamba2(
                num_heads=heads, head_size=size, state_size=state, num_groups=(channels - inner) // (2 * state),
                intermediate_size=inner, chunk_size=int(getattr(self.text, "mamba_chunk_size", None) or 256), **common,
            )  # fmt: skip
        raise CannotDescribeError(unknown)


def _answer(built: Any) -> dict[str, Any]:
    """What vLLM itself says."""
    return {"weights": built.weights()[1], "plan": built.plan(_AVAILABLE), "built": built.config.cache_config}


def _differences(model: ModelSpec, theirs: Mapping[int, Mapping[str, Any]], one: Any) -> Iterator[str]:
    """What the description comes to, beside vLLM's answers."""
    from tokenyard.core.profiles import nearest_version
    from tokenyard.vllm.describing.built import MAX_NUM_BATCHED_TOKENS, versions

    version = versions()["vllm"]
    planner = nearest_version(version)
    for tp, answer in theirs.items():
        ours = model.weight_bytes(tp)
        if abs(ours / answer["weights"] - 1) > _LARGEST_DIFFERENCE:
            yield f"tensor_parallel_size {tp}: {ours:,} bytes of weights, {answer['weights']:,} in vLLM"
        plan = answer["plan"]
        if "num_blocks" not in plan:
            continue
        try:
            mine = plan_kv_cache(
                model,
                available_bytes=_AVAILABLE,
                tensor_parallel_size=tp,
                max_model_len=one.config.model_config.max_model_len,
                max_num_batched_tokens=MAX_NUM_BATCHED_TOKENS,
                enable_prefix_caching=bool(answer["built"].enable_prefix_caching),
                async_scheduling=bool(one.config.scheduler_config.async_scheduling),
                planner=planner,
            )
        except TokenyardError as error:
            yield f"tensor_parallel_size {tp}: {error}"
            continue
        if (mine.num_blocks, mine.num_tokens) != (plan["num_blocks"], plan["tokens"]):
            here = f"{mine.num_blocks:,} blocks, {mine.num_tokens:,} tokens of KV cache"
            yield f"tensor_parallel_size {tp}: {here}; {plan['num_blocks']:,} and {plan['tokens']:,} in vLLM"
