"""The latency model of a deployment: the step formula with the constants that were fitted, and how well it is known."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from tokenyard.core.config import SpeculativeConfig
from tokenyard.errors import ConfigError
from tokenyard.models.additions import draft_head
from tokenyard.models.gpus import GPU
from tokenyard.models.mixers import StateSpace
from tokenyard.models.spec import EncoderSpec, ModelSpec
from tokenyard.quick_dataclass import dataclass
from tokenyard.steptime.constants import ON_HOST, Constants, shipped_constants
from tokenyard.steptime.encoders import EncoderTime
from tokenyard.steptime.formula import (
    DEFAULT_CAPTURE_SIZE,
    Parallelism,
    StepFormula,
    gpus_together,
    has_nvlink,
    work_counts,
)
from tokenyard.steptime.front_end import FrontEndTime
from tokenyard.steptime.known_error import AskedDeployment, KnownError, SentLoad, Term, known_error, plain_kv_dtype
from tokenyard.steptime.model import HOST, StepShape, StepWork, Transfer, TransferDirection, step_seconds

_DRAFTER_KERNELS = 4
"""Kernels of a drafter's step beside its layers: what joins tokens and hidden states, norm, head and choice."""
_LORA_KERNEL_SECONDS = 4e-6
"""Seconds of one shrink or expand kernel; there are two per matrix product. An estimate, not fitted."""
_LORA_PRODUCTS = 4
"""Matrix products per layer that adapters change: QKV, output, gate and up, down."""
LORA_LAYER_SECONDS = 2 * _LORA_PRODUCTS * _LORA_KERNEL_SECONDS
"""Seconds of the adapters' kernels of one layer."""

