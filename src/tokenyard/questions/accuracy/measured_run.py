"""A measured run as a folder: ``meta.json`` (engine arguments) and ``requests.jsonl`` (lengths and times), replayed.

The layout is that of LLMServingSim's benchmark of vLLM. TTFT counts from the moment in which the engine queued the
request; so does the end-to-end time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tokenyard.core.config import MAX_COUNT, CacheConfig, SchedulerConfig
from tokenyard.core.profiles import OLDEST, DecisionProfile
from tokenyard.core.request import Request
from tokenyard.core.sched.observer import StepObserver
from tokenyard.errors import ConfigError, WorkloadError
from tokenyard.memory.room import check_utilization
from tokenyard.models.gpus import GPU, GPUS
from tokenyard.models.spec import ModelSpec
from tokenyard.questions.accuracy.deployments import Recipe, measured_model, prepares_ahead
from tokenyard.questions.accuracy.points import Engine, json_object, json_rows, kv_tokens
from tokenyard.questions.measured import measured_times
from tokenyard.quick_dataclass import dataclass
from tokenyard.sim.replay import replay_engines
from tokenyard.sim.routers import Fleet
from tokenyard.sim.settings import ReplaySettings
from tokenyard.steptime.calibrated import CalibratedLatency
from tokenyard.steptime.formula import Parallelism
from tokenyard.steptime.front_end import FrontEndTime
from tokenyard.steptime.known_error import KnownError, SentLoad
from tokenyard.steptime.model import RanksLatency, StepShape, StepWork, TransferDirection
from tokenyard.workload.load import read_workload
from tokenyard.workload.record import Workload, WorkloadRequest
from tokenyard.workload.tokens import StreamTokens, seed_of

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """What was run, and what was measured. Times are in seconds, lengths in tokens; arrays have one per request."""

    name: str
    spec: ModelSpec
    gpu: GPU
    parallel: Parallelism
    version: str
    scheduler: SchedulerConfig
    cache: CacheConfig
    kv_cache_dtype: str | None
    precision: str
    arrived: Floats
    input_tokens: npt.NDArray[np.int64]
    output_tokens: npt.NDArray[np.int64]
    ttft: Floats
    tpot: Floats
    e2e: Floats
    arrivals: str = ""
    """How arrivals were made up, behind a comma; empty: they were recorded."""
    is_of_clients: bool = False
    """TTFT and E2E are the clients', with the front end; else the engine's, from the moment in which it queued them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunComparison:
    """A run replayed: every request's times of both, in seconds, in order of arrival."""

    run: MeasuredRun
    predicted: Mapping[str, Floats]
    measured: Mapping[str, Floats]
    known: KnownError


def read_measured_run(
    folder: Path,
    *,
    spec: ModelSpec | None = None,
    gpu: GPU | None = None,
    profile: DecisionProfile = OLDEST,
) -> MeasuredRun:
    """Read a folder; ``spec`` and ``gpu`` replace what it names, ``profile`` will decide.

    Raises WorkloadError or ConfigError.
    """
    meta = json_object(folder / "meta.json")
    given = _section(meta, "engine_kwargs")
    model = str(given.get("model") or meta.get("model") or "")
    precision = "fp8" if "fp8" in f"{model} {given.get('quantization') or ''}".lower() else ""
    spec = spec or measured_model(model, precision)
    gpu = gpu or _gpu(meta, folder)
    parallel = Parallelism(
        tensor=_count("tensor_parallel_size", 1, given),
        data=_count("data_parallel_size", 1, given),
        pipeline=_count("pipeline_parallel_size", 1, given),
        expert=bool(given.get("enable_expert_parallel")),
    )
    kv_cache_dtype = None if given.get("kv_cache_dtype") in (None, "auto") else str(given["kv_cache_dtype"])
    scheduler = _scheduler(meta, given, spec, profile)
    rows = _requests(folder / "requests.jsonl")
    queued, first, last = (
        np.array([row[key] for row in rows]) for key in ("queued_ts", "first_token_ts", "last_token_ts")
    )
    outputs = np.array([row["output_toks"] for row in rows], np.int64)
    return MeasuredRun(
        name=folder.name,
        spec=spec,
        gpu=gpu,
        parallel=parallel,
        version=str(meta.get("vllm_version") or ""),
        scheduler=scheduler,
        cache=_cache(meta, spec, gpu, parallel, scheduler, kv_cache_dtype),
        kv_cache_dtype=kv_cache_dtype,
        precision=precision or spec.weight_format.name,
        arrived=queued - queued.min(),
        input_tokens=np.array([row["input_toks"] for row in rows], np.int64),
        output_tokens=outputs,
        ttft=first - queued,
        tpot=(last - first) / np.maximum(outputs - 1, 1),
        e2e=last - queued,
    )


