"""Images in prompts: encoder budget, encoder cache, and what happens where they end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recorder.plan import Engine, Event, Plan, Scenario
from recorder.scenarios.common import between, mostly_rising
from recorder.workloads import Builder, aborts, conversations, dressed, illustrated, independent, resets, sharing

if TYPE_CHECKING:
    from random import Random

__all__ = ["MULTIMODAL"]

TEXT = independent(18, prompt=(8, 40), output=(4, 30), gap=(0, 2))
SHARED_TEXT = sharing(18, prefixes=2, prefix=(20, 40), tail=(3, 15), output=(6, 30), gap=(0, 2), repeats=0.4)


def _encoder_resets(base: Builder, *at: int) -> Builder:
    """Forget all encoder outputs at these ticks."""

    def build(rng: Random, engine: Engine) -> Plan:
        plan = base(rng, engine)
        plan.events += [Event(step=step, op="reset_encoder") for step in at]
        return plan

    return build


MULTIMODAL: tuple[Scenario, ...] = (
    Scenario(
        name="images",
        seed=2301,
        engine=Engine(max_num_batched_tokens=48, max_num_encoder_input_tokens=40, encoder_cache_size=64),
        build=illustrated(TEXT, images=(1, 3), length=(6, 30), pool=6, masks=0.5),
        shows=("encoder_inputs", "evicted_images"),
    ),
    Scenario(
        name="images_in_one_piece",
        seed=2302,
        engine=Engine(
            max_num_batched_tokens=48,
            max_num_encoder_input_tokens=36,
            encoder_cache_size=50,
            disable_chunked_mm_input=True,
        ),
        build=illustrated(TEXT, images=(1, 3), length=(6, 30), pool=8, masks=0.4),
        shows=("encoder_inputs", "evicted_images"),
    ),
    Scenario(
        name="images_small_cache",
        seed=2303,
        engine=Engine(max_num_batched_tokens=64, num_blocks=40, max_num_encoder_input_tokens=60, encoder_cache_size=34),
        build=aborts(illustrated(SHARED_TEXT, images=(1, 4), length=(8, 32), pool=7, masks=0.3, share=0.9), 6),
        shows=("encoder_inputs", "evicted_images", "aborts"),
    ),
    Scenario(
        name="images_priority_rollback",
        seed=2304,
        engine=Engine(
            policy="priority",
            max_num_seqs=9,
            max_num_batched_tokens=64,
            num_blocks=22,
            max_num_encoder_input_tokens=30,
            encoder_cache_size=60,
        ),
        build=dressed(
            illustrated(
                independent(26, prompt=(8, 40), output=(10, 50), gap=(0, 2)),
                images=(1, 3),
                length=(5, 25),
                pool=12,
                masks=0.3,
            ),
            priority=mostly_rising,
        ),
        shows=("encoder_inputs", "rollbacks", "evicted_images"),
    ),
    Scenario(
        name="images_eagle",
        seed=2305,
        engine=Engine(
            max_num_batched_tokens=40,
            num_blocks=60,
            max_num_encoder_input_tokens=32,
            encoder_cache_size=48,
            num_speculative_tokens=2,
            spec_method="eagle",
        ),
        build=illustrated(SHARED_TEXT, images=(1, 3), length=(6, 30), pool=5, masks=0.4),
        shows=("encoder_inputs", "hit_tokens", "drafts"),
    ),
    Scenario(
        name="images_eagle_in_one_piece_async",
        seed=2306,
        engine=Engine(
            max_num_batched_tokens=40,
            num_blocks=50,
            async_scheduling=True,
            max_num_encoder_input_tokens=32,
            encoder_cache_size=48,
            disable_chunked_mm_input=True,
            num_speculative_tokens=2,
            spec_method="eagle",
        ),
        build=aborts(illustrated(SHARED_TEXT, images=(1, 3), length=(6, 30), pool=5, masks=0.4), 5),
        shows=("encoder_inputs", "drafts", "aborts"),
    ),
    Scenario(
        name="images_conversations",
        seed=2307,
        engine=Engine(
            policy="priority",
            max_num_batched_tokens=64,
            max_model_len=512,
            num_blocks=60,
            max_num_encoder_input_tokens=40,
            encoder_cache_size=80,
        ),
        build=resets(
            _encoder_resets(
                dressed(
                    illustrated(
                        conversations(6, turns=(2, 4), system=20, user=(6, 20), output=(5, 20), think=(1, 8)),
                        images=(1, 2),
                        length=(8, 36),
                        pool=5,
                        masks=0.3,
                        share=0.7,
                    ),
                    priority=between(0, 2),
                ),
                *(9, 30),
            ),
            (20, True),
        ),
        shows=("encoder_inputs", "hit_tokens"),
    ),
    Scenario(
        name="images_many_small",
        seed=2308,
        engine=Engine(max_num_batched_tokens=44, num_blocks=50, max_num_encoder_input_tokens=20, encoder_cache_size=21),
        build=illustrated(
            independent(12, prompt=(8, 40), output=(3, 12), gap=(0, 3)),
            images=(8, 14),
            length=(4, 8),
            pool=20,
            gap=(0, 3),
        ),
        shows=("encoder_inputs", "evicted_images"),
    ),
    Scenario(
        name="images_slices_overcommitted",
        seed=2309022,
        engine=Engine(
            policy="priority",
            max_num_seqs=8,
            max_num_batched_tokens=160,
            num_blocks=24,
            long_prefill_token_threshold=18,
            scheduler_reserve_full_isl=False,
            max_num_encoder_input_tokens=22,
            encoder_cache_size=70,
        ),
        build=dressed(
            illustrated(
                independent(24, prompt=(20, 50), output=(4, 30), gap=(0, 1)),
                images=(3, 6),
                length=(4, 16),
                pool=40,
                masks=0.2,
                share=1.0,
            ),
            priority=mostly_rising,
        ),
        shows=("encoder_inputs", "rollbacks", "evicted_images", "prefill_chunks"),
    ),
    Scenario(
        name="images_where_output_begins",
        seed=2310015,
        engine=Engine(
            max_num_batched_tokens=80,
            max_model_len=512,
            block_size=32,
            num_blocks=60,
            max_num_encoder_input_tokens=40,
            encoder_cache_size=60,
        ),
        build=illustrated(
            conversations(6, turns=(2, 4), system=20, user=(4, 10), output=(15, 40), think=(1, 5)),
            images=(2, 3),
            length=(3, 8),
            pool=6,
            share=0.8,
            gap=(0, 3),
        ),
        shows=("encoder_inputs", "hit_tokens"),
    ),
)