IMAGE_ENCODER = "an encoder of pictures or sound"
"""The term of a step's time that is its encoder's."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafting:
    """What proposes drafts after every step."""

    spec: ModelSpec | None
    """The draft model, or the head that drafts (EAGLE, MTP) as a model of its few layers; None: no model (ngram)."""
    num_speculative_tokens: int


def drafting_of(spec: ModelSpec, config: SpeculativeConfig | None, drafter: ModelSpec | None = None) -> Drafting | None:
    """How drafts are made: by ``drafter``, a model of its own, or by EAGLE and MTP heads, each as one more layer of the
    model; others count as free.
    """
    if config is None:
        return None
    head = drafter or (draft_head(spec) if config.use_eagle else None)
    return Drafting(spec=head, num_speculative_tokens=config.num_speculative_tokens)


class StepColumns(msgspec.Struct, frozen=True):
    """Fields of StepWork, each an array over many steps and the ranks of each."""

    num_tokens: Any
    num_sampled: Any
    num_decodes: Any
    decode_context: Any
    num_prefills: Any
    prefill_tokens: Any
    prefill_context: Any
    prefill_pairs: Any


def columns_of(work: Floats) -> StepColumns:
    """The last axis of an array as fields."""
    return StepColumns(*np.moveaxis(work, -1, 0))


class _Deployed(NamedTuple):
    """What step times were requested, by the names of :class:`CalibratedLatency`."""

    spec: ModelSpec
    gpu: GPU
    parallel: Parallelism
    kv_cache_dtype: str | None
    version: str | None
    capture_size: int
    eager: bool
    host_speed: float
    piecewise: bool
    drafting: Drafting | None
    lora: bool
    lora_enabled: bool
    context_ranks: int
    encoders: tuple[EncoderSpec, ...]
    prepared_ahead: bool

    def check(self) -> None:
        """Raise ConfigError if the model cannot be split so, or a host has no speed."""
        if isinstance(self.host_speed, bool) or not 0 < self.host_speed < math.inf:
            raise ConfigError("host_speed", self.host_speed, "give a number above 0: 0.5 is half as fast")
        self.spec.check_tensor_parallel(self.parallel.tensor)
        if self.parallel.pipeline > self.spec.num_layers:
            fix = f"the model has {self.spec.num_layers} layers"
            raise ConfigError("pipeline_parallel_size", self.parallel.pipeline, fix)

    def formula(self, values: Mapping[str, float]) -> StepFormula:
        """A step of the model, with these constants."""
        return StepFormula(
            work_counts(self.spec, self.parallel, self.kv_cache_dtype),
            self.gpu,
            self.parallel,
            values,
            capture_size=self.capture_size,
            eager=self.eager,
            piecewise=self.piecewise,
            prepared_ahead=self.prepared_ahead,
        )

    def draft_formula(self, drafter: ModelSpec, values: Mapping[str, float]) -> StepFormula:
        """A step of the drafter, which is in one stage."""
        counts = work_counts(drafter, Parallelism(tensor=self.parallel.tensor), self.kv_cache_dtype)
        alone = replace(self.parallel, pipeline=1)
        return StepFormula(counts, self.gpu, alone, values, capture_size=self.capture_size, eager=self.eager)


class CalibratedLatency:
    """Step times of a model on a GPU, fitted to measured runs of vLLM; :meth:`known_error` says how well."""

    def __init__(
        self,
        spec: ModelSpec,
        gpu: GPU,
        *,
        parallel: Parallelism | None = None,
        kv_cache_dtype: str | None = None,
        version: str | None = None,
        capture_size: int = DEFAULT_CAPTURE_SIZE,
        eager: bool = False,
        host_speed: float = 1.0,
        piecewise: bool = False,
        drafting: Drafting | None = None,
        lora: bool = False,
        lora_enabled: bool = False,
        context_ranks: int = 1,
        encoders: Sequence[EncoderSpec] = (),
        prepared_ahead: bool = True,
        constants: Constants | None = None,
        changed: Mapping[str, float] | None = None,
    ) -> None:
        """``version`` of vLLM: None, or one that was not measured, is the newest measured. ``eager``: no CUDA graphs.
        ``host_speed``: of the processor, beside those of the measured servers.
        ``piecewise``: steps without prompts run from graphs of pieces as well (cudagraph_mode PIECEWISE).
        ``lora``: adapters are applied; ``lora_enabled``: they might be, which costs nothing here, and was not measured.
        ``prepared_ahead``: async scheduling; without it what the host does for each request is not hidden.
        ``encoders``: what pictures of a step go through, an estimate by the decoder's constants, not fitted.
        ``changed``: constants that are to be others than the fitted ones.
        ``context_ranks``: GPUs that the KV of a sequence is spread over, each of which reads its part in a decode; what
        they then tell each other counts as two all-reduces of a token's hidden values a layer. An estimate, not fitted.

        Raises ConfigError if the model cannot be split so.
        """
        self._asked = asked = _Deployed(
            spec=spec,
            gpu=gpu,
            parallel=parallel or Parallelism(),
            kv_cache_dtype=kv_cache_dtype,
            version=version,
            capture_size=capture_size,
            eager=eager,
            host_speed=host_speed,
            piecewise=piecewise,
            drafting=drafting,
            lora=lora,
            lora_enabled=lora_enabled,
            context_ranks=context_ranks,
            encoders=tuple(encoders),
            prepared_ahead=prepared_ahead,
        )
        asked.check()
        self._constants = constants = constants or shipped_constants()
        measured = constants.of(spec, gpu, version)
        others = {name: measured[name] / host_speed for name in ON_HOST} if host_speed != 1.0 else {}
        others |= changed or {}
        fitted = measured | others
        values = fitted | {"layer": fitted["layer"] + LORA_LAYER_SECONDS} if lora else fitted
        self._formula = asked.formula(values)
        self._encoders = [EncoderTime(each, spec.dtype_bytes, gpu, asked.parallel, fitted) for each in encoders]
        self._draft_formula: StepFormula | None = None
        if drafting is not None and drafting.spec is not None:
            values = constants.of(drafting.spec, gpu, version) | {"step": _DRAFTER_KERNELS * fitted["kernel"]} | others
            self._draft_formula = asked.draft_formula(drafting.spec, values)
        self._drafts = drafting.num_speculative_tokens if drafting is not None else 0
        self._context_ranks = context_ranks
        self._merging = 2 * spec.num_layers * values["all_reduce"] if context_ranks > 1 else 0.0
        self._ranks = asked.parallel.data
        self._stages = asked.parallel.pipeline
        self._transfer = Transfer.of(gpu)
        self.host_seconds = fitted["host"]
        self.front_end = FrontEndTime(fitted["request"], fitted["request_token"])
        self.source = "calibrated: physics with constants fitted to measured runs of vLLM"

    def __repr__(self) -> str:
        asked = self._asked
        sizes = (("tensor", asked.parallel.tensor), ("pipeline", self._stages), ("data", self._ranks))
        said = [asked.spec.name, asked.gpu.name, *(f"{name} {size}" for name, size in sizes if size > 1)]
        said += [f"KV {asked.kv_cache_dtype}"] if asked.kv_cache_dtype else []
        said += [f"vLLM {asked.version}"] if asked.version else []
        return f"<CalibratedLatency: {', '.join(said)}>"

    def known_error(self, load: SentLoad | None = None, *, beside: CalibratedLatency | None = None) -> KnownError:
        """How well these step times are known, under ``load`` if it is given.

        ``beside``: a deployment of which a measurement is at hand, and only the ratio to it is asked about.
        """
        told = None if beside is None else beside.question(SentLoad())
        return known_error(self.question(load or SentLoad()), self._constants, told=told)

    def question(self, load: SentLoad) -> AskedDeployment:
        """What is to be known of these step times."""
        asked = self._asked
        return AskedDeployment(
            spec=asked.spec,
            gpu=asked.gpu,
            parallel=asked.parallel,
            kv_cache_dtype=asked.kv_cache_dtype,
            version=asked.version,
            terms=tuple(self._unmeasured_terms()),
            load=load,
        )

    def step_seconds(self, shape: StepShape) -> float:
        """Seconds of one step, through all stages of a pipeline; with data parallelism, if all ranks do the same."""
        work = self.work_of(shape)
        seconds = float(self._seconds(work, work.num_tokens * self._ranks)) + self.host_seconds
        return seconds if not shape.encoded else seconds + self._encoder_seconds(shape)

    def work_of(self, shape: StepShape) -> StepWork:
        """What the step has to do; where drafts are verified, a request that does counts as decode."""
        return StepWork.verifying(shape, self._drafts) if self._drafts else StepWork.of(shape)

    def decode_seconds(self, num: int, context: int, steps: int) -> Sequence[float]:
        """Seconds of each of ``steps`` steps in which the same ``num`` requests decode, with ``context`` tokens cached.

        ``context`` is what they have before the first. Number for number what :meth:`step_seconds` says: a column of
        objects is computed with one by one, and all that does not change from step to step is computed once.
        """
        read: Any = np.array(range(context + num, context + num * steps + 1, num), object)
        seconds = self._seconds(StepWork(num, num, num, read, 0, 0, 0, 0.0), num * self._ranks) + self.host_seconds
        return seconds.tolist() if isinstance(seconds, np.ndarray) else [float(seconds)] * steps

    def ranks_seconds(self, shapes: Sequence[StepShape | None]) -> float:
        """Seconds of one step that data-parallel ranks take together; an idle rank (None) computes one dummy token."""
        idle = StepShape(np.ones(1, np.int64), np.zeros(1, np.int64), 1, 1)
        works = [StepWork.of(shape or idle) for shape in shapes]
        tokens = sum(work.num_tokens for work in works)
        seconds = [float(self._seconds(work, tokens)) for work in works]
        encoding = [0.0 if shape is None else self._encoder_seconds(shape) for shape in shapes]
        return max(map(sum, zip(seconds, encoding, strict=True))) + self.host_seconds

    def rows_seconds(self, work: Floats) -> Floats:
        """Seconds of steps whose preparation is hidden, by columns of StepWork per rank, shape ``[rows, ranks, 8]``."""
        columns = columns_of(work)
        seconds: Floats = self._formula.seconds(columns, columns.num_tokens.sum(axis=1, keepdims=True)).max(axis=1)
        return seconds

    def terms(self, work: Any) -> dict[str, Any]:
        """Seconds of a step by what they are spent on; together :meth:`step_seconds`. Fields of ``work`` (as
        :meth:`work_of` has them) may be arrays over many steps.
        """
        work = self._shared_out(work)
        terms = {
            name: self._stages * each for name, each in self._formula.terms(work, work.num_tokens * self._ranks).items()
        }
        terms["links"] = terms["links"] + self._merging
        if self._draft_formula is not None:
            terms["drafts"] = self._draft_seconds(work)
        terms[HOST] = self.host_seconds
        return terms

    @property
    def capture_size(self) -> int:
        """Tokens of the largest CUDA graph for steps with prompts."""
        return self._formula.capture_size

    def captured(self, capture_size: int) -> CalibratedLatency:
        """The same deployment with another largest CUDA graph."""
        return CalibratedLatency(**self._asked._replace(capture_size=capture_size)._asdict(), constants=self._constants)

    def transfer_seconds(self, num_bytes: int, direction: TransferDirection) -> float:
        return self._transfer.seconds(num_bytes, direction)

    def _unmeasured_terms(self) -> Iterator[Term]:
        """Parts of a step's time that nothing was fitted to, each with its share."""
        asked = self._asked._replace(piecewise=False, prepared_ahead=True)
        for name, (without, changed) in _unmeasured(asked, self._constants).items():
            plain = CalibratedLatency(**without._asdict(), constants=self._constants, changed=changed)
            has_pictures = len(self._encoders) > len(plain._encoders)
            prompts = _prompt_steps(pictures=has_pictures)
            ttft = _share(prompts, prompts, self, plain)
            # Requests that decode beside a picture wait for its encoder as well.
            decodes = _decode_steps(self._drafts), _decode_steps(plain._drafts)
            tpot = ttft if has_pictures else _share(*decodes, self, plain)
            yield Term(name=name, tpot_share=tpot, ttft_share=ttft)

    def _seconds(self, work: StepWork, all_tokens: int) -> Any:
        work = self._shared_out(work)
        seconds = self._stages * self._formula.seconds(work, all_tokens) + self._merging
        return seconds if self._draft_formula is None else seconds + self._draft_seconds(work)

    def _encoder_seconds(self, shape: StepShape) -> float:
        """Seconds of the encoder, which runs before the decoder does."""
        return sum(each.seconds(shape.encoded) for each in self._encoders)

    def _shared_out(self, work: Any) -> Any:
        """The work of one GPU, where each reads its part of a sequence's KV."""
        if self._context_ranks == 1:
            return work
        return work._replace(decode_context=-(-work.decode_context // self._context_ranks))

    def _draft_seconds(self, work: Any) -> Any:
        """Seconds of the drafter: it sees what the model saw, then one token at a time."""
        assert self._draft_formula is not None, "a drafter is configured"
        rows = work.num_decodes + work.num_prefills
        alone = work._replace(num_tokens=rows, num_sampled=rows, num_prefills=0, prefill_tokens=0, prefill_pairs=0.0)
        first = self._draft_formula.seconds(work._replace(num_sampled=rows), work.num_tokens)
        return first + (self._drafts - 1) * self._draft_formula.seconds(alone, rows)


_NOTHING: Mapping[str, float] = {}
_FREE = 1e12
"""A share of a data sheet's rate so large that what it divides takes no time."""


def _unmeasured(asked: _Deployed, constants: Constants) -> dict[str, tuple[_Deployed, Mapping[str, float]]]:
    """What no measurement tells of -> the same deployment without it: other arguments, other constants."""
    parallel, found = asked.parallel, dict[str, tuple[_Deployed, Mapping[str, float]]]()
    others = (
        ("LoRA adapters", asked.lora or asked.lora_enabled, {"lora": False}),
        ("drafts", asked.drafting is not None, {"drafting": None}),
        (IMAGE_ENCODER, bool(asked.encoders), {"encoders": ()}),
        ("KV of a sequence on several GPUs", asked.context_ranks > 1, {"context_ranks": 1}),
        ("steps without CUDA graphs", asked.eager, {"eager": False}),
        ("a host of another speed", asked.host_speed != 1.0, {"host_speed": 1.0}),
    )
    found |= {name: (asked._replace(**without), _NOTHING) for name, is_there, without in others if is_there}
    if parallel.pipeline > 1:
        found["a pipeline"] = asked, _NOTHING
    if parallel.num_gpus > gpus_together(asked.gpu, parallel.gpus_per_machine):
        free = {"network_all_reduce": 0.0, "network_all_to_all": 0.0, "network": _FREE * asked.gpu.link_bandwidth}
        found["a network between machines"] = asked, free
    if parallel.tensor * parallel.data > 1 and not has_nvlink(asked.gpu):
        found["PCIe between GPUs"] = asked, {"all_reduce": 0.0, "all_to_all": 0.0, "link": _FREE}
    kinds = {type(mixer) for layer, _ in asked.spec.layer_counts for mixer in layer.mixers}
    if any(issubclass(kind, StateSpace) for kind in kinds):
        found["recurrent states"] = asked, {"state_memory": _FREE}
    mixers = (mixer for layer, _ in asked.spec.layer_counts for mixer in layer.mixers)
    if any(getattr(mixer, "indexer", None) is not None for mixer in mixers):
        found["an indexer"] = asked, {"index": _FREE}
    kv_dtype = plain_kv_dtype(asked.kv_cache_dtype, asked.spec)
    if all(each.kv_dtype != kv_dtype for each in constants.deployments):
        found[f"KV {kv_dtype} on any GPU"] = asked, {"kv_memory": _FREE, "kv_widening": 0.0}
    return found


def _decode_steps(drafts: int) -> list[StepShape]:
    """Steps as they often are: few and many requests, short and long contexts."""
    made = []
    for requests in (1, 8, 64):
        for context in (1024, 8192):
            new = np.full(requests, 1 + drafts, np.int64)
            made.append(StepShape(new, np.full(requests, context, np.int64), requests, int(new.sum())))
    return made


def _prompt_steps(*, pictures: bool = False) -> list[StepShape]:
    """Steps of one prompt, which is a picture or text."""
    sizes = (512, 2048, 8192)
    zero = np.zeros(1, np.int64)
    return [StepShape(np.array([size]), zero, 1, size, (size,) if pictures else ()) for size in sizes]


def _share(
    ours: list[StepShape], theirs: list[StepShape], latency: CalibratedLatency, plain: CalibratedLatency
) -> float:
    """The largest part of a step's time by which the two differ."""
    times = [(step_seconds(latency, a), step_seconds(plain, b)) for a, b in zip(ours, theirs, strict=True)]
    return max(abs(with_it - without) / with_it for with_it, without in times)
