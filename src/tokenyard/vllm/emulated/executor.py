"""``vllm serve MODEL --distributed-executor-backend tokenyard.vllm.EmulatedExecutor``: vLLM's own API server, engine
core and scheduler; no weights, no forward pass. Steps last as long as on the GPU that is named, tokens are made up.

``--additional-config '{"tokenyard": {"gpu": "h100"}}'`` names the GPU; ``latency``, ``speed`` and ``seed`` may stand
beside it, and whatever else :class:`tokenyard.Deployment` takes. KV memory is that of the GPU, as our plan of the same
deployment has it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import torch
from vllm.v1.executor.abstract import Executor
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.outputs import LogprobsLists, LogprobsTensors, ModelRunnerOutput

from tokenyard.deploy.deployment import Deployment
from tokenyard.deploy.spec import ResolvedDeployment
from tokenyard.errors import ConfigError
from tokenyard.steptime.model import StepShape, step_seconds
from tokenyard.vllm.tracing.header import emulated_settings
from tokenyard.workload.tokens import output_tokens, seed_of

# ---------------------------------------------------------------------------------------------------------------------
# What workers without a model return beside tokens: log-probabilities, vectors of pooling models, tokens that a
# grammar allows. The same request gets the same.

_SURE = -0.25
"""The log-probability of a token that was sampled; those beside it have less and less."""
_WORD = 32
"""Bits of a word of a grammar's mask."""


class Wanted(msgspec.Struct, frozen=True):
    """What a request wants to know."""

    logprobs: int | None = None
    """Likeliest tokens at every place of the answer; None: not even the token's own."""
    prompt_logprobs: int | None = None
    """The same of the prompt."""
    end: int | None = None
    """The token that ends an answer."""
    pools: str | None = None
    """The task of a pooling model."""

    @classmethod
    def of(cls, new: Any, vocab_size: int) -> Wanted:
        """What a request asks for, by the step that schedules it for the first time."""
        if new.pooling_params is not None:
            return cls(pools=new.pooling_params.task)
        params = new.sampling_params

        def number(given: int | None) -> int | None:
            return vocab_size - 1 if given == -1 else given

        end = getattr(params, "eos_token_id", None)
        return cls(number(params.logprobs), number(params.prompt_logprobs), end)


def logprobs_of(tokens: Sequence[int], wanted: Sequence[Wanted], vocab_size: int) -> LogprobsLists | None:
    """Log-probabilities of a step, a row for each request; None if none is requested."""
    most = max((each.logprobs for each in wanted if each.logprobs is not None), default=None)
    if most is None:
        return None
    return LogprobsLists(*_rows(np.array(tokens, np.int64), most, vocab_size))


def prompt_logprobs_of(prompt: Sequence[int], number: int, vocab_size: int) -> LogprobsTensors:
    """Log-probabilities of a prompt, from its second token on."""
    return LogprobsTensors(*map(torch.from_numpy, _rows(np.array(prompt[1:], np.int64), number, vocab_size)))


def _rows(tokens: npt.NDArray[np.int64], number: int, vocab_size: int) -> tuple[Any, Any, Any]:
    """Each token is its place's likeliest."""
    beside = (tokens[:, None] + np.arange(number + 1)) % vocab_size
    beside[:, 1:] = beside[:, :-1].copy()  # the token itself, then the likeliest, of which it is the first
    chances = np.repeat((_SURE - np.arange(number + 1.0))[None, :], len(tokens), 0).astype(np.float32)
    chances[:, 1:] = chances[:, :-1].copy()
    return beside, chances, np.ones(len(tokens), np.int64)


def pooled(seed: int, prompt: Sequence[int], task: str, size: int) -> torch.Tensor:
    """A vector of length 1 for a prompt, or one for each of its tokens."""
    rows = len(prompt) if task.startswith("token") else 1
    drawn = np.random.default_rng([seed & 0xFFFF_FFFF, *prompt[:64]]).standard_normal((rows, size)).astype(np.float32)
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    made = torch.from_numpy(drawn)
    return made if task.startswith("token") else made[0]


def allowed(token: int, mask: npt.NDArray[np.int32], end: int | None) -> int:
    """A token that a grammar's mask allows: the end where that is one, else one that ``token`` leads to."""
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
    if end is not None and end < len(bits) and bits[end]:
        return end
    found = np.flatnonzero(bits)
    return int(found[token % len(found)]) if len(found) else token


def keep_to_grammars(
    sampled: list[list[int]], places: Mapping[str, int], grammar: Any, ends: Sequence[int | None]
) -> None:
    """Put tokens that grammars allow in the place of those that were made up; without drafts there is one at a time."""
    for row, request_id in enumerate(grammar.structured_output_request_ids):
        place = places.get(request_id)
        if place is not None and sampled[place]:
            sampled[place] = [allowed(sampled[place][0], grammar.grammar_bitmask[row], ends[place])]