class ReplayedTimes(NamedTuple):
    """Times of every request of a replay, in order of arrival; seconds."""

    ttft: Floats
    tpot: Floats
    e2e: Floats


def calibrated(run: MeasuredRun) -> CalibratedLatency:
    """Step times of what was run."""
    return CalibratedLatency(
        run.spec,
        run.gpu,
        parallel=run.parallel,
        kv_cache_dtype=run.kv_cache_dtype,
        version=run.version or None,
        prepared_ahead=run.scheduler.async_scheduling,
    )


def replay_run(run: MeasuredRun, latency: RanksLatency, front_end: FrontEndTime | None = None) -> ReplayedTimes:
    """Replay a run with step times of ``latency``, behind a front end if there is one."""
    order = np.argsort(run.arrived, kind="stable").tolist()
    requests = [
        WorkloadRequest(
            request_id=str(number),
            prompt=StreamTokens.unique(seed_of("measured run", i), int(run.input_tokens[i])),
            max_tokens=int(run.output_tokens[i]),
            arrival_time=float(run.arrived[i]),
            output_seed=seed_of("output", i),
        )
        for number, i in enumerate(order)
    ]
    fleet = Fleet(run.parallel.data, run.spec.num_experts > 0, run.scheduler.profile.vllm_version)
    ended, workload = Ended(), Workload(run.name, requests)
    replay_engines(
        workload if front_end is None else workload.with_front_end(front_end.seconds),
        ReplaySettings(run.scheduler, run.cache, latency, fleet=fleet),
        observers=[ended] * fleet.num_engines,
        policy=run.scheduler.policy,
    )
    arrived, first, last = ended.moments
    return ReplayedTimes(first - arrived, (last - first) / np.maximum(run.output_tokens[order] - 1, 1), last - arrived)


def compare_run(run: MeasuredRun) -> RunComparison:
    """Replay a run with the calibrated step times."""
    latency = calibrated(run)
    predicted = replay_run(run, latency, latency.front_end if run.is_of_clients else None)
    order = np.argsort(run.arrived, kind="stable")
    measured = {"ttft": run.ttft, "tpot": run.tpot, "e2e": run.e2e}
    return RunComparison(
        run=run,
        predicted=predicted._asdict(),
        measured={name: values[order] for name, values in measured.items()},
        known=latency.known_error(
            SentLoad(input_tokens=float(run.input_tokens.mean()), output_tokens=float(run.output_tokens.mean()))
        ),
    )


def _requests(path: Path) -> list[Mapping[str, Any]]:
    rows: list[Mapping[str, Any]] = []
    needed = ("input_toks", "output_toks", "queued_ts", "first_token_ts", "last_token_ts")
    for number, row in json_rows(path):
        try:
            fields = row if isinstance(row, dict) else {}
            values = [float(fields[key]) for key in needed]
        except (ValueError, KeyError, TypeError):
            raise WorkloadError(str(path), number, f"must be an object with numbers {', '.join(needed)}") from None
        if not all(np.isfinite(values)) or min(values[:2]) < 1:
            raise WorkloadError(str(path), number, "holds a length below 1 or a time that is not a number")
        rows.append(fields)
    if not rows:
        raise WorkloadError(str(path), 0, "holds no request")
    return rows


