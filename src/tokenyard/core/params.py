"""What a client sends with a request, and the checks it has to pass."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from inspect import getattr_static
from math import inf, isfinite
from numbers import Integral, Real
from operator import attrgetter, index, is_
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from tokenyard.core.config import MAX_COUNT
from tokenyard.errors import RequestError
from tokenyard.quick_dataclass import dataclass

TokenIds = npt.NDArray[np.int32]
"""Token ids, one dimension."""
_MOST_BITS = 2**63 - 1
"""The largest number that has 64 bits, one of them for the sign."""
MAX_MOMENT = 2.0**43
"""Seconds: a moment whose microseconds, in which traces count, have 64 bits; 280,000 years."""
_Params = TypeVar("_Params", "SamplingParams", "PoolingParams", "RepetitionDetectionParams")
_least = np.minimum.reduce
"""``min`` of an array, without the function around it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepetitionDetectionParams:
    """When output that goes round in circles ends a request (finish reason ``repetition``).

    It does when the last ``min_count`` stretches of equal length are equal, for any length from ``min_pattern_size`` to
    ``max_pattern_size``.
    """

    max_pattern_size: int = 0
    """Longest pattern in tokens; 0 looks for none."""
    min_pattern_size: int = 0
    """Shortest pattern in tokens; 0 means 1."""
    min_count: int = 0
    """How often a pattern must stand in a row, at least 2."""


class PoolingType(StrEnum):
    """What a vector is made of (vLLM's names)."""

    LAST = "LAST"
    """The state of the last token."""
    CLS = "CLS"
    """The state of the first token."""
    MEAN = "MEAN"
    """The mean over all tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolingParams:
    """A request for an embedding, a class or a score: it ends when its prompt is computed, and samples nothing."""

    task: str = "embed"
    """What is made of the hidden states; decides nothing here."""
    pooling_type: str = "LAST"
    """Which tokens' states are pooled: a :class:`PoolingType`; decides nothing here."""
    normalize: bool = True
    """Scale the vector to length 1."""
    skip_reading_prefix_cache: bool | None = None
    """Compute the whole prompt even if its prefix is cached; None: if every position's state is wanted (not LAST)."""

    def __post_init__(self) -> None:
        if self.skip_reading_prefix_cache is None:
            object.__setattr__(self, "skip_reading_prefix_cache", self.pooling_type != PoolingType.LAST)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """What follows a prompt: when it ends, which the scheduler decides, and how tokens are drawn (vLLM's names).

    The scheduler reads none of what says how tokens are drawn.
    """

    max_tokens: int = 16
    """Most output tokens."""
    min_tokens: int = 0
    """No stop condition is looked at before this many output tokens."""
    eos_token_id: int | None = None
    """The model's end-of-sequence token."""
    ignore_eos: bool = False
    """Do not stop at ``eos_token_id``."""
    stop_token_ids: tuple[int, ...] = ()
    """Further tokens that end the request and are reported as ``stop_reason``."""
    repetition_detection: RepetitionDetectionParams | None = None
    """When repeated output ends the request."""
    prompt_logprobs: int | None = None
    """Log-probabilities wanted per prompt token: then every one of them has to be computed."""
    skip_reading_prefix_cache: bool | None = None
    """Compute the whole prompt even if its prefix is cached; None: if ``prompt_logprobs`` are wanted."""
    routed_experts_prompt_start: int = 0
    """First prompt position whose routed experts are wanted (with ``enable_return_routed_experts``)."""

    temperature: float = 1.0
    """Logits are divided by it; 0 takes the likeliest token (greedy)."""
    top_p: float = 1.0
    """Draw from the likeliest tokens that have this probability together."""
    top_k: int = 0
    """Draw from so many of the likeliest tokens; 0 or -1: from all."""
    min_p: float = 0.0
    """Draw from tokens at least this likely, as a share of the likeliest one's probability."""
    presence_penalty: float = 0.0
    """Taken from the logit of every token that has been put out."""
    frequency_penalty: float = 0.0
    """Taken from a token's logit for each time that it has been put out."""
    repetition_penalty: float = 1.0
    """Logits of tokens in the prompt or the output are divided by it (multiplied, if negative)."""
    seed: int | None = None
    """Draws depend on it and the position alone, whichever requests share the batch; None: on the engine's own."""
    logprobs: int | None = None
    """Likeliest tokens returned with each output token, besides itself; -1: the whole vocabulary; None: none."""
    logit_bias: Mapping[int, float] | None = None
    """Token id -> what is added to its logit."""

    def __post_init__(self) -> None:
        if self.skip_reading_prefix_cache is None:
            object.__setattr__(self, "skip_reading_prefix_cache", self.prompt_logprobs is not None)


