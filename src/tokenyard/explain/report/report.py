"""The report: one object that says how a run went, of one engine or of several."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import asdict

from tokenyard.explain.advice.rules import Advice, Relief, Trial
from tokenyard.explain.answer.answer import Answer, Told, answer_of, overload_of
from tokenyard.explain.answer.causes import Counts, EngineLoad
from tokenyard.explain.answer.progress import Progress
from tokenyard.explain.assumed_drafts import AssumedAcceptance, assumed_acceptance
from tokenyard.explain.classifier import Disagreements
from tokenyard.explain.figures import Arrivals, LatencyFigures, StepFigures
from tokenyard.explain.jobs import PinLedger
from tokenyard.explain.measured import MeasuredBeside
from tokenyard.explain.population import Attempts, Outcomes
from tokenyard.explain.recorded_reasons import RecordedReason
from tokenyard.explain.slo import Goodput
from tokenyard.explain.steady import Load
from tokenyard.explain.table import HtmlTable, Printable, RowTable, table_from, tables_html
from tokenyard.trace.facts import CLASSIFIER_BLOCK_SIZE, Drafts, StepFacts
from tokenyard.trace.reader import Partial
from tokenyard.trace.schema import TraceStart
from tokenyard.trace.start import DeploymentHeader, deployment_of
from tokenyard.trace.steps import BadLine
from tokenyard.units import count, duration, percent

# ---------------------------------------------------------------------------------------------------------------------
# What clients saw that hang up after a time and retry.


class ClientFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of a replay with ``--client-timeout``."""

    timeout_s: float
    retries: int
    """Times that a client sends a request again, at most."""
    retry_wait_s: float
    """Seconds between hanging up and sending again."""
    given_up: int
    """Attempts that clients hung up on."""
    retried: int
    """Attempts that clients hung up on and sent again."""
    answered_late: int
    """Requests that a later attempt than the first one answered."""
    unanswered: int
    """Requests whose client went away for good."""
    answer_ms: LatencyFigures
    """Time of each user from the first sending to the end of the answer: the E2E of the report."""


# ---------------------------------------------------------------------------------------------------------------------
# Replicas that come and go: how many there were when, and what that took.


class ReplicaChange(msgspec.Struct, frozen=True):
    """From this moment on."""

    at_s: float
    held: int
    """Replicas that have their GPUs: those that start, serve, or end what they have."""
    ready: int
    """Replicas that take requests, of those that are held."""


class ReplicaFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of a replay with ``--replicas``."""

    least: int
    most: int
    startup_s: float
    target: float
    """Requests that wait, per replica, by which their number is decided."""
    changes: list[ReplicaChange]
    """The changes in order of time; the first is at 0."""
    started: int
    """Replicas that were started after the beginning."""
    mean_held: float
    max_held: int
    held_s: float
    """Replica-seconds, from each decision to start one until its last request had ended."""
    gpus: int | None = None
    """GPUs of each replica."""


# ---------------------------------------------------------------------------------------------------------------------
# What each of several engines had of a run.


class RankShare(msgspec.Struct, frozen=True, kw_only=True):
    """One engine's part; None where its trace does not record it."""

    rank: int
    requests: int | None
    """Requests sent to this engine, without refused ones."""
    requests_share: float | None
    """Its share of all requests, from 0 to 1."""
    requests_finished: int | None
    output_tokens: int | None
    output_tokens_share: float | None
    """Its share of all tokens sampled, from 0 to 1."""
    steps: int
    dummy_batches: int | None
    """Steps in which it only kept step with the others; 0 where each steps alone, None of a trace."""
    busy_share: float | None
    """Time in steps with requests, as a share of the run."""
    preemptions: int | None
    prefix_hit_rate: float | None
    """Share of its prompt tokens that were found in the cache, from 0 to 1."""
    peak_kv_use: float | None
    waiting_mean: float | None
    """Waiting requests per step."""
    waited_s: float = 0.0
    """Request-seconds that its requests waited, for whatever is recorded or guessed."""
    ttft_ms: LatencyFigures
    tpot_ms: LatencyFigures
    source: str | None
    """Its trace, if one was written."""


# ---------------------------------------------------------------------------------------------------------------------
# How many drafts of speculative decoding the model accepted, as the report shows it.


