"""Tokenyard's own workload format: one JSON object per line.

    request_id        text, unique, required
    max_tokens        output tokens, at least 1, required
    limit             the client's max_tokens, where the answer ended by itself, not with it (default: with it)
    prompt_token_ids  token ids from 0 to 2147483647           either this ...
    prompt_len        prompt tokens, at least 1                 ... or this, unique unless hash_ids say otherwise ...
    streams           [seed, start, stop] of each piece         ... or this: positions of streams of made-up tokens
    hash_ids          ids of the prompt's blocks: equal ids, equal tokens (with prompt_len and block_size)
    block_size        tokens per hash id
    hash_scope        within which ids are equal: a name, or the seed itself (default: all ids of one block_size)
    tail_seed         stream of what the ids leave out (default: from seed and request_id)
    arrival_time      seconds since the start (default 0; not with ``after``), or in the unit that the reader is given
    after             request_id of an earlier line, or a list of them: arrives when all of them have ended ...
    gap               ... plus so many seconds (default 0) ...
    spacing           ... and not earlier than so many seconds after the last of them arrived (default 0)
    delay             seconds from its arrival until the scheduler has it (default 0)
    patience          seconds after which its client goes away (default: never)
    job_id            groups the turns of one agent
    is_last_step      true on a job's last turn
    this_func_call    name of the tool that the turn will call
    priority          lower is sooner under the priority policy (default 0)
    cache_salt        requests with another salt share no prefix
    images            of each, in order: its tokens in the prompt, or an object of tokens, offset (default: behind the
                      one before, the first at 0), hash (equal ones are equal images; default: no other is like it),
                      is_embed (which tokens are embeddings; default: all), cross (an encoder-decoder model's input)
                      and modality (image, video or audio; default: image)
    lora_name         LoRA adapter that the request asks for (default: the base model)
    output_seed       stream of the generated tokens (default: from seed and request_id)
    predicted_output_tokens  output tokens that are predicted, for policies (default: no prediction)
    measured          an object of what was measured, to stand beside a replay: ttft, e2e (seconds), cached_tokens
    meta              an object of your own fields, for policies, observers and the rows of a replay

The first line may say what is about all of them: ``{"workload": {...}}`` with time_unit ("s"), max_concurrency, clients
(timeout, retries, wait), service (requests_per_s, not_served) and notes. Any other field, or a field of another type,
is an error that names the line.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

import msgspec
import numpy as np

from tokenyard.core.config import MAX_COUNT
from tokenyard.core.request import MultiModalItem
from tokenyard.errors import ConfigError, WorkloadError, shown
from tokenyard.files import packaged, written_whole
from tokenyard.plugins import foreign
from tokenyard.workload.measured import Measured, ServiceCounts
from tokenyard.workload.readers import published
from tokenyard.workload.readers.lines import Length, ReadOptions, Seconds, decode, limited, numbered_lines
from tokenyard.workload.readers.published import HashId, id_ranges, problem_with_ids
from tokenyard.workload.record import MAX_SECONDS, Clients, Remark, Workload, WorkloadRequest
from tokenyard.workload.tokens import HashedTokens, ListedTokens, Segment, StreamTokens, TokenSource, seed_of

_Position = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _Image(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    tokens: Length
    offset: Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)] | None = None
    hash: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    is_embed: list[bool] | None = None
    cross: bool = False
    modality: Literal["image", "video", "audio"] = "image"


class _Measured(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    ttft: Seconds | None = None
    e2e: Seconds | None = None
    cached_tokens: Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)] | None = None


class _PlainRow(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    request_id: Annotated[str, msgspec.Meta(min_length=1)]
    max_tokens: Length
    limit: Length | None = None
    prompt_token_ids: list[Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]] | None = None
    prompt_len: Length | None = None
    streams: list[tuple[_Int64, _Position, _Position]] | None = None
    hash_ids: list[HashId] | None = None
    block_size: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)] | None = None
    hash_scope: _Int64 | str | None = None
    tail_seed: _Int64 | None = None
    arrival_time: Annotated[float, msgspec.Meta(ge=0)] | None = None
    after: str | list[str] | None = None
    gap: Seconds | None = None
    spacing: Seconds | None = None
    delay: Seconds = 0.0
    patience: Seconds | None = None
    job_id: str | None = None
    is_last_step: bool = False
    this_func_call: str | None = None
    priority: Annotated[int, msgspec.Meta(ge=-MAX_COUNT, le=MAX_COUNT)] = 0
    lora_name: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    cache_salt: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    images: list[Length | _Image] = []
    output_seed: _Int64 | None = None
    predicted_output_tokens: Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)] | None = None
    measured: _Measured | None = None
    meta: dict[str, Any] = {}


_ALIKE = (
    "request_id", "max_tokens", "limit", "job_id", "is_last_step", "this_func_call", "priority", "lora_name",
    "cache_salt", "predicted_output_tokens", "meta",
)  # fmt: skip
"""Fields that are as in a request."""
_SAID_UNLESS_EMPTY = ("delay", "is_last_step", "priority", "lora_name", "cache_salt", "meta")
_SAID = ("limit", "patience", "job_id", "this_func_call", "output_seed", "predicted_output_tokens")


class About(msgspec.Struct, frozen=True):
    """What the first line says of the whole workload."""

    max_concurrency: int | None = None
    clients: Clients | None = None
    remarks: tuple[Remark, ...] = ()
    says_unit: bool = False
    """Whether it says that times are in seconds."""
    service: ServiceCounts = ServiceCounts()


class _Clients(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    timeout: Seconds
    retries: int = 0
    wait: Seconds = 1.0


class _About(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    max_concurrency: Length | None = None
    clients: _Clients | None = None
    notes: list[Remark] = []
    service: ServiceCounts = ServiceCounts()
    time_unit: Literal["s"] | None = None


class _FirstLine(msgspec.Struct, forbid_unknown_fields=True):
    workload: _About


_BEGINS = b'{"workload":'


def read_about(path: Path) -> About:
    """What the file says of the whole workload; nothing if its first line is a request."""
    for number, line in islice(numbered_lines(path), 1):
        if _is_about(line):
            said = decode(msgspec.json.Decoder(_FirstLine), path, number, line).workload
            try:
                clients = None if said.clients is None else Clients(**msgspec.structs.asdict(said.clients))
            except ConfigError as error:
                raise WorkloadError(path, number, f"workload.clients: {error}") from None
            return About(said.max_concurrency, clients, tuple(said.notes), said.time_unit is not None, said.service)
    return About()


def _is_about(line: bytes) -> bool:
    return line.replace(b" ", b"").startswith(_BEGINS)


def read_plain(path: Path, options: ReadOptions) -> Iterator[WorkloadRequest]:
    """One request per line; a first line about the whole workload is ignored."""
    decoder = msgspec.json.Decoder(_PlainRow)
    seen: set[str] = set()
    lines = ((number, line) for i, (number, line) in enumerate(numbered_lines(path)) if i or not _is_about(line))
    for number, line in limited(lines, options):
        row = decode(decoder, path, number, line)
        after = (row.after,) if isinstance(row.after, str) else tuple(row.after or ())
        problem = _row_problem(row, after, seen, options.seconds_per_unit)
        if problem:
            raise WorkloadError(path, number, problem)
        seen.add(row.request_id)
        own = seed_of("plain", options.seed, row.request_id)
        unit = options.seconds_per_unit
        yield WorkloadRequest(
            **{name: getattr(row, name) for name in _ALIKE},
            prompt=_prompt(row, own, options.seed),
            arrival_time=(row.arrival_time or 0.0) * unit,
            after=after,
            gap=(row.gap or 0.0) * unit,
            spacing=(row.spacing or 0.0) * unit,
            delay=row.delay * unit,
            patience=None if row.patience is None else row.patience * unit,
            images=_images(row),
            output_seed=own if row.output_seed is None else row.output_seed,
            measured=_measured(row.measured, unit),
        )


def _measured(row: _Measured | None, unit: float) -> Measured | None:
    if row is None:
        return None
    ttft, e2e = (None if each is None else each * unit for each in (row.ttft, row.e2e))
    return Measured(ttft, e2e, row.cached_tokens)


def _row_problem(row: _PlainRow, after: tuple[str, ...], seen: set[str], unit: float) -> str | None:
    """What is wrong with a row whose fields are well-formed, or None; ``seen`` are the ids of the lines before."""
    return _prompt_problem(row) or _image_problem(row, _images(row)) or _order_problem(row, after, seen, unit)


def _images(row: _PlainRow) -> tuple[MultiModalItem, ...]:
    items: list[MultiModalItem] = []
    for i, image in enumerate(row.images):
        said = _Image(tokens=image) if isinstance(image, int) else image
        behind = items[-1].end if items and not said.cross else 0
        items.append(
            MultiModalItem(
                mm_hash=said.hash or f"{row.request_id}/{i}",
                offset=behind if said.offset is None else said.offset,
                length=said.tokens,
                is_embed=None if said.is_embed is None else tuple(said.is_embed),
                cross=said.cross,
                modality=said.modality,
            )
        )
    return tuple(items)


def _image_problem(row: _PlainRow, images: tuple[MultiModalItem, ...]) -> str | None:
    length = row.prompt_len or len(row.prompt_token_ids or ()) or _stream_length(row)
    for i, image in enumerate(images):
        if image.is_embed is not None and len(image.is_embed) != image.length:
            return f"images[{i}].is_embed has {len(image.is_embed)} flags: give one for each of {image.length} tokens"
        if image.cross:
            continue
        if image.end > length:
            return (
                f"images[{i}] reaches to token {image.end}, and the prompt has {length}: its tokens are counted there"
            )
        if i and image.offset < images[i - 1].end:
            return f"images[{i}].offset = {image.offset}: the image before it reaches to token {images[i - 1].end}"
    return None


def _stream_length(row: _PlainRow) -> int:
    return sum(stop - start for _, start, stop in row.streams or ())


def _prompt_problem(row: _PlainRow) -> str | None:
    given = (row.prompt_token_ids, row.prompt_len, row.streams)
    if sum(each is not None for each in given) != 1:
        return "give either prompt_token_ids or prompt_len or streams"
    if row.prompt_len is None:
        name = "prompt_token_ids" if row.streams is None else "streams"
        if row.hash_ids is not None or row.block_size is not None:
            return f"hash_ids and block_size belong to prompt_len, not to {name}"
        if row.streams is None:
            return None if row.prompt_token_ids else "prompt_token_ids = []: give at least one token id"
        return _stream_problem(row.streams)
    if row.hash_ids is None and not (row.hash_scope is None and row.tail_seed is None):
        return "hash_scope and tail_seed belong to hash_ids"
    if (row.hash_ids is None) != (row.block_size is None):
        return "hash_ids and block_size must be given together"
    if row.hash_ids is None or row.block_size is None or row.prompt_len is None:
        return None
    return problem_with_ids(len(row.hash_ids), row.prompt_len, row.block_size)


def _stream_problem(streams: list[tuple[int, int, int]]) -> str | None:
    for i, (_, start, stop) in enumerate(streams):
        if stop < start:
            return f"streams[{i}] = {shown([start, stop])}: it stops before it starts"
    length = sum(stop - start for _, start, stop in streams)
    return None if 1 <= length <= MAX_COUNT else f"streams hold {length} tokens: give from 1 to {MAX_COUNT}"


def _order_problem(row: _PlainRow, after: tuple[str, ...], seen: set[str], unit: float) -> str | None:
    if row.request_id in seen:
        return f"request_id = {shown(row.request_id)}: occurs twice"
    if row.arrival_time is not None and row.arrival_time * unit > MAX_SECONDS:
        fix = f"give seconds since the start of the log, up to {MAX_SECONDS:g}; of Unix times subtract the first one"
        return f"arrival_time = {shown(row.arrival_time)}: {fix}"
    if after and row.arrival_time is not None:
        return "give either arrival_time or after"
    for name in ("gap", "spacing"):
        if getattr(row, name) is not None and not after:
            return f"{name} belongs to after"
    unknown = [each for each in after if each not in seen]
    return f"after = {shown(unknown[0])}: no earlier line has this request_id" if unknown else None


def _prompt(row: _PlainRow, own: int, seed: int) -> TokenSource:
    if row.prompt_token_ids is not None:
        return ListedTokens(np.array(row.prompt_token_ids, np.int32))
    if row.streams is not None:
        return StreamTokens(*(Segment(*each) for each in row.streams))
    assert row.prompt_len is not None
    if row.hash_ids is None or row.block_size is None:
        return StreamTokens.unique(own, row.prompt_len)
    tail = own if row.tail_seed is None else row.tail_seed
    ids = id_ranges(row.hash_ids)
    return HashedTokens(ids, row.prompt_len, block_size=row.block_size, scope=_scope(row, seed), tail=tail)


def _scope(row: _PlainRow, seed: int) -> int:
    """A number is the seed itself, a name one of many, nothing that of all ids."""
    if isinstance(row.hash_scope, int):
        return row.hash_scope
    said = () if row.hash_scope is None else (row.hash_scope,)
    return seed_of("plain", seed, row.block_size, *said)


# ---- writing


def workload_lines(workload: Workload) -> Iterator[bytes]:
    """A workload as lines of this format, of which a reader makes one that a replay cannot tell from it.

    Raises WorkloadError naming a request that the format has no room for.
    """
    clients = None if workload.clients is None else asdict(workload.clients)
    about: dict[str, object] = {"max_concurrency": workload.max_concurrency, "clients": clients}
    about["service"] = None if workload.service == ServiceCounts() else workload.service
    about["notes"] = list(workload.remarks)
    said = {name: value for name, value in about.items() if value}
    yield msgspec.json.encode({"workload": {"time_unit": "s", **said}}) + b"\n"
    decoder, seen = msgspec.json.Decoder(_PlainRow), set[str]()
    for request in workload:
        line = msgspec.json.encode(_written(request))
        try:
            problem = _row_problem(decode(decoder, Path(workload.name), 0, line), request.after, seen, 1.0)
        except WorkloadError as error:
            problem = error.problem
        if problem:
            raise WorkloadError(workload.name, 0, f"request {shown(request.request_id)} cannot be written: {problem}")
        seen.add(request.request_id)
        yield line + b"\n"


def write_plain(workload: Workload, target: Path) -> None:
    """A workload as a file of this format, packed where its name ends in .gz: all lines or no file.

    Raises ConfigError where it cannot be written.
    """
    with written_whole(target, partial(ConfigError, "path", str(target))) as file:
        if target.name.endswith(".gz"):
            with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
                packed.writelines(workload_lines(workload))
        else:
            file.writelines(workload_lines(workload))


def _written(request: WorkloadRequest) -> dict[str, object]:
    """All that a replay sees of a request; what is as it is by default is left out."""
    row: dict[str, object] = {"request_id": request.request_id}
    row |= _written_prompt(request.prompt)
    row["max_tokens"] = request.max_tokens
    if request.after:
        row |= {"after": list(request.after), "gap": request.gap}
    else:
        row["arrival_time"] = request.arrival_time
    said = {name: getattr(request, name) for name in _SAID}
    said |= {name: getattr(request, name) or None for name in _SAID_UNLESS_EMPTY}
    said["spacing"] = (request.spacing or None) if request.after else None
    said["images"] = [_written_image(each) for each in request.images] or None
    if request.measured is not None:
        ttft, e2e, cached = request.measured
        said["measured"] = _Measured(ttft=ttft, e2e=e2e, cached_tokens=cached)
    return row | {name: value for name, value in said.items() if value is not None}


def _written_prompt(prompt: TokenSource) -> dict[str, object]:
    if isinstance(prompt, StreamTokens):
        return {"streams": prompt.segments}
    if isinstance(prompt, HashedTokens):
        return {
            "prompt_len": len(prompt),
            "hash_ids": prompt.hash_ids().tolist(),
            "block_size": prompt.block_size,
            "hash_scope": prompt.scope,
            "tail_seed": prompt.tail_seed,
        }
    return {"prompt_token_ids": prompt.tokens().tolist()}


def _written_image(image: MultiModalItem) -> dict[str, object]:
    row: dict[str, object] = {"tokens": image.length, "offset": image.offset, "hash": image.mm_hash}
    if image.is_embed is not None:
        row["is_embed"] = image.is_embed
    row |= {"cross": True} if image.cross else {}
    return row | ({} if image.modality == "image" else {"modality": image.modality})


# ---------------------------------------------------------------------------------------------------------------------
# The file formats by name.

T = TypeVar("T")
NAMES: dict[str, Any] = msgspec.json.decode(packaged("tokenyard.workload", "names.json"))
"""``names.json``."""


class NamedSource(NamedTuple, Generic[T]):
    """What stands behind a name of a workload, and what the name means to a user who chooses."""

    read: T
    about: str


Reader = Callable[[Path, ReadOptions], Iterator[WorkloadRequest]]

FORMATS: dict[str, NamedSource[Reader]] = {
    name: NamedSource(read_plain if name == "plain" else getattr(published, f"read_{name}"), about)
    for name, about in NAMES["formats"].items()
}
"""Name, as ``--format`` takes it -> reader."""


def reader_of(format: str) -> Reader | None:  # noqa: A002 (the option is called --format)
    """Reads files of the format: ours, or ``FILE.py:NAME``, or a name of the entry points ``tokenyard.formats``, a
    function of a path and ``ReadOptions`` that yields requests. None if there is none. Raises ConfigError.
    """
    if format in FORMATS:
        return FORMATS[format].read
    read: Reader | None = foreign("format", format)
    if read is not None and not callable(read):
        raise ConfigError("format", format, "it has to be a function of a path and ReadOptions that yields requests")
    return read