_KINDS_OF_AN_ITEM: tuple[tuple[str, type, type], ...] = (
    ("mm_hash", str, str),
    ("offset", Integral, int),
    ("length", Integral, int),
    ("cross", np.bool_, bool),
)
"""Field -> whose values are taken, and what they become."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiModalItem:
    """An image, audio clip or video whose placeholder tokens stand in the prompt."""

    mm_hash: str
    """Content hash of the item."""
    offset: int
    """Position of its first placeholder token in the prompt."""
    length: int
    """Number of placeholder tokens."""
    is_embed: tuple[bool, ...] | None = None
    """Which placeholders stand for an embedding (others are separators); None: all."""
    cross: bool = False
    """Read by the cross attention of an encoder-decoder model: ``length`` encoder tokens, none of them in the prompt
    (``offset`` is 0)."""
    modality: str = "image"
    """``image``, ``video`` or ``audio``: whose limits it counts against when a deployment is checked; no decision of a
    step reads it. A model that only hears takes every item for a sound."""

    @property
    def end(self) -> int:
        """Position after its last placeholder."""
        return self.offset + self.length

    def __post_init__(self) -> None:
        """Numbers and texts of NumPy become Python's own, which neither wrap nor resist being written."""
        for field, kind, own in _KINDS_OF_AN_ITEM:
            value = getattr(self, field)
            if isinstance(value, kind) and type(value) not in (own, bool):
                object.__setattr__(self, field, own(value))
        flags = self.is_embed
        if isinstance(flags, tuple | list) and any(isinstance(flag, np.bool_) for flag in flags):
            own_flags = tuple(bool(flag) if isinstance(flag, np.bool_) else flag for flag in flags)
            object.__setattr__(self, "is_embed", own_flags)

    def moved(self, by: int) -> MultiModalItem:
        """The same item ``by`` positions further on."""
        return replace(self, offset=self.offset + by)

    @property
    def num_embeds(self) -> int:
        """Embeddings that the encoder computes for it."""
        return self.length if self.is_embed is None else sum(self.is_embed)

    def has_embeds(self, start: int, stop: int) -> bool:
        """Whether placeholders ``start..stop-1``, counted from its own beginning, hold an embedding."""
        start, stop = max(0, start), min(self.length, stop)
        return start < stop if self.is_embed is None else any(self.is_embed[start:stop])


def token_array(request_id: str, value: Sequence[int] | TokenIds) -> TokenIds:
    """``value`` as int32, or RequestError."""
    wanted = "give a list of token ids from 0 to 2147483647"
    packed = _packed(value)
    if packed is not None:
        return packed
    try:
        wide = np.asarray(value)
        if wide.dtype == object:  # numbers that NumPy does not know, which say by __index__ what they are
            wide = np.asarray([index(each) for each in value])
    except (TypeError, ValueError, OverflowError):
        raise RequestError(request_id, "prompt_token_ids", value, wanted) from None
    if wide.ndim != 1 or wide.size == 0:
        raise RequestError(request_id, "prompt_token_ids", value, "give at least one token id")
    if wide.dtype == np.int32 and int(_least(wide)) >= 0:
        return wide
    if wide.dtype.kind not in "iu" or int(_least(wide)) < 0 or int(wide.max()) > MAX_COUNT:
        raise RequestError(request_id, "prompt_token_ids", value, wanted)
    return wide.astype(np.int32)


