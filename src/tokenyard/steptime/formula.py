"""Seconds of a step by physics: work counted, rates of a GPU, and the formula that divides one by the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from tokenyard.memory.room import MOST_CAPTURED
from tokenyard.models.formats import BFLOAT16_BYTES, WeightFormat, dtype_bytes, kv_element_bytes, plain_format
from tokenyard.models.gpus import GPU, GPUS
from tokenyard.models.layers import DenseMLP, LayerSpec, MoE
from tokenyard.models.mixers import (
    Attends,
    CompressedAttention,
    LatentAttention,
    Mixer,
    PagedConvolution,
    SoftmaxAttention,
    StateSpace,
)
from tokenyard.models.spec import ModelSpec
from tokenyard.quick_dataclass import dataclass
from tokenyard.steptime.kernels import FEWER_WHERE_FUSED, arithmetic_name, full_norms, kernels_of, storage_kind

# ---------------------------------------------------------------------------------------------------------------------
# What a step has to do, counted: FLOP and bytes of one GPU, by kind of layer and number format.
#
# Counts follow from the model's layers and from how they are shared out:
#
#     tensor parallel   matrices and heads are cut over ``tp`` GPUs; two all-reduces per layer. Every GPU repeats norms,
#                       routers, projections to compressed vectors, compressors, indexers, attention over compressed
#                       vectors for at least a tile of heads, and of drafts what joins token and hidden state
#     pipeline          a GPU has the layers of its stage
#     expert parallel   whole experts are dealt out over ``tp x dp`` GPUs; tokens travel to them and back
#     data parallel     every rank has its own requests and attention; with experts the ranks step together


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallelism:
    """How a model is spread over GPUs."""

    tensor: int = 1
    data: int = 1
    pipeline: int = 1
    expert: bool = False
    """Whole experts are dealt out over tensor x data GPUs, not cut."""
    gpus_per_machine: int = 0
    """GPUs of one machine; 0: not given, and as many as machines with such GPUs usually have."""

    @property
    def num_gpus(self) -> int:
        return self.tensor * self.data * self.pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixProducts:
    """Matrix products that every token goes through, of one number format."""

    weights: WeightFormat
    parameters: int
    """Their parameters, on one GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertWork:
    """Experts of layers that are alike."""

    weights: WeightFormat
    layers: int
    num_experts: int
    """Experts of one layer, on all GPUs."""
    num_local: int
    """Experts of one layer on one GPU, in whole or in part."""
    per_token: int
    parameters: int
    """Parameters of one expert, on one GPU."""
    pair_bytes: int
    """Activations that pass through memory for a (token, expert) pair: taken to the expert, its answer, their sum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Layers that read keys and values, and are alike."""

    layers: int
    kv_bytes: float
    """Per token and layer, on one GPU."""
    kv_widened: float
    """Elements of that which are narrower than what attention computes with, and are widened first."""
    pair_flops: float
    """Per (query, key) pair and layer in prefill, on one GPU."""
    decode_flops: float
    """Per (query, key) pair and layer in decode; latent attention works in the compressed space there."""
    window: int
    """Tokens that can be seen; 0: all."""
    latent: bool = False
    indexes: bool = False
    """It scores tokens for an indexer, on every GPU, and takes in nothing of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkCounts:
    """Counts of one GPU."""

    linear: tuple[MatrixProducts, ...]
    head: MatrixProducts
    experts: tuple[ExpertWork, ...]
    attention: tuple[Attention, ...]
    state_bytes: float
    """Recurrent states of one request: read and written in every step."""
    state_flops: float
    """Per token, in layers with a state."""
    elementwise_bytes: float
    """Activations per token that pass through memory between the matrix products."""
    kernels: float
    """Kernels of a step, one after the other, without all-reduces."""
    layers: int
    expert_layers: int
    """Layers whose MLP is a choice among experts."""
    all_reduces: int
    norm_reduces: int
    """All-reduces of a few numbers per token: norms over heads that are shared out."""
    hidden_bytes: int
    """Bytes of one token's hidden state."""


