"""Tokenyard's own workload format: one JSON object per line.

    request_id        text, unique, required
    max_tokens        output tokens, at least 1, required
    prompt_token_ids  token ids from 0 to 2147483647           either this ...
    prompt_len        prompt tokens, at least 1                 ... or this, unique unless hash_ids say otherwise
    hash_ids          ids of the prompt's blocks: equal ids, equal tokens (with prompt_len and block_size)
    block_size        tokens per hash id
    arrival_time      seconds since the start (default 0; not with ``after``), or in the unit that the reader is told
    after             request_id of an earlier line, or a list of them: arrives when all of them have ended ...
    gap               ... plus so many seconds (default 0)
    job_id            groups the turns of one agent
    is_last_step      true on a job's last turn
    this_func_call    name of the tool that the turn will call
    priority          lower is sooner under the priority policy (default 0)
    cache_salt        requests with another salt share no prefix
    images            of each, in order: its tokens in the prompt, or an object of tokens, offset (default: behind the
                      one before, the first at 0) and hash (equal ones are equal images; default: no other is like it)
    lora_name         LoRA adapter that the request asks for (default: the base model)
    output_seed       stream of the generated tokens (default: from seed and request_id)

Any other field, or a field of another type, is an error that names the line.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np

from tokenyard.config import MAX_COUNT
from tokenyard.errors import WorkloadError, shown
from tokenyard.request import MultiModalItem
from tokenyard.sim.workload.readers.hashes import HashId, id_ranges, problem_with_ids
from tokenyard.sim.workload.readers.lines import MAX_SECONDS, Length, ReadOptions, Seconds, decode, numbered_lines
from tokenyard.sim.workload.record import WorkloadRequest
from tokenyard.sim.workload.tokens import HashedTokens, ListedTokens, StreamTokens, TokenSource, seed_of

__all__ = ["plain_line", "read_plain"]

_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _Image(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    tokens: Length
    offset: Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)] | None = None
    hash: Annotated[str, msgspec.Meta(min_length=1)] | None = None


class _Row(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    request_id: Annotated[str, msgspec.Meta(min_length=1)]
    max_tokens: Length
    prompt_token_ids: list[Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]] | None = None
    prompt_len: Length | None = None
    hash_ids: list[HashId] | None = None
    block_size: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)] | None = None
    arrival_time: Annotated[float, msgspec.Meta(ge=0)] | None = None
    after: str | list[str] | None = None
    gap: Seconds | None = None
    job_id: str | None = None
    is_last_step: bool = False
    this_func_call: str | None = None
    priority: Annotated[int, msgspec.Meta(ge=-MAX_COUNT, le=MAX_COUNT)] = 0
    lora_name: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    cache_salt: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    images: list[Length | _Image] = []
    output_seed: _Int64 | None = None


def read_plain(path: Path, options: ReadOptions) -> Iterator[WorkloadRequest]:
    """One request per line."""
    decoder = msgspec.json.Decoder(_Row)
    seen: set[str] = set()
    for number, line in islice(numbered_lines(path), options.limit):
        row = decode(decoder, path, number, line)
        after = (row.after,) if isinstance(row.after, str) else tuple(row.after or ())
        images = _images(row)
        problem = (
            _prompt_problem(row)
            or _image_problem(row, images)
            or _order_problem(row, after, seen, options.seconds_per_unit)
        )
        if problem:
            raise WorkloadError(path, number, problem)
        seen.add(row.request_id)
        own = seed_of("plain", options.seed, row.request_id)
        yield WorkloadRequest(
            request_id=row.request_id,
            prompt=_prompt(row, own, options.seed),
            max_tokens=row.max_tokens,
            arrival_time=(row.arrival_time or 0.0) * options.seconds_per_unit,
            after=after,
            gap=(row.gap or 0.0) * options.seconds_per_unit,
            job_id=row.job_id,
            is_last_step=row.is_last_step,
            this_func_call=row.this_func_call,
            priority=row.priority,
            lora_name=row.lora_name,
            cache_salt=row.cache_salt,
            images=images,
            output_seed=own if row.output_seed is None else row.output_seed,
        )


def _images(row: _Row) -> tuple[MultiModalItem, ...]:
    items: list[MultiModalItem] = []
    for i, image in enumerate(row.images):
        said = _Image(tokens=image) if isinstance(image, int) else image
        offset = (items[-1].end if items else 0) if said.offset is None else said.offset
        name = said.hash or f"{row.request_id}/{i}"
        items.append(MultiModalItem(mm_hash=name, offset=offset, length=said.tokens))
    return tuple(items)


def _image_problem(row: _Row, images: tuple[MultiModalItem, ...]) -> str | None:
    length = row.prompt_len or len(row.prompt_token_ids or ())
    for i, image in enumerate(images):
        if image.end > length:
            return (
                f"images[{i}] reaches to token {image.end}, and the prompt has {length}: its tokens are counted there"
            )
        if i and image.offset < images[i - 1].end:
            return f"images[{i}].offset = {image.offset}: the image before it reaches to token {images[i - 1].end}"
    return None


def _prompt_problem(row: _Row) -> str | None:
    if (row.prompt_token_ids is None) == (row.prompt_len is None):
        return "give either prompt_token_ids or prompt_len"
    if row.prompt_token_ids is not None:
        if row.hash_ids is not None or row.block_size is not None:
            return "hash_ids and block_size belong to prompt_len, not to prompt_token_ids"
        return None if row.prompt_token_ids else "prompt_token_ids = []: give at least one token id"
    if (row.hash_ids is None) != (row.block_size is None):
        return "hash_ids and block_size must be given together"
    if row.hash_ids is None or row.block_size is None or row.prompt_len is None:
        return None
    return problem_with_ids(len(row.hash_ids), row.prompt_len, row.block_size)


def _order_problem(row: _Row, after: tuple[str, ...], seen: set[str], unit: float) -> str | None:
    if row.request_id in seen:
        return f"request_id = {shown(row.request_id)}: occurs twice"
    if row.arrival_time is not None and row.arrival_time * unit > MAX_SECONDS:
        fix = f"give seconds since the start of the log, up to {MAX_SECONDS:g}; of Unix times subtract the first one"
        return f"arrival_time = {shown(row.arrival_time)}: {fix}"
    if after and row.arrival_time is not None:
        return "give either arrival_time or after"
    if row.gap is not None and not after:
        return "gap belongs to after"
    unknown = [each for each in after if each not in seen]
    return f"after = {shown(unknown[0])}: no earlier line has this request_id" if unknown else None


def _prompt(row: _Row, own: int, seed: int) -> TokenSource:
    if row.prompt_token_ids is not None:
        return ListedTokens(np.array(row.prompt_token_ids, np.int32))
    assert row.prompt_len is not None
    if row.hash_ids is None or row.block_size is None:
        return StreamTokens.unique(own, row.prompt_len)
    scope = seed_of("plain", seed, row.block_size)
    return HashedTokens(id_ranges(row.hash_ids), row.prompt_len, block_size=row.block_size, scope=scope, tail=own)


def plain_line(request: WorkloadRequest) -> bytes:
    """A request as a line of this format; :func:`read_plain` makes the same request of it, seeds aside.

    A prompt of streams, which no hash ids describe, is written as its length alone.
    """
    row: dict[str, object] = {"request_id": request.request_id, "prompt_len": request.num_prompt_tokens}
    prompt = request.prompt
    if isinstance(prompt, ListedTokens):
        row = {"request_id": request.request_id, "prompt_token_ids": prompt.tokens().tolist()}
    elif isinstance(prompt, HashedTokens) and len(prompt.hash_ids()):
        row |= {"hash_ids": prompt.hash_ids().tolist(), "block_size": prompt.block_size}
    row["max_tokens"] = request.max_tokens
    if request.after:
        row |= {"after": list(request.after), "gap": request.gap}
    else:
        row["arrival_time"] = request.arrival_time
    said = {
        "job_id": request.job_id,
        "is_last_step": request.is_last_step or None,
        "this_func_call": request.this_func_call,
        "priority": request.priority or None,
        "lora_name": request.lora_name,
        "cache_salt": request.cache_salt,
        "images": [{"tokens": i.length, "offset": i.offset, "hash": i.mm_hash} for i in request.images] or None,
    }
    row |= {name: value for name, value in said.items() if value is not None}
    return msgspec.json.encode(row) + b"\n"