def _packed(ids: Sequence[int] | TokenIds) -> TokenIds | None:
    """A list of token ids as int32, at a fraction of what NumPy takes to look at each; None if it is none, or empty."""
    if type(ids) is not list or not ids or type(ids[0]) is not int:
        return None
    try:
        packed = np.frombuffer(array("i", ids), np.int32)
    except (OverflowError, TypeError):
        return None
    return packed if int(_least(packed)) >= 0 else None


# ---------------------------------------------------------------------------------------------------------------------
# Values that become Python's own.
#
# A replay of an array or a table brings NumPy's numbers. They wrap, compare element by element, enter no file, and a
# policy's key may hold none: what a request keeps is Python's own, or the request is refused.


def own_count(request_id: str, field: str, value: object, low: int, high: int = MAX_COUNT, fix: str = "") -> int:
    """A whole number from ``low`` to ``high`` as Python's own, of whatever library; RequestError for anything else."""
    if type(value) is int:
        own = value
    elif isinstance(value, Integral) and not isinstance(value, bool):
        own = int(value)
    else:
        own = low - 1
    if not low <= own <= high:
        raise RequestError(request_id, field, value, fix or f"give a whole number from {low} to {high}")
    return own


def own_flag(request_id: str, field: str, value: object) -> bool:
    """True or false as Python's own, of whatever library; RequestError for anything else."""
    if not isinstance(value, bool | np.bool_):
        raise RequestError(request_id, field, value, "give true or false")
    return bool(value)


def own_number(request_id: str, field: str, value: object, low: float, high: float, fix: str) -> float:
    """A finite number from ``low`` to ``high`` as Python's own, of whatever library; RequestError for anything else."""
    if type(value) is not float and not (isinstance(value, Real) and not isinstance(value, bool)):
        raise RequestError(request_id, field, value, fix)
    try:
        own = float(value)
    except OverflowError:  # a whole number beyond every float
        own = inf
    if not isfinite(own) or not low <= own <= high:
        raise RequestError(request_id, field, value, fix)
    return own


def own_moment(request_id: str, moment: object) -> float:
    """The ``arrival_time`` of a request, in seconds."""
    fix = "give a finite number of seconds"
    return own_number(request_id, "arrival_time", moment, -MAX_MOMENT, MAX_MOMENT, fix)


def own_mapping(request_id: str, field: str, value: object) -> Mapping[str, Any] | None:
    """A mapping or nothing; RequestError for anything else."""
    if value is not None and not isinstance(value, Mapping):
        raise RequestError(request_id, field, value, "give a mapping from names to values, or leave it out")
    return value


def check_id(request_id: str) -> None:
    """Raise RequestError for a request id that is no text, empty, or cannot be written."""
    if not isinstance(request_id, str) or not request_id:
        raise RequestError(str(request_id), "request_id", request_id, "give a text that is not empty")
    _check_encodable(request_id, "request_id", request_id)


def python_text(text: str | None) -> str | None:
    """A text of exactly Python's own kind: NumPy's strings are texts as well, and cannot be written."""
    return None if text is None else str(text)


def check_texts(request_id: str, **fields: object) -> None:
    """Raise RequestError for a field that is neither a text nor absent, or cannot be hashed and written."""
    for field, value in fields.items():
        if value is None:
            continue
        if not isinstance(value, str):
            raise RequestError(request_id, field, value, "give a text, or leave it out")
        _check_encodable(request_id, field, value)


