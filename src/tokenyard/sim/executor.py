"""The executor of a replay: steps take the time of a latency model, tokens come out, drafts are accepted at a rate."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import inf
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tokenyard.arguments import is_number
from tokenyard.connectors.tiers import TransferPlan
from tokenyard.core.arrays import IntArray, any_true
from tokenyard.core.config import SchedulerConfig, SpeculativeConfig
from tokenyard.core.engine import Repeated, StepFuture
from tokenyard.core.sched.features.ahead import UNKNOWN_DRAFT
from tokenyard.core.sched.features.grammars import GrammarOutput
from tokenyard.core.sched.outputs import ConnectorOutput, DraftTokens, ModelOutput
from tokenyard.core.sched.scheduler_output import ScheduledDrafts, SchedulerOutput
from tokenyard.core.sched.step_rows import SAMPLES, Rows
from tokenyard.errors import ConfigError
from tokenyard.quick_dataclass import dataclass
from tokenyard.sim.drafts import RecordedDrafts
from tokenyard.splitmix import GOLDEN, mixed, shares
from tokenyard.steptime.model import LatencyModel, StepShape, decode_seconds, host_seconds, step_seconds
from tokenyard.steptime.pace import VirtualClock
from tokenyard.workload.tokens import stream_words, tokens_at

# ---------------------------------------------------------------------------------------------------------------------
# Speculative decoding in a replay: who has drafts, and how many the model accepts: as a trace shows it, else by dice.
#
# The dice of a request are thrown per position of its stream, with a seed: the same run gives the same acceptances,
# however requests are scheduled. The tokens of an answer do not depend on them, only their times.


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedSpeculation:
    """Speculative decoding as a replay needs it."""

    config: SpeculativeConfig
    acceptance: tuple[float, ...] = (0.7,)
    """Probability that the draft at a position is right if those before it are; the last one counts for the rest."""
    seed: int = 0
    presence: float = 1.0
    """Probability that a request that decodes has drafts; the others sample one token."""
    recorded: RecordedDrafts | None = None
    """Where a trace shows which drafts there were and which were right: it counts before the probabilities."""

    def __post_init__(self) -> None:
        if not is_number(self.presence) or self.presence > 1:
            raise ConfigError("presence", self.presence, "give a probability from 0 to 1")
        if not isinstance(self.acceptance, tuple | list) or not self.acceptance:
            raise ConfigError("acceptance", self.acceptance, "give at least one probability")
        for rate in self.acceptance:
            if not is_number(rate) or rate > 1:
                raise ConfigError("acceptance", rate, "give probabilities from 0 to 1")

    @property
    def rates(self) -> npt.NDArray[np.float64]:
        """One per position."""
        count = self.config.num_speculative_tokens
        return np.array([*self.acceptance, *[self.acceptance[-1]] * count][:count])


_PRESENCE = 1 << 40
"""Added to a position for the dice that say whether there are drafts: no stream is as long."""


class Drafting:
    """Says which requests have drafts, and how many of them the model accepts, for all requests of a step at once.

    ``req_ids[i]`` is a request, ``seeds[i]`` its stream, ``positions[i]`` where its next token stands.
    """

    def __init__(self, speculation: SimulatedSpeculation) -> None:
        self._rates = speculation.rates
        self._presence = speculation.presence
        self._recorded = speculation.recorded
        self._shift = np.array([speculation.seed & 0xFFFF_FFFF_FFFF_FFFF], np.uint64) * GOLDEN
        self.width = len(self._rates)
        """Most drafts of a request."""
        self.is_everywhere = speculation.presence == 1 and speculation.recorded is None
        """Every request that decodes has as many drafts as there may be."""

    def offered(self, req_ids: Sequence[str], seeds: Sequence[int], positions: IntArray) -> IntArray:
        """Drafts of each request: all that there may be, or none."""
        dice = shares(mixed(self._cells(seeds, positions + _PRESENCE)))
        counts: IntArray = np.where(dice < self._presence, self.width, 0)
        if self._recorded is not None:
            for row, request_id in enumerate(req_ids):
                known = self._recorded.offered(request_id, int(positions[row]))
                if known is not None:
                    counts[row] = min(known, self.width)
        return counts

    def accepted(
        self, req_ids: Sequence[str], seeds: Sequence[int], positions: IntArray, offered: IntArray
    ) -> IntArray:
        """Drafts accepted per request: the right ones before the first wrong one, of those ``offered``."""
        ahead = np.arange(self.width)
        cells = self._cells(seeds, positions)[:, None] + ahead.astype(np.uint64) * GOLDEN
        right = shares(mixed(cells)) < self._rates
        run: IntArray = np.logical_and.accumulate(right, axis=1).sum(axis=1)
        if self._recorded is not None:
            for row in np.flatnonzero(offered).tolist():
                known = self._recorded.right(req_ids[row], int(positions[row]))
                if known is not None:
                    run[row] = known
        return np.minimum(run, offered)

    def _cells(self, seeds: Sequence[int], positions: IntArray) -> npt.NDArray[np.uint64]:
        """A number for each position of each stream."""
        base = np.array(seeds, np.int64).astype(np.uint64) + self._shift
        return positions.astype(np.uint64) * GOLDEN + base


# ---------------------------------------------------------------------------------------------------------------------
# The model's place in a replay: tokens come out, nothing is computed.

_WINDOW = 64
"""Tokens of a stream that are drawn at a time."""
_WINDOW_BITS = _WINDOW.bit_length() - 1
_MOST_KEPT = 4096
"""Outputs of a silent model that are kept."""


class SimulatedModel:
    """Samples position ``p`` of a request from the stream of its ``output_seed``: the same run, the same tokens.

    Streams are drawn a window of positions at a time, kept per request-table slot, so that a step costs a few array
    operations however many requests it has. Drafts are accepted as ``speculation`` says.
    """

    def __init__(self, speculation: SimulatedSpeculation | None = None) -> None:
        self._drafting = Drafting(speculation) if speculation is not None else None
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

    def decode(self, slots: IntArray, first: IntArray, steps: int) -> IntArray:
        """What ``steps`` steps in a row sample, shape ``[n, steps]``; the first of them at positions ``first``."""
        positions = (first[:, None] + np.arange(steps)).astype(np.uint32)
        return tokens_at(self._offsets[slots, None], self._strides[slots, None], positions).astype(np.int64)

    def one_each(self, tokens: IntArray) -> ModelOutput:
        """The output of a step that samples these, shape ``[n]``."""
        return ModelOutput(tokens[:, None], self._one_each(len(tokens)))

    def _verify(self, output: SchedulerOutput, drafts: ScheduledDrafts) -> ModelOutput:
        """Accepted drafts and one more token each; drafts are right where the dice say so."""
        assert self._drafting is not None, "drafts were scheduled, and it was not said how many are right"
        first = output.num_computed + output.num_new_tokens - drafts.counts
        num_sampled = 1 + self._drafting.accepted(output.req_ids, self._seeds_of(output), first, drafts.counts)
        columns = [self._tokens(output.slots, first + ahead) for ahead in range(int(num_sampled.max()))]
        if output.is_prefill_chunk is not None:
            num_sampled[output.is_prefill_chunk] = 0
        return ModelOutput(np.stack(columns, axis=1), num_sampled)

    def drafts(self, output: SchedulerOutput, sampled: ModelOutput | None) -> DraftTokens:
        """What is proposed after a step that has ``sampled`` this, None where that is not known: draft tokens without
        their ids.
        """
        assert self._drafting is not None, "drafts are asked for, and it was not said which there are"
        width = self._drafting.width
        if sampled is None or self._drafting.is_everywhere:
            counts = np.full(len(output.req_ids), width)
        else:
            verified = 0 if output.drafts is None else output.drafts.counts
            known = output.num_computed + output.num_new_tokens - verified + sampled.num_sampled
            counts = self._drafting.offered(output.req_ids, self._seeds_of(output), known)
        return DraftTokens(np.full((len(output.req_ids), width), UNKNOWN_DRAFT, np.int64), counts)

    def _seeds_of(self, output: SchedulerOutput) -> list[int]:
        return [self._seeds[request_id] for request_id in output.req_ids]

    def _tokens(self, slots: IntArray, positions: IntArray) -> IntArray:
        """The streams' tokens, one per slot."""
        window = positions >> _WINDOW_BITS
        stale = self._window[slots] != window
        if any_true(stale):
            self._draw(slots[stale], window[stale])
        tokens: IntArray = self._flat[positions + self._shift[slots]]
        return tokens

    def _draw(self, slots: IntArray, windows: IntArray) -> None:
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
    """Samples as many tokens, all of them 0: for a replay in which they are not looked at."""

    def __init__(self) -> None:
        super().__init__()
        self._outputs: dict[int | bytes, ModelOutput] = {}
        """Outputs by number of requests, or by which are chunks: checking one costs more than making it."""

    def execute(self, output: SchedulerOutput) -> ModelOutput:
        assert output.rows is not None, "a step of this process"
        rows: Rows = output.rows
        if not rows.num_chunks:
            return self._silence(rows.size)
        samples = rows.memory[SAMPLES * rows.size : (SAMPLES + 1) * rows.size]
        known = self._outputs.get(samples.tobytes())
        return known or self._kept(samples.tobytes(), np.array(samples, np.int64))

    def one_each(self, tokens: IntArray) -> ModelOutput:
        return self._silence(len(tokens))

    def _silence(self, count: int) -> ModelOutput:
        """A token for each of so many requests."""
        return self._outputs.get(count) or self._kept(count, self._one_each(count))

    def _kept(self, key: int | bytes, num_sampled: IntArray) -> ModelOutput:
        num_sampled.flags.writeable = False
        if len(self._outputs) >= _MOST_KEPT:
            self._outputs.clear()
        output = self._outputs[key] = ModelOutput(np.zeros((len(num_sampled), 1), np.int64), num_sampled)
        return output

    def decode(self, slots: IntArray, first: IntArray, steps: int) -> IntArray:
        return np.zeros((len(slots), steps), np.int64)


