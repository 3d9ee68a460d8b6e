"""Find whose requests had what was short while others waited: one request's, or those of a job, tenant, adapter, user.

A request's part of the tokens, blocks or seats is taken from its own moments and tokens, and weighted by how many
waited meanwhile; so it is known of a replay, of our traces, and of traces that record steps alone.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Mapping
from math import nan

import msgspec
import numpy as np

from tokenyard.core.params import user_name
from tokenyard.explain.answer.when import Floats, TimeLog
from tokenyard.trace.schema import PrefixCacheLookup, RequestArrived, RequestFinished

TOKENS, BLOCKS, SEATS, SLOTS = "tokens", "blocks", "seats", "slots"
KINDS = ("request", "job", "tenant", "lora", "user", "length")
"""What requests are grouped by, the narrowest first."""
_NAMED = 0.5
"""Share of what was short from which on its holder is named."""
_OVER = 1.5
"""Times what the group's part of all requests is: less is no more than others had."""
_NARROWER = 0.9
"""Part of the largest share from which on a narrower group stands for it."""
_LONG = 4096
"""Tokens from which on prompts are grouped by their length, in powers of two."""
_LEAST_S = 1.0
"""Seconds that a group has to come for, to tell how much of it there may be."""
_SAFE = 0.9
"""Part of what an engine computed at its limit that it may be given."""
_NUMBER = re.compile(r"[-_.:#]?\d+$")


class Whose(msgspec.Struct, frozen=True, kw_only=True):
    """The requests that had most of what was short, while others waited for it."""

    kind: str
    """``request``, ``job``, ``tenant`` (the hash of the cache salt), ``lora``, ``user`` (jobs whose ids begin with the
    name), or ``length`` (prompts of at least so many tokens)."""
    name: str
    of: str
    """What was short: ``tokens`` of steps, ``blocks``, ``seats`` or ``slots`` of adapters."""
    share: float
    """Their share of it."""
    requests: int
    part: float
    """Their share of all requests."""
    prompt_tokens: int
    """Prompt tokens of all of them together."""
    since_ts: float | None = None
    """When the first of them came, and the last; None where that is not known."""
    until_ts: float | None = None
    limit_tokens_per_s: float | None = None
    """Prompt tokens a second that were left for them while they came; None: none, or that is not known."""


class _Row(msgspec.Struct, gc=False):
    """A request that has not ended."""

    traits: tuple[str, ...]
    arrival: float
    prompt: int = 0
    output: int = 0
    cached: int = 0
    scheduled: float = nan
    token: float = nan
    is_told: bool = False
    """A record tells how long its prompt is."""


