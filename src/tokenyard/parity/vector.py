"""A golden vector: one scenario recorded from real vLLM, and the scheduler of ours that its header makes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Required, TypedDict, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from tokenyard.core.config import (
    CacheConfig,
    GroupKind,
    HashAlgo,
    KVCacheGroup,
    MambaCacheMode,
    SchedulerConfig,
    SpeculativeConfig,
    SpeculativeMethod,
    settings_for,
)
from tokenyard.core.outside import outside_features
from tokenyard.core.params import PoolingParams, RepetitionDetectionParams
from tokenyard.core.profiles import PROFILES
from tokenyard.core.request import MultiModalItem, Request, SamplingParams
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.errors import ConfigError, FileError, ParityError
from tokenyard.files import Bounds, bounded_lines, is_nested_deeper

# ---------------------------------------------------------------------------------------------------------------------
# A golden vector: one scenario recorded from real vLLM, a header line and one line per engine tick.
#
# The format is described in ``docs/parity.md``. Records are kept as plain JSON values: the point is to compare them.

Json = dict[str, Any]
_Token = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Tokens = list[tuple[str, list[_Token]]]
"""Request ids, and the tokens of each that a model sampled or drafted."""


class Image(msgspec.Struct, frozen=True, array_like=True):
    """A multi-modal item of a prompt: ``[hash, offset, length, is_embed or null]``."""

    mm_hash: str
    offset: int
    length: int
    is_embed: tuple[bool, ...] | None = None


class RequestSpec(msgspec.Struct, frozen=True):
    """A request of the scenario."""

    id: str
    prompt: list[int]
    max_tokens: int
    arrival_time: float
    min_tokens: int = 0
    eos: int | None = None
    stop_token_ids: list[int] | None = None
    priority: int = 0
    cache_salt: str | None = None
    lora: int | None = 0
    skip_reading_prefix_cache: bool | None = None
    mm: tuple[Image, ...] = ()
    repetition: tuple[int, int, int] | None = None
    """Longest and shortest pattern, and how often it has to stand in a row."""
    pooling: bool = False
    resumable: bool = False
    forbids: frozenset[int] | None = None
    """Tokens that its grammar forbids; None: it has no grammar."""


class _Group(TypedDict, total=False):
    kind: Required[str]
    window: int | None
    block_size: int | None
    eagle: bool


class _VectorSettings(TypedDict, total=False):
    """Settings that are looked into; the others are checked where they are used."""

    groups: list[_Group] | None
    pipeline_parallel_size: int | None


class Stats(msgspec.Struct, frozen=True):
    """What the recorder counted when it had finished; the rest of it is for readers."""

    ticks: int


class VectorHeader(msgspec.Struct, frozen=True):
    """First line of a vector."""

    name: str
    config: Json
    requests: list[RequestSpec]
    stats: Stats
    vllm: str = "unknown"
    format: Literal["vllm-golden-1"] = "vllm-golden-1"

    def __post_init__(self) -> None:
        msgspec.convert(self.config, _VectorSettings)


class _Event(TypedDict, total=False):
    op: Required[str]
    id: str
    hit: bool
    status: str
    running: bool
    ok: bool
    state: Literal[0, 1, 2]
    prompt: list[int]
    last: bool


class _Decided(TypedDict, total=False):
    n: Required[int]
    known: Tokens


class _Updated(TypedDict, total=False):
    of: Required[int]
    sampled: Required[Tokens]
    drafts: Tokens
    pooled: list[str]


class _Tick(TypedDict, total=False):
    """The inputs of a tick, which a replay hands on; what was decided may be anything, and is then different."""

    t: Required[int]
    ev_pre: list[_Event]
    add: list[str]
    s: _Decided
    ev_mid: list[_Event]
    u: _Updated


class GoldenVector:
    """Reads one ``*.jsonl`` or ``*.jsonl.gz`` vector; ``vllm`` is a later version that decided the same."""

    def __init__(self, path: Path, vllm: str | None = None) -> None:
        self.path = path
        self._lines = self._read_lines()
        try:
            first = next(self._lines)
            header = msgspec.json.decode(first, type=VectorHeader)
            self.header = header if vllm is None else msgspec.structs.replace(header, vllm=vllm)
        except StopIteration:
            raise ParityError(f"{path}: empty file, not a golden vector") from None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
            raise ParityError(f"{path}:1: not the header of a golden vector: {problem}") from None

    def _read_lines(self) -> Iterator[bytes]:
        bounds = Bounds.from_env()
        try:
            for line in bounded_lines(self.path, bounds=bounds):
                if is_nested_deeper(line, bounds.nesting):
                    raise bounds.exceeded(self.path, "it is nested deeper", "nesting")
                if line.strip():
                    yield line
        except FileError as problem:
            raise ParityError(str(problem)) from None

    def ticks(self) -> Iterator[Json]:
        """The recorded ticks, once; ParityError if one is missing: they are numbered, and the header says how many."""
        expected = 0
        for number, line in enumerate(self._lines, 2):
            tick = self._decode(number, line)
            if tick["t"] != expected:
                raise ParityError(f"{self.path}:{number}: tick {tick['t']} stands where tick {expected} is due")
            yield tick
            expected += 1
        if expected != self.header.stats.ticks:
            recorded = self.header.stats.ticks
            raise ParityError(f"{self.path}: cut short: it holds {expected} of the {recorded} ticks that were recorded")

    def _decode(self, number: int, line: bytes) -> Json:
        try:
            tick: Json = msgspec.json.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
            raise ParityError(f"{self.path}:{number}: not JSON: {problem}") from None
        try:
            msgspec.convert(tick, _Tick)
        except msgspec.ValidationError as problem:
            raise ParityError(f"{self.path}:{number}: not a tick of a golden vector: {problem}") from None
        return tick


# ---------------------------------------------------------------------------------------------------------------------
# Turning a vector's header into a scheduler of ours, or saying which of its features we do not have.

_RENAMED = {
    "hash_algo": "prefix_caching_hash_algo",
    "max_num_scheduled_tokens": "max_num_batched_tokens",
    "num_blocks": "num_gpu_blocks",
    "spec_method": "method",
}
"""Settings that go by other names in a vector."""
_DRIVING = {"drafts_in_output", "encoder_decoder", "pipeline_parallel_size", "record_events"}
"""Settings that say how the scheduler was driven."""
_DEFAULTS = {"max_num_seqs": 16, "max_num_batched_tokens": 8192, "num_gpu_blocks": 10_000, "block_size": 16}
"""The recorder's."""
_CONFIGS = (SchedulerConfig, CacheConfig, SpeculativeConfig)
_IGNORED = {"log_stats", "scheduler_cls", "model"}
"""Settings that decide nothing."""
_GROUP_KINDS = {
    "full": GroupKind.FULL,
    "swa": GroupKind.SLIDING_WINDOW,
    "chunked": GroupKind.CHUNKED_LOCAL,
    "mamba": GroupKind.MAMBA,
    "cross": GroupKind.CROSS_ATTENTION,
    "ring": GroupKind.CIRCULAR_BUFFER,
}
_Enum = TypeVar("_Enum", bound=StrEnum)
_HASH_ALGOS = {"sha256": HashAlgo.SHA256, "xxhash": HashAlgo.XXH3_128}


