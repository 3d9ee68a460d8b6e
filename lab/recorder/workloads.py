"""Seeded makers of requests and events. Each returns a builder, so that scenarios read as one expression."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Literal, NamedTuple, TypeAlias

from recorder.plan import Engine, Event, Image, Plan, Planned

__all__ = [
    "Builder",
    "Span",
    "aborts",
    "between",
    "conversations",
    "dressed",
    "encoder_resets",
    "endings",
    "grammars",
    "illustrated",
    "independent",
    "index_modulo",
    "index_over",
    "mostly_rising",
    "one_of",
    "pauses",
    "resets",
    "sessions",
    "sharing",
    "some_of",
    "spoken",
]

Builder: TypeAlias = Callable[[Random, Engine], Plan]
Trait: TypeAlias = Callable[[Random, int], Any]
"""A field of a request, by the generator and the request's index."""
Span: TypeAlias = tuple[int, int]
"""Lowest and highest value, both possible."""

PROMPT_VOCAB = 200
"""Prompts use fewer tokens than the model samples: files compress better, and nothing depends on it."""
IMAGE_TOKEN = PROMPT_VOCAB
"""Stands where an image goes."""


def _tokens(rng: Random, count: int) -> list[int]:
    return [rng.randrange(PROMPT_VOCAB) for _ in range(count)]


def _capped(engine: Engine, prompt: int, max_tokens: int) -> int:
    """``max_tokens``, less if the request could otherwise never finish."""
    return max(1, min(max_tokens, engine.longest_sequence - prompt))


def independent(count: int, *, prompt: Span, output: Span, gap: Span = (0, 2), cap: bool = True) -> Builder:
    """Unrelated prompts; ``gap`` ticks between arrivals. Without ``cap`` a request may outgrow ``max_model_len``."""

    def build(rng: Random, engine: Engine) -> Plan:
        requests, step = [], 0
        for index in range(count):
            step += rng.randint(*gap)
            tokens = _tokens(rng, rng.randint(*prompt))
            limit = rng.randint(*output)
            limit = _capped(engine, len(tokens), limit) if cap else limit
            requests.append(Planned(id=f"q{index}", prompt=tokens, max_tokens=limit, arrival_step=step))
        return Plan(requests=requests, events=[])

    return build


def sharing(
    count: int, *, prefixes: int, prefix: Span, tail: Span, output: Span, gap: Span = (0, 2), repeats: float = 0.2
) -> Builder:
    """Prompts that begin with one of ``prefixes`` system prompts; a share of ``repeats`` is an earlier one again."""

    def build(rng: Random, engine: Engine) -> Plan:
        heads = [_tokens(rng, rng.randint(*prefix)) for _ in range(prefixes)]
        requests: list[Planned] = []
        step = 0
        for index in range(count):
            step += rng.randint(*gap)
            if requests and rng.random() < repeats:
                tokens = list(rng.choice(requests).prompt)
            else:
                tokens = rng.choice(heads) + _tokens(rng, rng.randint(*tail))
            limit = _capped(engine, len(tokens), rng.randint(*output))
            requests.append(Planned(id=f"q{index}", prompt=tokens, max_tokens=limit, arrival_step=step))
        return Plan(requests=requests, events=[])

    return build


class _Talk(NamedTuple):
    """The shape of a conversation."""

    turns: Span
    user: Span
    output: Span
    think: Span


def conversations(
    count: int, *, turns: Span, system: int, user: Span, output: Span, think: Span, gap: Span = (0, 3)
) -> Builder:
    """Conversations under one system prompt; the next turn comes ``think`` ticks after the answer."""
    talk = _Talk(turns, user, output, think)

    def build(rng: Random, engine: Engine) -> Plan:
        head = _tokens(rng, system)
        requests: list[Planned] = []
        step = 0
        for index in range(count):
            step += rng.randint(*gap)
            made = _turns(rng, talk, f"talk{index}", head, engine.longest_sequence)
            made[0].arrival_step = step
            requests += made
        return Plan(requests=requests, events=[])

    return build


