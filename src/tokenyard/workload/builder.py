"""Workloads made in Python: texts that requests share, sessions whose turns quote their answers, random arrivals.

    w = WorkloadBuilder("mine", seed=0)
    system = w.text(1024)                                   shared by prompts that begin with it
    s = w.session(at=0.0, prefix=system)
    s.turn(user=200, output=100)                            prompt: system, 200 new tokens
    s.turn(user=50, output=80, think=5.0)                   prompt: system, 200, the 100 answered, 50 new tokens
    w.request(at=1.0, prompt=system + w.text(30), output=20)
    workload = w.build()

No token is made before a request arrives: a text is pieces of streams of made-up tokens, equal where streams and
positions are. What a session's users say and what it answers is one stream by absolute position, which the simulated
model continues when it answers; so the next prompt holds exactly what was generated, and finds it in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from math import inf
from typing import Any

import numpy as np

from tokenyard.arguments import given_text, is_number, suggests_keywords
from tokenyard.core.config import MAX_COUNT
from tokenyard.core.request import MultiModalItem, TokenIds
from tokenyard.errors import ConfigError
from tokenyard.workload.generators import poisson_arrivals
from tokenyard.workload.record import MAX_SECONDS, Workload, WorkloadRequest, is_seconds
from tokenyard.workload.tokens import JoinedTokens, ListedTokens, Segment, StreamTokens, TokenSource, seed_of


class Text:
    """Some text, as pieces: it can be joined (``a + b``) and used in as many prompts as one likes.

    A ``TokenSource``, so that a ``WorkloadRequest`` takes it as its prompt. Made by :meth:`WorkloadBuilder.text`.
    """

    __slots__ = ("_pieces",)

    def __init__(self, *pieces: Segment | TokenSource) -> None:
        joined: list[Segment | TokenSource] = []
        for piece in chain.from_iterable(each.pieces if isinstance(each, Text) else (each,) for each in pieces):
            last = joined[-1] if joined else None
            if isinstance(piece, Segment) and isinstance(last, Segment) and _goes_on(last, piece):
                joined[-1] = Segment(last.seed, last.start, piece.stop)
            else:
                joined.append(piece)
        self._pieces: tuple[Segment | TokenSource, ...] = tuple(joined)

    def __add__(self, other: Text) -> Text:
        """Both, one after the other."""
        if not isinstance(other, Text):
            return NotImplemented
        return Text(self, other)

    def __len__(self) -> int:
        return sum(each.stop - each.start if isinstance(each, Segment) else len(each) for each in self._pieces)

    def __repr__(self) -> str:
        return f"<Text of {len(self):,} tokens>"

    @property
    def pieces(self) -> tuple[Segment | TokenSource, ...]:
        """What it is made of; neighbours that are one piece of a stream are one."""
        return self._pieces

    def tokens(self) -> TokenIds:
        """The token ids, shape ``[n]``, int32."""
        return self.source().tokens()

    def source(self) -> TokenSource:
        """The text as one of the sources of ``workload/tokens.py``, the simplest that holds it."""
        sources: list[TokenSource] = []
        run: list[Segment] = []
        for piece in self._pieces:
            if isinstance(piece, Segment):
                run.append(piece)
                continue
            sources += [StreamTokens(*run)] if run else []
            sources.append(piece)
            run = []
        sources += [StreamTokens(*run)] if run else []
        return sources[0] if len(sources) == 1 else JoinedTokens(*sources)


def _goes_on(last: Segment, piece: Segment) -> bool:
    return last.seed == piece.seed and last.stop == piece.start


Words = int | float | Text | Sequence[int] | TokenSource
"""A number of new tokens that no other request has, a text, or token ids."""


class WorkloadBuilder:
    """Adds up requests and sessions. The same seed and the same calls give the same workload on every machine.

    Random numbers are drawn from ``rng``, one generator for all of them; two builders with different names or seeds
    make texts that share nothing. Raises ConfigError for numbers that cannot work.
    """

    @suggests_keywords()
    def __init__(self, name: str, *, seed: int = 0) -> None:
        given_text("name", name)
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
            raise ConfigError("seed", seed, "give a whole number, not negative")
        self.name = name
        """Names the workload."""
        self.rng = np.random.default_rng(seed)
        """What everything random is drawn from: for distributions that have no method here."""
        self._seed = int(seed)
        self._num_texts = self._num_sessions = self._num_requests = 0
        self._requests: list[WorkloadRequest] = []
        self._last_turns: list[int] = []
        """Where the last turn of each session stands among the requests, as they are now."""

    def __len__(self) -> int:
        """Requests so far."""
        return len(self._requests)

    def __repr__(self) -> str:
        return f"<WorkloadBuilder {self.name!r}: {len(self):,} requests, {self._num_sessions:,} sessions so far>"

    # ---- texts

    @suggests_keywords()
    def text(self, tokens: float | Sequence[int]) -> Text:
        """A new text of so many tokens (rounded, at least 1), or of these token ids.

        Requests share it where their prompts begin with the same object: it is the same text wherever it is used.
        """
        if not isinstance(tokens, int | float | np.number):
            return _listed("tokens", tokens, "give a number of tokens, or token ids from 0 to 2147483647")
        count = _count("tokens", tokens)
        self._num_texts += 1
        return Text(Segment(seed_of("builder text", self.name, self._seed, self._num_texts), 0, count))

    # ---- random numbers

    @suggests_keywords()
    def poisson(self, *, rate: float, n: int) -> list[float]:
        """``n`` moments in seconds, ``rate`` a second on average at random (a Poisson process); the first is 0."""
        if not is_number(rate, above=True):
            raise ConfigError("rate", rate, "give a number of arrivals a second above 0")
        if not is_number(n, 1, below=MAX_COUNT + 1) or n != int(n):
            raise ConfigError("n", n, f"give a whole number from 1 to {MAX_COUNT}")
        moments: list[float] = poisson_arrivals(self.rng, int(n), rate).tolist()
        return moments

    @suggests_keywords()
    def lognormal(self, mu: float, sigma: float) -> float:
        """A number whose logarithm is normal: median ``exp(mu)``; as ``numpy.random.Generator.lognormal``."""
        if not is_number(mu, -inf, above=True):
            raise ConfigError("mu", mu, "give a finite number")
        if not is_number(sigma):
            raise ConfigError("sigma", sigma, "give a finite number, not negative")
        return float(self.rng.lognormal(mu, sigma))

    @suggests_keywords()
    def exponential(self, mean: float) -> float:
        """An exponential number of this mean."""
        if not is_number(mean):
            raise ConfigError("mean", mean, "give a number, not negative")
        return float(self.rng.exponential(mean))

    # ---- requests

    @suggests_keywords()
    def request(
        self,
        *,
        at: float,
        prompt: Words,
        output: float,
        request_id: str | None = None,
        predicted_output_tokens: float | None = None,
        meta: Mapping[str, Any] | None = None,
        priority: int = 0,
        job_id: str | None = None,
        lora_name: str | None = None,
        cache_salt: str | None = None,
        images: Sequence[MultiModalItem] = (),
        patience: float | None = None,
    ) -> str:
        """One request that arrives ``at`` so many seconds; returns its id (``r0``, ``r1`` ... unless given).

        ``prompt``: a number of new tokens that no other request has, a text, or token ids. ``output``: tokens of the
        answer. Numbers of tokens are rounded, and at least 1. What else there is means what it does in
        ``WorkloadRequest``.
        """
        request_id = f"r{self._num_requests}" if request_id is None else given_text("request_id", request_id)
        self._num_requests += 1
        own = seed_of("builder request", self.name, self._seed, request_id)
        self._requests.append(
            WorkloadRequest(
                request_id=request_id,
                prompt=_text_of("prompt", prompt, Segment(own, 0, 0)).source(),
                max_tokens=_count("output", output),
                arrival_time=_seconds("at", at),
                images=_images(images),
                output_seed=own,
                **_common(job_id=job_id, priority=priority, lora_name=lora_name, cache_salt=cache_salt, meta=meta),
                **_own(patience, predicted_output_tokens),
            )
        )
        return request_id

    @suggests_keywords()
    def session(
        self,
        *,
        at: float = 0.0,
        prefix: Words | None = None,
        name: str | None = None,
        meta: Mapping[str, Any] | None = None,
        priority: int = 0,
        lora_name: str | None = None,
        cache_salt: str | None = None,
    ) -> Session:
        """A conversation that begins ``at`` so many seconds, with the text ``prefix`` before its first words.

        ``name`` (``s0``, ``s1`` ... unless given) is its job; its requests are called ``s0_t0``, ``s0_t1`` ... Turns
        have the ``meta`` of their session and their own.
        """
        name = f"s{self._num_sessions}" if name is None else given_text("name", name)
        self._num_sessions += 1
        common = _common(job_id=name, priority=priority, lora_name=lora_name, cache_salt=cache_salt, meta=meta)
        seed = seed_of("builder session", self.name, self._seed, name)
        index, at = len(self._last_turns), _seconds("at", at)
        self._last_turns.append(-1)

        def add(request: WorkloadRequest) -> None:
            self._last_turns[index] = len(self._requests)
            self._requests.append(request)

        text = Text() if prefix is None else _text_of("prefix", prefix, Segment(seed, 0, 0))
        return Session(name, at, text, seed, add, common)

    # ---- the workload

    @suggests_keywords()
    def build(self, *, max_concurrency: int | None = None) -> Workload:
        """The workload so far; more may be added afterwards, to another one.

        ``max_concurrency``: a closed loop, a request is sent only when fewer than so many are under way. Raises
        WorkloadError if there is no request, or an id occurs twice.
        """
        requests = list(self._requests)
        for at in self._last_turns:
            if at >= 0:
                requests[at] = replace(requests[at], is_last_step=True)
        return Workload(self.name, requests, max_concurrency=max_concurrency)


class Session:
    """A conversation, turn by turn. Made by :meth:`WorkloadBuilder.session`."""

    def __init__(
        self,
        name: str,
        at: float,
        text: Text,
        seed: int,
        add: Callable[[WorkloadRequest], None],
        common: Mapping[str, Any],
    ) -> None:
        self.name = name
        """Its job."""
        self.num_turns = 0
        """Turns so far."""
        self._at, self._text, self._seed, self._add, self._common = at, text, seed, add, common
        self._last: str | None = None

    def __repr__(self) -> str:
        return f"<Session {self.name!r}: {self.num_turns} turns, {len(self.text):,} tokens>"

    @property
    def text(self) -> Text:
        """All tokens so far, the last answer included: the prefix of a session that goes on from here."""
        return self._text

    @suggests_keywords()
    def turn(
        self,
        *,
        user: Words,
        output: float,
        think: float = 0.0,
        predicted_output_tokens: float | None = None,
        meta: Mapping[str, Any] | None = None,
        tool: str | None = None,
        patience: float | None = None,
    ) -> str:
        """Ask once more; returns the id of the request.

        Its prompt is all tokens so far, the last answer included, and ``user``: so many new tokens, a text, or
        token ids. It arrives ``think`` seconds after the answer before has ended; the first turn has no answer before
        it, and arrives when the session begins. ``output``: tokens of the answer; ``tool``: what this turn will call.
        Numbers of tokens are rounded, and at least 1.
        """
        gap = _seconds("think", think)
        prompt = Text(self._text, _text_of("user", user, Segment(self._seed, len(self._text), len(self._text))))
        num_output = _count("output", output)
        request_id = f"{self.name}_t{self.num_turns}"
        common = {**self._common, "meta": {**self._common["meta"], **_fields(meta)}}
        self._add(
            WorkloadRequest(
                request_id=request_id,
                prompt=prompt.source(),
                max_tokens=num_output,
                arrival_time=self._at if self._last is None else 0.0,
                after=() if self._last is None else (self._last,),
                gap=0.0 if self._last is None else gap,
                this_func_call=_text_or_none("tool", tool),
                output_seed=self._seed,
                **common,
                **_own(patience, predicted_output_tokens),
            )
        )
        self._text = prompt + Text(Segment(self._seed, len(prompt), len(prompt) + num_output))
        self._last = request_id
        self.num_turns += 1
        return request_id


def _text_of(field: str, words: object, own: Segment) -> Text:
    """What was given for a text as ``field``; of a number, so many tokens of the stream of ``own`` from its position
    on.
    """
    if isinstance(words, Text):
        return words
    if isinstance(words, int | float | np.number):
        return Text(Segment(own.seed, own.start, own.start + _count(field, words)))
    if callable(getattr(words, "tokens", None)):
        source: Any = words
        return Text(*source.segments) if isinstance(source, StreamTokens) else Text(source)
    return _listed(field, words, "give a number of tokens, a text of this builder, or token ids from 0 to 2147483647")


def _listed(field: str, ids: object, fix: str) -> Text:
    if isinstance(ids, str | bytes | Mapping) or not isinstance(ids, Iterable):
        raise ConfigError(field, ids, fix)
    listed = list(ids)
    try:
        return Text(ListedTokens(listed))
    except ValueError:
        raise ConfigError(field, listed, fix) from None


def _count(field: str, value: Any) -> int:
    """A number of tokens, from a number that may have been drawn."""
    if not is_number(value, -inf, above=True, below=2**31):
        raise ConfigError(field, value, "give a number of tokens")
    if value < 0:
        raise ConfigError(field, value, "give a number of tokens, not negative")
    return max(1, round(float(value)))


def _seconds(field: str, value: Any) -> float:
    if not is_number(value) or not is_seconds(value):
        raise ConfigError(field, value, f"give a number of seconds from 0 to {MAX_SECONDS:g}")
    return float(value)


def _own(patience: float | None, predicted: float | None) -> dict[str, Any]:
    """What one request says of itself beside its texts."""
    return {
        "patience": None if patience is None else _seconds("patience", patience),
        "predicted_output_tokens": None if predicted is None else _count("predicted_output_tokens", predicted),
    }


def _common(*, priority: object, meta: object, **texts: object) -> dict[str, Any]:
    """What all requests of a session say."""
    if isinstance(priority, bool) or not isinstance(priority, int | np.integer):
        raise ConfigError("priority", priority, "give a whole number; lower is served first")
    said = {name: _text_or_none(name, text) for name, text in texts.items()}
    return {**said, "priority": int(priority), "meta": _fields(meta)}


def _text_or_none(field: str, value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ConfigError(field, value, "give a text, or leave it out")
    return value


def _images(items: object) -> tuple[MultiModalItem, ...]:
    given = tuple(items) if isinstance(items, Iterable) else (items,)
    if not all(isinstance(each, MultiModalItem) for each in given):
        raise ConfigError("images", items, "give a list of tokenyard.core.MultiModalItem")
    return given


def _fields(meta: object) -> Mapping[str, Any]:
    """Fields of a turn, or of a session."""
    if meta is None:
        return {}
    if not isinstance(meta, Mapping):
        raise ConfigError("meta", meta, "give a dictionary: your own fields, by name")
    return meta
