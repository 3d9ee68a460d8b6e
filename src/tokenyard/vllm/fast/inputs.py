"""vLLM's records as ours: configuration, requests, grammars, hashes, answers; what is not served is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, cast

import numpy as np

from tokenyard.core.params import (
    MultiModalItem,
    PoolingParams,
    RepetitionDetectionParams,
    SamplingParams,
    StructuredOutput,
)
from tokenyard.core.request import BlockHash, Request
from tokenyard.core.sched.outputs import DraftTokens, ModelAuxOutput, ModelOutput
from tokenyard.quick_dataclass import dataclass
from tokenyard.vllm import versions
from tokenyard.vllm.versions import turn_of

# ---------------------------------------------------------------------------------------------------------------------
# vLLM's requests as ours. What only vLLM's records need rides along: no look-up, no second copy.


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
        # Adapters are distinguished by their number.
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
    """Make vLLM's request of a streaming-input session what ours has become: its output is prompt now."""
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


# ---------------------------------------------------------------------------------------------------------------------
# Hashes of blocks by vLLM's own function: its engine hashes every prompt anyway, and once is enough.
#
# The list of hashes is one object for both requests. vLLM's hashes what its request's token list holds, so tokens are
# brought there when a block of them is full, and not before.


class VllmHashes:
    """A :class:`~tokenyard.core.kv.hashing.RequestHasher`."""

    def __init__(self, hash_size: int, num_ahead: int) -> None:
        """A hash covers ``hash_size`` tokens, and depends on ``num_ahead`` behind them as well."""
        self._hash_size = hash_size
        self._num_ahead = num_ahead

    def extend(self, request: Request) -> list[BlockHash]:
        """Hash every full block of the request that has no hash yet; returns all its hashes."""
        hashes = request.block_hashes
        if len(hashes) < (request.num_tokens - self._num_ahead) // self._hash_size:
            ours = cast("FastRequest", request)
            if ours.resumable:
                refresh_session(ours)
            sync_tokens(ours, ours.num_tokens)
            ours.theirs.update_block_hashes()
        return hashes

    def forget_beyond(self, request: Request, num_tokens: int) -> None:
        """Forget the hashes that depend on tokens behind the first ``num_tokens``."""
        theirs = cast("FastRequest", request).theirs
        del theirs._all_token_ids[num_tokens:]  # noqa: SLF001
        del request.block_hashes[max(num_tokens - self._num_ahead, 0) // self._hash_size :]


# ---------------------------------------------------------------------------------------------------------------------
# vLLM's grammars as ours: its ``StructuredOutputManager`` is asked, with vLLM's own requests.


class FastGrammar:
    """The grammar of one request: a :class:`~tokenyard.core.params.StructuredOutput`."""

    def __init__(self, manager: Any, theirs: Any, compile_errors: dict[str, Exception]) -> None:
        """``compile_errors`` is notified of a grammar that cannot be compiled, by request id."""
        self._manager = manager
        self._theirs = theirs
        self._compile_errors = compile_errors
        self.ours: FastRequest | None = None

    @property
    def is_ready(self) -> bool:
        """The grammar has been compiled."""
        grammar = self._theirs.structured_output_request.grammar
        if isinstance(grammar, Exception):
            self._compile_errors[self._theirs.request_id] = grammar
            return False
        return bool(grammar)

    def accept_tokens(self, tokens: Sequence[int]) -> bool:
        """Advance by sampled tokens; False if the grammar does not allow them."""
        self._refresh()
        return versions.accept_tokens(self._manager, self._theirs, list(tokens))

    def validate_tokens(self, tokens: Sequence[int]) -> list[int]:
        """The leading draft tokens that the grammar allows, without advancing."""
        self._refresh()
        return versions.validate_tokens(self._manager, self._theirs, list(tokens))

    def _refresh(self) -> None:
        """vLLM looks for the end of a reasoning part in the request's own tokens."""
        ours, theirs = self.ours, self._theirs
        assert ours is not None, "the request that it was made for"
        sync_tokens(ours, ours.num_tokens)
        theirs.num_computed_tokens = ours.num_computed_tokens
        theirs.num_output_placeholders = ours.num_output_placeholders


def bitmask(manager: Any, requests: Sequence[FastRequest], drafts: dict[str, list[int]]) -> Any:
    """vLLM's ``GrammarOutput`` for the requests that sample by a grammar, in scheduling order; None if none does."""
    if not requests:
        return None
    for request in requests:
        sync_tokens(request, request.num_tokens)
    ids = [request.request_id for request in requests]
    theirs = {request.request_id: request.theirs for request in requests}
    return versions.grammar_output(ids, manager.grammar_bitmask(theirs, ids, drafts), drafts)


# ---------------------------------------------------------------------------------------------------------------------
# What vLLM's workers return, as columns in the order of the step.

_NOTHING = ModelOutput(np.zeros((0, 1), np.int64), np.zeros(0, np.int64))


def answer_rows(req_ids: Sequence[str], answer: Any) -> list[int] | None:
    """Row of the workers' answer for each request of the step; None: they are the same.

    Workers keep a batch of their own, in which a request stays where it is while others come and go.
    """
    if tuple(answer.req_ids) == tuple(req_ids):
        return None
    row_of = answer.req_id_to_index
    return [row_of[request_id] for request_id in req_ids]


def translated_answer(req_ids: Sequence[str], answer: Any, rows: list[int] | None) -> ModelOutput:
    """A ``ModelRunnerOutput`` for the requests ``req_ids`` of a step."""
    if not req_ids:
        return _NOTHING
    count = len(req_ids)
    lists = answer.sampled_token_ids
    extras = None
    if answer.pooler_output:
        results = answer.pooler_output
        extras = ModelAuxOutput(pooler_output=results if rows is None else [results[row] for row in rows])
    if not lists:
        return ModelOutput(np.full((count, 1), -1, np.int64), np.zeros(count, np.int64), None, extras)
    if rows is not None:
        lists = [lists[row] for row in rows]
    lengths = np.fromiter(map(len, lists), np.int64, count)
    if int(lengths.max()) == int(lengths.min()) == 1:  # a token each: nearly every step
        return ModelOutput(np.fromiter(chain.from_iterable(lists), np.int64, count)[:, None], lengths, None, extras)
    return ModelOutput.from_lists(lists, None, extras)


def translated_drafts(req_ids: Sequence[str], drafts: Any) -> DraftTokens:
    """A ``DraftTokenIds`` for the requests ``req_ids`` of a step; whom it does not name has none."""
    given = dict(zip(drafts.req_ids, drafts.draft_token_ids, strict=True))
    return DraftTokens.from_lists([given.get(request_id, ()) for request_id in req_ids])
