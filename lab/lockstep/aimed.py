"""Scenarios aimed at where vLLM and we once differed: what a drawn one has is kept, and made to meet the case."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from recorder.plan import Group
from recorder.workloads import illustrated, pauses, resets

if TYPE_CHECKING:
    from random import Random

    from recorder.plan import Engine, Plan, Planned, Scenario
    from recorder.workloads import Builder

__all__ = ["aimed", "with_pooling"]


def aimed(rng: Random, scenario: Scenario) -> Scenario:
    """The scenario with one of the cases in it, where its engine can have it."""
    if scenario.engine.encoder_decoder:
        return scenario
    kind = rng.choice((_drafted_whole_blocks, _blocks_of_two_sizes, _crowded_images, _paused_sessions, _reset_poolers))
    made = kind(rng, scenario)
    return replace(made, build=_with_what_runs_spared(made.build))


def _with_what_runs_spared(base: Builder) -> Builder:
    """With drafts in flight vLLM counts stale outputs wrongly after a reset of what runs (docs/parity.md)."""

    def build(rng: Random, engine: Engine) -> Plan:
        plan = base(rng, engine)
        if engine.async_scheduling and engine.spec_method:
            plan.events = [replace(event, running=False) if event.op == "reset" else event for event in plan.events]
        return plan

    return build


def _has_states(engine: Engine) -> bool:
    return any(group.kind == "mamba" for group in engine.groups or ())


def _is_spread(engine: Engine) -> bool:
    return bool(engine.decode_context_parallel_size or engine.prefill_context_parallel_size)


def _drafted_whole_blocks(rng: Random, scenario: Scenario) -> Scenario:
    """An EAGLE head, prompts that end with a block or next to it, and answers that soon end."""
    engine = scenario.engine
    if not (engine.groups or _is_spread(engine)):
        drafts = engine.num_speculative_tokens or rng.randint(1, 6)
        engine = replace(engine, spec_method="eagle", num_speculative_tokens=drafts, enable_prefix_caching=True)
    return replace(scenario, engine=engine, build=_ends_at_blocks(scenario.build))


def _ends_at_blocks(base: Builder) -> Builder:
    def build(rng: Random, engine: Engine) -> Plan:
        plan = base(rng, engine)
        followed = {request.after[0] for request in plan.requests if request.after}
        for request in plan.requests:
            if request.after is None and request.id not in followed:
                _end_near_block(rng, request, engine)
        return plan

    return build


def _end_near_block(rng: Random, request: Planned, engine: Engine) -> None:
    size, prompt = engine.block_size, request.prompt
    length = -(-len(prompt) // size) * size + rng.choice((0, 0, 0, 1, -1))
    limit = rng.choice((1, 1, 2, 3, request.max_tokens))
    if len(prompt) <= length and length + limit <= engine.longest_sequence:
        prompt += [rng.choice(prompt) if not request.mm else 1 for _ in range(length - len(prompt))]
        request.max_tokens = max(limit, request.min_tokens)


def _blocks_of_two_sizes(rng: Random, scenario: Scenario) -> Scenario:
    """Full attention in blocks twice as long as those of a window, an EAGLE head, and little memory."""
    engine = scenario.engine
    if _has_states(engine) or _is_spread(engine):
        return scenario
    size, window = engine.block_size, Group(kind="swa", window=rng.randint(9, 60), eagle=rng.choice((None, True)))
    blocks = 2 * -(-engine.max_model_len // size)
    changes = replace(
        engine,
        spec_method="eagle",
        num_speculative_tokens=engine.num_speculative_tokens or rng.randint(1, 6),
        enable_prefix_caching=True,
        groups=(Group(block_size=rng.choice((2, 2, 4)) * size), window),
        num_blocks=int(blocks * rng.choice((1.1, 1.15, 1.3))) + 4,
    )
    return replace(scenario, engine=changes, build=_ends_at_blocks(scenario.build))


def _crowded_images(rng: Random, scenario: Scenario) -> Scenario:
    """Many images, an encoder cache for hardly more than two, and requests that end while others pass theirs."""
    engine, build = scenario.engine, scenario.build
    if not engine.max_num_encoder_input_tokens:
        engine = replace(engine, max_num_encoder_input_tokens=40, disable_chunked_mm_input=None)
        length = (2, 8) if _has_states(engine) else (2, 18)
        build = illustrated(build, images=(1, 4), length=length, pool=rng.choice((8, 20)), share=0.9, gap=(1, 8))
    engine = replace(engine, encoder_cache_size=engine.max_num_encoder_input_tokens)
    build = _with_short_answers(with_pooling(build) if rng.random() < 0.5 else build)
    return replace(scenario, engine=engine, build=build)


def _with_short_answers(base: Builder) -> Builder:
    def build(rng: Random, engine: Engine) -> Plan:
        plan = base(rng, engine)
        for request in plan.requests[::2]:
            request.max_tokens = max(min(request.max_tokens, rng.randint(1, 4)), request.min_tokens)
        return plan

    return build


def _paused_sessions(rng: Random, scenario: Scenario) -> Scenario:
    """New requests are paused now and again, while memory is short. Who is a session, the stream says."""
    engine = scenario.engine
    needed = -(-engine.max_model_len // engine.block_size) * len(engine.groups or (None,))
    if not (_has_states(engine) or _is_spread(engine)):
        engine = replace(engine, num_blocks=int(needed * rng.choice((1.15, 1.3))) + 4)
    step, switches = 0, []
    for state in (1, 0, 1, 0):
        step += rng.randint(2, 12)
        switches.append((step, state))
    return replace(scenario, engine=engine, build=pauses(scenario.build, *switches))


def _reset_poolers(rng: Random, scenario: Scenario) -> Scenario:
    """Resets that preempt what runs, some of it requests for an embedding whose result is on its way."""
    at = [(rng.randint(3, 16), True), (rng.randint(18, 40), rng.random() < 0.5)]
    build = resets(with_pooling(scenario.build, every=2), *at, when=rng.choice(("pre", "mid")))
    return replace(scenario, build=build)


def with_pooling(base: Builder, every: int = 6) -> Builder:
    """Some requests want an embedding instead of tokens."""

    def build(rng: Random, engine: Engine) -> Plan:
        plan = base(rng, engine)
        for request in plan.requests[2 % every :: every]:
            request.pooling = request.forbids is None and not request.resumable
        return plan

    return build