def _check_encodable(request_id: str, field: str, text: str) -> None:
    """A lone surrogate (JSON can bring one) cannot be encoded, and hashes and traces are made of bytes."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        fix = f"the character at {error.start} is a lone surrogate, half of a character: give both halves or none"
        raise RequestError(request_id, field, text, fix) from None


def check_embeds(request_id: str, embeds: object, num_prompt_tokens: int) -> None:
    """Raise RequestError unless ``embeds`` is a numeric array with a row per prompt token."""
    if not isinstance(embeds, np.ndarray):
        raise RequestError(request_id, "prompt_embeds", embeds, "give a NumPy array: numpy.asarray(...) makes one")
    if embeds.ndim != 2 or embeds.dtype.kind not in "fiu":
        value = f"{embeds.dtype} array of shape {embeds.shape}"
        raise RequestError(request_id, "prompt_embeds", value, "give numbers in two dimensions, a row per prompt token")
    if len(embeds) != num_prompt_tokens:
        fix = f"give one row per prompt token ({num_prompt_tokens})"
        raise RequestError(request_id, "prompt_embeds", len(embeds), fix)


def own_priority(request_id: str, priority: object) -> int:
    """The ``priority`` of a request: of 64 bits, the smallest but one number and up."""
    fix = f"give a whole number from {-_MOST_BITS} to {_MOST_BITS}; lower is served first"
    return own_count(request_id, "priority", priority, -_MOST_BITS, _MOST_BITS, fix)


def own_seed(request_id: str, field: str, seed: object) -> int:
    """A number of 64 bits from which others are drawn."""
    return own_count(request_id, field, seed, -_MOST_BITS - 1, _MOST_BITS, "give a whole number of at most 64 bits")


def has_member(given: object, name: str) -> bool:
    """Whether an object of another library can be asked for ``name``; it is not asked."""
    return getattr_static(given, name, None) is not None or hasattr(type(given), "__getattr__")


def check_grammar(request_id: str, grammar: object) -> None:
    """Raise RequestError for a grammar that cannot be asked; nothing is asked yet."""
    for name in () if grammar is None else ("is_ready", "accept_tokens"):
        if not has_member(grammar, name):
            fix = f"has no {name}: give an object as StructuredOutput describes it"
            raise RequestError(request_id, "structured_output", grammar, fix)


_COUNTS = {"max_tokens": 1, "min_tokens": 0, "routed_experts_prompt_start": 0, "top_k": -1}
"""Field -> its smallest value."""
_COUNTS_OR_NONE = {"eos_token_id": 0, "prompt_logprobs": -1, "logprobs": -1}
_FLAGS = ("ignore_eos", "skip_reading_prefix_cache")


def own_sampling_params(request_id: str, params: SamplingParams) -> SamplingParams:
    """``params`` with values of Python's own kinds, mostly itself; RequestError for one that cannot work."""
    if not isinstance(params, SamplingParams):
        raise RequestError(request_id, "sampling_params", params, "give SamplingParams")
    own: dict[str, object] = {}
    for field, low in _COUNTS.items():
        own[field] = own_count(request_id, field, getattr(params, field), low)
    for field, low in _COUNTS_OR_NONE.items():
        if (value := getattr(params, field)) is not None:
            own[field] = own_count(request_id, field, value, low)
    for field in _FLAGS:
        own[field] = own_flag(request_id, field, getattr(params, field))
    if params.min_tokens > params.max_tokens:
        fix = f"must not exceed max_tokens ({params.max_tokens})"
        raise RequestError(request_id, "min_tokens", params.min_tokens, fix)
    own["stop_token_ids"] = _own_stops(request_id, params.stop_token_ids)
    if params.repetition_detection is not None:
        own["repetition_detection"] = _own_repetition(request_id, params.repetition_detection)
    own |= _own_drawing(request_id, params)
    return _with_own(params, own)


def _with_own(params: _Params, own: Mapping[str, Any]) -> _Params:
    """``params`` with these values; itself, if it has each of them already."""
    changed = {field: value for field, value in own.items() if getattr(params, field) is not value}
    return replace(params, **changed) if changed else params