class SpeculationCounter:
    """Adds up what steps verified."""

    def __init__(self) -> None:
        self._drafts = self._tokens = 0
        self._accepted: list[int] = []
        """Accepted drafts by position."""

    def add(self, drafts: Drafts) -> None:
        """A step verified these."""
        self._drafts += drafts.num_drafts
        self._tokens += drafts.num_draft_tokens
        new, known = drafts.num_accepted_tokens_per_pos, self._accepted
        known += [0] * (len(new) - len(known))
        for position, times in enumerate(new):
            known[position] += times

    def join(self, other: SpeculationCounter) -> None:
        """The steps of another engine, too."""
        self.add(Drafts(other._drafts, other._tokens, other._accepted))

    def result(self, start: TraceStart | None, tpot_ms: float | None = None) -> SpeculationFigures | None:
        """The counts so far, and what the mean TPOT rests on; None if nothing was drafted, and the trace's start does
        not say that drafts were on.
        """
        told = ((start.config if start is not None else None) or {}).get("speculation")
        if not self._drafts and not told:
            return None
        accepted = sum(self._accepted)
        return SpeculationFigures(
            num_drafts=self._drafts,
            num_draft_tokens=self._tokens,
            num_accepted_tokens=accepted,
            num_accepted_tokens_per_pos=self._accepted.copy(),
            acceptance_rate=_ratio(accepted, self._tokens),
            acceptance_rate_per_pos=[_ratio(count, self._drafts) for count in self._accepted],
            assumed=assumed_acceptance(start, len(self._accepted), tpot_ms),
        )


def _ratio(count: int, total: int) -> float | None:
    return count / total if total else None


class SpeculationFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Counts under vLLM's names, and their ratios; a ratio is None if nothing was drafted."""

    num_drafts: int
    """Proposals that were verified: one per request and step, of one draft token or several."""
    num_draft_tokens: int
    num_accepted_tokens: int
    num_accepted_tokens_per_pos: list[int]
    """How often the draft at each position was accepted."""
    acceptance_rate: float | None
    """Accepted tokens over draft tokens."""
    acceptance_rate_per_pos: list[float | None]
    """Accepted at each position over proposals, also those too short to have that position."""
    assumed: AssumedAcceptance | None = None
    """What TPOT rests on, where the acceptance was neither given nor measured."""

    def __str__(self) -> str:
        if self.acceptance_rate is None:
            return "no drafts verified"
        positions = ", ".join(map(percent, self.acceptance_rate_per_pos))
        return (
            f"{self.num_accepted_tokens:,} of {self.num_draft_tokens:,} drafts accepted, "
            f"{percent(self.acceptance_rate)}; by position {positions}"
        )


# ---------------------------------------------------------------------------------------------------------------------
# The one-line summary of a run: each token from the field that the trace format names for it.

DEFAULT_BYTES_PER_BLOCK = 16 * 32 * 8 * 128 * 2 * 2
"""Bytes of a KV block where a trace does not say: 16 tokens x 32 layers x 8 KV heads x 128 dimensions x key and value x
2 bytes (Llama-3.1-8B)."""

_GPU_BY_BLOCKS = (
    (8_000, "5090"),
    (15_000, "A100-40GB"),
    (35_000, "H100/A100-80GB"),
    (60_000, "H200-141GB"),
)


class Header(DeploymentHeader, frozen=True, kw_only=True):
    """What ran, where and how long. None where the trace does not record it."""

    policy: str
    gpu: str
    gpu_inferred: bool
    """The GPU was guessed from the number of blocks."""
    model: str | None
    host: str | None
    kv_blocks: int | None
    kv_bytes: int | None
    dram_blocks: int | None
    dram_bytes: int | None
    jobs: int
    """Distinct job ids."""
    first_step: int | None
    last_step: int | None
    steps: int
    seconds: float | None
    """From the first snapshot to the last."""
    max_running: int | None
    """Most requests running at once."""
    warmup_s: float | None = None
    """Requests that arrive, and steps that begin, before this moment do not count in the figures; None: all count."""
    request_records: int | None
    """Records in the requests file, if it was read."""
    source: str | None
    partial: Partial | None = None
    """How the trace shows that the run went on after it; None if it does not."""


def infer_gpu(total_blocks: int | None) -> str:
    """The GPU that usually has so many blocks, or ``unknown``."""
    if total_blocks is not None:
        for limit, name in _GPU_BY_BLOCKS:
            if total_blocks < limit:
                return name
    return "unknown"


def kv_bytes(blocks: int | None, start: TraceStart | None) -> int | None:
    """Bytes of so many blocks."""
    if blocks is None:
        return None
    per_block = start.bytes_per_block if start is not None else None
    if not per_block:
        block_size = start.block_size if start is not None else None
        per_block = DEFAULT_BYTES_PER_BLOCK * (block_size or CLASSIFIER_BLOCK_SIZE) // CLASSIFIER_BLOCK_SIZE
    return blocks * per_block


