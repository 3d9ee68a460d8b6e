"""vLLM's requests as ours. What only vLLM's records need rides along: no look-up, no second copy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tokenyard.params import MultiModalItem, PoolingParams, RepetitionDetectionParams, SamplingParams
from tokenyard.request import Request
from tokenyard.structured import StructuredOutput
from tokenyard.vllm.job_of_request import turn_of

__all__ = ["FastRequest", "refresh_session", "sync_tokens", "translated_request"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Params(SamplingParams):
    theirs: Any = None
    """vLLM's own, which the workers get."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item(MultiModalItem):
    theirs: Any = None
    """vLLM's ``MultiModalFeatureSpec``."""


class FastRequest(Request):
    """A request of ours that knows vLLM's."""

    __slots__ = ("theirs",)

    theirs: Any
    """Its tokens are those of the prompt until something of vLLM's asks for more; see :func:`sync_tokens`."""


def translated_request(theirs: Any, grammar: StructuredOutput | None) -> FastRequest:
    """Ours for a vLLM ``Request``; RequestError if it can never be served."""
    pooling = theirs.pooling_params
    lora = theirs.lora_request
    turn = turn_of(theirs)
    ours = FastRequest(
        theirs.request_id,
        np.array(theirs._all_token_ids, np.int32),  # noqa: SLF001 - zeros where only embeddings are known
        None if pooling is not None else _sampling(theirs),
        pooling_params=None
        if pooling is None
        else PoolingParams(task=str(pooling.task), skip_reading_prefix_cache=bool(theirs.skip_reading_prefix_cache)),
        arrival_time=theirs.arrival_time,
        priority=theirs.priority,
        # Adapters are told apart by their number.
        lora_name=None if lora is None else str(lora.lora_int_id),
        mm_features=[_item(feature) for feature in theirs.mm_features],
        structured_output=grammar,
        resumable=bool(theirs.resumable),
        job_id=turn.job_id,
        is_last_step=turn.is_last_step,
        this_func_call=turn.this_func_call,
        client_index=theirs.client_index,
    )
    ours.theirs = theirs
    ours.block_hashes = theirs.block_hashes  # one list for both: hashed once
    return ours


def _sampling(theirs: Any) -> _Params:
    params = theirs.sampling_params
    repetition = params.repetition_detection
    return _Params(
        max_tokens=theirs.max_tokens,
        min_tokens=params.min_tokens,
        eos_token_id=params.eos_token_id,
        stop_token_ids=tuple(params.stop_token_ids or ()),
        repetition_detection=None
        if repetition is None
        else RepetitionDetectionParams(
            max_pattern_size=repetition.max_pattern_size,
            min_pattern_size=repetition.min_pattern_size,
            min_count=repetition.min_count,
        ),
        skip_reading_prefix_cache=bool(theirs.skip_reading_prefix_cache),
        theirs=params,
    )


def _item(feature: Any) -> _Item:
    place = feature.mm_position
    mask = None if place.is_embed is None else tuple(place.is_embed.tolist())
    return _Item(mm_hash=feature.identifier, offset=place.offset, length=place.length, is_embed=mask, theirs=feature)


def sync_tokens(ours: FastRequest, num_tokens: int) -> None:
    """Bring the token list of vLLM's request up to our first ``num_tokens``; its hashes stay as they are."""
    theirs = ours.theirs
    known = len(theirs._all_token_ids)  # noqa: SLF001
    if known < num_tokens:
        tokens = ours.token_slice(known, num_tokens).tolist()
        theirs._all_token_ids.extend(tokens)  # noqa: SLF001
        theirs._output_token_ids.extend(tokens)  # noqa: SLF001


def refresh_session(ours: FastRequest) -> None:
    """Make vLLM's request of a streaming-input session what ours has become: what was said is prompt now."""
    theirs, prompt = ours.theirs, ours.prompt_token_ids
    if theirs.num_prompt_tokens == len(prompt):
        return
    theirs.prompt_token_ids = prompt
    theirs.num_prompt_tokens = len(prompt)
    theirs._all_token_ids[:] = prompt  # noqa: SLF001
    theirs._output_token_ids.clear()  # noqa: SLF001
    theirs.sampling_params = getattr(ours.sampling_params, "theirs", theirs.sampling_params)
    theirs.mm_features = [_moved(item) for item in ours.mm_features]


def _moved(item: MultiModalItem) -> Any:
    """vLLM's feature at the place that the item has now."""
    feature = getattr(item, "theirs")  # noqa: B009 - an _Item, made above
    return replace(feature, mm_position=replace(feature.mm_position, offset=item.offset))