def work_counts(spec: ModelSpec, parallel: Parallelism, kv_dtype: str | None = None) -> WorkCounts:
    """The counts for one GPU: those of all layers over the number of pipeline stages, whole numbers rounded down."""
    tp, share = parallel.tensor, 1 / parallel.pipeline
    kv_bytes = kv_element_bytes(kv_dtype if kv_dtype not in (None, "auto") else spec.kv_cache_dtype or spec.dtype)
    linear: Counter[WeightFormat] = Counter()
    experts: Counter[tuple[MoE, int]] = Counter()
    attention: Counter[Attention] = Counter()
    width = 0.0
    plain, picked = plain_format(spec.dtype), _picked(spec)
    for layer, count in spec.layer_counts:
        for mixer in layer.mixers:
            linear[mixer.weights] += count * mixer.num_parameters(tp)
            width += count * _mixer_width(mixer, tp)
            if not isinstance(mixer, StateSpace | PagedConvolution):
                attention[_attention(mixer, tp, kv_bytes, picked)] += count
                attention.update(dict.fromkeys(_indexing(mixer, tp, kv_bytes), count))
        mlp = layer.mlp
        if isinstance(mlp, DenseMLP):
            linear[mlp.weights] += count * mlp.num_parameters(tp)
            width += count * 3 * mlp.width / tp
        elif isinstance(mlp, MoE):
            linear[mlp.shared_weights] += count * mlp.shared_parameters(tp)
            linear[plain] += count * mlp.extra_parameters
            experts[mlp, tp] += count
            width += count * 3 * (mlp.num_experts_per_tok * mlp.width / tp + mlp.shared_width / tp)
        linear[plain] += count * _held_whole(layer, spec.hidden_size)
        width += count * 4 * spec.hidden_size
    head = spec.head_weights or plain
    state_bytes, state_flops = _state_work(spec, tp)
    return WorkCounts(
        linear=tuple(MatrixProducts(weights=w, parameters=int(n * share)) for w, n in linear.items() if n),
        head=MatrixProducts(weights=head, parameters=int(spec.head_parameters * share / tp)),
        experts=tuple(_experts(spec, mlp, parallel, count * share) for (mlp, _), count in experts.items()),
        attention=tuple(replace(each, layers=int(count * share) or 1) for each, count in attention.items()),
        state_bytes=state_bytes * share,
        state_flops=state_flops * share,
        elementwise_bytes=width * share * spec.dtype_bytes,
        kernels=share * sum(count * kernels_of(layer) for layer, count in spec.layer_counts),
        layers=int(spec.num_layers * share),
        expert_layers=int(sum(experts.values()) * share),
        all_reduces=int(2 * spec.num_layers * share) if tp > 1 else 0,
        norm_reduces=int(share * full_norms(spec)) if tp > 1 else 0,
        hidden_bytes=spec.hidden_size * spec.dtype_bytes,
    )


def _state_work(spec: ModelSpec, tp: int) -> tuple[float, float]:
    """Bytes of recurrent states that a request reads and writes in a step, and operations on them per token."""
    num_bytes = flops = 0.0
    for layer, count in spec.layer_counts:
        for mixer in layer.mixers:
            if isinstance(mixer, StateSpace):
                num_bytes += count * 2.0 * mixer.state_bytes(tp)
                flops += count * 3.0 * mixer.state_bytes(tp) / dtype_bytes(mixer.state_dtype)
            elif isinstance(mixer, PagedConvolution):
                num_bytes += count * 2.0 * mixer.kept_bytes(tp)
    return num_bytes, flops


_MOST_NORMS = 64
"""Norms and biases of a layer are fewer vectors of the hidden size."""