def header_of(
    start: TraceStart | None,
    first: StepFacts | None,
    last: StepFacts | None,
    *,
    steps: int,
    jobs: int,
    max_running: float | None,
    request_records: int,
    source: str | None,
    partial: Partial | None,
) -> Header:
    """The header of a run from its first and last step and what was counted between them."""
    blocks = first.total_blocks if first is not None else None
    dram = first.cpu_total_blocks if first is not None else None
    gpu = start.gpu if start is not None else None
    seconds = None
    if first is not None and last is not None and first.ts is not None and last.ts is not None:
        seconds = last.ts - first.ts
    return Header(
        **msgspec.structs.asdict(deployment_of(start.config if start is not None else None)),
        policy=(first.policy if first is not None else None) or "unknown",
        gpu=gpu or infer_gpu(blocks),
        gpu_inferred=gpu is None,
        model=start.model if start is not None else None,
        host=start.host if start is not None else None,
        kv_blocks=blocks,
        kv_bytes=kv_bytes(blocks, start),
        dram_blocks=dram,
        dram_bytes=kv_bytes(dram, start),
        jobs=jobs,
        first_step=first.step if first is not None else None,
        last_step=last.step if last is not None else None,
        steps=steps,
        seconds=seconds,
        max_running=None if max_running is None else int(max_running),
        warmup_s=start.warmup if start is not None else None,
        request_records=request_records or None,
        source=source,
        partial=partial,
    )


# ---------------------------------------------------------------------------------------------------------------------
# The report: one object that says how a run went. Its JSON is what ``--json`` prints; ``docs/report.md`` explains it.
#
# Stable: fields are added, never renamed, and a change of meaning raises ``report_version``.

REPORT_VERSION = 1


class HitRate(msgspec.Struct, frozen=True):
    """Share of looked-up prompt tokens found in a cache; None if nothing was looked up."""

    local: float | None
    external: float | None


class Throughput(msgspec.Struct, frozen=True):
    """Per second of the run; None if it has no duration or the counts are not known."""

    requests_per_s: float | None
    """Served ones."""
    output_tokens_per_s: float | None


class ReadingGaps(msgspec.Struct, frozen=True, kw_only=True):
    """What the report could not use or does not contain."""

    bad_lines: int = 0
    first_bad_lines: list[BadLine] = []
    unknown_events: dict[str, int] = {}
    dropped_fields: dict[str, int] = {}
    duplicate_records: int = 0
    late_records: int = 0
    unmatched_request_records: int = 0
    clock_back_s: float = 0.0
    """Seconds by which the clock was set back between two steps, added up: times that span it are too short."""
    omitted_ids: int = 0
    """Ids that the trace's bound left out of its lists, added over the steps; the counts are exact."""
    sampled_every: int = 1
    """The trace holds every n-th step."""
    step_limit_reached: bool = False
    """The trace ends because its step limit was reached."""
    missing_ranks: list[int] = []
    """Engines of the run, by rank, whose traces are not there."""


_LATENCIES = {"queue": "queue", "ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2e": "E2E", "job": "job"}
"""Latency -> how a notebook heads its row."""
_STATISTICS = ("mean", "p50", "p90", "p95", "p99", "max")