def _turns(rng: Random, talk: _Talk, name: str, head: list[int], room: int) -> list[Planned]:
    """One conversation, cut short where its longest possible course would exceed ``room`` tokens."""
    made: list[Planned] = []
    for turn in range(rng.randint(*talk.turns)):
        said = _tokens(rng, rng.randint(*talk.user))
        prompt = said if made else head + said
        limit = rng.randint(*talk.output)
        room -= len(prompt) + limit
        if room < 0:
            break
        after = (made[-1].id, rng.randint(*talk.think)) if made else None
        made.append(Planned(id=f"{name}.{turn}", prompt=prompt, max_tokens=limit, after=after))
    return made


def between(low: int, high: int) -> Trait:
    """A whole number, both ends possible."""
    return lambda rng, _: rng.randint(low, high)


def one_of(*values: Any) -> Trait:
    """One of the values; repeat one to make it likelier."""
    return lambda rng, _: rng.choice(values)


def some_of(below: int, most: int) -> Trait:
    """Up to ``most`` numbers below ``below``, in their order."""
    return lambda rng, _: tuple(sorted(rng.sample(range(below), rng.randint(0, most))))


def index_modulo(number: int) -> Trait:
    """The rest of the request's index."""
    return lambda _, index: index % number


def index_over(number: int) -> Trait:
    """The request's index divided, without its rest."""
    return lambda _, index: float(index // number)


def mostly_rising(rng: Random, index: int) -> int:
    """Later requests are mostly more urgent: they preempt earlier ones that were already scheduled in the step."""
    return -index if rng.random() < 0.8 else rng.randint(-index, 5)


def dressed(base: Builder, **traits: Trait) -> Builder:
    """Set fields of every request: each trait is a function of the generator and the request's index."""

    def build(rng: Random, engine: Engine) -> Plan:
        plan = base(rng, engine)
        for index, request in enumerate(plan.requests):
            for field, value in traits.items():
                setattr(request, field, value(rng, index))
        return plan

    return build


def aborts(base: Builder, count: int, *, within: Span = (0, 30), horizon: int = 80) -> Builder:
    """Abort ``count`` requests drawn with repetition, ``within`` ticks of their arrival: before it, while they wait,
    run or are preempted, or after their end; half of them between ``schedule()`` and ``update_from_output()``.
    """

    def build(rng: Random, engine: Engine) -> Plan:
        plan = base(rng, engine)
        for _ in range(count):
            victim = rng.choice(plan.requests)
            arrival = victim.arrival_step if victim.after is None else rng.randint(0, horizon)
            at = max(0, arrival + rng.randint(*within))
            plan.events.append(Event(step=at, op="abort", when=rng.choice(("pre", "mid")), id=victim.id))
        plan.events.sort(key=lambda event: event.step)
        return plan

    return build


def resets(base: Builder, *at: tuple[int, bool], when: Literal["pre", "mid"] = "pre") -> Builder:
    """Reset the prefix cache at ``(tick, preempt what runs)``; "mid": while a step is in flight."""

    def build(rng: Random, engine: Engine) -> Plan:
        plan = base(rng, engine)
        plan.events += [Event(step=step, op="reset", when=when, running=running) for step, running in at]
        return plan

    return build


def encoder_resets(base: Builder, *at: int) -> Builder:
    """Forget all encoder outputs at these ticks."""

    def build(rng: Random, engine: Engine) -> Plan:
        plan = base(rng, engine)
        plan.events += [Event(step=step, op="reset_encoder") for step in at]
        return plan

    return build


def pauses(base: Builder, *at: tuple[int, int]) -> Builder:
    """Set the pause state at ``(tick, state)``."""

    def build(rng: Random, engine: Engine) -> Plan:
        plan = base(rng, engine)
        plan.events += [Event(step=step, op="pause", state=state) for step, state in at]
        return plan

    return build


def illustrated(
    base: Builder, *, images: Span, length: Span, pool: int, masks: float = 0.0, share: float = 0.6, gap: Span = (0, 12)
) -> Builder:
    """Put images into prompts: ``images`` per request, ``gap`` text tokens before each, drawn from a pool of ``pool``
    hashes with fixed lengths. A share of ``masks`` of them has separators among the placeholders; a share of ``share``
    of all requests has images.
    """

    def build(rng: Random, engine: Engine) -> Plan:
        shapes = [_shape(rng, f"image{i}", length, masks) for i in range(pool)]
        plan = base(rng, engine)
        room = _room_to_grow(plan, engine)
        for request in plan.requests:
            if rng.random() >= share:
                continue
            chosen = [rng.choice(shapes) for _ in range(rng.randint(*images))]
            size = sum(image.length for image in chosen)
            if size > room.get(request.id, [size])[0]:
                continue
            _illustrate(rng, request, chosen, gap)
            if request.id in room:
                room[request.id][0] -= size
            else:
                request.max_tokens = _capped(engine, len(request.prompt), request.max_tokens)
        return plan

    return build


def _room_to_grow(plan: Plan, engine: Engine) -> dict[str, list[int]]:
    """For every turn of a conversation, in a list that its turns share: tokens by which it may become longer."""
    turns: dict[str, list[Planned]] = {}
    for request in plan.requests:
        if request.after is None:
            turns[request.id] = [request]
        else:
            turns[request.id] = turns[request.after[0]]
            turns[request.id].append(request)
    room: dict[int, list[int]] = {}
    for talk in turns.values():
        longest = sum(len(turn.prompt) + turn.max_tokens for turn in talk)
        room[id(talk)] = [engine.longest_sequence - longest]
    return {name: room[id(talk)] for name, talk in turns.items() if len(talk) > 1}


def _shape(rng: Random, name: str, length: Span, masks: float) -> Image:
    size = rng.randint(*length)
    mask = tuple(rng.random() < 0.6 for _ in range(size)) if rng.random() < masks else None
    return Image(name, 0, size, mask)


def _illustrate(rng: Random, request: Planned, images: list[Image], gap: Span) -> None:
    """Insert the images into the prompt, which keeps its own text in between and behind."""
    text, tokens, placed = request.prompt, [], []
    for image in images:
        before = min(rng.randint(*gap), len(text))
        tokens += text[:before]
        text = text[before:]
        placed.append(image.moved(len(tokens)))
        tokens += [IMAGE_TOKEN] * image.length
    request.prompt = tokens + text
    request.mm = tuple(placed)


def spoken(base: Builder, *, length: Span, share: float) -> Builder:
    """A ``share`` of the requests has ``length`` tokens for an encoder to read, none of them in the prompt."""

    def build(rng: Random, engine: Engine) -> Plan:
        plan = base(rng, engine)
        for request in plan.requests:
            if rng.random() < share:
                request.mm = (Image(f"speech of {request.id}", 0, rng.randint(*length)),)
        return plan

    return build


def grammars(base: Builder, *, share: float, forbids: Span, compiling: Span, vocab: int) -> Builder:
    """A ``share`` of the requests has a grammar that forbids some tokens and takes ``compiling`` ticks to compile."""

    def build(rng: Random, engine: Engine) -> Plan:
        plan = base(rng, engine)
        for request in plan.requests:
            if request.after is None and rng.random() < share:
                request.forbids = tuple(sorted(rng.sample(range(vocab), rng.randint(*forbids))))
                ready = request.arrival_step + 1 + rng.randint(*compiling)
                plan.events.append(Event(step=ready, op="grammar", id=request.id))
        plan.events.sort(key=lambda event: event.step)
        return plan

    return build


def endings(base: Builder, *statuses: str) -> Builder:
    """Another request ended from outside with each of ``statuses``, early in its life."""

    def build(rng: Random, engine: Engine) -> Plan:
        plan = base(rng, engine)
        for status, victim in zip(statuses, rng.sample(plan.requests, len(statuses)), strict=True):
            at = victim.arrival_step + rng.randint(0, 8)
            plan.events.append(Event(step=at, op="abort", when=rng.choice(("pre", "mid")), id=victim.id, status=status))
        return plan

    return build


def sessions(base: Builder, *, every: int, pieces: Span, tokens: Span, gap: Span) -> Builder:
    """Every so many-th request is a session that further input comes for; the last piece ends it."""

    def build(rng: Random, engine: Engine) -> Plan:
        plan = base(rng, engine)
        for request in plan.requests[::every]:
            request.resumable = True
            step, count = request.arrival_step, rng.randint(*pieces)
            for number in range(count + 1):
                step += rng.randint(*gap)
                more = tuple(_tokens(rng, rng.randint(*tokens)))
                plan.events.append(Event(step=step, op="feed", id=request.id, prompt=more, last=number == count))
        return plan

    return build