def _held_whole(layer: LayerSpec, hidden_size: int) -> int:
    """Parameters of a layer's matrices that every GPU holds whole, compressors of DeepSeek V4 for example: more than
    norms come to (``describe``).
    """
    beside = layer.norm_parameters + (layer.mlp.extra_parameters if isinstance(layer.mlp, DenseMLP) else 0)
    beside += sum(mixer.extra_parameters for mixer in layer.mixers)
    return beside if beside > _MOST_NORMS * hidden_size else 0


def _mixer_width(mixer: Mixer, tp: int) -> float:
    heads = getattr(mixer, "num_heads", 0)
    size = getattr(mixer, "head_size", 0) or getattr(mixer, "v_head_dim", 0)
    whole = mixer.latent_size + mixer.q_lora_rank if isinstance(mixer, LatentAttention) else 0
    return 2.0 * heads * size / tp + 2.0 * whole


_LATENT_ROWS = 64
"""Heads that a kernel over compressed vectors computes at least, however few a GPU has: a tile of its products."""


def _picked(spec: ModelSpec) -> int:
    """Tokens that indexers of latent layers pick; 0: there are none. A layer without one attends to what an earlier
    one's picked (GLM 5.2).
    """
    mixers = [mixer for layer, _ in spec.layer_counts for mixer in layer.mixers if isinstance(mixer, LatentAttention)]
    return max((mixer.indexer.topk for mixer in mixers if mixer.indexer is not None), default=0)


def _attention(mixer: Mixer, tp: int, kv_bytes: float, picked: int = 0) -> Attention:
    if isinstance(mixer, LatentAttention):
        heads = mixer.num_heads / tp
        prefill = mixer.qk_nope_head_dim + mixer.qk_rope_head_dim + mixer.v_head_dim
        compressed = 2.0 * max(heads, _LATENT_ROWS) * (mixer.latent_size + mixer.kv_lora_rank)
        return Attention(
            layers=0,
            kv_bytes=mixer.latent_size * kv_bytes,
            kv_widened=0.0,
            # Prompts are taken out of the compressed space, unless they attend to what was picked.
            pair_flops=compressed if picked else 2.0 * heads * prefill,
            decode_flops=compressed,
            window=picked or mixer.window,
            latent=True,
        )
    if isinstance(mixer, CompressedAttention):
        # The window costs little beside what was picked, or beside all that was compressed.
        share = 1.0 if mixer.indexer is not None or not mixer.ratio else 1.0 / mixer.ratio
        picked = mixer.window + mixer.indexer.topk if mixer.indexer is not None else mixer.window
        flops = 4.0 * max(mixer.num_heads / tp, _LATENT_ROWS) * mixer.head_size * share
        return Attention(
            layers=0,
            kv_bytes=mixer.head_size * kv_bytes * share,
            kv_widened=0.0,
            pair_flops=flops,
            decode_flops=flops,
            window=picked if share == 1.0 else 0,
            latent=True,
        )
    assert isinstance(mixer, SoftmaxAttention)
    flops = 2.0 * mixer.num_heads / tp * (mixer.head_size + mixer.value_size)
    elements = float(mixer.kv_heads(tp) * (mixer.head_size + mixer.value_size))
    windowed = mixer.attends in (Attends.SLIDING_WINDOW, Attends.CHUNKED)
    return Attention(
        layers=0,
        kv_bytes=elements * kv_bytes,
        kv_widened=elements if kv_bytes < BFLOAT16_BYTES else 0.0,
        pair_flops=flops,
        decode_flops=flops,
        window=mixer.window if windowed else mixer.indexer.topk if mixer.indexer is not None else 0,
    )


_SCORE_BYTES = 12.0
"""A score of every token in float32: written, and read twice to find the largest."""