class Report(Printable, msgspec.Struct, frozen=True, kw_only=True):
    """How a run went."""

    printer = "tokenyard.explain.render.report:print_report"

    report_version: int = REPORT_VERSION
    """Raised when a field changes its meaning."""
    header: Header
    """What ran, where and how long."""
    steps: int
    """Steps of the trace, or of the run."""
    requests: int | None
    """Requests that arrived; None if the trace does not record it."""
    requests_finished: int | None
    """Requests that ended; None if the trace does not record it."""
    outcomes: Outcomes | None = None
    """What became of everybody who arrived; None if the trace does not record it."""
    attempts: Attempts | None = None
    """What clients sent again: all other figures are of users, each with all its attempts; None: nothing."""
    finish_reasons: dict[str, int]
    """Finish reason -> requests that ended by it."""
    buckets: dict[str, int]
    """Bucket of the classifier -> steps in it."""
    reasons: dict[str, int]
    """Reason of the classifier -> steps in which it held a request back."""
    recorded_reasons: dict[str, RecordedReason]
    """Recorded reason -> what it cost."""
    progress: Progress = Progress()
    """What shows without recorded reasons: waiting by bucket, stretches without a token, pins, changes of the pool."""
    unseen_s: float | None
    """Request-seconds between arrivals and the first step that could see them; with those of ``recorded_reasons`` it
    makes up all waiting time."""
    disagreements: Disagreements
    """Steps in which classifier and recorded reason differ."""
    arrivals: Arrivals | None
    """Arrivals against the first steps; None if the trace does not record arrivals, and of several engines."""
    times: str | None
    """Where latencies come from: ``recorded``, ``reconstructed`` (exact to a step), or None: there are none."""
    queue_ms: LatencyFigures
    """From arrival to first schedule, per request."""
    ttft_ms: LatencyFigures
    """From arrival to the first token, per request."""
    tpot_ms: LatencyFigures
    """Time per token after the first, per request."""
    e2e_ms: LatencyFigures
    """From arrival to the end, per request."""
    itl_ms: LatencyFigures = LatencyFigures()
    """Time between two deliveries of tokens to an answer (inter-token latency), all gaps of ``itl_requests``."""
    job_ms: LatencyFigures = LatencyFigures()
    """From the arrival of a job's first turn to the end of its last one (job completion time), per job."""
    itl_requests: int = 0
    """Requests that got tokens and whose pauses are known: all, but in traces that do not tell of pauses."""
    tpot_requests: int = 0
    """Requests that ended whole, with two tokens or more."""
    prefix_hit_rate: HitRate
    """Prompt tokens found in the prefix cache, and by a connector."""
    prefix_lookups: int
    """Requests whose prefix was looked up, each counted at its first admission."""
    preemptions: int | None
    """Times a running request lost its blocks; None if the trace does not record it."""
    recomputed_tokens: int | None
    """Tokens computed again after preemptions; None if the trace does not record it."""
    token_budget_use: StepFigures
    """Share of the token budget that a step used, from 0 to 1."""
    running: StepFigures
    """Running requests per step."""
    waiting: StepFigures
    """Waiting requests per step."""
    peak_kv_use: float | None
    """Largest share of KV blocks in use, from 0 to 1."""
    peak_dram_use: float | None = None
    """Largest share of the CPU tier's blocks in use, from 0 to 1; None without such a tier."""
    output_tokens: int | None
    """Tokens sampled in the run, without those of attempts that were given up and sent again."""
    duration_s: float | None
    """Seconds from the first step to the last moment of the trace; None without times."""
    longest_idle_s: float | None = None
    """The longest stretch of that time in which no step ran, in seconds; None where steps are not all known, or are of
    several engines."""
    throughput: Throughput
    """Requests and output tokens per second."""
    load: Load | None = None
    """What arrives beside what is served, and whether the queue grows; None in a report of an earlier release."""
    pins: PinLedger | None = None
    """Blocks that the policy kept between turns; None of a policy that keeps none."""
    goodput: Goodput | None = None
    """Requests within the bounds of ``--slo``, and whether those hold; None without any."""
    clients: ClientFigures | None = None
    """What clients saw in a replay where they hang up and retry."""
    replicas: ReplicaFigures | None = None
    """How many replicas a replay had when."""
    speculation: SpeculationFigures | None = None
    """Drafts of a replay with speculative decoding; a trace does not record them."""
    reading: ReadingGaps
    """What could not be read, or was not recorded."""
    measured: MeasuredBeside | None = None
    """What the input of a replay has measured, beside what the replay gives; None where it has measured nothing."""
    advice: list[Advice] = []
    """What to change, most time lost first; nothing where nothing is wrong."""
    ranks: list[RankShare] = []
    """The part of each engine, where there are several; the rest of the report is of all of them."""
    relief: Relief | None = None
    """What serves the load of a run that is overloaded; None where it is not, or changes were not replayed."""
    tried: list[Trial] = []
    """Changes that were replayed and did not help."""
    tried_on: str | None = None
    """Which requests changes were replayed on, and compared on, in words; None: all, or nothing was replayed."""

    @property
    def censored(self) -> list[str]:
        """Figures that are lower bounds, as ``ttft_ms.p99``."""
        of_all = [f"{name}_ms.{each}" for name in _LATENCIES for each in getattr(self, f"{name}_ms").censored]
        answers = () if self.clients is None else self.clients.answer_ms.censored
        return [*of_all, *(f"clients.answer_ms.{each}" for each in answers)]

    def with_higher_bounds(self) -> Report:
        """The report whose lower bounds are all higher: whatever is another number then rests on them."""
        higher: dict[str, LatencyFigures] = {}
        for name in _LATENCIES:
            figures: LatencyFigures = getattr(self, f"{name}_ms")
            known = {each: getattr(figures, each) for each in figures.censored}
            raised = {each: 2 * value + 1 for each, value in known.items() if value is not None}
            higher[f"{name}_ms"] = msgspec.structs.replace(figures, **raised)
        report = msgspec.structs.replace(self, **higher)
        return report.with_clients(self.clients)

    def with_clients(self, clients: ClientFigures | None) -> Report:
        """The report with what clients saw in a replay, of everybody who arrived."""
        seen = None if clients is None else msgspec.structs.replace(clients, answer_ms=self.e2e_ms)
        return msgspec.structs.replace(self, clients=seen)

    @property
    def answer(self) -> Answer:
        """What is wrong, since when, whose requests it is, what would help; in one sentence and as fields."""
        mean = self.e2e_ms.mean
        engines = [EngineLoad(each.rank, each.waited_s, each.requests_share) for each in self.ranks]
        return answer_of(
            Told(
                progress=self.progress,
                reasons=self.recorded_reasons,
                counts=Counts(self.queue_ms, self.requests, engines, self.preemptions, self.peak_kv_use),
                ended=self.requests_finished,
                seconds=None if mean is None else mean / 1e3 * self._num_timed,
                load=self.load,
                overload=overload_of(self.load, self.relief, self.num_gpus),
                goodput=self.goodput,
                advice=self.advice,
                drafts=None if self.speculation is None else self.speculation.assumed,
                pins=self.pins,
                people=self.outcomes,
            )
        )

    @property
    def _num_timed(self) -> int:
        """Requests that a mean of latencies is of."""
        people = self.outcomes
        return self.requests_finished or 0 if people is None else people.arrived - people.refused

    @property
    def num_gpus(self) -> int | None:
        """GPUs of all replicas, at most; None where the run does not say."""
        gpus = self.header.num_gpus
        return gpus if gpus is None or self.replicas is None else gpus * self.replicas.max_held

    def to_dict(self) -> dict[str, Any]:
        """All of it, as ``--json`` prints it, with its ``answer``."""
        return {"answer": msgspec.to_builtins(self.answer), **super().to_dict()}

    def summary(self) -> str:
        came, done = self.requests, self.requests_finished or 0
        finished = "" if came is None else f"{done:,} of {came:,} requests finished, "
        return f"{finished}{self.steps:,} steps, {self.header.policy}"

    def as_table(self) -> RowTable:
        """One row per latency: ``latency`` (queue, ttft, tpot, itl, e2e), and its statistics in milliseconds."""
        return table_from(
            "latencies", [{"latency": name, **asdict(getattr(self, f"{name}_ms"))} for name in _LATENCIES]
        )

    def _repr_html_(self) -> str:
        """Latencies, what held requests back, and the figures beside them."""
        header = self.header
        gpu = "" if header.gpu_inferred or header.gpu == "unknown" else header.gpu
        names = filter(None, (header.policy, header.model, gpu))
        title = ", ".join([*names, f"{self.steps:,} steps", duration(self.duration_s)])
        return tables_html(title, [self._latency_table(), self._reason_table(), self._figure_table()])

    def _latency_table(self) -> HtmlTable:
        rows = []
        for name, words in _LATENCIES.items():
            figures = getattr(self, f"{name}_ms")
            rows.append((words, *(figures.in_words(each) for each in _STATISTICS)))
        return HtmlTable("Latency", ("", *_STATISTICS), rows)

    def _reason_table(self) -> HtmlTable:
        rows = [
            (name, count(each.steps), count(each.requests), duration(each.seconds))
            for name, each in self.recorded_reasons.items()
        ]
        head = ("recorded reason", "steps", "requests, by step", "time lost")
        return HtmlTable("What held requests back", head, rows, "No request was held back in any step.")

    def _figure_table(self) -> HtmlTable:
        rows = [
            ("requests finished", f"{count(self.requests_finished)} of {count(self.requests)}"),
            *([] if self.load is None else [("offered and served", str(self.load))]),
            ("output tokens per second", count(self.throughput.output_tokens_per_s)),
            ("prefix hits", percent(self.prefix_hit_rate.local)),
            ("preemptions", count(self.preemptions)),
            ("peak KV use", percent(self.peak_kv_use)),
        ]
        return HtmlTable("Figures", (), rows)
