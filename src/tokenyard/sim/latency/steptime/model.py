"""The latency model of a deployment: the step formula with the constants that were fitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tokenyard.config import SpeculativeConfig
from tokenyard.errors import ConfigError
from tokenyard.kv.sizing.gpus import GPU
from tokenyard.models.draft_head import draft_head
from tokenyard.models.spec import ModelSpec
from tokenyard.sim.latency.model import StepShape, StepWork, Transfer, TransferDirection
from tokenyard.sim.latency.steptime.amounts import Amounts, Parallelism, amounts
from tokenyard.sim.latency.steptime.constants import Constants, shipped_constants
from tokenyard.sim.latency.steptime.formula import DEFAULT_CAPTURE_SIZE, StepFormula
from tokenyard.sim.latency.steptime.known_error import KnownError, known_error

__all__ = ["LORA_LAYER_SECONDS", "CalibratedLatency", "Drafting", "StepColumns", "columns_of", "drafting_of"]

HOST_SECONDS = 1.5e-3
"""Input preparation per step: hidden where a further step is in flight, which the measured runs had."""
_LORA_KERNEL_SECONDS = 4e-6
"""Of one shrink or expand kernel; there are two per matrix product. An estimate, not fitted."""
_LORA_PRODUCTS = 4
"""Matrix products per layer that adapters change: QKV, output, gate and up, down."""
LORA_LAYER_SECONDS = 2 * _LORA_PRODUCTS * _LORA_KERNEL_SECONDS
"""Of the adapters' kernels of one layer."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafting:
    """What proposes drafts after every step."""

    spec: ModelSpec | None
    """The draft model, or the head that drafts (EAGLE, MTP) as a model of its few layers; None: no model (ngram)."""
    num_speculative_tokens: int


def drafting_of(spec: ModelSpec, config: SpeculativeConfig | None) -> Drafting | None:
    """How drafts are made: by EAGLE and MTP heads, each as one more layer of the model; others count as free."""
    if config is None:
        return None
    head = draft_head(spec) if config.use_eagle else None
    return Drafting(spec=head, num_speculative_tokens=config.num_speculative_tokens)


class StepColumns(NamedTuple):
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