def _indexing(mixer: Mixer, tp: int, kv_bytes: float) -> Iterator[Attention]:
    """What an indexer reads and computes to pick tokens: a key of every token before, however few it picks.

    Heads over compressed vectors are on every GPU (vLLM's ``ReplicatedLinear``); MiniMax M3's are shared out, and what
    they score is blocks.
    """
    indexer = getattr(mixer, "indexer", None)
    if indexer is None or not getattr(mixer, "picks", True):
        return
    heads, key, score = indexer.num_heads, float(indexer.key_bytes), _SCORE_BYTES
    if isinstance(mixer, SoftmaxAttention):
        heads, key, score = max(1, heads // min(tp, indexer.parts or tp)), indexer.head_size * kv_bytes, 0.0
    joins = getattr(mixer, "ratio", 1)
    if indexer.ring is not None:
        joins, key = indexer.ring.joins, indexer.ring.key_bytes
    flops = 2.0 * heads * indexer.head_size / joins
    yield Attention(
        layers=0,
        kv_bytes=(key + score) / joins,
        kv_widened=0.0,
        pair_flops=flops,
        decode_flops=0.0,
        window=0,
        indexes=True,
    )


_TO_ALL = 6
"""How sharply the share of experts that one token reads comes to its end."""
_PAIR_PASSES = 3
"""Times that a token's hidden values pass through memory for each of its experts: to it, from it, to their sum."""


def _experts(spec: ModelSpec, mlp: MoE, parallel: Parallelism, layers: float) -> ExpertWork:
    """vLLM spreads experts over all tensor x data parallel GPUs: whole ones if asked to, else every one cut."""
    group = parallel.tensor * parallel.data
    return ExpertWork(
        weights=mlp.weights,
        layers=max(1, int(layers)),
        num_experts=mlp.num_experts,
        num_local=-(-mlp.num_experts // group) if parallel.expert else mlp.num_experts,
        per_token=mlp.num_experts_per_tok,
        parameters=mlp.expert_parameters if parallel.expert else mlp.expert_parameters // group,
        pair_bytes=_PAIR_PASSES * spec.hidden_size * spec.dtype_bytes,
    )


# ---------------------------------------------------------------------------------------------------------------------
# What a GPU does per second beyond its data sheet's first line: arithmetic by number format, and its generation.
#
# Dense rates relative to bfloat16, from the vendors' data sheets.


def generation(gpu: GPU) -> str:
    """Name of the GPU's architecture; ``unknown`` for one that is not in the table."""
    return gpu.generation


def named_generation(name: str) -> str:
    """The same by the GPU's name."""
    return GPUS[name].generation if name in GPUS else "unknown"


def has_nvlink(gpu: GPU) -> bool:
    """Whether the GPUs of a node are joined by more than PCIe."""
    return gpu.link_bandwidth > gpu.pcie_bandwidth


def gpus_together(gpu: GPU, gpus_per_machine: int = 0) -> int:
    """GPUs that are joined by their own links, not by a network: those of a machine, or of an NVLink domain.

    ``gpus_per_machine`` 0 stands for as many as machines with such GPUs usually have.
    """
    return max(gpu.domain, gpus_per_machine or gpu.gpus_per_machine)


def arithmetic_kind(gpu: GPU, weights: WeightFormat) -> str:
    """Units that multiply such weights: bfloat16, float8, int8 or float4.

    Where the GPU has no units for a format, values are widened to bfloat16 first; MXFP4 weights meet 8-bit activations
    on Blackwell (vLLM's FlashInfer kernels), and are widened elsewhere (Marlin).
    """
    kind = arithmetic_name(weights)
    if weights.name == "mxfp4":
        kind = "float8" if generation(gpu) == "blackwell" else "bfloat16"
    return kind if arithmetic_rate(gpu, kind) else "bfloat16"


def arithmetic_rate(gpu: GPU, kind: str) -> float:
    """FLOP per second of the units for ``kind``; 0 where there are none."""
    rates = {"float8": gpu.float8_flops, "int8": gpu.int8_flops, "float4": gpu.float4_flops}
    return rates.get(kind, gpu.bf16_flops)


# ---------------------------------------------------------------------------------------------------------------------
# Seconds of a step: what has to be done over what the GPU does per second, times fitted shares, plus fitted costs.
#
#     linear layers   2 x weights x tokens FLOP against the bytes of the weights
#     experts         the same over the distinct experts that the tokens choose; rows per expert are padded to a tile
#     output head     the same over the tokens that are sampled
#     attention       decode: KV bytes of the context (and FLOP, in compressed space), and beside a prompt the FLOP of a
#                     tile of rows; prefill: FLOP per (query, key) pair; an indexer's keys and scores of all tokens
#     states          bytes of the recurrent states, read and written
#     all-reduce      latency floor plus bytes over the link, two per layer
#     all-to-all      between data-parallel ranks: gather and scatter of every rank's tokens at every layer of experts
#     network         either of them over several machines: first within each, then between machines, every GPU of one
#                     with a port of its own, and a second latency floor
# fixed           per layer, per layer with experts, per step, per sampled request, per layer of a step with a prompt
#     launches        a step with a prompt cannot be shorter than the host takes to launch it: piece by piece from CUDA
#                     graphs up to the capture size, kernel by kernel beyond
#
# Arithmetic and memory traffic overlap imperfectly where they are about equal: their times are joined by a cubic
# mean. Everything is written with operators alone, so that a step's numbers may be floats or arrays over many steps.

DEFAULT_CAPTURE_SIZE = MOST_CAPTURED
GRAPH_STEP = 8
"""Graphs are captured for multiples of it; a step is padded to the next."""

Number = Any
"""A float, or an array of them."""

_MOST_PRICED = 1 << 14
"""Kinds of steps of which the part that does not depend on contexts is remembered."""


class _Priced(NamedTuple):
    """Seconds of a step that are the same however long contexts are, in the order in which they are added up."""

    before: Number
    """All that comes before attention."""
    behind: Sequence[Number]
    """Each part that comes behind it."""
    launches: Number
    """What the host takes at least."""
    fixed: Sequence[Number]
    """What comes on top, part by part."""


class _Attending(NamedTuple):
    """Layers that attend in one way, and what the GPU does for them per second."""

    part: Attention
    kv_rate: float
    """Bytes of KV."""
    latent_rate: float | None
    """FLOP of decodes in compressed space; None: they attend otherwise."""
    widening: float | None
    """The constant of elements that are widened; None: none is."""
    prompt_rate: float
    """FLOP of prompts."""


class StepFormula:
    """One model on one kind of GPU, spread out in one way, with one set of constants."""

    __slots__ = (
        "_always_launches",
        "_attending",
        "_capture",
        "_constants",
        "_counts",
        "_eager",
        "_experts",
        "_fixed",
        "_gpu",
        "_launches",
        "_linear",
        "_link",
        "_mixed",
        "_network",
        "_parallel",
        "_priced",
        "_sequence",
        "_together",
        "_unprepared",
    )

    def __init__(
        self,
        counts: WorkCounts,
        gpu: GPU,
        parallel: Parallelism,
        constants: Mapping[str, float],
        *,
        capture_size: int = DEFAULT_CAPTURE_SIZE,
        eager: bool = False,
        piecewise: bool = False,
        prepared_ahead: bool = True,
    ) -> None:
        """``capture_size``: tokens of the largest CUDA graph for steps with prompts; 0: none is captured for them.

        ``eager``: there are no graphs at all, and the host launches the kernels of every step one by one.
        ``piecewise``: steps without prompts run from the same pieces as those with them (cudagraph_mode PIECEWISE).
        ``prepared_ahead``: the host prepares a step while the one before runs (async scheduling), so that what it does
        for each request is hidden.
        """
        self._counts = counts
        self._gpu = gpu
        self._parallel = parallel
        self._constants = constants
        self._priced: dict[tuple[int, int, int, int, int], _Priced] = {}
        """Tokens, sampled requests, tokens of all ranks, decodes, prompts -> what such steps share."""
        self._capture = 0 if eager else capture_size
        self._always_launches = eager or piecewise
        self._link = gpu.link_bandwidth * constants["link"]
        self._together = gpus_together(gpu, parallel.gpus_per_machine)
        is_spread = parallel.num_gpus > self._together
        self._network = min(self._link, constants["network"]) if is_spread else self._link
        a, c = counts, constants
        self._linear = [(self._product(each, "gemm"), self._traffic(each, "memory")) for each in (*a.linear, a.head)]
        self._experts = [(self._product(each, "experts"), self._traffic(each, "expert_memory")) for each in a.experts]
        fused = [each.layers for each in a.experts if self._is_fused(each.weights)]
        kernels = a.kernels - FEWER_WHERE_FUSED * sum(fused)
        self._fixed = c["step"] / parallel.pipeline + kernels * c["kernel"] + a.expert_layers * c["expert_layer"]
        self._fixed += a.layers * c.get("layer", 0.0)
        self._mixed = kernels * c["mixed_kernel"]
        self._launches = c["launch_step"] + kernels * c["launch_kernel"]
        self._eager = kernels * c["eager_kernel"]
        self._sequence = c["sequence"] + kernels * c["sequence_kernel"]
        self._unprepared = 0.0 if prepared_ahead else c["host_request"]
        self._attending = [self._rates_of(each) for each in counts.attention]

    @property
    def capture_size(self) -> int:
        """Tokens of the largest CUDA graph for steps with prompts; 0: there is none."""
        return self._capture

    def seconds(self, work: Any, all_tokens: Number) -> Number:
        """Seconds of a step with ``work`` (fields of StepWork) on this rank and ``all_tokens`` on all ranks."""
        before, behind, launches, fixed = self._without_attention(work, all_tokens)
        seconds = before
        for attending in self._attending:
            seconds = seconds + self._attention_seconds(attending, work)
        for part in behind:
            seconds = seconds + part
        seconds = smooth_max(seconds, launches)
        for part in fixed:
            seconds = seconds + part
        return seconds

    def terms(self, work: Any, all_tokens: Number) -> dict[str, Number]:
        """:meth:`seconds` by what they are spent on; ``launches`` is how much longer they make a step."""
        is_mixed = work.num_prefills > 0
        tokens = self._padded(work.num_tokens)
        terms: dict[str, Number] = dict.fromkeys(("weights", "experts", "attention", "states", "activations"), 0.0)
        on_device: Number = 0.0
        for name, part in self._parts(work, tokens, all_tokens):
            terms[name] = terms.get(name, 0.0) + part
            on_device = on_device + part
        terms["launches"] = smooth_max(on_device, self._launch_seconds(tokens, is_mixed)) - on_device
        fixed = self._fixed + is_mixed * self._mixed
        requests = (work.num_decodes + work.num_prefills) * self._unprepared
        return terms | {"fixed": fixed, "sampling": work.num_sampled * self._sequence + requests}

    def _launch_seconds(self, tokens: Number, is_mixed: Number) -> Number:
        launches = self._launches + (tokens > self._capture) * self._eager
        return launches if self._always_launches else is_mixed * launches

    def _without_attention(self, work: Any, all_tokens: Number) -> _Priced:
        """What does not depend on contexts; of plain numbers it is remembered, without parts that are 0."""
        key = (work.num_tokens, work.num_sampled, all_tokens, work.num_decodes, work.num_prefills)
        try:
            priced = self._priced.get(key)
        except TypeError:  # arrays
            return self._price(work, all_tokens)
        if priced is None:
            if len(self._priced) >= _MOST_PRICED:
                self._priced.clear()
            whole = self._price(work, all_tokens)
            behind, fixed = (tuple(filter(None, each)) for each in (whole.behind, whole.fixed))
            priced = self._priced[key] = whole._replace(behind=behind, fixed=fixed)
        return priced

    def _price(self, work: Any, all_tokens: Number) -> _Priced:
        is_mixed, tokens = work.num_prefills > 0, self._padded(work.num_tokens)
        before: Number = 0.0
        for _, part in self._parts_before(work, tokens, all_tokens):
            before = before + part
        behind = [part for _, part in self._parts_behind(work, tokens, all_tokens)]
        requests = (work.num_decodes + work.num_prefills) * self._unprepared
        fixed = [self._fixed, is_mixed * self._mixed, work.num_sampled * self._sequence, requests]
        return _Priced(before, behind, self._launch_seconds(tokens, is_mixed), fixed)

    def _parts(self, work: Any, tokens: Number, all_tokens: Number) -> Iterator[tuple[str, Number]]:
        """What the device does one after the other, and for how long; ``tokens`` are padded."""
        yield from self._parts_before(work, tokens, all_tokens)
        for attending in self._attending:
            yield "attention", self._attention_seconds(attending, work)
        yield from self._parts_behind(work, tokens, all_tokens)

    def _parts_before(self, work: Any, tokens: Number, all_tokens: Number) -> Iterator[tuple[str, Number]]:
        some = tokens > 0
        for products, traffic in self._linear[:-1]:
            yield "weights", smooth_max(tokens * products, some * traffic)
        products, traffic = self._linear[-1]
        yield "weights", smooth_max(work.num_sampled * products, (work.num_sampled > 0) * traffic)
        for part, (products, traffic) in zip(self._counts.experts, self._experts, strict=True):
            yield "experts", self._expert_seconds(part, all_tokens, products, traffic)

    def _parts_behind(self, work: Any, tokens: Number, all_tokens: Number) -> Iterator[tuple[str, Number]]:
        a, c = self._counts, self._constants
        bandwidth = self._gpu.memory_bandwidth
        if a.state_bytes:
            requests = work.num_decodes + work.num_prefills
            yield "states", requests * a.state_bytes / (bandwidth * c["state_memory"])
            yield "states", tokens * a.state_flops / (self._gpu.bf16_flops * c["attention"])
        yield "activations", tokens * a.elementwise_bytes / (bandwidth * c["elementwise"])
        yield "links", self._link_seconds(tokens, all_tokens)

    def _padded(self, tokens: Number) -> Number:
        """Tokens of the graph that a step runs from."""
        more = -(-tokens // GRAPH_STEP) * GRAPH_STEP - tokens
        return tokens + (tokens <= self._capture) * (tokens > GRAPH_STEP / 2) * more

    def _is_fused(self, weights: WeightFormat) -> bool:
        """Whether experts with such weights are a few large kernels: those of 4 bits that the GPU has units for."""
        return storage_kind(weights) == "4" and arithmetic_kind(self._gpu, weights) != "bfloat16"

    def _product(self, part: MatrixProducts | ExpertWork, share: str) -> float:
        """Seconds of arithmetic per token, or per (token, expert) pair."""
        kind = arithmetic_kind(self._gpu, part.weights)
        name = f"{share}_{'float8' if kind == 'int8' else kind}"
        if name == "experts_bfloat16" and storage_kind(part.weights) != "16":
            name = "experts_widened"
        return 2.0 * part.parameters / (arithmetic_rate(self._gpu, kind) * self._constants[name])

    def _traffic(self, part: MatrixProducts | ExpertWork, share: str) -> float:
        """Seconds to read the weights once; of experts, those of one."""
        weights: WeightFormat = part.weights
        kind = storage_kind(weights)
        if kind == "4" and not self._is_fused(weights):
            kind = "4_widened"
        constant = self._constants[f"{share}_{kind}"]
        return weights.num_bytes(part.parameters) / (self._gpu.memory_bandwidth * constant)

    def _expert_seconds(self, part: ExpertWork, tokens: Number, products: float, traffic: float) -> Number:
        """Distinct experts by tokens, each read once; on the rank that has the most work."""
        c = self._constants
        share = part.per_token / part.num_experts * c["spread"]
        share /= (1.0 + share**_TO_ALL) ** (1 / _TO_ALL)  # no more than all of them, without a kink that stops a fit
        touched = part.num_local * (1.0 - (1.0 - share) ** tokens)
        pairs = tokens * part.per_token * part.num_local / part.num_experts
        if part.num_local < part.num_experts:
            pairs = pairs * (1.0 + c["imbalance"])
        moved = pairs * part.pair_bytes / (self._gpu.memory_bandwidth * c["elementwise"])
        return part.layers * (smooth_max((pairs + touched * c["tile"]) * products, touched * traffic) + moved)

    def _rates_of(self, part: Attention) -> _Attending:
        c, gpu = self._constants, self._gpu
        index = c.get("index", 1.0)
        widens = part.kv_widened and generation(gpu) != "blackwell"
        return _Attending(
            part,
            kv_rate=gpu.memory_bandwidth * (c["memory_16"] * index if part.indexes else c["kv_memory"]),
            latent_rate=gpu.bf16_flops * c["latent"] if part.latent else None,
            widening=c["kv_widening"] if widens else None,
            prompt_rate=gpu.bf16_flops * c["attention"] * (index if part.indexes else 1.0),
        )

    def _attention_seconds(self, attending: _Attending, work: Any) -> Number:
        part, kv_rate, latent_rate, widening, prompt_rate = attending
        context, pairs, before = work.decode_context, work.prefill_pairs, work.prefill_context
        if part.window:
            context = minimum(context, work.num_decodes * part.window)
            pairs = minimum(pairs, work.prefill_tokens * part.window)
            before = minimum(before, work.num_prefills * part.window)
        decode = context * part.kv_bytes / kv_rate
        flops = self._gpu.bf16_flops
        if latent_rate is not None:
            decode = smooth_max(decode, context * part.decode_flops / latent_rate)
        if widening is not None:
            decode = smooth_max(decode, context * part.kv_widened * widening / flops)
        is_mixed = work.num_prefills > 0
        if is_mixed is False and type(before) is int and not before:  # plain numbers, and nothing of a prompt in them
            return part.layers * decode
        rows = is_mixed * self._constants["mixed_rows"]  # a kernel for prompts computes a tile of rows for one token
        decode = decode + rows * context * part.decode_flops / flops
        prefill = pairs * part.pair_flops / prompt_rate + before * part.kv_bytes / kv_rate
        return part.layers * (decode + prefill)

    def _link_seconds(self, tokens: Number, all_tokens: Number) -> Number:
        a, c, p = self._counts, self._constants, self._parallel
        seconds: Number = 0.0
        if a.all_reduces:
            moved = tokens * a.hidden_bytes
            seconds = a.all_reduces * self._exchange_seconds("all_reduce", moved, p.tensor, 1)
            seconds = seconds + a.norm_reduces * c["all_reduce"]
        if p.data > 1 and a.expert_layers:
            moved = all_tokens * a.hidden_bytes
            seconds = seconds + a.expert_layers * self._exchange_seconds("all_to_all", moved, p.data, p.tensor)
        if p.pipeline > 1:
            seconds = seconds + c["all_reduce"] + tokens * a.hidden_bytes / self._network
        return seconds

    def _exchange_seconds(self, name: str, moved: Number, ranks: int, gpus: int) -> Number:
        """Seconds in which ``ranks``, each on ``gpus`` GPUs, exchange ``moved`` bytes, within and between machines."""
        machines = -(-ranks * gpus // self._together)
        inside = ranks if machines == 1 else max(1, self._together // gpus)
        seconds = self._constants[name] + 2.0 * (inside - 1) / inside * moved / self._link
        if machines > 1:
            ports = min(self._together, ranks * gpus)
            between = 2.0 * (machines - 1) / machines * moved / ports / self._network
            seconds = seconds + self._constants[f"network_{name}"] + between
        return seconds


def smooth_max(one: Number, other: Number) -> Number:
    """Time of two activities that overlap, but not perfectly."""
    return (one * one * one + other * other * other) ** (1 / 3)


def minimum(one: Number, other: Number) -> Number:
    """The smaller of two numbers, neither negative."""
    return (one + other - abs(one - other)) / 2
