"""Replaying a golden vector: recorded inputs in, every recorded decision compared."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tokenyard.core.config import PauseState
from tokenyard.core.engine import EngineCore
from tokenyard.core.request import RequestStatus
from tokenyard.core.sched.features.grammars import GrammarOutput
from tokenyard.core.sched.outputs import DraftTokens, EngineOutputs, ModelAuxOutput, ModelOutput
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.errors import ConfigError, ParityError, RequestError
from tokenyard.parity.vector import (
    GoldenVector,
    Json,
    RecordedGrammar,
    Tokens,
    make_request,
    make_scheduler,
    unsupported_features,
)

# ---------------------------------------------------------------------------------------------------------------------
# Checks of what a record says a model returned, before it is fed to a scheduler.
#
# A worker that breaks its contract is a mistake of the program and a scheduler may say so in its own way; a record
# that breaks it is a damaged file. Each function returns the problem in words, or None.


def sampled_problem(output: SchedulerOutput, sampled: Tokens) -> str | None:
    """Tokens belong to the requests of the step, in its order, and follow at most one per draft and one more."""
    if [request_id for request_id, _ in sampled] != list(output.num_scheduled_tokens):
        return "sampled tokens are not those of the requests of the step, in its order"
    drafts = output.scheduled_spec_decode_tokens
    for request_id, tokens in sampled:
        most = 1 + len(drafts.get(request_id, ()))
        if len(tokens) > most:
            return f"{len(tokens)} tokens are sampled for {request_id!r}, where there can be {most}"
    return None


def drafts_problem(output: SchedulerOutput, drafts: Tokens, most: int) -> str | None:
    """Drafts belong to requests of the step, each once, ``most`` of them at most."""
    if not most:
        return "holds drafts, but the header has no num_speculative_tokens"
    ids = [request_id for request_id, _ in drafts]
    if len(set(ids)) < len(ids) or not output.num_scheduled_tokens.keys() >= set(ids):
        return "drafts are not those of requests of the step, each once"
    for request_id, tokens in drafts:
        if len(tokens) > most:
            return f"{len(tokens)} drafts for {request_id!r}, more than num_speculative_tokens = {most}"
    return None


# ---------------------------------------------------------------------------------------------------------------------
# The executor of a parity replay: the model's part comes out of the record.


class _RecordedStep:
    """A step whose output is known when its record is read; it is never done before it is waited for."""

    def __init__(self, executor: RecordedExecutor, plan: SchedulerOutput) -> None:
        self._executor = executor
        self._plan = plan

    def done(self) -> bool:
        return False

    def result(self) -> ModelOutput:
        return self._executor.answer(self._plan)


class RecordedExecutor:
    """Answers steps with what :meth:`record` was given last."""

    def __init__(self) -> None:
        self.plan: SchedulerOutput | None = None
        """The step that was begun last."""
        self._sampled: Mapping[str, list[int]] = {}
        self._pooled: frozenset[str] = frozenset()
        self._drafts: Mapping[str, list[int]] | None = None
        self._answered: SchedulerOutput | None = None

    def record(
        self,
        sampled: Mapping[str, list[int]],
        pooled: frozenset[str] = frozenset(),
        drafts: Mapping[str, list[int]] | None = None,
    ) -> None:
        """What the model returned for the step that is taken in next, by request id, and drafted after it."""
        self._sampled, self._pooled, self._drafts = sampled, pooled, drafts

    def execute_model(self, plan: SchedulerOutput) -> None:
        """Nothing runs."""
        self.plan = plan

    def sample_tokens(self, plan: SchedulerOutput, grammar: GrammarOutput | None) -> _RecordedStep:
        """The step, to be answered by its record."""
        return _RecordedStep(self, plan)

    def answer(self, plan: SchedulerOutput) -> ModelOutput:
        """The recorded output of ``plan``."""
        self._answered = plan
        tokens = [self._sampled.get(request_id, []) for request_id in plan.req_ids]
        pooler = [request_id if request_id in self._pooled else None for request_id in plan.req_ids]
        extras = ModelAuxOutput(pooler_output=pooler) if self._pooled else None
        return ModelOutput.from_lists(tokens, extras=extras)

    def take_draft_token_ids(self) -> DraftTokens | None:
        """The recorded drafts after the step that was answered last; None where none are recorded."""
        drafts, plan = self._drafts, self._answered
        if drafts is None or plan is None:
            return None
        return DraftTokens.from_lists([drafts.get(request_id, []) for request_id in plan.req_ids])

    def shutdown(self) -> None:
        """Nothing is held."""


# ---------------------------------------------------------------------------------------------------------------------
# Replaying a golden vector: recorded inputs in, every recorded decision compared.
#
# Only arrivals, events and sampled tokens are taken from the record; what the scheduler makes of them is ours.


class Difference(NamedTuple):
    """The first place where a replay and its record part."""

    tick: int
    what: str
    ours: Any
    theirs: Any


class VectorResult(msgspec.Struct, frozen=True):
    """Outcome of one file."""

    path: Path
    name: str
    steps: int
    """Calls of ``schedule()`` that were compared."""
    unsupported: list[str]
    """Features we lack; if any, nothing was compared."""
    difference: Difference | None
    vllm: str = ""
    """The version whose decisions were compared."""


_INPUTS = {"n", "of", "sampled", "drafts", "rolled_back", "known", "pooled"}
"""Keys of a record that are inputs, or say again what other keys say."""


class _DiffersError(Exception):
    def __init__(self, difference: Difference) -> None:
        super().__init__(difference.what)
        self.difference = difference


def replay_vector(path: Path, vllm: str | None = None) -> VectorResult:
    """Replay one file, as of a later version ``vllm`` that decided the same; ParityError if it is damaged."""
    vector = GoldenVector(path, vllm)
    header, difference = vector.header, None
    try:
        missing = unsupported_features(header)
        if missing:
            return VectorResult(path, header.name, 0, missing, None, header.vllm)
        replay = VectorReplay(vector)
    except ConfigError as refused:
        raise ParityError(f"{path}:1: {refused}") from None
    try:
        for tick in vector.ticks():
            replay.tick(tick)
        replay.end()
    except KeyError as lacking:
        raise ParityError(f"{path}: tick {replay.now}: a record lacks {lacking}") from None
    except RequestError as refused:
        raise ParityError(f"{path}: tick {replay.now}: {refused}") from None
    except _DiffersError as differs:
        difference = differs.difference
    if difference is None and not replay.steps:
        raise ParityError(f"{path}: no step was recorded")
    return VectorResult(path, header.name, replay.steps, [], difference, header.vllm)


class VectorReplay:
    """One vector against our scheduler."""

    def __init__(self, vector: GoldenVector) -> None:
        self.path = vector.path
        self.scheduler = make_scheduler(vector.header)
        self.max_drafts = vector.header.config.get("num_speculative_tokens") or 0
        self.records_events = bool(vector.header.config.get("record_events"))
        self.encoder_decoder = bool(vector.header.config.get("encoder_decoder"))
        self.specs = {spec.id: spec for spec in vector.header.requests}
        self.executor = RecordedExecutor()
        self.core = EngineCore(self.scheduler, self.executor)
        self.steps = 0
        self.in_flight: dict[int, SchedulerOutput] = {}
        """Number of a schedule() -> its step, until its output is taken in; oldest first."""
        self.now = -1
        self.is_overdue = False
        """Our loop should have taken in an output by the tick before, and took none in."""

    def tick(self, tick: Json) -> None:
        if self.is_overdue:
            self._compare("takes_in", ours=True, theirs=False)
        self.now = tick["t"]
        self.events(tick.get("ev_pre", []))
        for request_id in tick.get("add", []):
            if request_id not in self.specs:
                raise self._damaged(f"adds {request_id!r}, which the header does not describe")
            self.scheduler.add_request(make_request(self.specs[request_id], encoder_decoder=self.encoder_decoder))
        self._compare("has_requests", self.scheduler.has_requests(), "s" in tick)
        is_due = self._schedule(tick["s"]) if "s" in tick else bool(self.in_flight)
        self.events(tick.get("ev_mid", []))
        # The loop is vLLM's, too: which ticks take an output in. After the last tick it is the record that lacks one.
        self.is_overdue = is_due and "u" not in tick
        if "u" in tick:
            self._compare("takes_in", is_due, theirs=True)
            self._update(tick["u"])

    def end(self) -> None:
        """ParityError if the output of a step was never recorded."""
        if self.in_flight:
            raise self._damaged(f"ends before the outputs of schedule() number {', '.join(map(str, self.in_flight))}")

    def _damaged(self, problem: str) -> ParityError:
        return ParityError(f"{self.path}: tick {self.now}: {problem}")

    def _check(self, problem: str | None) -> None:
        if problem is not None:
            raise self._damaged(problem)

    def _compare(self, what: str, ours: Any, theirs: Any) -> None:
        if ours != theirs:
            raise _DiffersError(Difference(self.now, what, ours, theirs))

    def _compare_all(self, part: str, ours: Json, theirs: Json) -> None:
        # In order, so that the same files always show the same first difference.
        for key in [*ours, *(key for key in theirs if key not in ours and key not in _INPUTS)]:
            self._compare(f"{part}.{key}", ours.get(key), theirs.get(key))

    def events(self, events: list[Json]) -> None:
        """What happens from outside."""
        for event in events:
            if event["op"] == "abort":
                status = RequestStatus[event.get("status", "FINISHED_ABORTED")]
                ended = self.scheduler.finish_requests(event["id"], status, missing_ok=True)
                self._compare("abort.hit", bool(ended), event["hit"])
            elif event["op"] == "reset":
                ok = self.scheduler.reset_prefix_cache(reset_running_requests=event.get("running", False))
                self._compare("reset.ok", ok, event["ok"])
            elif event["op"] == "pause":
                self.scheduler.set_pause_state(PauseState(event["state"]))
            elif event["op"] == "reset_encoder":
                self.scheduler.reset_encoder_cache()
            elif event["op"] == "grammar":
                self._compile_grammar(event["id"])
            elif event["op"] == "feed":
                self._feed(event)
            else:
                raise self._damaged(f"unknown event {event['op']!r}")

    def _compile_grammar(self, request_id: str) -> None:
        request = self.scheduler.requests.get(request_id)
        if request is not None and isinstance(request.structured_output, RecordedGrammar):
            request.structured_output.is_ready = True

    def _feed(self, event: Json) -> None:
        """Further input for a session, unless it has ended or has not begun."""
        self._compare("feed.hit", event["id"] in self.scheduler.requests, event["hit"])
        if event["hit"]:
            changes = {"prompt": event["prompt"], "resumable": not event["last"], "arrival_time": float(self.now)}
            self.scheduler.add_request(make_request(msgspec.structs.replace(self.specs[event["id"]], **changes)))

    def _schedule(self, theirs: Json) -> bool:
        """Schedule and compare a step; True if an output has to be taken in then."""
        if theirs["n"] != self.steps:
            raise self._damaged(f"schedule() number {theirs['n']} stands where number {self.steps} is due")
        is_due = self.core.fill()
        output = self.executor.plan
        assert output is not None, "a request is there to be scheduled"
        self.in_flight[self.steps] = output
        self.steps += 1
        decided = {**_decision(output), **self._encoder(output)}
        if "known" in theirs:
            self._check(drafts_problem(output, theirs["known"], self.max_drafts))
            decided |= self._make_drafts_known(output, dict(theirs["known"]))
        self._compare_all("schedule", {**decided, **_queues(self.scheduler)}, theirs)
        return is_due

    def _make_drafts_known(self, output: SchedulerOutput, known: dict[str, list[int]]) -> Json:
        lists = [known.get(request_id, []) for request_id in output.req_ids]
        output = self.scheduler.update_draft_token_ids_in_output(output, DraftTokens.from_lists(lists))
        self.in_flight[output.step] = output
        invalid = output.num_invalid_spec_tokens
        counts = [] if invalid is None else invalid.tolist()
        pairs = zip(output.req_ids, counts, strict=True)
        return {
            "valid": [[rid, drafts] for rid, drafts in output.scheduled_spec_decode_tokens.items()],
            "invalid": [[request_id, count] for request_id, count in pairs if count],
        }

    def _encoder(self, output: SchedulerOutput) -> Json:
        """Encoder inputs of a step; nothing for a text model."""
        if self.scheduler.encoder_cache is None:
            return {}
        return {"enc": output.scheduled_encoder_inputs, "enc_free": list(output.free_encoder_mm_hashes)}

    def _update(self, theirs: Json) -> None:
        if theirs["of"] not in self.in_flight:
            raise self._damaged(f"updates schedule() number {theirs['of']}, which is not in flight")
        self._compare("update.of", next(iter(self.in_flight)), theirs["of"])
        output = self.in_flight.pop(theirs["of"])
        self._check(sampled_problem(output, theirs["sampled"]))
        drafts = None
        if "drafts" in theirs:
            self._check(drafts_problem(output, theirs["drafts"], self.max_drafts))
            drafts = dict(theirs["drafts"])
        self.executor.record(dict(theirs["sampled"]), frozenset(theirs.get("pooled", ())), drafts)
        try:
            result = self.core.take_in()
        except ValueError as refused:
            raise self._damaged(str(refused)) from None
        news = _news(result, self.scheduler)
        if self.records_events:
            news["events"] = [
                [each.request_id, [int(event.type) for event in each.extras.events]]
                for each in result
                if each.extras.events
            ]
        self._compare_all("update", {**news, **_queues(self.scheduler)}, theirs)
        self.scheduler.check_invariants()


def _lists(blocks: tuple[list[int], ...] | None) -> list[list[int]] | None:
    return None if blocks is None else [list(group) for group in blocks]


def _decision(output: SchedulerOutput) -> Json:
    cached = output.scheduled_cached_reqs
    zeroed = {} if output.new_block_ids_to_zero is None else {"zero": list(output.new_block_ids_to_zero)}
    return zeroed | {
        "new": [[new.req_id, new.num_computed_tokens, _lists(new.block_ids)] for new in output.scheduled_new_reqs],
        "cached": [
            [
                rid,
                computed,
                outputs,
                _lists(blocks),
                int(rid in cached.resumed_req_ids),
                int(rid in cached.all_token_ids),
            ]
            for rid, computed, outputs, blocks in zip(
                cached.req_ids,
                cached.num_computed_tokens,
                cached.num_output_tokens,
                cached.new_block_ids,
                strict=True,
            )
        ],
        "nst": [[rid, count] for rid, count in output.num_scheduled_tokens.items()],
        "spec": [[rid, drafts] for rid, drafts in output.scheduled_spec_decode_tokens.items()],
        "preempted": sorted(output.preempted_req_ids),
        "finished": sorted(output.finished_req_ids),
        "ncpb": list(output.num_common_prefix_blocks),
    }


def _news(result: EngineOutputs, scheduler: Scheduler) -> Json:
    stats = result.scheduler_stats.prefix_cache_stats
    spec = result.scheduler_stats.spec_decoding_stats
    news: Json = (
        {}
        if scheduler.config.async_scheduling is False
        else {"nop": [[request.request_id, request.num_output_placeholders] for request in scheduler.running]}
    )
    if spec is not None and spec.num_drafts:
        news["sds"] = [spec.num_drafts, spec.num_draft_tokens, spec.num_accepted_tokens]
    return news | {
        "out": [
            [news.request_id, news.new_token_ids, news.finish_reason and str(news.finish_reason), news.stop_reason]
            for news in result
        ],
        "pcs": [
            stats.requests,
            stats.queries,
            stats.hits,
            stats.preempted_requests,
            stats.preempted_queries,
            stats.preempted_hits,
        ],
        "nct": [[request.request_id, request.num_computed_tokens] for request in scheduler.running],
    }


def _queues(scheduler: Scheduler) -> Json:
    cache = scheduler.encoder_cache
    room = {} if cache is None else {"enc_room": [cache.num_free, cache.num_reclaimable]}
    return room | {
        "running": [request.request_id for request in scheduler.running],
        "waiting": [request.request_id for request in scheduler.waiting],
        "skipped": [request.request_id for request in scheduler.skipped_waiting],
        "free": scheduler.num_free_blocks,
    }
