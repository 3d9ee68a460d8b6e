"""Images in a workload: whether a model takes them, how many, and what its encoder may compute and keep."""

from __future__ import annotations

from dataclasses import replace

from tokenyard.core.config import SchedulerConfig
from tokenyard.deploy.kv_memory import largest_item
from tokenyard.deploy.resolve import ResolvedSettings
from tokenyard.deploy.vllm_serve.models import UNSAID, input_limits, items_allowed
from tokenyard.errors import NoStartError, WorkloadError, shown
from tokenyard.models.inputs import item_kind, known_items, most_items
from tokenyard.workload.record import Workload, WorkloadRequest


def scheduler_with_images(scheduler: SchedulerConfig, settled: ResolvedSettings, workload: Workload) -> SchedulerConfig:
    """The limits with vLLM's budget for the encoder: as many embeddings as a step has tokens, or as the largest image
    or video that the line allows.

    WorkloadError if the model reads no images, a request has more than the line or the model's class allows, or an
    image has more tokens than any of this model's has; NoStartError where images may not be cut and one may be larger
    than a step.
    """
    model, first, line = settled.model, workload.first_with_images, settled.hardware.limit_mm_per_prompt
    kind = item_kind(model)
    most, allowed = most_items(model.architecture, kind), items_allowed(model.architecture, kind, line)
    largest = max((each.max_tokens_per_item for each in model.item_encoders), default=0) if most != 0 else 0
    item = "a sound" if kind == "audio" else "an image"
    # A line that allows none leaves the encoder out, too: what it says is why.
    is_forbidden = allowed == 0 and kind in known_items().get(model.architecture, {})
    if first is not None and not largest and not is_forbidden:
        why = "--language-model-only leaves the encoder out" if settled.hardware.language_model_only else "reads none"
        problem = f"request {shown(first.request_id)} has images, and {model.name} {why}"
        raise WorkloadError(workload.name, 0, f"{problem}: give a model with a vision encoder, or a log without images")
    for request in workload:
        if len(request.images) > allowed:
            raise _too_many(request, settled, workload.name)
        for image in request.images:
            if image.length > largest:
                problem = f"request {shown(request.request_id)} has {item} of {image.length:,} tokens"
                raise WorkloadError(workload.name, 0, f"{problem}; one of {model.name} has at most {largest:,}")
    planned = largest_item(model, line, settled.max_model_len)
    budget = max(scheduler.max_num_batched_tokens, planned)
    if scheduler.disable_chunked_mm_input and planned > scheduler.max_num_batched_tokens:
        raise NoStartError(
            f"§max_num_batched_tokens = {scheduler.max_num_batched_tokens} is less than the {planned} tokens of the "
            f"largest image or video of {model.name}, and §disable_chunked_mm_input forbids to cut it: raise the one "
            "or leave the other out"
        )
    return replace(scheduler, max_num_encoder_input_tokens=budget, encoder_cache_size=budget)


def _too_many(request: WorkloadRequest, settled: ResolvedSettings, where: str) -> WorkloadError:
    """What vLLM says to a request with more images than it takes: the class's number cannot be raised, a line's can."""
    model, limits = settled.model, settled.hardware.limit_mm_per_prompt
    kind = item_kind(model)
    most, said = most_items(model.architecture, kind), input_limits(limits).get(kind)
    items = "sounds" if kind == "audio" else "images"
    problem = f"request {shown(request.request_id)} has {len(request.images)} {items}"
    if most is not None and (said is None or most <= said):
        fix = f"vLLM's class for {model.name} takes {most} in a prompt, and refuses it: leave the request out"
    elif said is not None:
        field = "limit_mm_per_prompt" if kind == "image" else f"limit_mm_per_prompt.{kind}"
        fix = f"{field} allows {said}, and vLLM refuses it: raise that, or leave the request out"
    else:
        fix = f"vLLM takes {UNSAID} where limit_mm_per_prompt says no number of {kind}: give one, or leave it out"
    return WorkloadError(where, 0, f"{problem}; {fix}")
