"""The model runner: a step's plan and block tables become a batch, logits and tokens.

forward   bring the rows up to date -> flattened batch of prompt chunks and decodes -> logits where tokens are sampled
sample    logits -> tokens -> accepted drafts -> rows -> new drafts
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np

from tokenyard.core.arrays import Int32Array, IntArray
from tokenyard.core.config import GroupKind
from tokenyard.core.sched.features.grammars import GrammarOutput
from tokenyard.core.sched.outputs import DraftTokens, ModelAuxOutput, ModelOutput, TokenLogprobs
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.errors import ConfigError
from tokenyard.memory.kv_plan import LayerGroup
from tokenyard.memory.layer_caches import CacheSettings, layer_caches
from tokenyard.models.spec import ModelSpec
from tokenyard.serve.torch.attention import HeldBlocks, KVTensors, StepRows, elements_of
from tokenyard.serve.torch.checkpoint import load_checkpoint, read_spec
from tokenyard.serve.torch.model import BlockGroup, PagedModel
from tokenyard.serve.torch.sampling import (
    NO_DRAFT,
    LogitRow,
    Pooler,
    PromptScores,
    RequestRows,
    accepted,
    adjust,
    apply_bitmask,
    needs_adjusting,
    sample,
    token_logprobs,
)

# ---------------------------------------------------------------------------------------------------------------------
# Where drafts come from: the request's own text, or a small model.

# ---------------------------------------------------------------------------------------------------------------------
# Where drafts come from; the request's own text is one place.


class Drafter(Protocol):
    """Guesses at what follows the rows of a step, which has just been sampled from."""

    def propose(
        self, rows: RequestRows, slots: IntArray, step: StepRows, held: HeldBlocks, num_drafts: int
    ) -> IntArray:
        """Drafts for ``slots``, shape ``[n, num_drafts]``, NO_DRAFT after the last one of a row.

        ``step`` says what is known of the rows that was not before it: their tokens from its starts on. ``held`` are
        their blocks: nothing can be written beyond them.
        """


class NgramDrafter:
    """What followed the last tokens when they stood in the text before (prompt lookup)."""

    def __init__(self, shortest: int, longest: int) -> None:
        """Looks for the ``longest`` last tokens first, then for fewer, down to ``shortest``."""
        self._shortest, self._longest = shortest, longest

    def propose(
        self, rows: RequestRows, slots: IntArray, step: StepRows, held: HeldBlocks, num_drafts: int
    ) -> IntArray:
        drafts = np.full((len(slots), num_drafts), NO_DRAFT, np.int64)
        for row, slot in enumerate(slots.tolist()):
            found = self._lookup(rows.tokens[slot, : rows.lengths[slot]])[:num_drafts]
            drafts[row, : len(found)] = found
        return drafts

    def _lookup(self, tokens: Int32Array) -> Int32Array:
        """What followed the first place where the most of the last tokens stand."""
        for length in range(min(self._longest, len(tokens) - 1), self._shortest - 1, -1):
            windows = np.lib.stride_tricks.sliding_window_view(tokens[:-1], length)
            found = (windows == tokens[-length:]).all(axis=1).nonzero()[0]
            if len(found):
                after = int(found[0]) + length
                return tokens[after:]
        return tokens[:0]


# ---------------------------------------------------------------------------------------------------------------------
# A small model that drafts: its KV lies behind the block ids of the target model.


class DraftModel:
    """Goes on by itself, greedily.

    It computes what the target has computed and the token that was sampled, so that its KV is where the target's is,
    also in blocks that others find in the prefix cache; then it runs ahead token by token. It follows the block table
    of a full-attention group of the target, if there is one; else it sees no further back than the target does.
    """

    def __init__(
        self, folder: Path, target: ModelSpec, groups: Sequence[LayerGroup], dtype: str, device: str, max_model_len: int
    ) -> None:
        """Load the weights. ConfigError if the model cannot be run, or does not share the target's vocabulary."""
        spec, _ = read_spec(folder, dtype)
        if spec.vocab_size != target.vocab_size:
            fix = f"a draft model shares the target's vocabulary ({target.vocab_size})"
            raise ConfigError("speculative_config.model", f"{spec.name}: vocab_size {spec.vocab_size}", fix)
        kinds = [group.first.kind for group in groups]
        self._group = kinds.index(GroupKind.FULL) if GroupKind.FULL in kinds else 0
        followed = groups[self._group].first
        settings = CacheSettings(block_size=followed.block_size, max_model_len=max_model_len, max_num_batched_tokens=1)
        caches = layer_caches(spec, settings)
        self._layers = LayerGroup(layers=tuple(caches), places=tuple(range(len(caches))))
        self._windows = [min(filter(None, (cache.window, followed.window)), default=0) for cache in caches]
        self._block_size, self._max_model_len = followed.block_size, max_model_len
        self.model = PagedModel(load_checkpoint(folder, dtype=dtype, device=device), device)

    @property
    def elements_per_block(self) -> int:
        """Elements of a block of its KV, over all layers."""
        return sum(sum(elements_of(cache)) for cache in self._layers.layers)

    def bind(self, num_blocks: int, dtype: Any, device: str) -> None:
        """Memory for its KV. Layers of equal windows are a group to its attention; the table is the same for all."""
        tensors = KVTensors([self._layers], num_blocks, dtype, device)
        windows = sorted(set(self._windows))
        layers = [
            msgspec.structs.replace(layer, group=windows.index(window))
            for layer, window in zip(tensors.layers, self._windows, strict=True)
        ]
        self._num_groups = len(windows)
        self.model.bind(layers, [BlockGroup(self._block_size, window) for window in windows])

    def propose(
        self, rows: RequestRows, slots: IntArray, step: StepRows, held: HeldBlocks, num_drafts: int
    ) -> IntArray:
        """See :class:`~tokenyard.serve.torch.runner.Drafter`."""
        room = np.minimum(held.capacity, self._max_model_len)
        ends = step.starts + step.counts
        table = held.tables[self._group]
        drafts = np.full((len(slots), num_drafts), NO_DRAFT, np.int64)
        known = StepRows(step.starts, np.minimum(ends, room) - step.starts)
        ids = rows.tokens[np.repeat(slots, known.counts), known.positions].astype(np.int64)
        likeliest = self._likeliest(ids, known, table)
        for ahead in range(num_drafts):
            # The newest token may stand where no block is yet: then the next step's drafts begin with it.
            here = (ends + ahead <= room).nonzero()[0]
            if ahead and len(here):
                one = StepRows(ends[here] + ahead - 1, np.ones(len(here), np.int64))
                likeliest[here] = self._likeliest(drafts[here, ahead - 1], one, table[here])
            drafts[here, ahead] = likeliest[here]
        return drafts

    def _likeliest(self, ids: IntArray, rows: StepRows, table: Int32Array) -> IntArray:
        logits = self.model.logits(ids, rows, [table] * self._num_groups, rows.counts.cumsum() - 1)
        found: IntArray = logits.argmax(-1).cpu().numpy()
        return found


