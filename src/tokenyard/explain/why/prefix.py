"""Why prompt tokens were not found in the prefix cache: per request, and of all.

A trace numbers the full blocks of every prompt and answer by what they hold, all tokens before them included. A number
that comes for the first time is content that no request had before; another was there once. So each token of a prompt
is one of

    found         in the cache, of this engine or a connector
    new           no earlier request had it: text, adapter, salt or image differ, here or before it
    not_computed  an earlier request has it, and was still computing it
    gone          it was computed, and was evicted or reset since
    cut           equal, and still computed again: the rest of a block, the last token, a larger unit of states
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tokenyard.arguments import given_path, suggests_keywords
from tokenyard.errors import ConfigError, TraceError, shown
from tokenyard.explain.table import Printable, RowTable, table_from
from tokenyard.trace.facts import CLASSIFIER_BLOCK_SIZE
from tokenyard.trace.reader import RankTrace, TraceReader, find_ranks
from tokenyard.trace.schema import PrefixCacheLookup, TraceStart
from tokenyard.units import percent

NEW, NOT_COMPUTED, GONE, CUT = "new", "not_computed", "gone", "cut"
CAUSES: dict[str, str] = {
    NEW: "no earlier request had the same: text, adapter, salt or image differ, here or before",
    NOT_COMPUTED: "an earlier request has the same and was still computing it",
    GONE: "the blocks were there and were evicted or reset since",
    CUT: "equals are computed again: the rest of a block, the last token, a unit of states",
}
"""Cause -> its meaning, of prompt tokens that were not found."""


class PrefixLook(msgspec.Struct, frozen=True, kw_only=True):
    """What one request found in the prefix cache. All but ``step`` and ``rank`` are tokens of its prompt."""

    request_id: str
    rank: int | None = None
    """The engine, where there are several."""
    step: int
    prompt: int
    found: int
    new: int = 0
    not_computed: int = 0
    gone: int = 0
    cut: int = 0
    like: str | None = None
    """The earlier request with which it shares its beginning the longest; None if it shares no full block."""
    shared: int = 0
    """Tokens of that beginning, in full blocks."""


class PrefixMisses(Printable, msgspec.Struct, frozen=True, kw_only=True):
    """Prompt tokens that requests of a trace found in the prefix cache, and why not the others."""

    printer = "tokenyard.explain.render.why:print_prefix"

    block_size: int
    requests: list[PrefixLook]
    """Most tokens first that were not found."""
    tokens: dict[str, int]
    """``prompt``, ``found``, and every cause, over all requests."""

    def summary(self) -> str:
        return self.sentence

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        prompt, found = self.tokens["prompt"], self.tokens["found"]
        if not prompt:
            return "No request of the trace asked the prefix cache."
        said = f"{percent(found / prompt)} of the prompt tokens were found in the prefix cache"
        causes = sorted((each for each in CAUSES if self.tokens[each]), key=self.tokens.__getitem__, reverse=True)
        if not causes:
            return f"{said}."
        most = causes[0]
        return f"{said}; of {percent(self.tokens[most] / prompt)}, {CAUSES[most]}."

    def as_table(self) -> RowTable:
        """One row per request."""
        return table_from("requests", [msgspec.to_builtins(each) for each in self.requests])


@suggests_keywords()
def prefix_misses(path: Path | str, request_id: str | None = None) -> PrefixMisses:
    """Explain what requests of a trace did not find in the prefix cache, or one of them.

    Raises TraceError if there is no trace at ``path``, if it numbers no blocks, or if the request is not in it.
    """
    if not isinstance(request_id, str | None):
        raise ConfigError("request_id", request_id, "give the id of a request, or leave it out")
    looks: list[PrefixLook] = []
    block_size = CLASSIFIER_BLOCK_SIZE
    for trace in find_ranks(given_path("path", path)):
        if not trace.is_idle:
            history = _History(trace)
            looks += history.looks()
            block_size = history.block_size
    if not looks:
        raise TraceError(f"{path}: numbers no blocks of prompts: record it with prefix caching, by tokenyard's writers")
    if request_id is not None:
        looks = [each for each in looks if each.request_id == request_id]
        if not looks:
            raise TraceError(f"{path}: no request {shown(request_id)} asked the prefix cache")
    tokens = Counter[str]()
    for each in looks:
        tokens.update({name: getattr(each, name) for name in ("prompt", "found", *CAUSES)})
    looks.sort(key=lambda each: each.found - each.prompt)
    return PrefixMisses(block_size=block_size, requests=looks, tokens=dict(tokens))


class _History:
    """The blocks that requests of one engine brought, as far as its trace was read."""

    def __init__(self, trace: RankTrace) -> None:
        self._trace = trace
        self.block_size = CLASSIFIER_BLOCK_SIZE
        self._firsts: list[int] = []
        """First number of every stretch of new blocks, ascending: numbers are given in order of appearance."""
        self._owners: list[str] = []
        """Request that brought each of them."""
        self._end = 0
        """The first number that was not given yet."""
        self._computing: set[str] = set()
        """Requests that have no token yet."""
        self._ended: dict[str, int] = {}

    def looks(self) -> list[PrefixLook]:
        """What every request found, in the order of the trace."""
        reader = TraceReader(self._trace.files, requests=False)
        found: list[PrefixLook] = []
        for step in reader.steps():
            if reader.start is not None and reader.start.block_size:
                self.block_size = reader.start.block_size
            found += [
                self._look(lookup, lookup.prompt_hash_runs, _unit(reader.start))
                for lookup in step.lookups
                if lookup.req_id is not None and lookup.prompt_hash_runs is not None and lookup.total_prompt_tokens
            ]
            completed = step.completed
            self._computing.difference_update((completed.first_token_req_ids or ()) if completed is not None else ())
            for finished in step.finished:
                self._computing.discard(finished.req_id or "")
                self._bring(finished.output_hash_runs or (), finished.req_id or "")
        return found

    def _look(self, lookup: PrefixCacheLookup, runs: Sequence[int], unit: int) -> PrefixLook:
        request_id, size, prompt = lookup.req_id or "", self.block_size, lookup.total_prompt_tokens or 0
        known = _known_blocks(runs, self._end)
        shared = len(known) * size
        found = min(lookup.total_hit_tokens or 0, prompt)
        full = sum(runs[1::2]) * size
        again = max(shared - found, 0)
        cut = prompt - max(full, found)
        causes = {NEW: max(full - max(shared, found), 0)}
        if again:
            owner = self._owner(known[found // size])
            if again <= unit or (shared == full and again <= size):
                cut += again
            else:
                causes[NOT_COMPUTED if owner in self._computing else GONE] = again
        like = self._owner(known[-1]) if known else None
        self._bring(runs, request_id)
        self._computing.add(request_id)
        return PrefixLook(
            request_id=request_id,
            rank=self._trace.rank,
            step=lookup.step,
            prompt=prompt,
            found=found,
            cut=cut,
            like=like,
            shared=shared,
            **causes,
        )

    def _owner(self, number: int) -> str:
        return self._owners[bisect_right(self._firsts, number) - 1]

    def _bring(self, runs: Sequence[int], request_id: str) -> None:
        """Note who brought the new ones among these blocks."""
        for first, count in zip(runs[::2], runs[1::2], strict=False):
            if first + count > self._end:
                self._firsts.append(max(first, self._end))
                self._owners.append(request_id)
                self._end = first + count


def _known_blocks(runs: Sequence[int], end: int) -> list[int]:
    """Return the numbers, of a prompt's full blocks, that were given before number ``end``."""
    return [
        number
        for first, count in zip(runs[::2], runs[1::2], strict=False)
        for number in range(first, min(first + count, end))
    ]


def _unit(start: TraceStart | None) -> int:
    """Return the tokens by which a hit may fall short: a block of states, and a block for an EAGLE head."""
    config = (start.config if start is not None else None) or {}
    cache = config.get("cache")
    groups = cache.get("groups") if isinstance(cache, dict) else None
    sizes = [each.get("block_size") or 0 for each in groups or () if isinstance(each, dict)]
    states = max(sizes, default=0) if len(sizes) > 1 else 0
    drafts = str(config.get("speculation") or "")
    has_head = any(each in drafts for each in ("eagle", "mtp"))
    return states + ((start.block_size or 0) if start is not None and has_head else 0)
