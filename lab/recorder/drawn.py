"""Scenarios drawn at random: any engine, any workload, any events that go together.

The named scenarios aim at what is known to be difficult; these look for what is not. They are recorded on demand
(``make record-vectors ARGS="--drawn 0-200 --output FOLDER"``), replayed with ``tokenyard parity FOLDER``, and thrown
away.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, Literal

from recorder.plan import Engine, Group, Scenario
from recorder.workloads import (
    aborts,
    between,
    conversations,
    dressed,
    grammars,
    illustrated,
    independent,
    mostly_rising,
    one_of,
    pauses,
    resets,
    sharing,
    spoken,
)

if TYPE_CHECKING:
    from recorder.workloads import Builder

__all__ = ["KEPT", "drawn", "with_rings"]

KEPT = (517,)
"""Numbers of those that once showed a difference which no named scenario shows: they are recorded with these."""


_METHODS: tuple[Literal["ngram", "ngram_gpu", "eagle", "draft_model"] | None, ...] = (
    None,
    None,
    "ngram",
    "eagle",
    "draft_model",
    "ngram_gpu",
)


def drawn(seed: int) -> Scenario:
    """Scenario number ``seed``."""
    rng = Random(seed)
    engine = _engine(rng)
    if seed % 3 == 2:
        # By a generator of its own, so that the other numbers stay what they are.
        engine = _unusual(Random(f"layers {seed}"), engine)
    vocab = rng.choice((400, 60, 25))
    return Scenario(
        name=f"drawn_{seed}",
        seed=seed,
        engine=engine,
        build=_eventful(rng, engine, _requests(rng, engine, vocab)),
        vocab=vocab,
        acceptance=rng.choice((30, 60, 85, 100)),
    )


def with_rings(scenario: Scenario) -> Scenario:
    """The same with circular buffers beside its groups. Beside states they divide a block, as in any model."""
    rng, engine = Random(f"rings {scenario.seed}"), scenario.engine
    groups = list(engine.groups or (Group(),))
    size = engine.block_size
    kinds = {group.kind for group in groups}
    capacities = (size,) if "chunked" in kinds else (4, size // 2, size, *(() if "mamba" in kinds else (2 * size,)))
    rings = [Group(kind="ring", block_size=rng.choice(capacities)) for _ in range(rng.choice((1, 1, 2)))]
    for ring in rings:
        groups.insert(rng.randint(0, len(groups)), ring)
    changes: dict[str, Any] = {"decode_context_parallel_size": None, "prefill_context_parallel_size": None}
    changes |= {"groups": tuple(groups), "num_blocks": engine.num_blocks + rng.randint(1, 4) * len(rings)}
    return replace(scenario, name=f"rings_{scenario.seed}", engine=replace(engine, **changes))


def _engine(rng: Random) -> Engine:
    block_size = rng.choice((8, 16, 16, 32))
    method = rng.choice(_METHODS)
    groups = _groups(rng, block_size, eagle=method == "eagle")
    longest = rng.choice((160, 256))
    chunked = rng.random() < 0.85
    blocks = -(-longest // block_size) * len(groups or (None,))
    return Engine(
        max_num_seqs=rng.randint(2, 10),
        max_num_batched_tokens=rng.choice((24, 40, 64, 96, 130)) if chunked else longest,
        max_model_len=longest,
        block_size=block_size,
        num_blocks=int(blocks * rng.choice((1.15, 1.5, 2, 3))) + 4,
        policy=rng.choice(("fcfs", "priority")),
        enable_chunked_prefill=chunked,
        enable_prefix_caching=rng.random() < 0.85,
        long_prefill_token_threshold=rng.choice((0, 0, 0, 17, 33)),
        scheduler_reserve_full_isl=rng.random() < 0.7,
        max_loras=rng.choice((None, None, None, 1, 2)),
        async_scheduling=rng.choice((None, True)),
        num_speculative_tokens=rng.randint(1, 6) if method else None,
        spec_method=method,
        groups=groups,
        **_encoder(rng),
    )


def _groups(rng: Random, block_size: int, *, eagle: bool) -> tuple[Group, ...] | None:
    """None most of the time; chunked local attention does not go with EAGLE."""
    window = rng.randint(9, 100)
    marked = True if eagle and rng.random() < 0.5 else None
    full, sliding = Group(), Group(kind="swa", window=window, eagle=marked)
    choices: list[tuple[Group, ...] | None] = [
        (full, sliding),
        (Group(kind="swa", window=window),),
        (full, Group(kind="swa", window=rng.randint(9, 60)), sliding),
        (Group(block_size=2 * block_size), sliding),
        (full, Group(kind="swa", window=window, block_size=2 * block_size, eagle=marked)),
    ]
    if not eagle:
        choices.append((full, Group(kind="chunked", window=block_size * rng.choice((1, 2, 3, 4, 5, 6)))))
    return rng.choice([*choices, *[None] * len(choices)])


def _unusual(rng: Random, engine: Engine) -> Engine:
    """The same with layers that keep a state, that read an encoder's output, or with blocks spread over devices."""
    kind = rng.choice((_recurrent, _recurrent, _recurrent, _encoder_decoder, _ranks))
    return kind(rng, engine)