# ---------------------------------------------------------------------------------------------------------------------

_SAMPLED_BYTES = 4
"""Least bytes of a logit when tokens are drawn."""


class _Begun(msgspec.Struct, frozen=True):
    """A step between its forward pass and its sampling."""

    rows: StepRows
    held: HeldBlocks
    sampling: IntArray
    """Rows of the step that sample."""
    logits: Any
    """Rows of logits: for each of them as many as it verifies drafts, and one more."""
    prompts: dict[int, TokenLogprobs]
    """Log-probabilities of prompts that are complete with this step."""
    pooled: dict[int, Any]
    """Vectors of such prompts, where they were requested."""


class ModelRunner:
    """Runs steps in the order in which they were scheduled; not made for two threads."""

    def __init__(
        self, model: PagedModel, rows: RequestRows, drafter: Drafter | None = None, num_drafts: int = 0
    ) -> None:
        self.model, self._rows = model, rows
        self._drafter, self._num_drafts = drafter, num_drafts
        self._begun: _Begun | None = None

    def forward(self, plan: SchedulerOutput, held: HeldBlocks) -> None:
        """Compute a step, whose rows hold these blocks."""
        self._rows.follow(plan)
        self._begun = None
        if not plan.total_num_scheduled_tokens:
            return
        rows = self._rows.step_rows(plan)
        samples = ~plan.is_prefill_chunk if plan.is_prefill_chunk is not None else np.ones(len(plan.slots), np.bool_)
        pooler = Pooler(self._rows, plan, rows)
        samples[pooler.rows] = False
        sampling = samples.nonzero()[0]
        ends, drafts = rows.counts.cumsum(), self._rows.draft_counts(plan)
        per_row = drafts[sampling] + 1
        wanted = np.repeat(ends[sampling] - drafts[sampling] - 1, per_row) + _counting(per_row)
        logits = self.model.logits(
            self._rows.input_ids(plan, rows),
            rows,
            held.tables,
            wanted,
            self._rows.adapters[plan.slots],
        )
        pooled = pooler.of(self.model.hidden)
        scores = PromptScores(self._rows, plan, rows).of(self.model.more_logits)
        self._begun = _Begun(rows, held, sampling, logits, scores, pooled)

    def sample(self, plan: SchedulerOutput, grammar: GrammarOutput | None) -> ModelOutput:
        """Sample from the step that was computed last, and draft what comes next."""
        if self._begun is None:
            return ModelOutput.from_lists([])
        begun, state = self._begun, self._rows
        slots = plan.slots[begun.sampling]
        counts = state.draft_counts(plan)[begun.sampling]
        drafts = state.known_drafts(plan)[begun.sampling, : int(counts.max(initial=0))]
        tokens, logprobs = self._tokens(plan, begun, grammar, drafts, counts)
        num_sampled = accepted(tokens, drafts, counts)
        state.append(slots, tokens, num_sampled)
        sampled = np.zeros((len(plan.slots), tokens.shape[1]), np.int64)
        every = np.zeros(len(plan.slots), np.int64)
        sampled[begun.sampling], every[begun.sampling] = tokens, num_sampled
        if self._drafter is not None:
            self._draft(self._drafter, plan, begun)
        if not (logprobs or begun.prompts or begun.pooled):
            return ModelOutput(sampled, every)
        pooled = [begun.pooled.get(row) for row in range(len(plan.slots))] if begun.pooled else ()
        return ModelOutput(
            sampled,
            every,
            extras=ModelAuxOutput(pooler_output=pooled, logprobs=logprobs, prompt_logprobs=begun.prompts),
        )

    def _tokens(
        self, plan: SchedulerOutput, begun: _Begun, grammar: GrammarOutput | None, drafts: IntArray, counts: IntArray
    ) -> tuple[IntArray, dict[int, TokenLogprobs]]:
        """A token for every sampled position, shape ``[rows, 1 + most drafts]``, and what is notified of them."""
        logits, per_row = begun.logits, counts + 1
        logits = logits.float() if logits.dtype.itemsize < _SAMPLED_BYTES else logits
        firsts = per_row.cumsum() - per_row
        if grammar is not None:
            self._bar(plan, begun, grammar, logits, firsts, per_row)
        samplings = [self._rows.sampling(plan.req_ids[row]) for row in begun.sampling.tolist()]
        told = [i for i, each in enumerate(samplings) if each.params.logprobs is not None]
        raw = logits.clone() if told else logits
        slots = plan.slots[begun.sampling]
        lengths = self._rows.lengths[slots]
        for i, each in enumerate(samplings):
            if needs_adjusting(each.params):
                known = self._rows.tokens[slots[i], : lengths[i]]
                for ahead in range(int(per_row[i])):
                    tokens = np.concatenate((known, np.maximum(drafts[i, :ahead], 0)))
                    row = LogitRow(each.params, tokens, int(plan.num_prompt[begun.sampling[i]]))
                    adjust(logits[firsts[i] + ahead], row)
        owner = np.repeat(np.arange(len(samplings)), per_row)
        flat = sample(
            logits,
            [samplings[i].params for i in owner.tolist()],
            np.array([each.seed for each in samplings], np.int64)[owner],
            np.repeat(lengths, per_row) + _counting(per_row),
        )
        tokens = np.full((len(samplings), int(per_row.max(initial=1))), NO_DRAFT, np.int64)
        tokens[owner, _counting(per_row)] = flat
        logprobs = {
            int(begun.sampling[i]): token_logprobs(
                raw[firsts[i] : firsts[i] + per_row[i]],
                flat[firsts[i] : firsts[i] + per_row[i]],
                samplings[i].params.logprobs or 0,
            )
            for i in told
        }
        return tokens, logprobs

    @staticmethod
    def _bar(
        plan: SchedulerOutput, begun: _Begun, grammar: GrammarOutput, logits: Any, firsts: IntArray, per_row: IntArray
    ) -> None:
        """Bar what grammars do not allow; their bitmask has a row per position of each of their requests."""
        place = {plan.req_ids[row]: i for i, row in enumerate(begun.sampling.tolist())}
        done = 0
        for request_id in grammar.structured_output_request_ids:
            i = place[request_id]
            mask = grammar.grammar_bitmask[done : done + per_row[i]]
            apply_bitmask(logits[firsts[i] : firsts[i] + per_row[i]], mask)
            done += int(per_row[i])

    def _draft(self, drafter: Drafter, plan: SchedulerOutput, begun: _Begun) -> None:
        """Draft for those that have sampled; a drafter with KV computes the prompts' chunks as well."""
        known = begun.rows.counts.copy()
        known[begun.sampling] = (self._rows.lengths[plan.slots] - begun.rows.starts)[begun.sampling]
        step = begun.rows._replace(counts=known)
        drafts = drafter.propose(self._rows, plan.slots, step, begun.held, self._num_drafts)
        chunks = np.ones(len(plan.slots), np.bool_)
        chunks[begun.sampling] = False
        drafts[chunks] = NO_DRAFT
        self._rows.drafts[plan.slots] = drafts

    def drafts(self, plan: SchedulerOutput) -> DraftTokens:
        """What has been drafted for the requests of ``plan``, which has been begun."""
        drafts = self._rows.drafts[plan.slots]
        return DraftTokens(drafts, (drafts != NO_DRAFT).sum(axis=1))


def _counting(counts: IntArray) -> IntArray:
    """0, 1, ... for each of ``counts``, one after the other."""
    return np.arange(int(counts.sum())) - np.repeat(counts.cumsum() - counts, counts)