# ---------------------------------------------------------------------------------------------------------------------
# The executor of a replay: steps take the time that a latency model says, on a virtual clock.
#
#     one step in flight       | host | device .... | host | device .... |
#     several                  | host | device .... | device .... | device ...
#                                     | host |      | host |               the host works ahead, the device never waits
#
# The host prepares steps one after the other, and so does the device compute them; a step's device time begins when
# its own preparation and the step before are over.

EMPTY_STEPS = 3
"""Steps in a row that may schedule nothing: one reports the finished, one follows a request that preempted itself."""


class WorkerTransfers(Protocol):
    """The worker half of a KV connector, on a virtual clock."""

    def begin(self, plan: TransferPlan | None) -> float:
        """Begin a step's transfers; returns the seconds that its computation has to wait for them."""

    def report(self) -> ConnectorOutput | None:
        """What has ended by now, since the last call."""

    @property
    def next_moment(self) -> float | None:
        """When the next transfer ends; None if none does by itself."""


class StepEnd:
    """When a step is over; infinite as long as that depends on something that has yet to begin."""

    def __init__(self, moment: float = inf) -> None:
        self.moment = moment


class SimulatedStep:
    """A step that runs until its end."""

    def __init__(
        self, clock: VirtualClock, output: ModelOutput, transfers: WorkerTransfers | None, end: StepEnd
    ) -> None:
        self._clock = clock
        self._output = output
        self._transfers = transfers
        self._end = end

    @property
    def brings_news(self) -> bool:
        """Whether the next decision can be another one for it: it had requests, or workers have reported."""
        return len(self._output.num_sampled) > 0 or self._output.connector is not None

    @property
    def ends_at(self) -> float:
        """Virtual seconds."""
        return self._end.moment

    def done(self) -> bool:
        """Whether its end has come."""
        return self._clock.now() >= self.ends_at

    def result(self) -> ModelOutput:
        """Its tokens, once the clock has reached its end, and what the workers report at that moment."""
        self._clock.advance_to(self.ends_at)
        if self._transfers is not None:
            self._output.connector = self._transfers.report()
        return self._output


