"""The model's place in a replay: tokens come out, nothing is computed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tokenyard.columns import anywhere, constant, counting
from tokenyard.sched.steps.model_output import ModelOutput
from tokenyard.sched.steps.scheduler_output import ScheduledDrafts, SchedulerOutput
from tokenyard.sim.drafts import DraftAcceptance, SimulatedSpeculation
from tokenyard.sim.workload.tokens import stream_words, tokens_at

__all__ = ["SilentModel", "SimulatedModel"]

Int64s = npt.NDArray[np.int64]

_WINDOW = 64
"""Tokens of a stream that are drawn at a time."""
_WINDOW_BITS = constant(_WINDOW.bit_length() - 1)


class SimulatedModel:
    """Samples position ``p`` of a request from the stream of its ``output_seed``: the same run, the same tokens.

    Streams are drawn a window of positions at a time, kept per request-table slot, so that a step costs a few array
    operations however many requests it has. Drafts are accepted as ``speculation`` says.
    """

    __slots__ = ("_acceptance", "_drawn", "_flat", "_offsets", "_ones", "_seeds", "_shift", "_strides", "_window")

    def __init__(self, speculation: SimulatedSpeculation | None = None) -> None:
        self._acceptance = DraftAcceptance(speculation) if speculation is not None else None
        self._offsets = np.zeros(0, np.uint32)
        self._strides = np.zeros(0, np.uint32)
        self._drawn = np.zeros((0, _WINDOW), np.int64)
        """Per slot: the tokens of one window of positions."""
        self._flat = self._drawn.reshape(-1)
        self._shift = np.zeros(0, np.int64)
        """Per slot: what leads from a position of that window to its place in ``_flat``."""
        self._window = np.zeros(0, np.int64)
        """Per slot: the number of that window; -1 for none."""
        self._ones = np.ones(0, np.int64)
        self._seeds: dict[str, int] = {}
        """Request id -> the seed of its stream, until it ends."""

    def execute(self, output: SchedulerOutput) -> ModelOutput:
        """Sampled tokens, aligned with ``output.req_ids``; none for a prefill chunk."""
        if output.finished_req_ids and self._seeds:
            for request_id in output.finished_req_ids:
                self._seeds.pop(request_id, None)
        if output.num_running < len(output.req_ids):
            self._remember(output)
        if output.drafts is not None:
            return self._verify(output, output.drafts)
        tokens = self._tokens(output.slots, output.num_computed + output.num_new_tokens)
        chunks = output.is_prefill_chunk
        if chunks is None:
            return self.one_each(tokens)
        return ModelOutput(tokens[:, None], (~chunks).astype(np.int64))

    def decode(self, slots: Int64s, first: Int64s, steps: int) -> Int64s:
        """What ``steps`` steps in a row sample, shape ``[n, steps]``; the first of them at positions ``first``."""
        positions = (first[:, None] + counting(steps)).astype(np.uint32)
        return tokens_at(self._offsets[slots, None], self._strides[slots, None], positions).astype(np.int64)

    def one_each(self, tokens: Int64s) -> ModelOutput:
        """The output of a step that samples these, shape ``[n]``."""
        return ModelOutput(tokens[:, None], self._one_each(len(tokens)))

    def _verify(self, output: SchedulerOutput, drafts: ScheduledDrafts) -> ModelOutput:
        """Accepted drafts and one more token each; drafts are right where the dice say so."""
        assert self._acceptance is not None, "drafts were scheduled, and nobody said how many are right"
        first = output.num_computed + output.num_new_tokens - drafts.counts
        seeds = [self._seeds[request_id] for request_id in output.req_ids]
        num_sampled = 1 + self._acceptance.accepted(seeds, first, drafts.counts)
        columns = [self._tokens(output.slots, first + ahead) for ahead in range(int(num_sampled.max()))]
        if output.is_prefill_chunk is not None:
            num_sampled[output.is_prefill_chunk] = 0
        return ModelOutput(np.stack(columns, axis=1), num_sampled)

    def _tokens(self, slots: Int64s, positions: Int64s) -> Int64s:
        """The streams' tokens, one per slot."""
        window = positions >> _WINDOW_BITS
        stale = self._window[slots] != window
        if anywhere(stale):
            self._draw(slots[stale], window[stale])
        tokens: Int64s = self._flat[positions + self._shift[slots]]
        return tokens

    def _draw(self, slots: Int64s, windows: Int64s) -> None:
        """Draw the given windows of the streams in ``slots``."""
        positions = (windows[:, None] * _WINDOW + np.arange(_WINDOW)).astype(np.uint32)
        self._drawn[slots] = tokens_at(self._offsets[slots, None], self._strides[slots, None], positions)
        self._window[slots] = windows
        self._shift[slots] = (slots - windows) * _WINDOW

    def _one_each(self, n: int) -> npt.NDArray[np.int64]:
        """``n`` ones; the same array for the same length, read-only."""
        if len(self._ones) != n:
            self._ones = np.ones(n, np.int64)
            self._ones.flags.writeable = False
        return self._ones

    def _remember(self, output: SchedulerOutput) -> None:
        """Note the streams of requests that got a slot in this step."""
        slots = output.slots[output.num_running :]
        missing = int(slots.max()) + 1 - len(self._offsets)
        if missing > 0:
            missing += len(self._offsets)
            more = np.zeros(missing, np.uint32)
            self._offsets = np.concatenate((self._offsets, more))
            self._strides = np.concatenate((self._strides, more))
            self._drawn = np.concatenate((self._drawn, np.zeros((missing, _WINDOW), np.int64)))
            self._flat = self._drawn.reshape(-1)
            self._shift = np.concatenate((self._shift, np.zeros(missing, np.int64)))
            self._window = np.concatenate((self._window, np.full(missing, -1)))
        new = output.new_requests
        self._seeds.update({output.req_ids[row]: request.output_seed for row, request in new.items()})
        seeds = np.array([self._seeds[request_id] for request_id in output.req_ids[output.num_running :]], np.int64)
        self._offsets[slots], self._strides[slots] = stream_words(seeds)
        self._window[slots] = -1


class SilentModel(SimulatedModel):
    """Samples as many tokens, all of them 0: for a replay in which nobody looks at them."""

    __slots__ = ("_outputs",)

    def __init__(self) -> None:
        super().__init__()
        self._outputs: dict[int, ModelOutput] = {}
        """By number of requests: checking one costs more than making it."""

    def one_each(self, tokens: Int64s) -> ModelOutput:
        output = self._outputs.get(len(tokens))
        if output is None:
            output = self._outputs[len(tokens)] = super().one_each(tokens)
        return output

    def decode(self, slots: Int64s, first: Int64s, steps: int) -> Int64s:
        return np.zeros((len(slots), steps), np.int64)

    def _tokens(self, slots: Int64s, positions: Int64s) -> Int64s:
        return np.zeros(len(slots), np.int64)

    def _remember(self, output: SchedulerOutput) -> None:
        """Nothing is drawn."""
