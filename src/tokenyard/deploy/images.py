"""Images, videos and sounds in a workload: whether a model takes them, how many, and what its encoder may compute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from tokenyard.core.config import SchedulerConfig
from tokenyard.deploy.kv_memory import largest_item, largest_of_kinds
from tokenyard.deploy.resolve import ResolvedSettings
from tokenyard.deploy.vllm_serve.models import UNSAID, input_limits, items_allowed
from tokenyard.deploy.vllm_serve.refusals import refused
from tokenyard.errors import WorkloadError, shown
from tokenyard.models.inputs import item_kind, kind_of, known_items, most_items
from tokenyard.workload.record import Workload, WorkloadRequest


def scheduler_with_images(scheduler: SchedulerConfig, settled: ResolvedSettings, workload: Workload) -> SchedulerConfig:
    """The limits with vLLM's budget for the encoder: as many embeddings as a step has tokens, or as the largest image
    or video that the line allows.

    WorkloadError if the model reads no images, a request has more of a kind than the line or the model's class allows,
    or an item has more tokens than any of this model's has; NoStartError where images may not be cut and one may be
    larger than a step.
    """
    model, first, line = settled.model, workload.first_with_images, settled.hardware.limit_mm_per_prompt
    usual = item_kind(model)
    most, allowed = most_items(model.architecture, usual), items_allowed(model.architecture, usual, line)
    largest = max((each.max_tokens_per_item for each in model.item_encoders), default=0) if most != 0 else 0
    # A line that allows none leaves the encoder out, too: what it says is why.
    is_forbidden = allowed == 0 and usual in known_items().get(model.architecture, {})
    if first is not None and not largest and not is_forbidden:
        why = "--language-model-only leaves the encoder out" if settled.hardware.language_model_only else "reads none"
        problem = f"request {shown(first.request_id)} has images, and {model.name} {why}"
        raise WorkloadError(workload.name, 0, f"{problem}: give a model with a vision encoder, or a log without images")
    if first is not None:
        _check_items(settled, workload, largest_of_kinds(model, line, settled.plan.max_model_len) | {usual: largest})
    planned = largest_item(model, line, settled.plan.max_model_len)
    budget = max(scheduler.max_num_batched_tokens, planned)
    if scheduler.disable_chunked_mm_input and planned > scheduler.max_num_batched_tokens:
        raise refused("images_cannot_be_cut", scheduler.max_num_batched_tokens, least=planned, model=model.name)
    return replace(scheduler, max_num_encoder_input_tokens=budget, encoder_cache_size=budget)


_ITEMS = {"audio": ("a sound", "sounds"), "video": ("a video", "videos")}


def _check_items(settled: ResolvedSettings, workload: Workload, largest: Mapping[str, int]) -> None:
    """WorkloadError for more items of a kind than vLLM takes, or for one that is larger than the model's ever are."""
    model, line = settled.model, settled.hardware.limit_mm_per_prompt
    for request in workload:
        kinds = [kind_of(model, each.modality) for each in request.images]
        for kind, count in Counter(kinds).items():
            if count > items_allowed(model.architecture, kind, line):
                raise _too_many(request, kind, count, settled, workload.name)
        for kind, item in zip(kinds, request.images, strict=True):
            if item.length > (most := largest.get(kind, item.length)):
                one, _ = _ITEMS.get(kind, ("an image", ""))
                problem = f"request {shown(request.request_id)} has {one} of {item.length:,} tokens"
                raise WorkloadError(workload.name, 0, f"{problem}; one of {model.name} has at most {most:,}")


def _too_many(request: WorkloadRequest, kind: str, count: int, settled: ResolvedSettings, where: str) -> WorkloadError:
    """What vLLM says to a request with more items than it takes: the class's number cannot be raised, a line's can."""
    model, per_prompt = settled.model, settled.hardware.limit_mm_per_prompt
    most, said = most_items(model.architecture, kind), input_limits(per_prompt).get(kind)
    _, items = _ITEMS.get(kind, ("", "images"))
    problem = f"request {shown(request.request_id)} has {count} {items}"
    if most is not None and (said is None or most <= said):
        fix = f"vLLM's class for {model.name} takes {most} in a prompt, and refuses it: leave the request out"
    elif said is not None:
        field = "limit_mm_per_prompt" if kind == "image" else f"limit_mm_per_prompt.{kind}"
        fix = f"{field} allows {said}, and vLLM refuses it: raise that, or leave the request out"
    else:
        fix = f"vLLM takes {UNSAID} where limit_mm_per_prompt says no number of {kind}: give one, or leave it out"
    return WorkloadError(where, 0, f"{problem}; {fix}")