class SimulatedExecutor:
    """An ``Executor`` on ``clock``; with ``transfers`` its workers move KV, too."""

    def __init__(
        self,
        clock: VirtualClock,
        latency: LatencyModel,
        *,
        transfers: WorkerTransfers | None = None,
        speculation: SimulatedSpeculation | None = None,
        silent: bool = False,
        model: SimulatedModel | None = None,
    ) -> None:
        """``silent``: tokens are not looked at (without speculation). ``model`` says them in place of the usual one."""
        self._clock = clock
        self._latency = latency
        self._transfers = transfers
        self._model: SimulatedModel = model or (SilentModel() if silent else SimulatedModel(speculation))
        self._speculates: bool = speculation is not None
        self._newest: tuple[SchedulerOutput, ModelOutput | None] | None = None
        """The step that was begun last, and what it samples, once it was asked for."""
        self._host_free_at = self._device_free_at = 0.0
        self._end: StepEnd = StepEnd(0.0)
        """The end of the step that was begun last."""
        self.busy_seconds = 0.0
        """Time in which a step was being prepared or computed."""
        self.runs_until: float = -inf
        """The first moment at which something happens beside steps: no step that ends then is run ahead of."""
        self.num_empty_steps = 0
        """Steps without tokens since the last one with some."""
        self.most_empty: int = EMPTY_STEPS
        """Steps without tokens in a row after which further ones would have none as well."""

    def busy_before(self, moment: float) -> float:
        """The part of ``busy_seconds`` before ``moment``, which is now: steps in flight may go on after it."""
        ends_at = self._end.moment
        return self.busy_seconds - max(ends_at - moment, 0.0) if ends_at < inf else self.busy_seconds

    @property
    def is_idle(self) -> bool:
        """Whether further steps would be without tokens as well, until something happens."""
        return self.num_empty_steps >= self.most_empty

    def taken_in(self, step: StepFuture | None, depth: int) -> None:
        """``step``, of up to ``depth`` in flight, was taken in because nothing could be scheduled.

        If it has brought anything, further steps are tried: one that sees it, and with several stages those that
        follow a request that preempted itself.
        """
        if isinstance(step, SimulatedStep) and step.brings_news:
            self.num_empty_steps = max(self.num_empty_steps - max(depth - 1, 1), 0)

    def execute_model(self, plan: SchedulerOutput) -> None:
        """Begin a step: its moments are known from now on."""
        waits = self._begin_transfers(plan)
        self._newest = plan, None
        if plan.total_num_scheduled_tokens:
            self.num_empty_steps = 0
            self._end = self._compute(plan, waits)
        else:
            self.num_empty_steps += 1
            self._end = self.pass_over(waits)

    def _begin_transfers(self, plan: SchedulerOutput) -> float:
        if self._transfers is None:
            return 0.0
        transfer_plan = plan.kv_connector_metadata
        assert transfer_plan is None or isinstance(transfer_plan, TransferPlan)
        return self._transfers.begin(transfer_plan)

    def pass_over(self, waits: float) -> StepEnd:
        """A step without tokens."""
        self.busy_seconds += waits
        return StepEnd(max(self._clock.now(), self._end.moment) + waits)

    def _compute(self, plan: SchedulerOutput, waits: float) -> StepEnd:
        """A step with tokens, which begins ``waits`` seconds later than it could."""
        seconds = step_seconds(self._latency, StepShape.of(plan), plan.step)
        return StepEnd(self._lasting(self._clock.now(), seconds, host_seconds(self._latency), waits))

    def _lasting(self, now: float, seconds: float, host: float, waits: float) -> float:
        """When a step of so many seconds, some of them the ``host``'s, ends that is begun now."""
        if self._device_free_at <= now:  # and so is the host, which works ahead of it
            self._host_free_at = now + host
            ends_at = now + (seconds + waits)
            self.busy_seconds += seconds + waits
        else:
            host = min(host, seconds)
            self._host_free_at = max(now, self._host_free_at) + host
            began = max(self._host_free_at, self._device_free_at)
            ends_at = began + (seconds - host + waits)
            self.busy_seconds += ends_at - self._device_free_at
        self._device_free_at = ends_at
        return ends_at

    def run_ahead(self, futures: Sequence[StepFuture], newest: SchedulerOutput, most: int) -> Repeated | None:
        """Let the oldest of ``futures`` end and begin a step like ``newest``, up to ``most`` times, but not beyond
        ``runs_until``; None: not once.
        """
        ends = deque([each.ends_at for each in futures if isinstance(each, SimulatedStep)])
        if len(ends) < len(futures) or ends[0] >= self.runs_until or self._transfers is not None:
            return None
        clock, lasting, until, latency = self._clock, self._lasting, self.runs_until, self._latency
        moments: list[float] = []
        durations = decode_seconds(latency, newest.num_computed + 1, most, newest.step + 1)
        while len(moments) < most and ends[0] < until:
            now = clock.advance_to(ends.popleft())
            moments.append(now)
            seconds = next(durations)  # and then the host's part: a model may know what time it is
            ends.append(lasting(now, seconds, host_seconds(latency), 0.0))
        self._end = StepEnd(ends[-1])
        steps, first = len(moments), newest.num_computed + (2 - len(futures))
        tokens = self._model.decode(newest.slots, first, steps)
        coming = self._model.decode(newest.slots, first + steps, len(ends))
        later = [
            SimulatedStep(clock, self._model.one_each(coming[:, i]), None, StepEnd(end)) for i, end in enumerate(ends)
        ]
        return Repeated(tokens, moments, later)

    def sample_tokens(self, plan: SchedulerOutput, grammar: GrammarOutput | None) -> SimulatedStep:
        """The step that was begun last, with its tokens."""
        output = self._model.execute(plan)
        self._newest = plan, output
        return SimulatedStep(self._clock, output, self._transfers, self._end)

    def take_draft_token_ids(self) -> DraftTokens | None:
        """Drafts for the requests of that step, as speculation proposes them."""
        return self._model.drafts(*self._newest) if self._speculates and self._newest is not None else None

    def shutdown(self) -> None:
        """Nothing is held."""


