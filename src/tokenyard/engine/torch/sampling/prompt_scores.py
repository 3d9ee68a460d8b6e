"""Log-probabilities of prompts, gathered chunk by chunk and told when the prompt is complete."""

from __future__ import annotations

from typing import Any

import numpy as np

from tokenyard.columns import IntArray
from tokenyard.engine.torch.attention.block_batch import StepRows
from tokenyard.engine.torch.request_rows import RequestRows, Sampling
from tokenyard.engine.torch.sampling.sampler import token_logprobs
from tokenyard.sched.steps.aux_output import TokenLogprobs
from tokenyard.sched.steps.scheduler_output import SchedulerOutput

__all__ = ["PromptScores"]


class PromptScores:
    """The positions of one step that score a prompt's next token."""

    def __init__(self, state: RequestRows, plan: SchedulerOutput, rows: StepRows) -> None:
        self._state, self._plan, self._rows = state, plan, rows
        self._asking = [(row, each) for row in range(len(plan.slots)) if (each := self._asks(row)) is not None]
        firsts = rows.counts.cumsum() - rows.counts
        places = [np.arange(firsts[row], firsts[row] + self._num_scored(row)) for row, _ in self._asking]
        self.places: IntArray = np.concatenate(places) if places else np.zeros(0, np.int64)
        """In the flattened batch."""

    def _asks(self, row: int) -> Sampling | None:
        """The request of the row if it is within its prompt and wants to know."""
        if self._rows.starts[row] >= self._plan.num_prompt[row]:
            return None
        sampling = self._state.sampling(self._plan.req_ids[row])
        return sampling if sampling.params.prompt_logprobs is not None and not sampling.told_prompt else None

    def _num_scored(self, row: int) -> int:
        """Positions of the row that are followed by a token of the prompt."""
        return int(min(self._rows.counts[row], self._plan.num_prompt[row] - 1 - self._rows.starts[row]))

    def of(self, logits: Any) -> dict[int, TokenLogprobs]:
        """Row -> its whole prompt's, where this step completes it; ``logits`` are those of ``places``."""
        complete, done = {}, 0
        for row, sampling in self._asking:
            start, count = int(self._rows.starts[row]), self._num_scored(row)
            slot, wanted = self._plan.slots[row], sampling.params.prompt_logprobs
            assert wanted is not None
            if start == 0:
                sampling.prompt_logprobs.clear()  # it had been preempted
            following = self._state.tokens[slot, start + 1 : start + 1 + count]
            sampling.prompt_logprobs.append(token_logprobs(logits[done : done + count], following, wanted))
            done += count
            if start + self._rows.counts[row] >= self._plan.num_prompt[row]:
                columns = zip(*sampling.prompt_logprobs, strict=True)
                complete[row] = TokenLogprobs(*(np.concatenate(parts) for parts in columns))
                sampling.prompt_logprobs, sampling.told_prompt = [], True
        return complete
