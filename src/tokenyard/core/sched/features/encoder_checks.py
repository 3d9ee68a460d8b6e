"""Whether the multi-modal items of a request can ever be computed: asked once, before it is queued."""

from __future__ import annotations

from tokenyard.core.request import Request
from tokenyard.core.sched.features.encoder import CrossEncoderInputs, EncoderInputs
from tokenyard.errors import RequestError


def check_encodable(request: Request, encoder: EncoderInputs | None) -> None:
    """Raise RequestError for a multi-modal item that no step could ever compute."""
    is_cross = isinstance(encoder, CrossEncoderInputs)
    for item in request.mm_features:
        if item.cross is not is_cross:
            fix = "an encoder-decoder model reads all items by cross attention, and no other does"
            raise RequestError(request.request_id, "mm_features.cross", item.cross, fix)
    if encoder is None:
        return
    _check_sizes(request, encoder)
    if is_cross:
        _check_cross(request, encoder)
        return
    most = min(encoder.budget, encoder.cache.size)
    for item in request.mm_features:
        if item.num_embeds > most:
            raise RequestError(
                request.request_id,
                "mm_features",
                item.mm_hash,
                f"the item has {item.num_embeds} embeddings and a step can compute and keep {most}: raise"
                " max_num_encoder_input_tokens and encoder_cache_size",
            )
        if encoder.never_whole(item):
            raise RequestError(
                request.request_id,
                "mm_features",
                item.mm_hash,
                f"the item has {item.length} placeholders, which never fit the tokens of one step:"
                " raise §max_num_batched_tokens and §long_prefill_token_threshold, or allow chunked items",
            )
        together = encoder.embeds_needed_with(request, item)
        if together > encoder.most_together:
            raise RequestError(
                request.request_id,
                "mm_features",
                item.mm_hash,
                f"the item is needed together with others, {together} embeddings in all, and {encoder.most_together}"
                " can be had at once: raise encoder_cache_size (and max_num_encoder_input_tokens)",
            )


def _check_sizes(request: Request, encoder: EncoderInputs) -> None:
    """Outputs are shared by content hash, so items of one hash have one size."""
    for item in request.mm_features:
        size = encoder.size_of(item.mm_hash)
        if size is not None and size != item.num_embeds:
            fix = (
                f"another item with this hash has {size} embeddings, and this one {item.num_embeds}: outputs are shared"
                " by hash, so give different contents different hashes"
            )
            raise RequestError(request.request_id, "mm_features.mm_hash", item.mm_hash, fix)


def _check_cross(request: Request, encoder: EncoderInputs) -> None:
    """All inputs of an encoder-decoder model are computed before the first decoder token."""
    if request.resumable:
        raise RequestError(request.request_id, "resumable", value=True, fix="an encoder-decoder model has no sessions")
    total, most = sum(item.num_embeds for item in request.mm_features), min(encoder.budget, encoder.cache.size)
    if total > most:
        fix = f"a step computes and keeps at most {most}: raise max_num_encoder_input_tokens and encoder_cache_size"
        raise RequestError(request.request_id, "mm_features", f"{total} embeddings", fix)
