"""vLLM's engine on the CPU, in this process; runs in vLLM's environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm import LLM, SamplingParams

from engine_sides.serving import serve, setup

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main() -> None:
    """Serve."""
    options = setup()
    llm = LLM(
        options.model,
        dtype=options.dtype,
        skip_tokenizer_init=True,
        enforce_eager=True,
        max_model_len=options.max_model_len,
        max_num_seqs=options.max_num_seqs,
        max_num_batched_tokens=options.max_num_batched_tokens,
        block_size=options.block_size,
        num_gpu_blocks_override=options.num_blocks,
        enable_prefix_caching=False,
    )

    def generate(prompts: Sequence[list[int]], max_tokens: Sequence[int]) -> list[list[int]]:
        params = [
            SamplingParams(max_tokens=each, temperature=0, ignore_eos=True, detokenize=False) for each in max_tokens
        ]
        outputs = llm.generate([{"prompt_token_ids": each} for each in prompts], params, use_tqdm=False)
        return [list(each.outputs[0].token_ids) for each in outputs]

    serve(generate)


if __name__ == "__main__":
    main()