def _own_stops(request_id: str, tokens: object) -> tuple[int, ...]:
    if not isinstance(tokens, tuple | list):
        raise RequestError(request_id, "stop_token_ids", tokens, "give a list of token ids")
    own = tuple([own_count(request_id, "stop_token_ids", token, 0) for token in tokens])
    return tokens if isinstance(tokens, tuple) and all(map(is_, own, tokens)) else own


_RANGES = {
    "temperature": (0.0, inf, "give a number from 0 (greedy) on"),
    "min_p": (0.0, 1.0, "give a number from 0 to 1"),
    "presence_penalty": (-2.0, 2.0, "give a number from -2 to 2"),
    "frequency_penalty": (-2.0, 2.0, "give a number from -2 to 2"),
}
"""Field -> smallest and largest value, and what to do about others."""
_ABOVE_ZERO = {
    "top_p": (1.0, "give a number above 0, up to 1"),
    "repetition_penalty": (inf, "give a number above 0; 1 changes nothing"),
}
_LEAST = 5e-324
"""The smallest number above 0."""


_how_to_draw = attrgetter(*_RANGES, *_ABOVE_ZERO, "seed", "logit_bias")
_UNLESS_SAID = _how_to_draw(SamplingParams())


def _own_drawing(request_id: str, params: SamplingParams) -> dict[str, object]:
    """What says how tokens are drawn, where anything does."""
    if all(map(is_, _how_to_draw(params), _UNLESS_SAID)):
        return {}
    own: dict[str, object] = {}
    for field, (low, high, fix) in _RANGES.items():
        own[field] = own_number(request_id, field, getattr(params, field), low, high, fix)
    for field, (high, fix) in _ABOVE_ZERO.items():
        own[field] = own_number(request_id, field, getattr(params, field), _LEAST, high, fix)
    if params.seed is not None:
        own["seed"] = own_seed(request_id, "seed", params.seed)
    if params.logit_bias is not None:
        own["logit_bias"] = _own_bias(request_id, params.logit_bias)
    return own


def _own_bias(request_id: str, bias: object) -> dict[int, float]:
    if not isinstance(bias, Mapping):
        raise RequestError(request_id, "logit_bias", bias, "give numbers by token id")
    own = {}
    for token, added in bias.items():
        of = own_count(request_id, "logit_bias", token, 0)
        own[of] = own_number(request_id, f"logit_bias[{token}]", added, -inf, inf, "give a finite number")
    return own


def _own_repetition(request_id: str, params: RepetitionDetectionParams) -> RepetitionDetectionParams:
    if not isinstance(params, RepetitionDetectionParams):
        raise RequestError(request_id, "repetition_detection", params, "give RepetitionDetectionParams")

    def of(field: str, low: int) -> int:
        return own_count(request_id, f"repetition_detection.{field}", getattr(params, field), low)

    longest, shortest = of("max_pattern_size", 0), of("min_pattern_size", 0)
    if shortest > longest:
        fix = f"must not exceed max_pattern_size ({longest})"
        raise RequestError(request_id, "repetition_detection.min_pattern_size", shortest, fix)
    own = {"max_pattern_size": longest, "min_pattern_size": shortest, "min_count": of("min_count", 2 if longest else 0)}
    return _with_own(params, own)


def own_pooling_params(request_id: str, params: PoolingParams) -> PoolingParams:
    """``params`` with values of Python's own kinds, mostly itself; RequestError for one that cannot work."""
    if not isinstance(params, PoolingParams):
        raise RequestError(request_id, "pooling_params", params, "give PoolingParams")
    if not isinstance(params.task, str) or not params.task:
        raise RequestError(request_id, "pooling_params.task", params.task, "name the task, for example embed")
    if params.pooling_type not in tuple(PoolingType):
        fix = f"use one of: {', '.join(PoolingType)}"
        raise RequestError(request_id, "pooling_params.pooling_type", params.pooling_type, fix)
    names = ("normalize", "skip_reading_prefix_cache")
    own = {name: own_flag(request_id, f"pooling_params.{name}", getattr(params, name)) for name in names}
    return _with_own(params, own)