class WhoseCounter:
    """Gathers requests. Costs some microseconds a request; of a trace without lengths, also for each step it is in."""

    def __init__(self) -> None:
        self._open: dict[str, _Row] = {}
        self._traits: list[tuple[str, ...]] = []
        """One for each of :data:`KINDS`; empty where the request has none of it."""
        self._columns = {name: array("d") for name in ("arrival", "scheduled", "token", "until", "prompt", "output")}
        self._cached = array("d")
        self._end = nan

    def arrived(self, record: RequestArrived) -> None:
        """A request came."""
        name, job, prompt = record.req_id or "", record.job_id or "", record.num_prompt_tokens or 0
        traits = (name, job, record.cache_salt_hash or "", record.lora_name or "", "", "")
        moment = record.ts if record.arrival_time is None else record.arrival_time
        self._open[name] = _Row(traits, nan if moment is None else moment, prompt)

    def looked_up(self, record: PrefixCacheLookup) -> None:
        """A request is scheduled for the first time."""
        row = self._open.get(record.req_id or "")
        if row is not None:
            row.cached = record.total_hit_tokens or 0
            row.prompt = row.prompt or record.total_prompt_tokens or 0
            row.is_told = row.prompt > 0
            row.scheduled = nan if record.ts is None else record.ts

    def computed(self, ts: float | None, scheduled: Mapping[str, int]) -> None:
        """Note when requests are first scheduled, and their tokens, of a trace that does not record how many they have:
        a step that computes more than one is taken for a part of the prompt.
        """
        for name, tokens in scheduled.items():
            row = self._open.get(name)
            if row is None:
                continue
            if row.scheduled != row.scheduled and ts is not None:
                row.scheduled = ts
            if tokens > 1:
                row.prompt += 0 if row.is_told else tokens
            else:
                row.output += 1
                row.token = ts if row.token != row.token and ts is not None else row.token

    def finished(self, record: RequestFinished) -> None:
        """A request ended."""
        row = self._open.pop(record.req_id or "", None)
        if row is None:
            return
        self._note(row, record.first_scheduled_time, record.first_token_time, record.finished_time or record.ts, record)

    def _note(
        self, row: _Row, scheduled: float | None, token: float | None, until: float | None, end: RequestFinished | None
    ) -> None:
        self._traits.append(row.traits)
        told = (
            row.arrival,
            row.scheduled if scheduled is None else scheduled,
            row.token if token is None else token,
            nan if until is None else until,
            (end.num_prompt_tokens if end is not None else None) or row.prompt,
            max((end.num_output_tokens if end is not None else None) or 0, row.output),
        )
        for column, value in zip(self._columns.values(), told, strict=True):
            column.append(value)
        self._cached.append(row.cached)

    def seen_until(self, end: float | None) -> None:
        """The last moment of this engine so far."""
        self._end = nan if end is None else end

    def join(self, other: WhoseCounter) -> None:
        """The requests of another engine, too."""
        self._traits += other._traits
        for name, column in self._columns.items():
            column.extend(other._columns[name])
        self._cached.extend(other._cached)
        for row in other._open.values():
            self._note(row, None, None, other._end, None)

    def result(self, log: TimeLog, names: list[str], of: str) -> Whose | None:
        """Return who had most of it while requests waited by these names of the log; None: no one had half."""
        moments, sums = log.passed(names)
        if not len(sums) or not (self._traits or self._open):
            return None
        columns, cached, traits = self._with_open()
        had = _had(of, columns, cached, lambda at: np.interp(at, moments, sums))
        had[~np.isfinite(had)] = 0.0
        total = float(had.sum())
        if total <= 0:
            return None
        prompts = columns["prompt"].astype(np.int64)
        found: list[tuple[str, str, float, list[int]]] = []
        for kind, at in zip(KINDS, range(len(KINDS)), strict=True):
            if of == SLOTS and kind != "lora":
                continue
            groups: dict[str, list[int]] = {}
            for row, names_of_row in enumerate(traits):
                name = _trait(kind, names_of_row, at, int(prompts[row]))
                if name:
                    groups.setdefault(name, []).append(row)
            if groups:
                name = max(groups, key=lambda each: float(had[groups[each]].sum()))
                found.append((kind, name, float(had[groups[name]].sum()) / total, groups[name]))
        over = [each for each in found if each[2] >= max(_NAMED, _OVER * len(each[3]) / len(traits))]
        if not over:
            return None
        most = max(share for _, _, share, _ in over)
        kind, name, share, rows = next(each for each in over if each[2] >= _NARROWER * most)
        came = columns["arrival"][rows]
        came = came[np.isfinite(came)]
        return Whose(
            kind=kind,
            name=name,
            of=of,
            share=min(share, 1.0),
            requests=len(rows),
            part=len(rows) / len(traits),
            prompt_tokens=int(prompts[rows].sum()),
            since_ts=float(came.min()) if len(came) else None,
            until_ts=float(came.max()) if len(came) else None,
            limit_tokens_per_s=_left_for(rows, columns, cached),
        )

    def _with_open(self) -> tuple[dict[str, Floats], Floats, list[tuple[str, ...]]]:
        """The columns with those who have not ended."""
        whole = WhoseCounter()
        whole._end = self._end
        whole.join(self)
        return {name: np.array(each) for name, each in whole._columns.items()}, np.array(whole._cached), whole._traits


def _left_for(rows: list[int], columns: dict[str, Floats], cached: Floats) -> float | None:
    """Tokens of prompts a second that were computed while the group came, less those of the others who came then."""
    arrival, prompt = columns["arrival"], np.maximum(columns["prompt"] - cached, 0)
    came = arrival[rows]
    start, end = np.nanmin(came, initial=np.inf), np.nanmax(came, initial=-np.inf)
    if not end - start >= _LEAST_S:
        return None
    begun = columns["scheduled"]
    done = np.where(np.isfinite(columns["token"]), columns["token"], columns["until"])
    overlap = (np.minimum(done, end) - np.maximum(begun, start)) / np.maximum(done - begun, 1e-3)
    computed = float(np.nansum(prompt * np.clip(overlap, 0.0, 1.0)))
    others = np.ones(len(prompt), bool)
    others[rows] = False
    asked = float(prompt[others & (arrival >= start) & (arrival <= end)].sum())
    left = (_SAFE * computed - asked) / (end - start)
    return float(left) if left > 0 else None


def _had(of: str, columns: dict[str, Floats], cached: Floats, waited: Callable[[Floats], Floats]) -> Floats:
    """What each request had of what was short, times the waiting meanwhile."""
    start, token, until = columns["scheduled"], columns["token"], columns["until"]
    prompt, output = columns["prompt"], columns["output"]
    while_there = waited(until) - waited(start)
    if of in (SEATS, SLOTS):
        return while_there
    if of == BLOCKS:
        return while_there * (prompt + output / 2)
    first = np.where(np.isfinite(token), token, until)
    prefill = np.maximum(prompt - cached, 0) * (waited(first) - waited(start)) / np.maximum(first - start, 1e-3)
    decode = output * (waited(until) - waited(first)) / np.maximum(until - first, 1e-3)
    return prefill + np.where(np.isfinite(decode), decode, 0.0)


def _trait(kind: str, names: tuple[str, ...], at: int, prompt: int) -> str:
    """The name of the group that a request belongs to; empty: none."""
    if kind == "user":
        return _user(names[1] or names[0])
    if kind == "length":
        return f"{1 << (prompt.bit_length() - 1):,}" if prompt >= _LONG else ""
    return names[at]


def _user(job: str) -> str:
    """What jobs of one user have in common: what stands before a slash, or before the number at the end."""
    return user_name(job) if "/" in job else _NUMBER.sub("", job) or job
