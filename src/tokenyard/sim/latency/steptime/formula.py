"""Seconds of a step: what has to be done over what the GPU does per second, times fitted shares, plus fitted costs.

    linear layers   2 x weights x tokens FLOP against the bytes of the weights
    experts         the same over the distinct experts that the tokens choose; rows per expert are padded to a tile
    output head     the same over the tokens that are sampled
    attention       decode: KV bytes of the context (and FLOP, in compressed space), and beside a prompt the FLOP of a
                    tile of rows; prefill: FLOP per (query, key) pair
    states          bytes of the recurrent states, read and written
    all-reduce      latency floor plus bytes over the link, two per layer
    all-to-all      between data-parallel ranks: gather and scatter of every rank's tokens at every layer of experts
    network         either of them over several machines: first within each, then between machines, every GPU of one
                    with a port of its own, and a second latency floor
    fixed           per layer, per layer with experts, per step, per sampled request, per layer of a step with a prompt
    launches        a step with a prompt cannot be shorter than the host takes to launch it: piece by piece from CUDA
                    graphs up to the capture size, kernel by kernel beyond

Arithmetic and memory traffic overlap imperfectly where they are about equal: their times are joined by a cubic mean.
Everything is written with operators alone, so that a step's numbers may be floats or arrays over many steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tokenyard.kv.sizing.cuda_graphs import MOST_CAPTURED
from tokenyard.kv.sizing.gpus import GPU
from tokenyard.models.weights import WeightFormat
from tokenyard.sim.latency.steptime.amounts import Amounts, Attention, Experts, Linear, Parallelism
from tokenyard.sim.latency.steptime.rates import arithmetic_kind, arithmetic_rate, gpus_together, storage_kind

__all__ = ["DEFAULT_CAPTURE_SIZE", "GRAPH_STEP", "NETWORK_BANDWIDTH", "StepFormula"]

DEFAULT_CAPTURE_SIZE = MOST_CAPTURED
NETWORK_BANDWIDTH = 50e9
"""Bytes per second of one GPU's port between machines: 400 Gbit/s. An assumption: nothing measured it."""
GRAPH_STEP = 8
"""Graphs are captured for multiples of it; a step is padded to the next."""

Number = Any
"""A float, or an array of them."""