def _gpu(meta: Mapping[str, Any], folder: Path) -> GPU:
    """The GPU by the device's name; else by that of the folder."""
    hardware = _section(meta, "hardware")
    for text in (str(hardware.get("device_name") or ""), folder.resolve().name):
        plain = "".join(c for c in text.lower() if c.isalnum())
        for name in sorted(GPUS, key=len, reverse=True):
            if name.replace("-", "") in plain:
                return GPUS[name]
    raise ConfigError("gpu", hardware.get("device_name"), f"give §gpu, one of: {', '.join(GPUS)}")


def _section(meta: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Part of what the run says of itself; empty where it says nothing."""
    found = meta.get(name) or {}
    if not isinstance(found, dict):
        raise ConfigError(name, found, "meta.json must give an object")
    return found


def _count(name: str, default: int, *sections: Mapping[str, Any]) -> int:
    """A whole number above 0, of the first section that gives it."""
    value = next((section[name] for section in sections if section.get(name)), default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < MAX_COUNT:
        raise ConfigError(name, value, "meta.json must give a whole number above 0")
    return value


def _resolved(meta: Mapping[str, Any]) -> Mapping[str, Any]:
    return _section(_section(meta, "resolved_config"), "scheduler_config")


def _decides_ahead(meta: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Whether it ran with async scheduling: vLLM's default since 0.14."""
    said = given.get("async_scheduling", _resolved(meta).get("async_scheduling"))
    if said is not None:
        return bool(said)
    numbers = str(meta.get("vllm_version") or "").split(".")[:2]
    return not all(part.isdigit() for part in numbers) or tuple(map(int, numbers)) >= (0, 14)


def _scheduler(
    meta: Mapping[str, Any], given: Mapping[str, Any], spec: ModelSpec, profile: DecisionProfile
) -> SchedulerConfig:
    resolved = _resolved(meta)
    return SchedulerConfig(
        profile=profile,
        max_num_seqs=_count("max_num_seqs", 256, given, resolved),
        max_num_batched_tokens=_count("max_num_batched_tokens", 8192, given, resolved),
        max_model_len=_count("max_model_len", spec.max_model_len, given, resolved),
        long_prefill_token_threshold=_count("long_prefill_token_threshold", 0, given, resolved),
        async_scheduling=_decides_ahead(meta, given),
    )


def _cache(
    meta: Mapping[str, Any],
    spec: ModelSpec,
    gpu: GPU,
    parallel: Parallelism,
    scheduler: SchedulerConfig,
    kv_cache_dtype: str | None,
) -> CacheConfig:
    """The dtype as the engine logged it; estimated where it did not."""
    known = _section(meta, "kv_cache")
    block_size = _count("block_size", 16, known)
    blocks: float = _count("num_gpu_blocks", 0, known)
    if not blocks:
        share = known.get("gpu_memory_utilization") or 0.9
        check_utilization(share)
        tokens = kv_tokens(
            spec,
            gpu,
            parallel,
            gpu_memory_utilization=share,
            kv_cache_dtype=kv_cache_dtype,
            max_num_batched_tokens=scheduler.max_num_batched_tokens,
            max_num_seqs=scheduler.max_num_seqs,
        )
        blocks = tokens // block_size
    return CacheConfig(num_gpu_blocks=int(blocks), block_size=block_size)


# ---------------------------------------------------------------------------------------------------------------------
# A closed loop of users: replayed as it is, or once for all latency models.

# ---------------------------------------------------------------------------------------------------------------------
# A closed loop: as many requests in flight as there are users, the next one sent when one ends.
#
# With nothing between clients and scheduler, what happens in which step does not depend on how long the steps take,
# because nothing arrives by the clock. A fit of step times goes by that: the scheduler runs once per schedule, and any
# latency model is evaluated over the recorded steps afterwards:
#
#     end[s]    sum of the seconds of steps 0 .. s
#     TTFT      end[first] - end[arrived]; arrived is the step whose end freed the place, -1 at the start
#     TPOT      end[last] - end[first], over tokens - 1

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLoop:
    """What arrives, and the limits of the engine; equal ones have equal schedules."""

    users: int
    """Requests in flight."""
    input_tokens: int
    output_tokens: int
    shortest: float = 1.0
    """Lengths are drawn evenly from this share of the two above up to them (vLLM bench: ``--random-range-ratio``)."""
    rounds: int = 10
    """Requests per user."""
    distinct_prompts: int = 0
    """Number of prompts that are sent in turn, again and again, to an engine that caches prefixes; every user sends one
    before the measurement begins. 0: every prompt is new, and nothing is sent before.
    """
    max_num_batched_tokens: int = 8192
    max_num_seqs: int = 1024
    num_gpu_blocks: int = 1 << 20
    block_size: int = 16
    async_scheduling: bool = False
    """Steps are decided one ahead; a schedule, which knows no times, is of an engine that does not."""
    seed: int = 0
    profile: DecisionProfile = OLDEST
    """The scheduler whose decisions are replayed."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Schedule:
    """What was computed in which step, and which steps a request's tokens came from."""

    work: Floats
    """Columns of :class:`StepWork` per rank, shape ``[rows, ranks, 8]``; a row is a step, or the mean of several."""
    repeats: Floats
    """Steps that a row stands for, shape ``[rows]``."""
    arrived: Int64s
    """Per request: the row at whose end it arrived; -1: at the start. Shape ``[requests]``."""
    first: Int64s
    """Per request: the row that ends with its first token."""
    last: Int64s
    """Per request: the row that ends with its last token."""
    tokens: Int64s
    """Per request: output tokens."""

    def times(self, seconds: Floats) -> tuple[Floats, Floats]:
        """TTFT and TPOT of every request, in seconds, if the steps of each row last so long."""
        end = np.concatenate((np.cumsum(seconds * self.repeats), [0.0]))  # row -1: the start
        return end[self.first] - end[self.arrived], (end[self.last] - end[self.first]) / np.maximum(self.tokens - 1, 1)


def run_closed_loop(loop: ClosedLoop, ranks: int = 1) -> Schedule:
    """Replay it until every request has ended; ``loop.users`` are those of all ranks, the limits those of one.

    Every step takes a second, so that moments count steps.
    """
    steps, outputs = _CountedSteps(), draw_lengths(loop)[1]
    return steps.schedule(_moments(loop, ranks, steps), outputs)


def replayed_times(
    loop: ClosedLoop, ranks: int, latency: RanksLatency, front_end: FrontEndTime
) -> tuple[Floats, Floats]:
    """TTFT and TPOT of every request in seconds, as ``tokenyard run`` replays them: requests are on their way to the
    scheduler for as long as the front end says, and steps last as ``latency`` does.
    """
    arrived, first, last = _moments(loop, ranks, latency, front_end)
    return first - arrived, (last - first) / np.maximum(draw_lengths(loop)[1] - 1, 1)


def _moments(loop: ClosedLoop, ranks: int, latency: RanksLatency, front_end: FrontEndTime | None = None) -> Floats:
    """When each measured request arrived, got its first token and ended: shape ``[3, n]``."""
    workload = Workload("closed loop", closed_loop_requests(loop), max_concurrency=loop.users)
    if front_end is not None:
        workload = workload.with_front_end(front_end.seconds)
    config = SchedulerConfig(
        profile=loop.profile,
        max_num_seqs=loop.max_num_seqs,
        max_num_batched_tokens=loop.max_num_batched_tokens,
        max_model_len=loop.input_tokens + loop.output_tokens + 1,
        async_scheduling=loop.async_scheduling and front_end is not None,
    )
    # More blocks than all requests in flight can hold change no decision: a pool of a million only takes memory.
    most_blocks = loop.users * (config.max_model_len // loop.block_size + 2) + 1
    blocks = min(loop.num_gpu_blocks, most_blocks)
    caches = loop.distinct_prompts > 0
    blocks = loop.num_gpu_blocks if caches else blocks
    cache = CacheConfig(num_gpu_blocks=blocks, block_size=loop.block_size, enable_prefix_caching=caches)
    ended = Ended()
    settings = ReplaySettings(config, cache, latency, fleet=Fleet(ranks, ranks > 1, loop.profile.vllm_version))
    replay_engines(workload, settings, observers=[ended] * ranks, policy="fcfs")
    return ended.moments[:, _sent_before(loop) :]


def _sent_before(loop: ClosedLoop) -> int:
    """Requests that have to end before the measurement begins."""
    return loop.users if loop.distinct_prompts else 0


def closed_loop_requests(loop: ClosedLoop) -> list[WorkloadRequest]:
    """The requests that are measured, behind those that have to end first."""
    prompts, outputs = draw_lengths(loop)
    before = _sent_before(loop)
    distinct = loop.distinct_prompts or len(prompts)
    names = tuple(str(i) for i in range(before))
    return [
        WorkloadRequest(
            request_id=str(i),
            prompt=StreamTokens.unique(each, int(prompts[each % len(prompts)])),
            max_tokens=int(outputs[max(0, i - before)]),
            after=names if i >= before else (),
            output_seed=i,
        )
        for i, each in enumerate((np.arange(before + len(prompts)) % distinct).tolist())
    ]


_DUMMY = (0.0,) * 8
"""What a rank computes for requests that has none in a step."""


class _CountedSteps:
    """A latency model by which every step takes a second; it notes what they compute, equal ones in a row at once."""

    host_seconds = 0.0

    def __init__(self) -> None:
        self._work: list[list[Sequence[float]]] = []
        self._repeats: list[int] = []

    def step_seconds(self, shape: StepShape) -> float:
        return self.ranks_seconds((shape,))

    def ranks_seconds(self, shapes: Sequence[StepShape | None]) -> float:
        """A step that several take together."""
        self._work.append([_DUMMY if shape is None else StepWork.of(shape) for shape in shapes])
        self._repeats.append(1)
        return 1.0

    def decode_seconds(self, num: int, context: int, steps: int) -> Sequence[float]:
        """Steps of a leap: one row, their mean. Nothing arrives by the clock, so none of them is asked in vain."""
        self._work.append([(num, num, num, context + num * (steps + 1) / 2, 0, 0, 0, 0)])
        self._repeats.append(steps)
        return [1.0] * steps

    def transfer_seconds(self, num_bytes: int, direction: TransferDirection) -> float:
        return 0.0

    def schedule(self, moments: Floats, outputs: Int64s) -> Schedule:
        """The schedule of requests that arrived, got their first and their last token at ``moments``, ``[3, n]``."""
        ends = np.cumsum(self._repeats)
        arrived, first, last = np.searchsorted(ends, moments)
        assert (ends[last] == moments[2]).all()
        assert (ends[first] == moments[1]).all()
        return Schedule(
            work=np.array(self._work, np.float64),
            repeats=np.array(self._repeats, np.float64),
            arrived=np.where(moments[0] > 0, arrived, -1),
            first=first,
            last=last,
            tokens=outputs,
        )


class Ended(StepObserver):
    """Notes requests that have ended."""

    reads_tokens = False

    def __init__(self) -> None:
        self._requests: dict[int, Request] = {}

    def request_finished(self, ts: float, request: Request) -> None:
        self._requests[int(request.request_id)] = request

    @property
    def moments(self) -> Floats:
        """When each request arrived, got its first token and ended, by the numbers in their names: shape ``[3, n]``."""
        found = [
            (request.arrival_time, request.times.first_token, request.times.finished)
            for _, request in sorted(self._requests.items())
        ]
        return np.array(found, np.float64).T


def draw_lengths(loop: ClosedLoop) -> tuple[Int64s, Int64s]:
    """Prompt and output tokens of every request."""
    rng = np.random.default_rng(loop.seed)
    count = loop.users * loop.rounds

    def draw(longest: int) -> Int64s:
        return rng.integers(max(1, int(longest * loop.shortest)), longest + 1, count)

    return draw(loop.input_tokens), draw(loop.output_tokens)


# ---------------------------------------------------------------------------------------------------------------------
# A result of ``vllm bench serve`` at a request rate, as a measured run: its requests, when they came, what they took.
#
# Lengths and times of single requests are needed (``--save-detailed``). Requests arrive when the result says that they
# were sent or, where it does not (before vLLM 0.11), at its rate, drawn. Its times are the client's, so that predicted
# ones count what lies between client and scheduler, as those of closed loops do.

_MAX_SEQS = 1024
"""vLLM's default for a server on such GPUs, as for closed loops."""
_BLOCK_SIZE = 16
_DETAILED = "make it with vllm bench serve --save-result --save-detailed"


def is_open_loop(path: Path) -> bool:
    """Whether a result was sent at a rate, with no bound on how many are under way. Raises WorkloadError."""
    found = json_object(path)
    return found.get("max_concurrency") is None and request_rate(found) < math.inf


def request_rate(found: Mapping[str, Any]) -> float:
    """Requests a second, as a result says it; infinity: all at once."""
    try:
        return float(found.get("request_rate") or "inf")
    except (TypeError, ValueError):
        return math.inf


def read_open_loop(path: Path, engine: Engine, *, seed: int = 0, profile: DecisionProfile = OLDEST) -> MeasuredRun:
    """The run; ``profile`` will decide. Raises WorkloadError for a file that is none, ConfigError for what it lacks."""
    if engine.gpu is None:
        raise ConfigError("gpu", None, "give §gpu: a result of vllm bench serve does not name the GPU")
    found = json_object(path)
    workload = read_workload(path, format="vllm-bench", seed=seed)
    requests, times = _timed(path, workload)
    model = str(found.get("model_id") or "")
    spec = engine.spec or measured_model(model, "fp8" if "fp8" in model.lower() else "")
    recipe = Recipe(
        max_num_batched_tokens=engine.max_num_batched_tokens,
        kv_cache_dtype=engine.kv_cache_dtype,
        async_scheduling=prepares_ahead(engine.version),
    )
    held = kv_tokens(
        spec,
        engine.gpu,
        engine.parallel,
        gpu_memory_utilization=recipe.gpu_memory_utilization,
        kv_cache_dtype=recipe.kv_cache_dtype,
        max_num_batched_tokens=recipe.max_num_batched_tokens,
        max_num_seqs=_MAX_SEQS,
    )
    drawn = next((each for each in workload.remarks if each.code == "drawn_as_stated"), None)
    return MeasuredRun(
        name=path.name,
        spec=spec,
        gpu=engine.gpu,
        parallel=engine.parallel,
        version=engine.version,
        scheduler=SchedulerConfig(
            profile=profile,
            max_num_seqs=_MAX_SEQS,
            max_num_batched_tokens=recipe.max_num_batched_tokens,
            max_model_len=spec.max_model_len,
            async_scheduling=recipe.async_scheduling,
        ),
        cache=CacheConfig(num_gpu_blocks=int(held // _BLOCK_SIZE), block_size=_BLOCK_SIZE),
        kv_cache_dtype=engine.kv_cache_dtype,
        precision=spec.weight_format.name,
        arrived=np.array([each.arrival_time for each in requests]),
        input_tokens=np.array([each.num_prompt_tokens for each in requests], np.int64),
        output_tokens=np.array([each.max_tokens for each in requests], np.int64),
        ttft=times[:, 0],
        tpot=times[:, 1],
        e2e=times[:, 2],
        is_of_clients=True,
        arrivals="" if drawn is None else f", arrivals drawn at {request_rate(found):g} a second with seed {seed}",
    )


def _timed(path: Path, workload: Workload) -> tuple[list[WorkloadRequest], Floats]:
    """The requests whose whole answer was timed, in order of arrival, and TTFT, TPOT, E2E of each, in seconds.

    The TPOT of an answer of one token is 0, as in a measured run.
    """
    times = measured_times(workload)
    all_times = np.stack((times.ttft, np.nan_to_num(times.tpot), times.e2e), axis=1)
    known = np.flatnonzero(~np.isnan(all_times).any(axis=1)).tolist()
    if not known:
        raise WorkloadError(str(path), 1, f"has a request rate, and no times of single requests: {_DETAILED}")
    known.sort(key=lambda i: workload.requests[i].arrival_time)
    return [workload.requests[i] for i in known], all_times[known]