def _recurrent(rng: Random, engine: Engine) -> Engine:
    size, eagle = engine.block_size, engine.spec_method == "eagle"
    state, full = Group(kind="mamba"), Group(eagle=True if eagle and rng.random() < 0.5 else None)
    window = Group(kind="swa", window=rng.randint(9, 60))
    changes: dict[str, Any] = {"mamba_cache_mode": "none"}
    if engine.enable_prefix_caching:
        changes["mamba_cache_mode"] = rng.choice(("all", "align", "align"))
    else:
        state = Group(kind="mamba", block_size=rng.choice((engine.max_model_len, 4 * size)))
    choices = ((state,), (full, state), (state, full), (full, state, state), (full, state, window))
    changes["groups"] = rng.choice(choices)
    if changes["mamba_cache_mode"] == "align":
        changes |= {"enable_chunked_prefill": True, "disable_chunked_mm_input": None}
        changes["max_num_batched_tokens"] = max(engine.max_num_batched_tokens, size)
        if engine.max_num_encoder_input_tokens:
            changes |= {"max_num_encoder_input_tokens": 40, "encoder_cache_size": rng.choice((40, 60))}
        threshold = engine.long_prefill_token_threshold
        changes["long_prefill_token_threshold"] = threshold and max(threshold, size)
        if engine.spec_method in ("ngram", "draft_model") and not engine.async_scheduling:
            # Fewer drafts than the step before make vLLM give up in this mode; an EAGLE head always has as many.
            changes |= {"num_speculative_tokens": None, "spec_method": None}
    blocks = engine.num_blocks // len(engine.groups or (None,)) * len(changes["groups"])
    drafts = changes.get("num_speculative_tokens", engine.num_speculative_tokens) or 0
    return replace(engine, **changes, num_blocks=blocks + 2 * drafts + rng.randint(0, 6))


def _encoder_decoder(rng: Random, engine: Engine) -> Engine:
    cross = Group(kind="cross", block_size=rng.choice((None, 24, 64)))
    budget = rng.choice((60, 90, 150))
    return replace(
        engine,
        enable_prefix_caching=False,
        enable_chunked_prefill=False,
        long_prefill_token_threshold=0,
        max_num_batched_tokens=engine.max_model_len,
        groups=rng.choice(((Group(), cross), (cross, Group()), (Group(kind="swa", window=40), cross))),
        num_blocks=engine.num_blocks // len(engine.groups or (None,)) + rng.choice((8, 12, 20)),
        encoder_decoder=True,
        max_num_encoder_input_tokens=budget,
        encoder_cache_size=rng.choice((60, budget)),
        disable_chunked_mm_input=True,
    )


def _ranks(rng: Random, engine: Engine) -> Engine:
    decode, prefill = rng.choice(((2, 1), (1, 2), (2, 2), (4, 1)))
    blocks = -(-engine.max_model_len // (engine.block_size * decode * prefill))
    return replace(
        engine,
        groups=None,
        num_blocks=int(blocks * rng.choice((1.5, 2, 4))) + 4,
        decode_context_parallel_size=decode,
        prefill_context_parallel_size=prefill,
    )


def _encoder(rng: Random) -> dict[str, Any]:
    if rng.random() < 0.6:
        return {}
    budget = rng.choice((20, 32, 40))
    return {
        "max_num_encoder_input_tokens": budget,
        "encoder_cache_size": rng.choice((budget, 2 * budget, 100)),
        "disable_chunked_mm_input": rng.choice((None, None, True)),
    }


def _requests(rng: Random, engine: Engine, vocab: int) -> Builder:
    base = rng.choice(
        (
            independent(18, prompt=(5, 70), output=(1, 60)),
            sharing(18, prefixes=3, prefix=(16, 70), tail=(1, 30), output=(1, 60), repeats=0.4),
            conversations(7, turns=(1, 4), system=20, user=(4, 30), output=(4, 30), think=(1, 6)),
        )
    )
    if engine.encoder_decoder:
        # No conversations: what an encoder reads has its place at the beginning, in a follow-up it would move.
        base = spoken(independent(18, prompt=(5, 70), output=(1, 60)), length=(5, 60), share=0.8)
    elif engine.max_num_encoder_input_tokens:
        most = rng.choice((2, 3, 5))
        # Text between images: an EAGLE head that needs two at once may wait for ever in vLLM.
        # Images of one block have to fit one step where steps end at blocks.
        length = (2, 8) if engine.mamba_cache_mode == "align" else (2, 20)
        base = illustrated(base, images=(1, most), length=length, pool=rng.choice((4, 8, 20)), masks=0.3, gap=(1, 12))
    if rng.random() < 0.3:
        base = grammars(base, share=0.5, forbids=(1, 2), compiling=(0, 10), vocab=vocab)
    return dressed(base, **_traits(rng, engine))


def _traits(rng: Random, engine: Engine) -> dict[str, Any]:
    traits: dict[str, Any] = {}
    if engine.policy == "priority":
        traits["priority"] = rng.choice((mostly_rising, between(-2, 2)))
    if rng.random() < 0.4:
        traits |= {"eos": one_of(None, 3), "stop_token_ids": one_of((), (3, 8), (11,)), "min_tokens": one_of(0, 0, 1)}
    if engine.max_loras:
        traits["lora"] = between(0, 3)
    if rng.random() < 0.2:
        traits["cache_salt"] = one_of(None, "south")
    if rng.random() < 0.2:
        traits["skip_reading_prefix_cache"] = one_of(False, False, True)
    return traits


def _eventful(rng: Random, engine: Engine, base: Builder) -> Builder:
    if rng.random() < 0.5:
        base = aborts(base, rng.randint(1, 8))
    if rng.random() < 0.3:
        base = pauses(base, (6, 1), (10, 0), (20, 2), (24, 0))
    if rng.random() < 0.4:
        # With drafts in flight vLLM counts stale outputs wrongly after a reset of what runs.
        running = not (engine.async_scheduling and engine.spec_method)
        first = (rng.randint(3, 20), running)
        second = (rng.randint(24, 40), running and rng.random() < 0.5)
        base = resets(base, first, second, when=rng.choice(("pre", "mid")))
    return base