class StepFormula:
    """One model on one kind of GPU, spread out in one way, with one set of constants."""

    __slots__ = (
        "_amounts",
        "_capture",
        "_constants",
        "_eager",
        "_experts",
        "_fixed",
        "_gpu",
        "_is_eager",
        "_launches",
        "_linear",
        "_link",
        "_mixed",
        "_network",
        "_parallel",
        "_together",
    )

    def __init__(
        self,
        amounts: Amounts,
        gpu: GPU,
        parallel: Parallelism,
        constants: Mapping[str, float],
        *,
        capture_size: int = DEFAULT_CAPTURE_SIZE,
        eager: bool = False,
    ) -> None:
        """``capture_size``: tokens of the largest CUDA graph for steps with prompts; 0: none is captured for them.

        ``eager``: there are no graphs at all, and the host launches the kernels of every step one by one.
        """
        self._amounts = amounts
        self._gpu = gpu
        self._parallel = parallel
        self._constants = constants
        self._capture = 0 if eager else capture_size
        self._is_eager = eager
        self._link = gpu.link_bandwidth * constants["link"]
        self._together = gpus_together(gpu, parallel.gpus_per_machine)
        is_spread = parallel.num_gpus > self._together
        self._network = min(self._link, constants["network"]) if is_spread else self._link
        a, c = amounts, constants
        self._linear = [(self._product(each, "gemm"), self._traffic(each, "memory")) for each in (*a.linear, a.head)]
        self._experts = [(self._product(each, "experts"), self._traffic(each, "expert_memory")) for each in a.experts]
        self._fixed = c["step"] / parallel.pipeline + a.layers * c["layer"] + a.expert_layers * c["expert_layer"]
        self._mixed = a.layers * c["mixed_layer"]
        self._launches = c["launch_step"] + a.layers * c["launch_layer"] + a.expert_layers * c["launch_expert_layer"]
        self._eager = a.layers * c["eager_layer"] + a.expert_layers * c["eager_expert_layer"]

    @property
    def capture_size(self) -> int:
        """Tokens of the largest CUDA graph for steps with prompts; 0: there is none."""
        return self._capture

    def seconds(self, work: Any, all_tokens: Number) -> Number:
        """Of a step with ``work`` (fields of StepWork) on this rank and ``all_tokens`` on all data-parallel ranks."""
        is_mixed = work.num_prefills > 0
        tokens = self._padded(work.num_tokens)
        seconds: Number = 0.0
        for _, part in self._parts(work, tokens, all_tokens):
            seconds = seconds + part
        seconds = joined(seconds, self._launch_seconds(tokens, is_mixed))
        return seconds + self._fixed + is_mixed * self._mixed + work.num_sampled * self._constants["sequence"]

    def terms(self, work: Any, all_tokens: Number) -> dict[str, Number]:
        """:meth:`seconds` by what they are spent on; ``launches`` is how much longer they make a step."""
        is_mixed = work.num_prefills > 0
        tokens = self._padded(work.num_tokens)
        terms: dict[str, Number] = dict.fromkeys(("weights", "experts", "attention", "states", "activations"), 0.0)
        on_device: Number = 0.0
        for name, part in self._parts(work, tokens, all_tokens):
            terms[name] = terms.get(name, 0.0) + part
            on_device = on_device + part
        terms["launches"] = joined(on_device, self._launch_seconds(tokens, is_mixed)) - on_device
        fixed = self._fixed + is_mixed * self._mixed
        return terms | {"fixed": fixed, "sampling": work.num_sampled * self._constants["sequence"]}

    def _launch_seconds(self, tokens: Number, is_mixed: Number) -> Number:
        launches = self._launches + (tokens > self._capture) * self._eager
        return launches if self._is_eager else is_mixed * launches

    def _parts(self, work: Any, tokens: Number, all_tokens: Number) -> Iterator[tuple[str, Number]]:
        """What the device does one after the other, and for how long; ``tokens`` are padded."""
        a, c = self._amounts, self._constants
        some = tokens > 0
        for products, traffic in self._linear[:-1]:
            yield "weights", joined(tokens * products, some * traffic)
        products, traffic = self._linear[-1]
        yield "weights", joined(work.num_sampled * products, (work.num_sampled > 0) * traffic)
        for part, (products, traffic) in zip(a.experts, self._experts, strict=True):
            yield "experts", self._expert_seconds(part, all_tokens, products, traffic)
        for attention in a.attention:
            yield "attention", self._attention_seconds(attention, work)
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

    def _product(self, part: Linear | Experts, share: str) -> float:
        """Seconds of arithmetic per token, or per (token, expert) pair."""
        kind = arithmetic_kind(self._gpu, part.weights)
        name = f"{share}_{'float8' if kind == 'int8' else kind}"
        return 2.0 * part.parameters / (arithmetic_rate(self._gpu, kind) * self._constants[name])

    def _traffic(self, part: Linear | Experts, share: str) -> float:
        """Seconds to read the weights once; of experts, those of one."""
        weights: WeightFormat = part.weights
        constant = self._constants[f"{share}_{storage_kind(weights)}"]
        return weights.num_bytes(part.parameters) / (self._gpu.memory_bandwidth * constant)

    def _expert_seconds(self, part: Experts, tokens: Number, products: float, traffic: float) -> Number:
        """Distinct experts by tokens, each read once; on the rank that has the most work."""
        c = self._constants
        share = part.per_token / part.num_experts
        touched = part.num_local * (1.0 - (1.0 - share * c["spread"]) ** tokens)
        pairs = tokens * part.per_token * part.num_local / part.num_experts
        if part.num_local < part.num_experts:
            pairs = pairs * (1.0 + c["imbalance"])
        return part.layers * joined((pairs + touched * c["tile"]) * products, touched * traffic)

    def _attention_seconds(self, part: Attention, work: Any) -> Number:
        c, gpu = self._constants, self._gpu
        context, pairs, before = work.decode_context, work.prefill_pairs, work.prefill_context
        if part.window:
            context = least(context, work.num_decodes * part.window)
            pairs = least(pairs, work.prefill_tokens * part.window)
            before = least(before, work.num_prefills * part.window)
        bandwidth = gpu.memory_bandwidth * c["kv_memory"]
        decode = context * part.kv_bytes / bandwidth
        if part.latent:
            decode = joined(decode, context * part.decode_flops / (gpu.bf16_flops * c["latent"]))
        rows = (work.num_prefills > 0) * c["mixed_rows"]  # a kernel for prompts computes a tile of rows for one token
        decode = decode + rows * context * part.decode_flops / gpu.bf16_flops
        prefill = pairs * part.pair_flops / (gpu.bf16_flops * c["attention"]) + before * part.kv_bytes / bandwidth
        return part.layers * (decode + prefill)

    def _link_seconds(self, tokens: Number, all_tokens: Number) -> Number:
        a, c, p = self._amounts, self._constants, self._parallel
        seconds: Number = 0.0
        if a.all_reduces:
            moved = tokens * a.hidden_bytes
            seconds = a.all_reduces * self._exchange_seconds("all_reduce", moved, p.tensor, 1)
        if p.data > 1 and a.expert_layers:
            moved = all_tokens * a.hidden_bytes
            seconds = seconds + a.expert_layers * self._exchange_seconds("all_to_all", moved, p.data, p.tensor)
        if p.pipeline > 1:
            seconds = seconds + c["all_reduce"] + tokens * a.hidden_bytes / self._network
        return seconds

    def _exchange_seconds(self, name: str, moved: Number, ranks: int, gpus: int) -> Number:
        """Of bytes that ``ranks`` gather and scatter, each on ``gpus`` GPUs: within machines, and between them."""
        machines = -(-ranks * gpus // self._together)
        inside = ranks if machines == 1 else max(1, self._together // gpus)
        seconds = self._constants[name] + 2.0 * (inside - 1) / inside * moved / self._link
        if machines > 1:
            ports = min(self._together, ranks * gpus)
            between = 2.0 * (machines - 1) / machines * moved / ports / self._network
            seconds = seconds + self._constants[f"network_{name}"] + between
        return seconds


def joined(one: Number, other: Number) -> Number:
    """Time of two activities that overlap, but not perfectly."""
    return (one * one * one + other * other * other) ** (1 / 3)


def least(one: Number, other: Number) -> Number:
    """The smaller of two numbers, neither negative."""
    return (one + other - abs(one - other)) / 2