class CalibratedLatency:
    """Step times of a model on a GPU, fitted to measured runs of vLLM; :attr:`known_error` says how well."""

    __slots__ = (
        "_context_ranks",
        "_draft_formula",
        "_drafts",
        "_formula",
        "_merging",
        "_ranks",
        "_stages",
        "_transfer",
        "host_seconds",
        "known_error",
        "source",
    )

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
        drafting: Drafting | None = None,
        lora: bool = False,
        context_ranks: int = 1,
        constants: Constants | None = None,
    ) -> None:
        """``version`` of vLLM: None, or one that was not measured, is the newest measured. ``eager``: no CUDA graphs.
        ``context_ranks``: GPUs that the KV of a sequence is spread over, each of which reads its part in a decode; what
        they then tell each other counts as two all-reduces of a token's hidden values a layer. An estimate, not fitted.

        Raises ConfigError if the model cannot be split so.
        """
        parallel = parallel or Parallelism()
        spec.check_tensor_parallel(parallel.tensor)
        if parallel.pipeline > spec.num_layers:
            raise ConfigError("pipeline_parallel_size", parallel.pipeline, f"the model has {spec.num_layers} layers")
        constants = constants or shipped_constants()
        values = constants.of(spec, gpu, version)
        if lora:
            values["layer"] += LORA_LAYER_SECONDS
        counted = amounts(spec, parallel, kv_cache_dtype)
        self._formula = StepFormula(counted, gpu, parallel, values, capture_size=capture_size, eager=eager)
        self._drafts = drafting.num_speculative_tokens if drafting is not None else 0
        self._draft_formula: StepFormula | None = None
        if drafting is not None and drafting.spec is not None:
            small: Amounts = amounts(drafting.spec, Parallelism(tensor=parallel.tensor), kv_cache_dtype)
            values = constants.of(drafting.spec, gpu, version) | {"step": values["layer"]}
            alone = replace(parallel, pipeline=1)
            self._draft_formula = StepFormula(small, gpu, alone, values, capture_size=capture_size, eager=eager)
        self._context_ranks = context_ranks
        self._merging = 2 * spec.num_layers * values["all_reduce"] if context_ranks > 1 else 0.0
        self._ranks = parallel.data
        self._stages = parallel.pipeline
        self._transfer = Transfer.of(gpu)
        self.host_seconds = HOST_SECONDS
        self.known_error: KnownError = known_error(spec, gpu, constants)
        self.source = "calibrated: physics with constants fitted to measured runs of vLLM"

    def step_seconds(self, shape: StepShape) -> float:
        """Of one step, through all stages of a pipeline; with data parallelism, if all ranks do the same."""
        work = StepWork.of(shape) if not self._drafts else _verifying(shape, self._drafts)
        return float(self._seconds(work, work.num_tokens * self._ranks)) + self.host_seconds

    def decode_seconds(self, num: int, context: int, steps: int) -> Sequence[float]:
        """Of ``steps`` steps in which the same ``num`` requests decode; ``context``: cached tokens before the first.

        Number for number what :meth:`step_seconds` says: a column of objects is computed with one by one, and all that
        does not change from step to step is computed once.
        """
        read: Any = np.array([context + num * step for step in range(1, steps + 1)], object)
        seconds = self._seconds(StepWork(num, num, num, read, 0, 0, 0, 0.0), num * self._ranks)
        host = self.host_seconds
        return [float(each) + host for each in (seconds if isinstance(seconds, np.ndarray) else [seconds] * steps)]

    def ranks_seconds(self, shapes: Sequence[StepShape | None]) -> float:
        """Of one step that data-parallel ranks take together; an idle rank (None) computes one dummy token."""
        idle = StepShape(np.ones(1, np.int64), np.zeros(1, np.int64), 1, 1)
        works = [StepWork.of(shape or idle) for shape in shapes]
        tokens = sum(work.num_tokens for work in works)
        return max(float(self._seconds(work, tokens)) for work in works) + self.host_seconds

    def rows_seconds(self, work: Floats) -> Floats:
        """Of many steps whose preparation is hidden: columns of StepWork per rank, shape ``[rows, ranks, 8]``."""
        columns = columns_of(work)
        seconds: Floats = self._formula.seconds(columns, columns.num_tokens.sum(axis=1, keepdims=True)).max(axis=1)
        return seconds

    def transfer_seconds(self, num_bytes: int, direction: TransferDirection) -> float:
        return self._transfer.seconds(num_bytes, direction)

    def _seconds(self, work: StepWork, all_tokens: int) -> Any:
        if self._context_ranks > 1:
            work = work._replace(decode_context=-(-work.decode_context // self._context_ranks))
        seconds = self._stages * self._formula.seconds(work, all_tokens) + self._merging
        if self._draft_formula is not None:
            rows = work.num_decodes + work.num_prefills
            alone = work._replace(
                num_tokens=rows, num_sampled=rows, num_prefills=0, prefill_tokens=0, prefill_pairs=0.0
            )
            first = work._replace(num_sampled=rows)  # the drafter sees what the model saw, then one token at a time
            seconds += self._draft_formula.seconds(first, work.num_tokens)
            seconds += (self._drafts - 1) * self._draft_formula.seconds(alone, rows)
        return seconds


def _verifying(shape: StepShape, drafts: int) -> StepWork:
    """The sums where a request that verifies drafts counts as decode: its KV is read once for all its tokens."""
    new, computed = shape.num_new_tokens, shape.num_computed
    few = new <= drafts + 1
    decoding = StepWork.of(StepShape(np.ones(int(few.sum()), np.int64), computed[few], 0, int(few.sum())))
    rest = new[~few]
    prompts = StepWork.of(StepShape(rest, computed[~few], 0, int(rest.sum())))
    return prompts._replace(
        num_tokens=shape.num_tokens,
        num_sampled=int(new[few].sum()) + len(rest),
        num_decodes=decoding.num_decodes,
        decode_context=decoding.decode_context,
    )
