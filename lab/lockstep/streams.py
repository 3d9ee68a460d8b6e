"""The streams of the differential: the recorder's random scenarios, and what they leave out.

Where a difference was once found, such cases are drawn more often: three of seven numbers are :mod:`aimed
<lockstep.aimed>` at one of them.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

from lockstep.aimed import aimed, with_pooling
from recorder.drawn import drawn
from recorder.versions import (
    HAS_MAMBA_MODE_ALL,
    KEEPS_LAST_OF_SESSIONS,
    LOSES_RESET_SESSIONS,
    MISCOUNTS_STALE_OUTPUTS,
)
from recorder.workloads import sessions

if TYPE_CHECKING:
    from recorder.plan import Engine, Image, Plan, Scenario
    from recorder.workloads import Builder

__all__ = ["stream"]


def stream(seed: int) -> Scenario:
    """Scenario number ``seed`` for the installed version of vLLM."""
    scenario = drawn(seed)
    rng = Random(f"stream {seed}")
    if seed % 7 in (2, 3, 4):
        scenario = aimed(Random(f"aimed {seed}"), scenario)
    engine = _allowed(scenario.engine)
    build = scenario.build
    if engine.spec_method == "eagle" and engine.max_num_encoder_input_tokens:
        build = _with_text_between(build)
    if engine.async_scheduling and MISCOUNTS_STALE_OUTPUTS:
        build = _with_resets_apart(build)
    if seed % 5 == 4 and _serves_sessions(engine):
        if seed % 7 == 5:  # a session's place by priority changes with every piece of input
            engine = replace(engine, policy="priority")
            build = _with_sessions(build, every=2)
        else:
            build = _with_sessions(build)
    if seed % 7 == 6 and not engine.encoder_decoder:
        build = with_pooling(build)
    if engine.async_scheduling and engine.num_speculative_tokens and rng.random() < 0.4:
        engine = replace(engine, drafts_in_output=True)
    return replace(scenario, engine=engine, build=build)


def _serves_sessions(engine: Engine) -> bool:
    """Whether both do the same with sessions (docs/parity.md has the line).

    vLLM 0.22 drops the last token of an answer only if no step was in flight and no draft was accepted beyond it.
    """
    if engine.max_num_encoder_input_tokens or any(group.kind == "mamba" for group in engine.groups or ()):
        return False
    return not KEEPS_LAST_OF_SESSIONS or not (engine.async_scheduling or engine.num_speculative_tokens)


def _allowed(engine: Engine) -> Engine:
    """Later versions keep the states of Mamba layers in another mode only, which has conditions of its own."""
    if HAS_MAMBA_MODE_ALL or engine.mamba_cache_mode != "all":
        return engine
    changes: dict[str, Any] = {
        "mamba_cache_mode": "align",
        "enable_chunked_prefill": True,
        "disable_chunked_mm_input": None,
    }
    if engine.max_num_encoder_input_tokens:
        changes |= {"max_num_encoder_input_tokens": 40, "encoder_cache_size": 60}
    if engine.spec_method in ("ngram", "draft_model") and not engine.async_scheduling:
        changes |= {"num_speculative_tokens": None, "spec_method": None}
    return replace(engine, **changes)


def _with_text_between(base: Builder) -> Builder:
    """No two images adjoin: an EAGLE head needs both at once, and vLLM lets such requests wait for each other.

    docs/parity.md names it. Placeholders of an image that is left out are text.
    """

    def build(rng: Random, engine: Engine) -> Plan:
        plan = base(rng, engine)
        for request in plan.requests:
            kept: list[Image] = []
            for image in request.mm:
                if not kept or image.offset > kept[-1].offset + kept[-1].length:
                    kept.append(image)
            request.mm = tuple(kept)
        return plan

    return build


_STEPS_APART = 3
"""Ticks after which the output of every step that a reset met has come."""


def _with_resets_apart(base: Builder) -> Builder:
    """0.22 counts stale outputs wrongly where what runs is reset while some of the last reset are in flight."""

    def build(rng: Random, engine: Engine) -> Plan:
        plan = base(rng, engine)
        last, events = -_STEPS_APART, []
        for event in sorted(plan.events, key=lambda each: each.step):
            if event.op == "reset" and event.running:
                if event.step - last < _STEPS_APART:
                    event = replace(event, running=False)  # noqa: PLW2901
                else:
                    last = event.step
            events.append(event)
        plan.events = events
        return plan

    return build


def _with_sessions(base: Builder, every: int = 4) -> Builder:
    """Share of requests that are sessions, kept short: they grow by every piece."""

    def build(rng: Random, engine: Engine) -> Plan:
        plan = base(rng, engine)
        if any(request.after for request in plan.requests):
            return plan
        for request in plan.requests[::every]:
            request.prompt, request.max_tokens = request.prompt[:30], min(request.max_tokens, 10)
            request.min_tokens, request.pooling = 0, False
        if LOSES_RESET_SESSIONS:  # between a step and its output (docs/parity.md)
            plan.events = [replace(event, when="pre") if event.op == "reset" else event for event in plan.events]
        return sessions(lambda *_: plan, every=every, pieces=(1, 3), tokens=(1, 15), gap=(1, 9))(rng, engine)

    return build