def unsupported_features(header: VectorHeader) -> list[str]:
    """Names of the features that the scenario needs and this scheduler lacks; empty if it can be replayed.

    Raises ConfigError for settings that cannot be.
    """
    config = header.config
    found = []
    unknown = {str(group["kind"]) for group in _groups(config)} - _GROUP_KINDS.keys()
    if unknown:
        found.append(f"KV groups: {', '.join(sorted(unknown))}")
    if _version(header) not in PROFILES:
        found.append(f"decisions of vLLM {header.vllm}")
    ours = {field.name for each in _CONFIGS for field in fields(each)}
    known = {*ours, *_RENAMED, *_DRIVING, *_IGNORED}
    found += [f"setting {key}" for key in sorted(config) if key not in known and config[key] is not None]
    if found:
        return found
    scheduler, cache, _ = _settings(header)
    return [f"{feature} of vLLM {_version(header)}" for feature in outside_features(scheduler, cache)]


def _version(header: VectorHeader) -> str:
    """Name of the profile that the recording version of vLLM asks for; the first vectors did not say."""
    return next(iter(PROFILES)) if header.vllm == "unknown" else ".".join(header.vllm.split(".")[:2])


def _groups(config: Json) -> list[Json]:
    return config.get("groups") or [{"kind": "full"}]


def _make_group(group: Json) -> KVCacheGroup:
    return KVCacheGroup(
        kind=_GROUP_KINDS[group["kind"]],
        block_size=group.get("block_size") or 0,
        window=group.get("window") or 0,
        is_eagle=bool(group.get("eagle", False)),
    )


