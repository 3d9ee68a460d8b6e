"""A trace without configuration, arrivals and ends (document 000), told as the records that a replay needs.

Two passes: the first learns how long requests were and what they found in the cache; the second gives out the steps
with arrivals, lookups and ends in them, as our own traces carry them.

    limits     pool, budget and seats of the first snapshot
    lengths    the requests file; without one, what steps computed: what the cache held then stays unknown
    sharing    the requests of a job go on from each other as far as their hits say; those of no job share one beginning
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from tokenyard.explain.why.timeline import StepReader
from tokenyard.trace.facts import CLASSIFIER_BLOCK_SIZE
from tokenyard.trace.reader import TraceFiles
from tokenyard.trace.schema import (
    PrefixCacheLookup,
    RequestFinished,
    RequestRecord,
    StepCompleted,
    StepSnapshot,
    TraceStart,
)
from tokenyard.trace.steps import Step
from tokenyard.vocabulary import known_policies

_FEWEST_HASHES = 8
"""A request with so many hashed blocks tells how long a block is."""
_BLOCK_SIZES = (8, 16, 32, 64, 128, 256)
_ENDED = "length"
_LENGTH_STEP = 1024
"""The context length, which no record names, is a multiple of this."""


class _Life:
    """The lengths of a request, as far as the steps read so far tell."""

    __slots__ = ("arrival", "computed", "has_records", "hits", "left", "most", "outputs", "priority", "prompt", "runs")

    def __init__(self) -> None:
        self.arrival: float | None = None
        self.prompt = self.outputs = self.hits = self.priority = 0
        self.most: int | None = None
        """Its ``max_tokens``."""
        self.computed = 0
        """Tokens of its prompt that steps have computed; of use where no record tells its length."""
        self.has_records = False
        self.left = 0
        """Known tokens that were not computed yet, by its last record."""
        self.runs: list[int] = []
        """Numbered full blocks of its prompt: the first, how many, and so on."""

    def learn(self, record: RequestRecord) -> None:
        """Take what a record of the requests file says."""
        self.has_records |= record.num_prompt_tokens is not None
        self.arrival = self.arrival if record.arrival_time is None else record.arrival_time
        self.prompt = record.num_prompt_tokens or self.prompt
        self.most = record.max_tokens or self.most
        self.priority = record.priority or self.priority
        self.hits = max(self.hits, record.num_cached_tokens or 0)
        self.outputs = max(self.outputs, record.num_output_tokens or 0)
        self.left = (record.num_tokens or 0) - (record.num_computed_tokens or 0)

    def compute(self, tokens: int) -> None:
        """Take what a step computed: one token at a time once the prompt is done."""
        if self.has_records:
            self.outputs += tokens >= self.left
            return
        if tokens > 1 or not self.computed:
            self.computed += tokens
            self.outputs = 0
        self.outputs += 1


def is_bare(files: TraceFiles) -> bool:
    """Return whether a trace holds neither a first record nor arrivals."""
    reader = StepReader(files)
    next(reader.steps(), None)
    return reader.reconstructed


class BareTrace:
    """One trace that only says who was in which queue, and what was decided. Raises TraceError if there is none."""

    def __init__(self, files: TraceFiles) -> None:
        self._files = files
        self._lives: dict[str, _Life] = {}
        self._block_size = CLASSIFIER_BLOCK_SIZE
        self._is_async = False
        """Steps are scheduled while the one before runs: tokens that it samples count as computed already."""
        self._numbered = 0
        """Blocks that have a number."""
        self._chains: dict[str, list[int]] = {}
        """Job -> runs of the blocks with which its next prompt begins; those of no job go by an empty name."""
        first: StepSnapshot | None = None
        for step in StepReader(files).steps():
            first = first or step.snapshot
            self._learn(step)
        self.start = self._started(first) if first is not None else None

    def _learn(self, step: Step) -> None:
        for record in step.requests:
            if record.req_id is not None:
                self._lives.setdefault(record.req_id, _Life()).learn(record)
            if record.queue == "running" and record.num_tokens and record.num_output_tokens:
                self._is_async |= (record.num_computed_tokens or 0) >= record.num_tokens
            hashes, tokens = record.block_hashes_count or 0, record.num_tokens or 0
            if hashes >= _FEWEST_HASHES:
                self._block_size = next((size for size in _BLOCK_SIZES if tokens // size == hashes), self._block_size)
        for request_id, tokens in (step.decision.num_scheduled_tokens or {} if step.decision else {}).items():
            self._lives.setdefault(request_id, _Life()).compute(tokens)

    def _started(self, first: StepSnapshot) -> TraceStart | None:
        """The record that such a trace lacks; None if its snapshots do not say how its scheduler was limited."""
        limits = (first.max_num_scheduled_tokens, first.max_num_running_reqs, first.total_blocks)
        if None in limits:
            return None
        longest = max(
            (self._prompt(life) + max(life.most or 0, life.outputs) for life in self._lives.values()), default=0
        )
        scheduler = {
            "max_num_batched_tokens": first.max_num_scheduled_tokens,
            "max_num_seqs": first.max_num_running_reqs,
            "max_model_len": -(-(longest + 1) // _LENGTH_STEP) * _LENGTH_STEP,
            "policy": first.policy if first.policy in known_policies() else "fcfs",
            "async_scheduling": self._is_async,
        }
        cache = {
            "num_gpu_blocks": first.total_blocks,
            "block_size": self._block_size,
            "enable_prefix_caching": any(life.hits for life in self._lives.values()),
        }
        return TraceStart(
            ts=first.ts,
            policy=first.policy,
            block_size=self._block_size,
            config={"scheduler": scheduler, "cache": cache},
        )

    def assumed(self) -> list[str]:
        """What the trace does not say, and a replay of it takes."""
        config = self.start.config if self.start is not None else None
        limits = (config or {}).get("scheduler", {})
        how = "asynchronous" if self._is_async else "synchronous"
        said = [
            (
                f"the trace names no configuration: blocks of {self._block_size} tokens, a context of"
                f" {limits.get('max_model_len', 0):,} tokens, order {limits.get('policy')} and {how} scheduling are"
                " assumed; pool, budget and seats are those of its first snapshot"
            )
        ]
        if not any(life.has_records for life in self._lives.values()):
            said.append("it has no requests file: prompts are as long as what was computed of them, and share nothing")
        return said

    @staticmethod
    def _prompt(life: _Life) -> int:
        return life.prompt if life.has_records else life.computed

    def steps(self) -> Iterator[Step]:
        """All steps, with the records of arrivals, lookups and ends that their emitter did not write."""
        begun = set[str]()
        steps = StepReader(self._files).steps()
        for step in _timed(steps) if self._is_async else steps:
            for arrived in step.arrived:
                life = self._lives.get(arrived.req_id or "") or _Life()
                arrived.arrival_time = arrived.arrival_time if life.arrival is None else life.arrival
                arrived.num_prompt_tokens, arrived.max_tokens = self._prompt(life), life.most
                arrived.priority = life.priority
            jobs: dict[str | None, str | None] = {each.req_id: each.job_id for each in step.requests}
            for request_id in step.decision.num_scheduled_tokens or {} if step.decision else {}:
                if request_id not in begun:
                    begun.add(request_id)
                    step.lookups.append(self._looked_up(step, request_id, self._job(step, request_id, jobs)))
            for finished in step.finished:
                self._end(finished)
            yield step

    @staticmethod
    def _job(step: Step, request_id: str, jobs: dict[str | None, str | None]) -> str:
        snapshot = step.snapshot
        if snapshot is not None and request_id not in jobs:
            for ids, named in (
                (snapshot.running_req_ids, snapshot.running_job_ids),
                (snapshot.waiting_req_ids, snapshot.waiting_job_ids),
            ):
                jobs.update(zip(ids or (), named or (), strict=False))
        return jobs.get(request_id) or ""

    def _looked_up(self, step: Step, request_id: str, job: str) -> PrefixCacheLookup:
        """Number the blocks of its prompt: those it found are its job's, the others are new."""
        life = self._lives[request_id]
        length = self._prompt(life)
        known = self._chains.get(job, [])
        shared = _first_blocks(known, min(life.hits, length) // self._block_size)
        new = length // self._block_size - sum(shared[1::2])
        life.runs = _with(shared, self._numbered, new)
        self._numbered += new
        if job or sum(life.runs[1::2]) > sum(known[1::2]):
            self._chains[job] = life.runs
        return PrefixCacheLookup(
            step=step.number,
            ts=step.ts,
            req_id=request_id,
            job_id=job or None,
            local_hit_tokens=life.hits,
            total_hit_tokens=life.hits,
            total_prompt_tokens=length,
            num_tokens=length,
            prompt_hash_runs=life.runs,
        )

    def _end(self, finished: RequestFinished) -> None:
        life = self._lives.get(finished.req_id or "")
        if life is None:
            return
        length = self._prompt(life)
        new = (length + life.outputs) // self._block_size - length // self._block_size
        finished.num_prompt_tokens, finished.num_output_tokens = length, life.outputs
        finished.finish_reason = _ENDED
        finished.output_hash_runs = _with([], self._numbered, new)
        if finished.job_id and self._chains.get(finished.job_id) is life.runs:
            self._chains[finished.job_id] = _with(life.runs, self._numbered, new)
        self._numbered += new


def _timed(steps: Iterator[Step]) -> Iterator[Step]:
    """Give out steps scheduled ahead, each with how long it ran: from the next one's schedule to that after it."""
    open_steps = deque[Step]()
    for step in steps:
        open_steps.append(step)
        if len(open_steps) < 3:
            continue
        first, second = open_steps.popleft(), open_steps[0]
        if step.ts is not None and second.ts is not None and step.snapshot is not None and step.snapshot.num_running:
            first.completed = StepCompleted(step=first.number, ts=step.ts, step_seconds=step.ts - second.ts)
        yield first
    yield from open_steps


def _first_blocks(runs: list[int], count: int) -> list[int]:
    """Return the runs of the first ``count`` blocks, or of all if there are fewer."""
    found: list[int] = []
    for first, length in zip(runs[::2], runs[1::2], strict=True):
        taken = min(length, count)
        if taken:
            found += (first, taken)
        count -= taken
    return found


def _with(runs: list[int], first: int, count: int) -> list[int]:
    """Return the runs with ``count`` new blocks from number ``first`` on."""
    return [*runs, first, count] if count else list(runs)
