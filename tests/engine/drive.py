"""An engine that serves a few prompts, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.engine.sizes import BLOCK_SIZE, MAX_MODEL_LEN
from tests.engine.tiny_models import Checkpoint

from tokenyard.core.request import FinishReason, Request, SamplingParams
from tokenyard.serve.torch.load import load_engine

__all__ = ["Run", "generate", "load", "serve"]

GREEDY: dict[str, Any] = {"temperature": 0.0, "ignore_eos": True}


@dataclass(slots=True)
class Run:
    """What clients were told, and what it took."""

    tokens: list[list[int]]
    reasons: dict[str, FinishReason] = field(default_factory=dict)
    extras: dict[str, list[Any]] = field(default_factory=dict)
    num_preemptions: int = 0
    num_cached_tokens: int = 0
    num_drafts: int = 0
    num_accepted: int = 0


def serve(core: Any, requests: Sequence[Request], arrivals: Sequence[int] = (), beside: Any = None) -> Run:
    """Add request ``i`` before step ``arrivals[i]`` (0 where none is given), and step until all have ended.

    ``beside`` is another engine, which steps along.
    """
    told: dict[str, list[int]] = {request.request_id: [] for request in requests}
    run = Run([])
    waiting = [(arrivals[i] if i < len(arrivals) else 0, request) for i, request in enumerate(requests)]
    step = 0
    while waiting or core.has_work:
        for each in [each for each in waiting if each[0] <= step]:
            core.add_request(each[1])
            waiting.remove(each)
        step += 1
        outputs = core.step()
        if beside is not None and beside.has_work:
            beside.step()
        core.scheduler.check_invariants()
        assert step < 5000, "the engine does not come to an end"
        if outputs is None:
            continue
        speculation = outputs.scheduler_stats.spec_decoding_stats
        if speculation is not None:
            run.num_drafts += speculation.num_draft_tokens
            run.num_accepted += speculation.num_accepted_tokens
        for news in outputs:
            told[news.request_id] += news.new_token_ids
            run.extras.setdefault(news.request_id, []).append(news.extras)
            if news.finish_reason is not None:
                run.reasons[news.request_id] = news.finish_reason
    run.tokens = list(told.values())
    run.num_preemptions = sum(request.num_preemptions for request in requests)
    run.num_cached_tokens = sum(max(request.num_cached_tokens, 0) for request in requests)
    return run


def load(checkpoint: Checkpoint, **options: Any) -> Any:
    """An engine in float64 on the CPU, with blocks of few tokens."""
    settings: dict[str, Any] = {
        "dtype": "float64",
        "device": "cpu",
        "block_size": BLOCK_SIZE,
        "max_model_len": MAX_MODEL_LEN,
        "num_gpu_blocks_override": 400,
        "log_stats": True,
        "debug": True,
    }
    return load_engine(checkpoint.folder, **settings | options)


def generate(
    checkpoint: Checkpoint,
    prompts: Sequence[Sequence[int]],
    max_tokens: int,
    *,
    arrivals: Sequence[int] = (),
    params: dict[str, Any] | None = None,
    **options: Any,
) -> Run:
    """Continuations of ``prompts`` by an engine of its own; greedy ones unless ``params`` say otherwise."""
    core = load(checkpoint, **options)
    try:
        wanted = SamplingParams(max_tokens=max_tokens, **(GREEDY if params is None else params))
        requests = [Request(f"r{i}", list(prompt), wanted) for i, prompt in enumerate(prompts)]
        return serve(core, requests, arrivals)
    finally:
        core.shutdown()
