"""transformers' own continuous batching; its manager and its cache live through all rounds, as in a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from transformers import AutoModelForCausalLM, GenerationConfig
from transformers.generation import ContinuousBatchingConfig

from engine_sides.serving import serve, setup

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main() -> None:
    """Serve."""
    options = setup()
    torch.set_num_threads(options.threads)
    model = AutoModelForCausalLM.from_pretrained(
        options.model, dtype=getattr(torch, options.dtype), attn_implementation="sdpa"
    )
    config = ContinuousBatchingConfig(
        page_size=options.block_size,
        num_blocks=options.num_blocks,
        max_batch_tokens=options.max_num_batched_tokens,
        max_requests_per_batch=options.max_num_seqs,
        allow_block_sharing=False,
        auto_switch_to_flash=False,
    )
    greedy = GenerationConfig(do_sample=False, eos_token_id=-1)
    with model.continuous_batching_context_manager(
        generation_config=greedy, continuous_batching_config=config
    ) as manager:

        def generate(prompts: Sequence[list[int]], max_tokens: Sequence[int]) -> list[list[int]]:
            names = [
                manager.add_request(prompt, max_new_tokens=count, eos_token_id=-1)
                for prompt, count in zip(prompts, max_tokens, strict=True)
            ]
            told: dict[str, list[int]] = {}
            while len(told) < len(names):
                result = manager.get_result(timeout=1)
                if result is None:
                    assert manager.is_running(), "its thread has ended"
                elif result.is_finished():
                    assert result.error is None, result.error
                    told[result.request_id] = list(result.generated_tokens)
            return [told[name] for name in names]

        serve(generate)


if __name__ == "__main__":
    main()