def _member(kind: type[_Enum], field: str, value: object) -> _Enum:
    """The member of that value, or ConfigError."""
    try:
        return kind(str(value))
    except ValueError:
        raise ConfigError(field, value, f"use one of: {', '.join(kind)}") from None


def _settings(header: VectorHeader) -> tuple[SchedulerConfig, CacheConfig, SpeculativeConfig | None]:
    """The scenario's configuration, where absent fields take the recorder's defaults."""
    recorded = {key: value for key, value in header.config.items() if value is not None}
    given: dict[str, Any] = _DEFAULTS | recorded
    given.setdefault("max_model_len", given["max_num_batched_tokens"])
    given |= {ours: recorded[theirs] for theirs, ours in _RENAMED.items() if theirs in recorded}
    given["profile"] = profile = PROFILES[_version(header)]
    given["count_common_prefix_blocks"] = profile.reports_common_prefix
    given["groups"] = tuple(map(_make_group, _groups(recorded)))
    given["prefix_caching_hash_algo"] = _HASH_ALGOS.get(str(recorded.get("hash_algo")), HashAlgo.SHA256)
    given["mamba_cache_mode"] = _member(MambaCacheMode, "mamba_cache_mode", given.get("mamba_cache_mode", "none"))
    given["method"] = _member(SpeculativeMethod, "spec_method", given.get("method", "ngram"))
    has_drafts = bool(given.get("num_speculative_tokens"))
    return (
        SchedulerConfig(**settings_for(SchedulerConfig, given)),
        CacheConfig(**settings_for(CacheConfig, given)),
        SpeculativeConfig(**settings_for(SpeculativeConfig, given)) if has_drafts else None,
    )


def make_scheduler(header: VectorHeader) -> Scheduler:
    """A scheduler with the scenario's configuration."""
    scheduler, cache, speculative = _settings(header)
    log_stats = bool(header.config.get("record_events"))
    return Scheduler(scheduler, cache, speculative_config=speculative, log_stats=log_stats)


class RecordedGrammar:
    """A grammar that allows every token but some, and is compiled when the record says so."""

    def __init__(self, forbids: frozenset[int]) -> None:
        self._forbids = forbids
        self.is_ready = False

    def accept_tokens(self, tokens: Sequence[int]) -> bool:
        """Advance by sampled tokens; False if one is forbidden."""
        return self._forbids.isdisjoint(tokens)

    def bitmask(self, drafts: Sequence[int]) -> npt.NDArray[np.int32]:
        """No step samples by it: what was sampled is recorded."""
        return np.full((1 + len(drafts), 1), -1, np.int32)

    def validate_tokens(self, tokens: Sequence[int]) -> list[int]:
        """The leading tokens that are allowed."""
        stop = next((i for i, token in enumerate(tokens) if token in self._forbids), len(tokens))
        return list(tokens[:stop])


def make_request(spec: RequestSpec, *, encoder_decoder: bool = False) -> Request:
    """A request as the scenario describes it; an ``encoder_decoder`` reads its items by cross attention."""
    sampling = SamplingParams(
        max_tokens=spec.max_tokens,
        min_tokens=spec.min_tokens,
        eos_token_id=spec.eos,
        ignore_eos=spec.eos is None,
        stop_token_ids=tuple(spec.stop_token_ids or ()),
        repetition_detection=_repetition(spec),
        skip_reading_prefix_cache=bool(spec.skip_reading_prefix_cache),
    )
    return Request(
        spec.id,
        spec.prompt,
        None if spec.pooling else sampling,
        pooling_params=PoolingParams() if spec.pooling else None,
        resumable=spec.resumable,
        arrival_time=spec.arrival_time,
        priority=spec.priority,
        cache_salt=spec.cache_salt,
        lora_name=f"lora{spec.lora}" if spec.lora else None,
        mm_features=[
            MultiModalItem(
                mm_hash=image.mm_hash,
                offset=image.offset,
                length=image.length,
                is_embed=image.is_embed,
                cross=encoder_decoder,
            )
            for image in spec.mm
        ],
        structured_output=None if spec.forbids is None else RecordedGrammar(spec.forbids),
    )


def _repetition(spec: RequestSpec) -> RepetitionDetectionParams | None:
    if spec.repetition is None:
        return None
    longest, shortest, count = spec.repetition
    return RepetitionDetectionParams(max_pattern_size=longest, min_pattern_size=shortest, min_count=count)