# ---------------------------------------------------------------------------------------------------------------------

_GOES_ON = 0.02
"""Seconds within which a step of running requests is taken to have been prepared while the step before ran."""
_OWN = ("speed", "seed")


class _Known:
    """What is known of a request that has been scheduled."""

    __slots__ = ("num_tokens", "prompt", "seed", "wanted")

    def __init__(self, seed: int, prompt: Sequence[int], wanted: Wanted) -> None:
        self.seed, self.prompt, self.wanted = seed, prompt, wanted
        self.num_tokens = len(prompt)


class _Step(Future[Any]):
    """Outputs that are known at once, and returned at their moment."""

    def __init__(self, output: Any, ends_at: float) -> None:
        super().__init__()
        self._ends_at = ends_at
        self.set_result(output)

    def done(self) -> bool:
        """Whether its moment has come."""
        return time.monotonic() >= self._ends_at

    def result(self, timeout: float | None = None) -> Any:
        """The output, not before its moment."""
        wait = self._ends_at - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        return super().result(timeout)


class EmulatedExecutor(Executor):  # type: ignore[misc]  # vLLM is not there where types are checked
    """One process stands for all workers."""

    supports_pp = True

    def _init_executor(self) -> None:
        given = emulated_settings(self.vllm_config)
        self._speed, self._seed = float(given.get("speed", 1.0)), int(given.get("seed", 0))
        self._resolved = _resolved(self.vllm_config, {k: v for k, v in given.items() if k not in _OWN})
        self._requests: dict[str, _Known] = {}
        self._output: ModelRunnerOutput | None = None
        self._ends_at = 0.0
        self._steps = 0
        self._pools = self.model_config.runner_type == "pooling"

    # ---- what workers are asked

    def collective_rpc(
        self,
        method: str | Callable[..., Any],
        timeout: float | None = None,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        non_block: bool = False,
    ) -> Any:
        """Answer for all workers; what they would only do for a model is ignored."""
        answer = getattr(self, f"_{method}", None) if isinstance(method, str) else None
        result = [None if answer is None else answer(*args, **(kwargs or {}))]
        if not non_block:
            return result
        future: Future[list[Any]] = Future()
        future.set_result(result)
        return future

    def check_health(self) -> None:
        """It is well."""

    def shutdown(self) -> None:
        """Nothing is held."""

    def _get_kv_cache_spec(self) -> dict[str, Any]:
        config, parallel = self.model_config, self.parallel_config
        spec = FullAttentionSpec(
            block_size=self.cache_config.block_size,
            num_kv_heads=config.get_num_kv_heads(parallel),
            head_size=config.get_head_size(),
            dtype=config.dtype,
        )
        return {f"model.layers.{i}.self_attn.attn": spec for i in range(config.get_num_layers(parallel))}

    def _determine_available_memory(self) -> int:
        pages = sum(int(spec.page_size_bytes) for spec in self._get_kv_cache_spec().values())
        return pages * self._resolved.plan.num_blocks

    def _get_supported_kv_cache_layouts(self) -> list[str]:
        return ["LBHNC", "LBNHC"]

    def compile_or_warm_up_model(self) -> None:
        """There is nothing to warm up."""

    def _get_supported_tasks(self) -> tuple[str, ...]:
        return ("token_embed", "embed") if self._pools else ("generate",)

    def _add_lora(self, _: object) -> bool:
        if self.vllm_config.lora_config is None:
            raise RuntimeError("LoRA is not enabled. Use --enable-lora to enable LoRA.")
        return True

    def _remove_lora(self, _: object) -> bool:
        return True

    def _pin_lora(self, _: object) -> bool:
        return True

    def _list_loras(self) -> set[int]:
        return set()

    def _supports_draft_weight_updates(self) -> bool:
        return False

    # ---- steps

    def execute_model(self, scheduler_output: Any, non_block: bool = False) -> Any:
        """Begin a step; its tokens are asked for by ``sample_tokens``, vectors of pooling models come by themselves."""
        begun, ends_at = self._begin(scheduler_output), 0.0
        if self._pools and begun is None:
            begun, self._output, ends_at = self._output, None, self._ends_at
        step = _Step(begun, ends_at)
        return step if non_block else step.result()

    def sample_tokens(self, grammar_output: Any, non_block: bool = False) -> Any:
        """The tokens of the step that was begun last, when it is over."""
        output, self._output = self._output, None
        if output is not None:
            wanted, sampled = [self._requests[each].wanted for each in output.req_ids], output.sampled_token_ids
            if grammar_output is not None:
                keep_to_grammars(sampled, output.req_id_to_index, grammar_output, [each.end for each in wanted])
            tokens = [each[0] if each else 0 for each in sampled]
            output.logprobs = logprobs_of(tokens, wanted, self.model_config.get_vocab_size())
        step = _Step(output, self._ends_at)
        return step if non_block else step.result()

    def _begin(self, plan: Any) -> ModelRunnerOutput | None:
        for request_id in plan.finished_req_ids:
            self._requests.pop(request_id, None)
        if not plan.total_num_scheduled_tokens:
            return ModelRunnerOutput(req_ids=[], req_id_to_index={})
        shape, self._output = self._computed(plan)
        seconds = step_seconds(self._resolved.latency, shape, self._steps) / self._speed
        self._steps += 1
        now = time.monotonic()
        # Requests that were running cannot have been prepared later than the step before ended, but for this machine.
        goes_on = bool(plan.scheduled_cached_reqs.req_ids) and now - self._ends_at < _GOES_ON
        began = self._ends_at if goes_on else max(now, self._ends_at)
        self._ends_at = began + seconds
        return None

    def _execute_dummy_batch(self) -> None:
        """Ranks that step together are not emulated."""

    def _take_draft_token_ids(self) -> None:
        """Nothing is drafted."""

    def _computed(self, plan: Any) -> tuple[StepShape, ModelRunnerOutput]:
        """What a step computes, and what comes of it."""
        computed: dict[str, int] = {}
        for new in plan.scheduled_new_reqs:
            known = new.prefill_token_ids or new.prompt_token_ids
            seed = seed_of("emulated", self._seed, new.req_id)
            wanted = Wanted.of(new, self.model_config.get_vocab_size())
            self._requests[new.req_id] = _Known(seed, known, wanted)
            computed[new.req_id] = new.num_computed_tokens
        cached = plan.scheduled_cached_reqs
        computed |= dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        ids = [each for each in plan.num_scheduled_tokens if each in computed]
        counts = np.array([plan.num_scheduled_tokens[each] for each in ids], np.int64)
        starts = np.array([computed[each] for each in ids], np.int64)
        known = np.array([self._requests[each].num_tokens for each in ids], np.int64)
        samples = starts + counts >= known
        size, requests = self.model_config.get_vocab_size(), [self._requests[each] for each in ids]
        seeds = np.array([each.seed for each in requests], np.int64)
        tokens = (100 + output_tokens(seeds, known) % max(size - 200, 1)).tolist()
        shape = StepShape(counts, starts, int(samples.sum()), int(counts.sum()))
        output = ModelRunnerOutput(req_ids=ids, req_id_to_index={each: row for row, each in enumerate(ids)})
        if self._pools:
            output.pooler_output = [
                self._vector(each) if over else None for each, over in zip(requests, samples, strict=True)
            ]
            return shape, output
        output.sampled_token_ids = [[token] if over else [] for token, over in zip(tokens, samples, strict=True)]
        for request_id, each, over in zip(ids, requests, samples, strict=True):
            number = each.wanted.prompt_logprobs
            if over and number is not None and each.num_tokens == len(each.prompt):
                output.prompt_logprobs_dict[request_id] = prompt_logprobs_of(each.prompt, number, size)
            each.num_tokens += int(over)
        return shape, output

    def _vector(self, known: _Known) -> Any:
        assert known.wanted.pools is not None
        return pooled(self._seed, known.prompt, known.wanted.pools, self.model_config.get_hidden_size())


def _resolved(config: Any, given: Mapping[str, Any]) -> ResolvedDeployment:
    """Our plan of what vLLM has been started with. Raises ConfigError for a model with other than full attention."""
    model, cache, scheduler = config.model_config, config.cache_config, config.scheduler_config
    settings: dict[str, Any] = {
        "model": model.model,
        "tensor_parallel_size": config.parallel_config.tensor_parallel_size,
        "max_model_len": model.max_model_len,
        "max_num_seqs": scheduler.max_num_seqs,
        "max_num_batched_tokens": scheduler.max_num_batched_tokens,
        "block_size": cache.block_size,
        "gpu_memory_utilization": cache.gpu_memory_utilization,
        "enforce_eager": model.enforce_eager,
        "ignore_unmodelled": True,
    }
    resolved = Deployment(**settings | dict(given)).resolve()
    if len(resolved.plan.groups) > 1:
        fix = "layers of several kinds are not emulated inside vLLM: use `tokenyard emulate`"
        raise ConfigError("model", model.model, fix)
    return resolved