def _check_item(request_id: str, item: MultiModalItem) -> None:
    """Raise RequestError for a field of ``item`` that has the wrong type."""
    if not isinstance(item.mm_hash, str):
        raise RequestError(request_id, "mm_features.mm_hash", item.mm_hash, "give a text")
    _check_encodable(request_id, "mm_features.mm_hash", item.mm_hash)
    for field, value in (("offset", item.offset), ("length", item.length)):
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise RequestError(request_id, f"mm_features.{field}", value, "give a whole number of tokens")
    own_flag(request_id, "mm_features.cross", item.cross)
    flags = () if item.is_embed is None else item.is_embed
    if not isinstance(flags, tuple | list) or not all(isinstance(flag, bool | np.bool_) for flag in flags):
        raise RequestError(request_id, "mm_features.is_embed", flags, "give true or false for every placeholder")


def check_items(request_id: str, items: Sequence[MultiModalItem], num_prompt_tokens: int) -> None:
    """Raise RequestError for what is no multi-modal item, or does not lie within the prompt."""
    if not isinstance(items, Sequence) or not all(isinstance(item, MultiModalItem) for item in items):
        raise RequestError(request_id, "mm_features", items, "give a list of MultiModalItem")
    for item in items:
        _check_item(request_id, item)
        if item.cross and (item.offset or item.length < 1):
            fix = "has no place in the prompt: give offset 0 and a length of at least 1"
            raise RequestError(request_id, "mm_features", item, fix)
        if not item.cross and (item.offset < 0 or item.length < 1 or item.end > num_prompt_tokens):
            raise RequestError(
                request_id, "mm_features", item, f"its placeholders must lie within the prompt (0..{num_prompt_tokens})"
            )
        if item.is_embed is not None and len(item.is_embed) != item.length:
            raise RequestError(request_id, "mm_features", item, "is_embed needs one flag per placeholder")
    sizes: dict[str, int] = {}
    for item in items:
        if sizes.setdefault(item.mm_hash, item.num_embeds) != item.num_embeds:
            fix = (
                f"items of {sizes[item.mm_hash]} and of {item.num_embeds} embeddings have this hash: give each its own"
            )
            raise RequestError(request_id, "mm_features.mm_hash", item.mm_hash, fix)


# ---------------------------------------------------------------------------------------------------------------------
# Structured output: a request whose grammar is being compiled waits, and its tokens advance the grammar.
#
# The grammar itself is the engine's (llguidance, xgrammar); the scheduler only knows this protocol.


class StructuredOutput(Protocol):
    """A request's grammar, compiled elsewhere and perhaps not ready yet."""

    @property
    def is_ready(self) -> bool:
        """The grammar has been compiled."""

    def accept_tokens(self, tokens: Sequence[int]) -> bool:
        """Advance by sampled tokens; False if the grammar does not allow them."""

    def validate_tokens(self, tokens: Sequence[int]) -> list[int]:
        """The leading draft tokens that the grammar allows, without advancing."""


class MaskedOutput(StructuredOutput, Protocol):
    """A grammar that can also tell workers what to sample; an engine core takes no other."""

    def bitmask(self, drafts: Sequence[int]) -> npt.NDArray[np.int32]:
        """Tokens allowed next, and after each of ``drafts``, as bits; shape ``[1 + len(drafts), ceil(vocab / 32)]``.

        Nothing advances. A draft that is not allowed, and -1, leave the rows after it unrestricted: no row gets there.
        """


SOME_TOOL = "tool"
"""What a tool is called of which is known, or assumed, only that an answer calls one."""


def user_name(job_id: str | None) -> str:
    """The user of a job: the text before the first ``/``, or nothing."""
    return (job_id or "").partition("/")[0]