# ---------------------------------------------------------------------------------------------------------------------
# Pipeline parallelism in a replay: a step passes through stages, each of which computes one step at a time.
#
#     no async scheduling     stage 0  | 0 | 1 | 2 | 3 |        a request is in one step at a time, so that the running
#                             stage 1      | 0 | 1 | 2 | 3 |    ones part into as many batches as there are stages
# async scheduling, 0.33  the same, and a step more is decided ahead: a request decodes once in a round of the stages
# async scheduling, 0.22  stage 0  | 0 |   | 1 |   | 2 |    every step has all of them, and its first stage waits for
#                             stage 1      | 0 |   | 1 |        the tokens of the step before
#
# Facts of vLLM: with async scheduling the last stage broadcasts what it sampled to the others, unless the step had
# nothing but chunks of prompts. In 0.22 as many steps are in flight as there are stages.


class PipelinedExecutor(SimulatedExecutor):
    """An executor of several stages; a step takes the same share of its time in each."""

    def __init__(
        self,
        clock: VirtualClock,
        latency: LatencyModel,
        num_stages: int,
        *,
        waits_for: int,
        transfers: WorkerTransfers | None = None,
        speculation: SimulatedSpeculation | None = None,
        silent: bool = False,
        model: SimulatedModel | None = None,
    ) -> None:
        """``waits_for``: a step begins when the one so many before has sampled (async scheduling); 0: it does not."""
        super().__init__(clock, latency, transfers=transfers, speculation=speculation, silent=silent, model=model)
        self._waits_for = waits_for
        self.most_empty += max(waits_for - 1, 0)
        self._stages_free_at: list[float] = [0.0] * num_stages
        self._tokens_at = 0.0
        """When the tokens are there that the next step begins with."""
        self._sampling: deque[tuple[int, float]] = deque()
        """Numbers of later steps, and when they have sampled."""

    def run_ahead(self, futures: Sequence[StepFuture], newest: SchedulerOutput, most: int) -> None:
        """Steps go through the stages one by one."""

    def _compute(self, plan: SchedulerOutput, waits: float) -> StepEnd:
        now, host, stages = self._clock.now(), host_seconds(self._latency), self._stages_free_at
        shape = StepShape.of(plan)
        seconds = max(step_seconds(self._latency, shape, plan.step) - host, 0.0) / len(stages)
        self._host_free_at = max(now, self._host_free_at) + host
        while self._sampling and self._sampling[0][0] + self._waits_for <= plan.step:
            self._tokens_at = self._sampling.popleft()[1]
        moment = max(self._host_free_at, self._tokens_at, stages[0]) + waits
        for stage, free_at in enumerate(stages):
            moment = stages[stage] = max(moment, free_at) + seconds
        if self._waits_for and shape.num_sampled:
            self._sampling.append((plan.step, moment))
        self.busy_seconds += moment - max(now, self._end.moment)
        return StepEnd(moment)


def executor_for(
    clock: VirtualClock,
    latency: LatencyModel,
    config: SchedulerConfig,
    *,
    transfers: WorkerTransfers | None = None,
    speculation: SimulatedSpeculation | None = None,
    silent: bool = False,
    model: SimulatedModel | None = None,
) -> SimulatedExecutor:
    """The executor of one engine, with as many stages as it has."""
    if config.pipeline_parallel_size == 1:
        return SimulatedExecutor(
            clock, latency, transfers=transfers, speculation=speculation, silent=silent, model=model
        )
    return PipelinedExecutor(
        clock,
        latency,
        config.pipeline_parallel_size,
        waits_for=config.steps_per_decode if config.async_scheduling else 0,
        transfers=transfers,
        speculation=speculation,
        silent=silent,
        model=model,
    )
