"""Images in a workload: whether the model reads them, and what its encoder may compute and keep."""

from __future__ import annotations

from dataclasses import replace

from tokenyard.config import SchedulerConfig
from tokenyard.deploy.resolve import Settled
from tokenyard.errors import NoStartError, WorkloadError, shown
from tokenyard.sim.workload import Workload

__all__ = ["scheduler_with_images"]


def scheduler_with_images(scheduler: SchedulerConfig, settled: Settled, workload: Workload) -> SchedulerConfig:
    """The limits with vLLM's budget for the encoder: as many embeddings as a step has tokens, or the largest image.

    WorkloadError if the model reads no images, or an image has more tokens than any of this model's has; NoStartError
    where images may not be cut and one may be larger than a step.
    """
    model = settled.model
    first = workload.first_with_images
    largest = max((each.max_tokens_per_item for each in model.encoders if each.kind == "vision"), default=0)
    if first is not None and not largest:
        why = "--language-model-only leaves the encoder out" if settled.hardware.language_model_only else "reads none"
        problem = f"request {shown(first.request_id)} has images, and {model.name} {why}"
        raise WorkloadError(workload.name, 0, f"{problem}: give a model with a vision encoder, or a log without images")
    for request in workload:
        for image in request.images:
            if image.length > largest:
                problem = f"request {shown(request.request_id)} has an image of {image.length:,} tokens"
                raise WorkloadError(workload.name, 0, f"{problem}; one of {model.name} has at most {largest:,}")
    budget = max(scheduler.max_num_batched_tokens, largest)
    if scheduler.disable_chunked_mm_input and largest > scheduler.max_num_batched_tokens:
        raise NoStartError(
            f"max_num_batched_tokens = {scheduler.max_num_batched_tokens} is less than the {largest} tokens of the "
            f"largest image of {model.name}, and disable_chunked_mm_input forbids to cut it: raise the one or leave "
            "the other out"
        )
    return replace(scheduler, max_num_encoder_input_tokens=budget, encoder_cache_size=budget)
